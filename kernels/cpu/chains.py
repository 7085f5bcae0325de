"""The minorant of a chain of pixels: messages and recursive bisection (docs/model.md 6.4), CPU.

A message takes about twenty nanoseconds of vector instructions, and Dual_MM needs tens of millions
of them.  So everything here works on pointers, and apart from the volumes a chain needs only the
few dozen rows of costs that its bisection reads again, which stay in the first-level cache
(`_walk`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .jit import compiled
from .pointers import advance, pointer_to, prefetch, restrict_arguments
from .simd import minimum

__all__ = ["move_minorants", "scratch_arrays"]

# Rows of the scratch buffer carry +inf on both sides of the labels, so that the three-tap
# stencil needs no special case at the first and last label.
_MARGIN = 8

# Rows of the scratch buffer: two that a walk alternates between, two for a cut, then the stack.
_TURNS = 0
_SPLIT = 2
_NEGATED = 3
_BOTTOM = 4

# Bisection halves intervals: 64 levels cover every chain that an index can address.
_LEVELS = 64

# Labels per cache line, in the smaller of the two types.
_LINE = 16


class _Chain(NamedTuple):
    """A chain of pixels ``step`` apart; the pointers point to the values of its first node."""

    f: Any  # unary costs, K per pixel
    costs: Any  # costs of the family of chains being processed, K per pixel
    out: Any  # receives the costs of the other family; may be the same memory as `costs`
    weights: Any  # of the edge to the next node, one per pixel
    winners: Any  # receives the argmin of F, one per pixel ...
    vote: bool  # ... if this is set
    plain: bool  # the other family gets F itself instead of f - costs + F
    nodes: int
    step: int
    ahead: int  # pixels from this chain to the one processed next
    label_count: int
    p1: Any
    p2: Any


class _Scratch(NamedTuple):
    """Buffers of one thread."""

    rows: Any  # pointer to label 0 of padded rows, `pitch` apart
    minima: Any  # of the rows
    pending: Any  # stack of intervals: fresh end, far end, row of the fresh end
    pitch: int


# In the kernels from here to `_winner` all pointers are to K labels of a node, and ``source``
# to a row with margins, so that ``source[-1]`` is +inf; ``low`` is the minimum of the source.
# ``msg(a)(t) = min(a(t), P1 + min(a(t-1), a(t+1)), P2 + min_s a(s))``.  The order of the
# operations is that of docs/model.md 6.4, to the last bit: no contraction to FMA.


@compiled(nogil=True, error_model="numpy")
def _msg(source: Any, k: int, p1: Any, jump: Any) -> Any:
    """msg(source)(k), where ``jump`` is P2 + the minimum of the source."""
    near = p1 + minimum(source[k - 1], source[k + 1])
    return minimum(minimum(source[k], near), jump)


@compiled(nogil=True, error_model="numpy")
def _load(source: Any, target: Any, label_count: int) -> Any:
    """target = source; returns its minimum."""
    restrict_arguments()
    lowest = source[0]
    for k in range(label_count):
        target[k] = source[k]
        lowest = minimum(lowest, source[k])
    return lowest


@compiled(nogil=True, error_model="numpy")
def _pass(source: Any, low: Any, p1: Any, p2: Any, base: Any, target: Any, label_count: int) -> Any:
    """target = base + msg(source); returns its minimum."""
    restrict_arguments()
    jump = p2 + low
    lowest = source[-1]
    for k in range(label_count):
        value = base[k] + _msg(source, k, p1, jump)
        target[k] = value
        lowest = minimum(lowest, value)
    return lowest


@compiled(nogil=True, error_model="numpy")
def _pass_out(
    source: Any, low: Any, p1: Any, p2: Any, base: Any, f: Any, out: Any, label_count: int
) -> Any:
    """F = base + msg(source), out = f - out + F (docs/model.md 6.2); returns min F."""
    restrict_arguments()
    jump = p2 + low
    lowest = source[-1]
    for k in range(label_count):
        value = base[k] + _msg(source, k, p1, jump)
        out[k] = f[k] - out[k] + value
        lowest = minimum(lowest, value)
    return lowest


@compiled(nogil=True, error_model="numpy")
def _split(
    source: Any, low: Any, p1: Any, p2: Any, r: Any, other: Any, target: Any, label_count: int
) -> Any:
    """target = r*(m1 + other) - m1 with m1 = msg(source); returns its minimum.

    ``m1 + other`` is the min-marginal of the edge, ``r`` the share that the source's side gets.
    """
    restrict_arguments()
    jump = p2 + low
    lowest = source[-1]
    for k in range(label_count):
        m1 = _msg(source, k, p1, jump)
        value = r * (m1 + other[k]) - m1
        target[k] = value
        lowest = minimum(lowest, value)
    return lowest


@compiled(nogil=True, error_model="numpy")
def _reply(
    source: Any, low: Any, p1: Any, p2: Any, base: Any, target: Any, negated: Any, label_count: int
) -> Any:
    """m = msg(source), target = base + m, negated = -m; returns the minima of both."""
    restrict_arguments()
    jump = p2 + low
    lowest = source[-1]
    lowest_negated = lowest
    for k in range(label_count):
        m = _msg(source, k, p1, jump)
        value = base[k] + m
        target[k] = value
        negated[k] = -m
        lowest = minimum(lowest, value)
        lowest_negated = minimum(lowest_negated, -m)
    return lowest, lowest_negated


@compiled(nogil=True, error_model="numpy")
def _reply_out(
    source: Any,
    low: Any,
    p1: Any,
    p2: Any,
    base: Any,
    f: Any,
    out: Any,
    negated: Any,
    label_count: int,
) -> Any:
    """m = msg(source), F = base + m, out = f - out + F, negated = -m; minima of F and negated."""
    restrict_arguments()
    jump = p2 + low
    lowest = source[-1]
    lowest_negated = lowest
    for k in range(label_count):
        m = _msg(source, k, p1, jump)
        value = base[k] + m
        out[k] = f[k] - out[k] + value
        negated[k] = -m
        lowest = minimum(lowest, value)
        lowest_negated = minimum(lowest_negated, -m)
    return lowest, lowest_negated


@compiled(nogil=True, error_model="numpy")
def _winner(source: Any, low: Any, p1: Any, p2: Any, base: Any, label_count: int) -> int:
    """The first label that minimises base + msg(source)."""
    jump = p2 + low
    best = 0
    lowest = base[0] + _msg(source, 0, p1, jump)
    for k in range(1, label_count):
        value = base[k] + _msg(source, k, p1, jump)
        if value < lowest:
            best, lowest = k, value
    return best


@compiled(nogil=True, error_model="numpy")
def _walk(
    chain: _Chain, scratch: _Scratch, start: int, way: int, steps: int, size: int, top: int
) -> int:
    """Pass messages on from node ``start``, in row ``top``, over ``steps`` edges.

    The node where the walk ends will be the fresh end of an interval of ``size`` nodes whose far
    end is ``start`` (docs/model.md 6.4).  Of the rows on the way, the recursion reads those where a
    far part begins: the far part has size // 2 nodes, its own far part size // 4, and so on to 1,
    the start itself.  They and the last row are pushed on the stack; all others are only needed
    for the next step.  Returns the top of the stack.
    """
    label_count, pitch = chain.label_count, scratch.pitch
    halvings = 0
    while size >> (halvings + 1) > 0:
        halvings += 1
    source = top
    node = start
    for count in range(2, steps + 2):
        weight = chain.weights[min(node, node + way) * chain.step]
        node += way
        if count == size >> (halvings - 1):
            halvings -= 1
            top += 1
            target = top
        else:
            target = _TURNS + 1 if source == _TURNS else _TURNS
        scratch.minima[target] = _pass(
            advance(scratch.rows, source * pitch),
            scratch.minima[source],
            chain.p1 * weight,
            chain.p2 * weight,
            advance(chain.costs, node * chain.step * label_count),
            advance(scratch.rows, target * pitch),
            label_count,
        )
        source = target
    return top


@compiled(nogil=True, error_model="numpy")
def _prefetch_ahead(chain: _Chain, pixel: int) -> None:
    """Fetch what the next chain will read at this node.

    Memory is the bottleneck of the first walks along a chain and idle in all the later ones.
    """
    first = (pixel + chain.ahead) * chain.label_count
    for k in range(0, chain.label_count, _LINE):
        prefetch(chain.f, first + k)
        prefetch(chain.costs, first + k)


@compiled(nogil=True, error_model="numpy")
def _lone_node(chain: _Chain, scratch: _Scratch) -> float:
    """A chain of one node has no edge: F is its cost."""
    row = scratch.rows
    low = _load(chain.costs, row, chain.label_count)
    if chain.vote:
        winner = 0
        # Not !=, which is always true of NaN; and never past the row, whatever a minimum of NaN is.
        while row[winner] > low and winner < chain.label_count - 1:
            winner += 1
        chain.winners[0] = winner
    for k in range(chain.label_count):
        chain.out[k] = row[k] if chain.plain else chain.f[k] - chain.out[k] + row[k]
    return float(low)


@compiled(nogil=True, error_model="numpy")
def _bisect(chain: _Chain, scratch: _Scratch) -> float:
    """Cut all edges of a chain of at least two nodes; returns the sum of the minima of F.

    An interval has a fresh end, whose row is at the top of its part of the stack, and below it
    the rows that `_walk` left on the way from its far end.
    """
    nodes, step, label_count = chain.nodes, chain.step, chain.label_count
    rows, minima, pending, pitch = scratch
    split, negated = advance(rows, _SPLIT * pitch), advance(rows, _NEGATED * pitch)

    # The first interval is the whole chain, node 0 its fresh end.
    last = nodes - 1
    top = _BOTTOM
    minima[top] = _load(
        advance(chain.costs, last * step * label_count), advance(rows, top * pitch), label_count
    )
    top = _walk(chain, scratch, last, -1, nodes // 2 - 1, nodes, top) + 1
    minima[top] = _load(chain.costs, advance(rows, top * pitch), label_count)
    pending[0], pending[1], pending[2] = 0, last, top
    waiting = 3

    bound = 0.0
    while waiting > 0:
        waiting -= 3
        fresh, far, row = pending[waiting], pending[waiting + 1], pending[waiting + 2]
        way = 1 if far > fresh else -1
        size = (far - fresh) * way + 1
        near_size = (size + 1) // 2
        a = fresh + way * (near_size - 1)
        b = a + way
        top = _walk(chain, scratch, fresh, way, near_size - 1, near_size, row)

        # Cut the edge (a, b).  The walk from the far end left b's row in `row - 1`.
        pixel_a, pixel_b = a * step, b * step
        weight = chain.weights[min(pixel_a, pixel_b)]
        p1, p2 = chain.p1 * weight, chain.p2 * weight
        r = type(p1)(near_size) / type(p1)(size)
        row_a, row_b = advance(rows, top * pitch), advance(rows, (row - 1) * pitch)
        split_low = _split(row_a, minima[top], p1, p2, r, row_b, split, label_count)

        # A part of one node is finished: its row holds all other messages, so m is added to it.
        # A larger part starts again from the node's own cost, with its fresh end at the cut.
        if near_size > 1:
            cost_a = advance(chain.costs, pixel_a * label_count)
            minima[top], negated_low = _reply(
                split, split_low, p1, p2, cost_a, row_a, negated, label_count
            )
        else:
            out_a = advance(chain.out, pixel_a * label_count)
            if chain.vote:
                chain.winners[pixel_a] = _winner(split, split_low, p1, p2, row_a, label_count)
            if chain.plain:
                low, negated_low = _reply(
                    split, split_low, p1, p2, row_a, out_a, negated, label_count
                )
            else:
                f_a = advance(chain.f, pixel_a * label_count)
                low, negated_low = _reply_out(
                    split, split_low, p1, p2, row_a, f_a, out_a, negated, label_count
                )
            bound += low
            _prefetch_ahead(chain, pixel_a)

        if b != far:
            cost_b = advance(chain.costs, pixel_b * label_count)
            minima[row - 1] = _pass(negated, negated_low, p1, p2, cost_b, row_b, label_count)
            pending[waiting], pending[waiting + 1], pending[waiting + 2] = b, far, row - 1
            waiting += 3
        else:
            out_b = advance(chain.out, pixel_b * label_count)
            if chain.vote:
                chain.winners[pixel_b] = _winner(negated, negated_low, p1, p2, row_b, label_count)
            if chain.plain:
                bound += _pass(negated, negated_low, p1, p2, row_b, out_b, label_count)
            else:
                f_b = advance(chain.f, pixel_b * label_count)
                bound += _pass_out(negated, negated_low, p1, p2, row_b, f_b, out_b, label_count)
            _prefetch_ahead(chain, pixel_b)

        # Pushed last, hence processed next: the near part is still in cache.
        if near_size > 1:
            pending[waiting], pending[waiting + 1], pending[waiting + 2] = a, fresh, top
            waiting += 3
    return bound


def scratch_arrays(nodes: int, label_count: int, dtype: Any) -> tuple[np.ndarray, ...]:
    """The rows, their minima and the stack of intervals for chains of ``nodes`` nodes.

    With L levels of bisection the first walk leaves at most L rows on the stack, and the walk
    in an interval i levels down at most L - i more.
    """
    levels = nodes.bit_length()
    count = _BOTTOM + levels + levels * (levels + 1) // 2
    rows = np.full((count, label_count + 2 * _MARGIN), np.inf, dtype)
    return rows, np.empty(count, dtype), np.empty(3 * _LEVELS, np.int64)


@compiled(nogil=True, error_model="numpy")
def move_minorants(
    f: Any,
    costs: Any,
    out: Any,
    weights: Any,
    winners: Any,
    begin: int,
    end: int,
    nodes: int,
    chain_step: int,
    node_step: int,
    p1: Any,
    p2: Any,
    plain: bool,
    rows: Any,
    minima: Any,
    pending: Any,
    optima: Any,
) -> None:
    """Compute the minorants F of some parallel chains and move them to the other family.

    Chain j begins at pixel ``j*chain_step``; its ``nodes`` nodes are ``node_step`` pixels apart.
    The chains in [begin, end) are processed.

    f, costs: (H*W, K), unary costs and costs of this family; out: (H*W, K) receives
    ``f - costs + F`` (docs/model.md 6.2) and is the same array as ``costs``, or receives F
    (``plain``) and may be any array; weights: (H*W,) of the edges to the next node; winners: (H*W,)
    receives the argmin of F, or (0,) if it is not wanted; rows, minima, pending: from
    `scratch_arrays`; optima: one per chain, receives the sum of the minima of F, which is the
    optimum of the chain.
    """
    label_count = f.shape[1]
    scratch = _Scratch(
        advance(pointer_to(rows), _MARGIN),
        pointer_to(minima),
        pointer_to(pending),
        rows.shape[1],
    )
    for j in range(begin, end):
        first = j * chain_step
        chain = _Chain(
            advance(pointer_to(f), first * label_count),
            advance(pointer_to(costs), first * label_count),
            advance(pointer_to(out), first * label_count),
            advance(pointer_to(weights), first),
            advance(pointer_to(winners), first),
            winners.size > 0,
            plain,
            nodes,
            node_step,
            chain_step,
            label_count,
            p1,
            p2,
        )
        optima[j] = _lone_node(chain, scratch) if nodes == 1 else _bisect(chain, scratch)
