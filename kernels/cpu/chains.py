"""The minorants of chains of pixels: messages and recursive bisection (docs/model.md 6.4), CPU.

All chains of a family have the same length, hence the same bisection.  So a block of `LANES`
neighbouring chains is processed at once, in lock-step, each chain in a lane of the vector registers:
minima over the labels are lane by lane, the label next to one is the vector next to it, and the cost
of a message is proportional to the number of labels, whatever that is.

The costs of the chains are brought into this order once, when the first walks reach them, and what
is handed to the other family is brought back.  In between only the few dozen rows of costs that the
bisection reads again are kept (`_walk`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import buffers
from .jit import compiled
from .lanes import LANES, fused_sum, load, lower, splat, store, transpose, where_less
from .pointers import advance, pointer_to, prefetch, restrict_arguments

__all__ = ["move_minorants", "scratch_arrays"]

# Rows of the scratch buffer: two that a walk alternates between, two for a cut, two for what is
# handed over, then the stack.
_TURNS = 0
_SPLIT = 2
_NEGATED = 3
_DONE = 4
_UNARY = 5
_BOTTOM = 6

# Bisection halves intervals: 64 levels cover every chain that an index can address.
_LEVELS = 64

# Floats per cache line, in the smaller of the two types.
_LINE = 16

# Nodes that are fetched from memory ahead of a walk, and nodes of an interval whose unary costs
# are fetched before it is cut.
_AHEAD = 4
_NEAR = 16


class _Block(NamedTuple):
    """Up to `LANES` chains side by side; the pointers point to the first node of the first one."""

    f: Any  # unary costs, K per pixel
    costs: Any  # costs of the family of chains being processed, K per pixel
    out: Any  # receives the costs of the other family; may be the same memory as `costs`
    weights: Any  # of the edge to the next node, one per pixel
    winners: Any  # receives the argmin of F, one per pixel ...
    vote: bool  # ... if this is set
    plain: bool  # the other family gets F itself instead of f - costs + F
    nodes: int
    node_step: int  # pixels from node to node
    chain_step: int  # pixels from chain to chain
    last: int  # the last chain; lanes beyond it repeat it
    label_count: int
    penalties: _Edge  # of edges of weight 1


class _Edge(NamedTuple):
    """Penalties of an edge of every chain."""

    p1: Any
    p2: Any
    one: Any  # 1, for `fused_sum`


class _Scratch(NamedTuple):
    """Buffers of one thread; all have the lanes as their last axis."""

    costs: Any  # of all nodes, K per node
    weights: Any  # of all edges
    rows: Any  # of K labels, and one label of +inf for the stencil
    minima: Any  # of the rows
    optima: Any  # sums of the minima of F, float64
    ones: Any
    pending: Any  # stack of intervals: fresh end, far end, row of the fresh end
    order: Any  # in which the nodes were finished, in the block before this one


# In the kernels from here to `_winners` all pointers are to K labels, and ``source`` to a row with a
# margin, so that its label K is +inf; ``low`` is the minimum of the source.
# ``msg(a)(t) = min(a(t), P1 + min(a(t-1), a(t+1)), P2 + min_s a(s))``.  The order of the
# operations is that of docs/model.md 6.4, to the last bit: no contraction to FMA.


@compiled(nogil=True, error_model="numpy")
def _msg(before: Any, here: Any, after: Any, edge: _Edge, jump: Any) -> Any:
    """msg of a label and its neighbours, where ``jump`` is P2 + the minimum of all."""
    return lower(lower(here, fused_sum(lower(before, after), edge.p1, edge.one)), jump)


@compiled(nogil=True, error_model="numpy")
def _load(source: Any, target: Any, label_count: int) -> Any:
    """target = source; returns its minimum."""
    restrict_arguments()
    lowest = load(target, label_count)
    for k in range(label_count):
        value = load(source, k)
        store(target, k, value)
        lowest = lower(lowest, value)
    return lowest


@compiled(nogil=True, error_model="numpy")
def _pass(source: Any, low: Any, edge: _Edge, base: Any, target: Any, label_count: int) -> Any:
    """target = base + msg(source); returns its minimum."""
    restrict_arguments()
    jump = edge.p2 + low
    here, after = load(source, label_count), load(source, 0)
    lowest = here
    for k in range(label_count):
        before, here, after = here, after, load(source, k + 1)
        value = fused_sum(_msg(before, here, after, edge, jump), load(base, k), edge.one)
        store(target, k, value)
        lowest = lower(lowest, value)
    return lowest


@compiled(nogil=True, error_model="numpy")
def _split(
    source: Any, low: Any, edge: _Edge, r: Any, other: Any, target: Any, label_count: int
) -> Any:
    """target = r*(m1 + other) - m1 with m1 = msg(source); returns its minimum.

    ``m1 + other`` is the min-marginal of the edge, ``r`` the share that the source's side gets.
    """
    restrict_arguments()
    jump = edge.p2 + low
    here, after = load(source, label_count), load(source, 0)
    lowest = here
    for k in range(label_count):
        before, here, after = here, after, load(source, k + 1)
        m1 = _msg(before, here, after, edge, jump)
        value = r * fused_sum(m1, load(other, k), edge.one) - m1
        store(target, k, value)
        lowest = lower(lowest, value)
    return lowest


@compiled(nogil=True, error_model="numpy")
def _reply(
    source: Any, low: Any, edge: _Edge, base: Any, target: Any, negated: Any, label_count: int
) -> Any:
    """m = msg(source), target = base + m, negated = -m; returns the minima of both."""
    restrict_arguments()
    jump = edge.p2 + low
    here, after = load(source, label_count), load(source, 0)
    lowest = lowest_negated = here
    for k in range(label_count):
        before, here, after = here, after, load(source, k + 1)
        m = _msg(before, here, after, edge, jump)
        value = fused_sum(m, load(base, k), edge.one)
        store(target, k, value)
        store(negated, k, -m)
        lowest = lower(lowest, value)
        lowest_negated = lower(lowest_negated, -m)
    return lowest, lowest_negated


@compiled(nogil=True, error_model="numpy")
def _exchange(f: Any, costs: Any, minorant: Any, target: Any, label_count: int) -> None:
    """target = f - costs + F (docs/model.md 6.2)."""
    restrict_arguments()
    for k in range(label_count):
        store(target, k, load(f, k) - load(costs, k) + load(minorant, k))


@compiled(nogil=True, error_model="numpy")
def _winners(source: Any, target: Any, label_count: int) -> None:
    """target = the first label of lowest cost, as floats; label 0 if no cost is a number."""
    lowest = load(source, label_count)
    best = splat(type(source[0])(0))
    for k in range(label_count):
        value = load(source, k)
        best = where_less(value, lowest, splat(type(source[0])(k)), best)
        lowest = where_less(value, lowest, value, lowest)
    store(target, 0, best)


@compiled(nogil=True, error_model="numpy")
def _bring(volume: Any, pixel: int, block: _Block, target: Any) -> None:
    """target = the costs of the chains at a node, lanes last; volume: K costs per pixel."""
    label_count = block.label_count
    source, step = advance(volume, pixel * label_count), block.chain_step * label_count
    if label_count < LANES:
        for lane in range(LANES):
            for k in range(label_count):
                target[k * LANES + lane] = source[min(lane, block.last) * step + k]
        return
    for k in range(0, label_count, LANES):
        first = min(k, label_count - LANES)  # the last squares overlap
        transpose(
            advance(source, first), step, block.last, advance(target, first * LANES), LANES, LANES
        )


@compiled(nogil=True, error_model="numpy")
def _bring_back(source: Any, volume: Any, pixel: int, block: _Block) -> None:
    """The inverse of `_bring`.  Lanes that repeat the last chain write what it writes."""
    label_count = block.label_count
    target, step = advance(volume, pixel * label_count), block.chain_step * label_count
    if label_count < LANES:
        for lane in range(block.last + 1):
            for k in range(label_count):
                target[lane * step + k] = source[k * LANES + lane]
        return
    for k in range(0, label_count, LANES):
        first = min(k, label_count - LANES)
        transpose(
            advance(source, first * LANES), LANES, LANES, advance(target, first), step, block.last
        )


@compiled(nogil=True, error_model="numpy")
def _row(block: _Block, scratch: _Scratch, row: int) -> Any:
    return advance(scratch.rows, row * (block.label_count + 1) * LANES)


@compiled(nogil=True, error_model="numpy")
def _costs(block: _Block, scratch: _Scratch, node: int) -> Any:
    return advance(scratch.costs, node * block.label_count * LANES)


@compiled(nogil=True, error_model="numpy")
def _prefetch_costs(volume: Any, block: _Block, pixel: int) -> None:
    """Fetch the costs of a node from memory."""
    for lane in range(LANES):
        first = (pixel + min(lane, block.last) * block.chain_step) * block.label_count
        for k in range(0, block.label_count, _LINE):
            prefetch(volume, first + k)


@compiled(nogil=True, error_model="numpy")
def _edge(block: _Block, scratch: _Scratch, node: int, other: int) -> _Edge:
    """The edge between two neighbouring nodes."""
    weight = load(scratch.weights, min(node, other))
    p1, p2, one = block.penalties
    return _Edge(p1 * weight, p2 * weight, one)


@compiled(nogil=True, error_model="numpy")
def _bring_costs(block: _Block, scratch: _Scratch, node: int, way: int) -> None:
    _prefetch_costs(block.costs, block, (node + way * _AHEAD) * block.node_step)
    _bring(block.costs, node * block.node_step, block, _costs(block, scratch, node))


@compiled(nogil=True, error_model="numpy")
def _walk(
    block: _Block,
    scratch: _Scratch,
    start: int,
    way: int,
    steps: int,
    size: int,
    top: int,
    first: bool,
) -> int:
    """Pass messages on from node ``start``, in row ``top``, over ``steps`` edges.

    The node where the walk ends will be the fresh end of an interval of ``size`` nodes whose far
    end is ``start`` (docs/model.md 6.4).  Of the rows on the way, the recursion reads those where a
    far part begins: the far part has size // 2 nodes, its own far part size // 4, and so on to 1,
    the start itself.  They and the last row are pushed on the stack; all others are only needed
    for the next step.  Returns the top of the stack.

    On the ``first`` walk over these nodes their costs are brought from the volume.
    """
    halvings = 0
    while size >> (halvings + 1) > 0:
        halvings += 1
    source = top
    node = start
    for count in range(2, steps + 2):
        edge = _edge(block, scratch, node, node + way)
        node += way
        if count == size >> (halvings - 1):
            halvings -= 1
            top += 1
            target = top
        else:
            target = _TURNS + 1 if source == _TURNS else _TURNS
        if first:
            _bring_costs(block, scratch, node, way)
        low = _pass(
            _row(block, scratch, source),
            load(scratch.minima, source),
            edge,
            _costs(block, scratch, node),
            _row(block, scratch, target),
            block.label_count,
        )
        store(scratch.minima, target, low)
        source = target
    return top


@compiled(nogil=True, error_model="numpy")
def _hand_over(block: _Block, scratch: _Scratch, node: int, turn: int, low: Any) -> None:
    """Give the other family what F, in row `_DONE` with the minimum ``low``, leaves to it."""
    minorant, unary = _row(block, scratch, _DONE), _row(block, scratch, _UNARY)
    pixel = node * block.node_step
    store(scratch.minima, _DONE, low)
    low_of = advance(scratch.minima, _DONE * LANES)
    for lane in range(LANES):
        scratch.optima[lane] += low_of[lane]
    if block.vote:
        _winners(minorant, unary, block.label_count)
        for lane in range(block.last + 1):
            block.winners[pixel + lane * block.chain_step] = int(unary[lane])
    if block.plain:
        _bring_back(minorant, block.out, pixel, block)
        return
    scratch.order[turn] = node
    if turn + _AHEAD < block.nodes:
        _prefetch_costs(block.f, block, scratch.order[turn + _AHEAD] * block.node_step)
        _prefetch_costs(block.out, block, scratch.order[turn + _AHEAD] * block.node_step)
    _bring(block.f, pixel, block, unary)
    _exchange(unary, _costs(block, scratch, node), minorant, minorant, block.label_count)
    _bring_back(minorant, block.out, pixel, block)


@compiled(nogil=True, error_model="numpy")
def _begin(block: _Block, scratch: _Scratch, node: int, way: int, row: int) -> None:
    """Bring the costs of an end of the chains to row ``row``."""
    _bring_costs(block, scratch, node, way)
    low = _load(_costs(block, scratch, node), _row(block, scratch, row), block.label_count)
    store(scratch.minima, row, low)


@compiled(nogil=True, error_model="numpy")
def _bisect(block: _Block, scratch: _Scratch) -> None:
    """Cut all edges of chains of at least two nodes.

    An interval has a fresh end, whose row is at the top of its part of the stack, and below it
    the rows that `_walk` left on the way from its far end.
    """
    nodes, label_count = block.nodes, block.label_count
    minima, pending = scratch.minima, scratch.pending
    split, negated = _row(block, scratch, _SPLIT), _row(block, scratch, _NEGATED)
    done = _row(block, scratch, _DONE)

    # The first interval is the whole chain, node 0 its fresh end.
    last = nodes - 1
    top = _BOTTOM
    _begin(block, scratch, last, -1, top)
    top = _walk(block, scratch, last, -1, nodes // 2 - 1, nodes, top, True) + 1
    _begin(block, scratch, 0, 1, top)
    pending[0], pending[1], pending[2] = 0, last, top
    waiting = 3

    finished = 0
    while waiting > 0:
        waiting -= 3
        fresh, far, row = pending[waiting], pending[waiting + 1], pending[waiting + 2]
        way = 1 if far > fresh else -1
        size = (far - fresh) * way + 1
        near_size = (size + 1) // 2
        a = fresh + way * (near_size - 1)
        b = a + way
        top = _walk(block, scratch, fresh, way, near_size - 1, near_size, row, size == nodes)

        # Cut the edge (a, b).  The walk from the far end left b's row in `row - 1`.
        edge = _edge(block, scratch, a, b)
        number = scratch.rows[0]
        r = splat(type(number)(near_size) / type(number)(size))
        row_a, row_b = _row(block, scratch, top), _row(block, scratch, row - 1)
        split_low = _split(row_a, load(minima, top), edge, r, row_b, split, label_count)

        # A part of one node is finished: its row holds all other messages, so m is added to it.
        # A larger part starts again from the node's own cost, with its fresh end at the cut.
        if near_size > 1:
            low, negated_low = _reply(
                split, split_low, edge, _costs(block, scratch, a), row_a, negated, label_count
            )
            store(minima, top, low)
        else:
            low, negated_low = _reply(split, split_low, edge, row_a, done, negated, label_count)
            _hand_over(block, scratch, a, finished, low)
            finished += 1

        if b != far:
            cost_b = _costs(block, scratch, b)
            low = _pass(negated, negated_low, edge, cost_b, row_b, label_count)
            store(minima, row - 1, low)
            pending[waiting], pending[waiting + 1], pending[waiting + 2] = b, far, row - 1
            waiting += 3
        else:
            low = _pass(negated, negated_low, edge, row_b, done, label_count)
            _hand_over(block, scratch, b, finished, low)
            finished += 1

        # Pushed last, hence processed next: the near part is still in cache.
        if near_size > 1:
            pending[waiting], pending[waiting + 1], pending[waiting + 2] = a, fresh, top
            waiting += 3


def scratch_arrays(nodes: int, label_count: int, dtype: Any) -> tuple[np.ndarray, ...]:
    """Buffers for `LANES` chains of ``nodes`` nodes, in the order of `_Scratch`.

    With L levels of bisection the first walk leaves at most L rows on the stack, and the walk
    in an interval i levels down at most L - i more.
    """
    levels = nodes.bit_length()
    count = _BOTTOM + levels + levels * (levels + 1) // 2
    rows = buffers.empty((count, label_count + 1, LANES), dtype)
    rows[:, label_count] = np.inf
    return (
        buffers.empty((nodes, label_count, LANES), dtype),
        buffers.empty((nodes, LANES), dtype),
        rows,
        buffers.empty((count, LANES), dtype),
        np.empty(LANES, np.float64),
        np.ones(LANES, dtype),
        np.empty(3 * _LEVELS, np.int64),
        np.zeros(nodes, np.int64),
    )


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
    lane_costs: Any,
    lane_weights: Any,
    rows: Any,
    minima: Any,
    lane_optima: Any,
    ones: Any,
    pending: Any,
    order: Any,
    optima: Any,
) -> None:
    """Compute the minorants F of some parallel chains and move them to the other family.

    Chain j begins at pixel ``j*chain_step``; its ``nodes`` nodes are ``node_step`` pixels apart.
    The chains in [begin, end) are processed, at most `LANES`.

    f, costs: (H*W, K), unary costs and costs of this family; out: (H*W, K) receives
    ``f - costs + F`` (docs/model.md 6.2) and may be the same array as ``costs``, or receives F
    (``plain``) and may be any array; weights: (H*W,) of the edges to the next node; winners: (H*W,)
    receives the argmin of F, or (0,) if it is not wanted; lane_costs to order: from
    `scratch_arrays`; optima: one per chain, receives the sum of the minima of F, which is the
    optimum of the chain.
    """
    label_count = f.shape[1]
    first = begin * chain_step
    block = _Block(
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
        end - begin - 1,
        label_count,
        _Edge(splat(p1), splat(p2), load(pointer_to(ones), 0)),
    )
    scratch = _Scratch(
        pointer_to(lane_costs),
        pointer_to(lane_weights),
        pointer_to(rows),
        pointer_to(minima),
        pointer_to(lane_optima),
        pointer_to(ones),
        pointer_to(pending),
        pointer_to(order),
    )
    for node in range(nodes):
        for lane in range(LANES):
            pixel = node * node_step + min(lane, block.last) * chain_step
            lane_weights[node, lane] = block.weights[pixel]
    lane_optima[:] = 0
    if nodes == 1:
        _begin(block, scratch, 0, 1, _DONE)
        _hand_over(block, scratch, 0, 0, load(scratch.minima, _DONE))
    else:
        _bisect(block, scratch)
    for lane in range(end - begin):
        optima[begin + lane] = lane_optima[lane]
