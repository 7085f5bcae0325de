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
from .lanes import (
    LANES,
    fused_sum,
    load,
    load_tile,
    lower,
    prefetch_tile,
    splat,
    store,
    store_tile,
    transposed,
    where_less,
)
from .pointers import advance, pointer_to, prefetch

__all__ = ["move_minorants", "scratch_arrays"]

# Rows of the scratch buffer: that of a walk, that of a cut, then the stack.
_TURN = 0
_CUT = 1
_BOTTOM = 2

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
    lowest = load(target, label_count)
    for k in range(label_count):
        value = load(source, k)
        store(target, k, value)
        lowest = lower(lowest, value)
    return lowest


@compiled(nogil=True, error_model="numpy")
def _pass(
    source: Any, low: Any, edge: _Edge, base: Any, soon: Any, target: Any, label_count: int
) -> Any:
    """target = base + msg(source); returns its minimum.  Fetches ``soon``, the next base."""
    jump = edge.p2 + low
    here, after = load(source, label_count), load(source, 0)
    lowest = here
    for k in range(label_count):
        before, here, after = here, after, load(source, k + 1)
        prefetch(soon, k * LANES)
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
def _vote(block: _Block, pixel: int, minorant: Any) -> None:
    """winners = the first label of lowest cost; label 0 if no cost is a number."""
    lowest = load(minorant, block.label_count)
    best = splat(type(minorant[0])(0))
    for k in range(block.label_count):
        value = load(minorant, k)
        best = where_less(value, lowest, splat(type(minorant[0])(k)), best)
        lowest = where_less(value, lowest, value, lowest)
    store(minorant, 0, best)  # TODO
    for lane in range(block.last + 1):
        block.winners[pixel + lane * block.chain_step] = int(minorant[lane])


@compiled(nogil=True, error_model="numpy")
def _bring(volume: Any, block: _Block, pixel: int, soon: int, target: Any, soon_target: Any) -> None:
    """target = the costs of the chains at a node, lanes last; volume: K costs per pixel.

    The costs at the pixel ``soon`` and the memory at ``soon_target`` are fetched meanwhile.
    """
    label_count, step, last = block.label_count, block.chain_step * block.label_count, block.last
    source = advance(volume, pixel * label_count)
    if label_count < _LINE:
        for lane in range(LANES):
            for k in range(label_count):
                target[k * LANES + lane] = source[min(lane, last) * step + k]
        return
    ahead = (soon - pixel) * label_count
    for begin in range(0, label_count, _LINE):
        k = min(begin, label_count - _LINE)  # the last lines overlap
        prefetch_tile(advance(source, k + ahead), step, last)
        prefetch_tile(advance(soon_target, k * LANES), _LINE, LANES)
        low = transposed(load_tile(advance(source, k), step, last))
        high = transposed(load_tile(advance(source, k + LANES), step, last))
        store_tile(advance(target, k * LANES), LANES, LANES, low)
        store_tile(advance(target, (k + LANES) * LANES), LANES, LANES, high)


@compiled(nogil=True, error_model="numpy")
def _bring_back(source: Any, block: _Block, pixel: int, soon: int, volume: Any) -> None:
    """The inverse of `_bring`.  Lanes that repeat the last chain write what it writes."""
    label_count, step, last = block.label_count, block.chain_step * block.label_count, block.last
    target = advance(volume, pixel * label_count)
    if label_count < _LINE:
        for lane in range(last + 1):
            for k in range(label_count):
                target[lane * step + k] = source[k * LANES + lane]
        return
    ahead = (soon - pixel) * label_count
    for begin in range(0, label_count, _LINE):
        k = min(begin, label_count - _LINE)
        prefetch_tile(advance(target, k + ahead), step, last)
        low = load_tile(advance(source, k * LANES), LANES, LANES)
        high = load_tile(advance(source, (k + LANES) * LANES), LANES, LANES)
        store_tile(advance(target, k), step, last, transposed(low))
        store_tile(advance(target, k + LANES), step, last, transposed(high))


@compiled(nogil=True, error_model="numpy")
def _exchange(block: _Block, pixel: int, soon: int, costs: Any, minorant: Any) -> None:
    """out = f - costs + F (docs/model.md 6.2) at a node of the chains."""
    label_count, step, last = block.label_count, block.chain_step * block.label_count, block.last
    f, out = advance(block.f, pixel * label_count), advance(block.out, pixel * label_count)
    if label_count < _LINE:
        for lane in range(last + 1):
            for k in range(label_count):
                i, j = lane * step + k, k * LANES + lane
                out[i] = f[i] - costs[j] + minorant[j]
        return
    ahead = (soon - pixel) * label_count
    for begin in range(0, label_count, _LINE):
        k = min(begin, label_count - _LINE)
        prefetch_tile(advance(f, k + ahead), step, last)
        prefetch_tile(advance(out, k + ahead), step, last)
        low = transposed(load_tile(advance(f, k), step, last))
        high = transposed(load_tile(advance(f, k + LANES), step, last))
        low = low - load_tile(advance(costs, k * LANES), LANES, LANES)
        high = high - load_tile(advance(costs, (k + LANES) * LANES), LANES, LANES)
        low = low + load_tile(advance(minorant, k * LANES), LANES, LANES)
        high = high + load_tile(advance(minorant, (k + LANES) * LANES), LANES, LANES)
        low, high = transposed(low), transposed(high)
        store_tile(advance(out, k), step, last, low)
        store_tile(advance(out, k + LANES), step, last, high)


@compiled(nogil=True, error_model="numpy")
def _row(block: _Block, scratch: _Scratch, row: int) -> Any:
    return advance(scratch.rows, row * (block.label_count + 1) * LANES)


@compiled(nogil=True, error_model="numpy")
def _costs(block: _Block, scratch: _Scratch, node: int) -> Any:
    return advance(scratch.costs, node * block.label_count * LANES)


@compiled(nogil=True, error_model="numpy")
def _edge(block: _Block, scratch: _Scratch, node: int, other: int) -> _Edge:
    """The edge between two neighbouring nodes."""
    weight = load(scratch.weights, min(node, other))
    p1, p2, one = block.penalties
    return _Edge(p1 * weight, p2 * weight, one)


@compiled(nogil=True, error_model="numpy")
def _bring_costs(block: _Block, scratch: _Scratch, node: int, way: int) -> None:
    """Bring the costs of a node to the scratch buffer; the walk goes on in direction ``way``."""
    pixel, ahead = node * block.node_step, way * _AHEAD * block.node_step
    target, soon_target = _costs(block, scratch, node), _costs(block, scratch, node + way)
    _bring(block.costs, block, pixel, pixel + ahead, target, soon_target)


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
            target = _TURN
        if first:
            _bring_costs(block, scratch, node, way)
        low = _pass(
            _row(block, scratch, source),
            load(scratch.minima, source),
            edge,
            _costs(block, scratch, node),
            _costs(block, scratch, node + 2 * way),
            _row(block, scratch, target),
            block.label_count,
        )
        store(scratch.minima, target, low)
        source = target
    return top


@compiled(nogil=True, error_model="numpy")
def _hand_over(
    block: _Block, scratch: _Scratch, node: int, turn: int, minorant: Any, low: Any
) -> None:
    """Give the other family what F, whose minima are ``low``, leaves to it."""
    pixel = node * block.node_step
    store(scratch.minima, _TURN, low)
    for lane in range(LANES):
        scratch.optima[lane] += scratch.minima[lane]
    scratch.order[turn] = node
    soon = scratch.order[min(turn + _AHEAD, block.nodes - 1)] * block.node_step
    if block.plain:
        _bring_back(minorant, block, pixel, soon, block.out)
    else:
        _exchange(block, pixel, soon, _costs(block, scratch, node), minorant)
    if block.vote:
        _vote(block, pixel, minorant)


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
    cut = _row(block, scratch, _CUT)

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
        low = _split(row_a, load(minima, top), edge, r, row_b, cut, label_count)

        # A part of one node is finished: its row holds all other messages, so m is added to it.
        # A larger part starts again from the node's own cost, with its fresh end at the cut.
        base = row_a if near_size == 1 else _costs(block, scratch, a)
        low, negated_low = _reply(cut, low, edge, base, row_a, cut, label_count)
        if near_size == 1:
            _hand_over(block, scratch, a, finished, row_a, low)
            finished += 1
        else:
            store(minima, top, low)

        base = row_b if b == far else _costs(block, scratch, b)
        low = _pass(cut, negated_low, edge, base, base, row_b, label_count)
        if b == far:
            _hand_over(block, scratch, b, finished, row_b, low)
            finished += 1
        else:
            store(minima, row - 1, low)
            pending[waiting], pending[waiting + 1], pending[waiting + 2] = b, far, row - 1
            waiting += 3

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
        _begin(block, scratch, 0, 1, _CUT)
        _hand_over(block, scratch, 0, 0, _row(block, scratch, _CUT), load(scratch.minima, _CUT))
    else:
        _bisect(block, scratch)
    for lane in range(end - begin):
        optima[begin + lane] = lane_optima[lane]
