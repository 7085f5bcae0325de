"""The minorants of chains of pixels by recursive bisection (docs/model.md 6.4), CPU.

All chains of a family have the same length, hence the same bisection.  So a block of neighbouring
chains is processed in lock-step, each chain in one lane of the vectors (`lanes`): minima over
the labels are taken lane by lane, the neighbour of a label is the vector beside it, and a message
takes time in proportion to the number of labels, whatever that is.

The costs of a block are brought into this order once (`bring`), and what is handed to the other
family is brought back (`exchange`).  When a node is handed over, the costs of the same node of the
block that follows take its place in the scratch; what both need from memory is fetched a little at
a time, with the messages before (`fetch`).  Where messages are too short for that (`hides_memory`)
every block brings its own costs in its first walks.  Beside the costs the bisection keeps only the
few dozen rows that it reads again (`_walk`).

The numbers are floats or 16-bit fixed point (docs/model.md 6.9); what is different for the latter
is in `lanes` and `messages`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from . import buffers
from .jit import compiled
from .lanes import (
    LINE_BYTES,
    chains_per_vector,
    is_fixed,
    lane_count,
    line_count,
    load_lanes,
    splat,
    store_lanes,
)
from .messages import Edge, copy_row, inner, pass_on, reply, split_marginal
from .pointers import advance, never_inline, pointer_to
from .transfers import (
    AHEAD,
    BROUGHT,
    CHAIN_STEP,
    F_LABELS,
    FINISHED,
    FOLLOWING_LABELS,
    HIDES_ONE,
    LAST_RUN,
    NODE_STEP,
    NODES,
    PROGRESS_SIZE,
    RUNS_AT_A_TIME,
    ChainBlock,
    Scratch,
    bring,
    bring_back,
    exchange,
    fetch,
    hides_memory,
    vote,
)

__all__ = ["move_minorants", "scratch_arrays", "scratch_bytes"]

# Rows of the scratch buffer: that of a walk, that of a cut, then the stack.
_TURN = 0
_CUT = 1
_BOTTOM = 2

# Bisection halves intervals: 64 levels cover every chain that an index can address.
_LEVELS = 64


def _part(like: Any, part: int, whole: int) -> Any:
    """``part / whole``, less than 1, as a factor of numbers of the type of ``like``."""
    raise NotImplementedError("only for compiled functions")


@overload(_part)
def _choose_part(like: Any, part: Any, whole: Any) -> Any:
    def of_float(like: Any, part: Any, whole: Any) -> Any:
        return type(like)(part) / type(like)(whole)

    def of_fixed(like: Any, part: Any, whole: Any) -> Any:
        return np.int16(np.uint16((part << 16) // whole))

    return of_fixed if isinstance(like, types.Integer) else of_float


@inner
def _row(block: ChainBlock, scratch: Scratch, row: int) -> Any:
    return advance(scratch.rows, row * (block.label_count + 1) * lane_count(scratch.rows))


@inner
def _costs(block: ChainBlock, scratch: Scratch, node: int) -> Any:
    return advance(scratch.costs, node * block.label_count * lane_count(scratch.costs))


@inner
def _edge(block: ChainBlock, scratch: Scratch, node: int, other: int) -> Edge:
    """The edge between two neighbouring nodes."""
    weight = load_lanes(scratch.weights, min(node, other))
    p1, p2, one = block.penalties
    return Edge(p1 * weight, p2 * weight, one)


@inner
def _walk(
    block: ChainBlock, scratch: Scratch, start: int, end: int, size: int, top: int, first: bool
) -> int:
    """Pass messages on from node ``start``, in row ``top``, to node ``end``.

    The node where the walk ends will be the fresh end of an interval of ``size`` nodes whose far
    end is ``start`` (docs/model.md 6.4).  Of the rows on the way, the recursion reads those where a
    far part begins: the far part has size // 2 nodes, its own far part size // 4, and so on to 1,
    the start itself.  They and the last row are pushed on the stack; all others are only needed
    for the next step.  Returns the top of the stack.

    On the ``first`` walk over these nodes their costs are brought from the volume, those of the
    start into its row, too.
    """
    never_inline()
    label_count = block.label_count
    way = 1 if end > start else -1
    halvings = 0
    while size >> (halvings + 1) > 0:
        halvings += 1
    at = top
    for count in range(1, (end - start) * way + 2):
        node = start + way * (count - 1)
        costs = _costs(block, scratch, node)
        if first and not block.brought:
            source = advance(block.costs, node * block.node_step * label_count)
            ahead = way * AHEAD * block.node_step * label_count
            bring(block, source, block.last, costs, ahead, _costs(block, scratch, node + way))
        if count == 1:
            if first:
                store_lanes(
                    scratch.minima, top, copy_row(costs, _row(block, scratch, top), label_count)
                )
            continue
        if count == size >> (halvings - 1):
            halvings -= 1
            top += 1
            target = top
        else:
            target = _TURN
        edge = _edge(block, scratch, node - way, node)
        row, target_row = _row(block, scratch, at), _row(block, scratch, target)
        low = pass_on(row, load_lanes(scratch.minima, at), edge, costs, target_row, label_count)
        store_lanes(scratch.minima, target, low)
        at = target
        fetch(scratch.progress, scratch.order, block.f, block.following)
    return top


@inner
def _count_in(scratch: Scratch, low: Any) -> None:
    """Add minima to the optima of the chains."""
    lanes = lane_count(scratch.minima)
    store_lanes(scratch.minima, _TURN, low)
    for lane in range(lanes):
        scratch.optima[lane] += scratch.minima[_TURN * lanes + lane]


@inner
def _hand_over(block: ChainBlock, scratch: Scratch, node: int, minorant: Any, low: Any) -> None:
    """Give the other family what F, whose minima are ``low``, leaves to it."""
    never_inline()
    pixel = node * block.node_step
    _count_in(scratch, low)
    scratch.progress[FINISHED] += 1
    costs = _costs(block, scratch, node)
    if block.plain:
        bring_back(block, pixel, minorant, low)
    else:
        lows = advance(scratch.minima, _TURN * lane_count(scratch.minima))
        turn = min(scratch.progress[FINISHED] + AHEAD, block.nodes) - 1
        soon = scratch.order[turn] * block.node_step
        exchange(block, pixel, soon, costs, minorant, low, lows)
    if block.following_last >= 0:
        source = advance(block.following, pixel * block.label_count)
        bring(block, source, block.following_last, costs, 0, costs)
    if block.vote:
        vote(block, pixel, minorant)


@compiled(nogil=True, error_model="numpy", inline="always")
def _bisect(block: ChainBlock, scratch: Scratch) -> None:
    """Cut all edges of the chains.

    An interval has a fresh end, whose row is at the top of its part of the stack, and below it
    the rows that `_walk` left on the way from its far end.
    """
    nodes, label_count = block.nodes, block.label_count
    minima, pending = scratch.minima, scratch.pending
    cut = _row(block, scratch, _CUT)

    # The first interval is the whole chain, node 0 its fresh end.
    last, b = nodes - 1, min((nodes + 1) // 2, nodes - 1)
    pending[0], pending[1], pending[2] = 0, last, _BOTTOM
    top = _walk(block, scratch, last, b, nodes, pending[2], last >= b)
    if nodes == 1:
        _hand_over(block, scratch, pending[0], _row(block, scratch, top), load_lanes(minima, top))
        return
    pending[2] = top + 1
    waiting = 3

    while waiting > 0:
        waiting -= 3
        fresh, far, row = pending[waiting], pending[waiting + 1], pending[waiting + 2]
        way = 1 if far > fresh else -1
        size = (far - fresh) * way + 1
        near_size = (size + 1) // 2
        a = fresh + way * (near_size - 1)
        b = a + way
        top = row
        if near_size > 1 or size == nodes:
            top = _walk(block, scratch, fresh, a, near_size, row, size == nodes)

        # Cut the edge (a, b).  The walk from the far end left b's row in `row - 1`.
        edge = _edge(block, scratch, a, b)
        r = splat(_part(scratch.rows[0], near_size, size))
        row_a, row_b = _row(block, scratch, top), _row(block, scratch, row - 1)
        low, low_b = load_lanes(minima, top), load_lanes(minima, row - 1)
        low = split_marginal(row_a, low, edge, r, row_b, low_b, cut, label_count)
        fetch(scratch.progress, scratch.order, block.f, block.following)

        # A part of one node is finished: its row holds all other messages, so m is added to it.
        # A larger part starts again from the node's own cost, with its fresh end at the cut.
        base = row_a if near_size == 1 else _costs(block, scratch, a)
        low, negated_low = reply(cut, low, edge, base, row_a, cut, label_count)
        fetch(scratch.progress, scratch.order, block.f, block.following)
        if near_size == 1:
            _hand_over(block, scratch, a, row_a, low)
        else:
            store_lanes(minima, top, low)

        if block.fixed:  # what `pass_on` takes off the message
            _count_in(scratch, negated_low)
        base = row_b if b == far else _costs(block, scratch, b)
        low = pass_on(cut, negated_low, edge, base, row_b, label_count)
        fetch(scratch.progress, scratch.order, block.f, block.following)
        if b == far:
            _hand_over(block, scratch, b, row_b, low)
        else:
            store_lanes(minima, row - 1, low)
            pending[waiting], pending[waiting + 1], pending[waiting + 2] = b, far, row - 1
            waiting += 3

        # Pushed last, hence processed next: the near part is still in cache.
        if near_size > 1:
            pending[waiting], pending[waiting + 1], pending[waiting + 2] = a, fresh, top
            waiting += 3


def _row_count(nodes: int) -> int:
    """Rows of the scratch buffer.

    With L levels of bisection the first walk leaves at most L rows on the stack, and the walk
    in an interval i levels down at most L - i more.
    """
    levels = nodes.bit_length()
    return _BOTTOM + levels + levels * (levels + 1) // 2


def scratch_bytes(nodes: int, label_count: int, dtype: Any = np.float32) -> int:
    """Bytes of `scratch_arrays`, without what does not grow with the labels."""
    vector = chains_per_vector(dtype) * np.dtype(dtype).itemsize
    return vector * (nodes * label_count + _row_count(nodes) * (label_count + 1))


@cache
def _order(nodes: int) -> np.ndarray:
    """The order in which `_bisect` hands over the nodes of a chain."""
    order, intervals = [], [(0, nodes - 1)]
    while intervals:
        fresh, far = intervals.pop()
        way = 1 if far > fresh else -1
        near_size = (abs(far - fresh) + 2) // 2
        a = fresh + way * (near_size - 1)
        if near_size == 1:
            order.append(a)
        if a + way == far:
            order.append(far)
        elif far != fresh:
            intervals.append((a + way, far))
        if near_size > 1:
            intervals.append((a, fresh))
    return np.array(order, np.int64)


def scratch_arrays(nodes: int, label_count: int, dtype: Any) -> tuple[np.ndarray, ...]:
    """Buffers for a block of chains of ``nodes`` nodes, in the order of `Scratch`."""
    count, lanes = _row_count(nodes), chains_per_vector(dtype)
    rows = buffers.empty((count, label_count + 1, lanes), dtype)
    rows[:, label_count] = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.inf
    return (
        buffers.empty((nodes, label_count, lanes), dtype),
        buffers.empty((nodes, lanes), dtype),
        rows,
        buffers.empty((count, lanes), dtype),
        np.empty(lanes, np.float64),
        np.ones(lanes, dtype),
        np.empty(3 * _LEVELS, np.int64),
        _order(nodes),
        np.full(PROGRESS_SIZE, -1, np.int64),
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
    following: int,
    nodes: int,
    chain_step: int,
    node_step: int,
    p1: Any,
    p2: Any,
    limit: Any,
    plain: bool,
    lane_costs: Any,
    lane_weights: Any,
    rows: Any,
    minima: Any,
    lane_optima: Any,
    ones: Any,
    pending: Any,
    order: Any,
    progress: Any,
    optima: Any,
) -> None:
    """Compute the minorants F of some parallel chains and move them to the other family.

    Chain j begins at pixel ``j*chain_step``; its ``nodes`` nodes are ``node_step`` pixels apart.
    The chains in [begin, end) are processed, at most one per lane.  Meanwhile the costs of the
    block that begins with chain ``following``, if that is not negative, are brought into the
    scratch; it must be the next that is processed with it.

    f, costs: (H*W, K), unary costs and costs of this family; out: (H*W, K) receives
    ``f + (F - costs)`` (docs/model.md 6.2) or F (``plain``) and may be the same array as ``costs``;
    weights: (H*W,) of the edges to the next node; winners: (H*W,) receives the argmin of F, or
    (0,) if it is not wanted; limit: of fixed point numbers in ``out``, any float otherwise;
    lane_costs to progress: from `scratch_arrays`; optima: one per chain, receives the sum of the
    minima of F, which is the optimum of the chain.
    """
    label_count, lanes, fixed = f.shape[1], lane_count(pointer_to(f)), is_fixed(pointer_to(f))
    first = begin * chain_step
    last = end - begin - 1
    block = ChainBlock(
        advance(pointer_to(f), first * label_count),
        advance(pointer_to(costs), first * label_count),
        advance(pointer_to(out), first * label_count),
        advance(pointer_to(winners), first),
        winners.size > 0,
        plain,
        nodes,
        node_step,
        chain_step,
        last,
        advance(pointer_to(costs), max(following, 0) * chain_step * label_count),
        min(lanes, optima.size - following) - 1 if following >= 0 else -1,
        progress[BROUGHT] == begin,
        label_count,
        label_count % line_count(pointer_to(f)) == 0 and out.ctypes.data % LINE_BYTES == 0,
        Edge(splat(p1), splat(p2), load_lanes(pointer_to(ones), 0)),
        splat(limit),
        limit,
        fixed,
        hides_memory(lanes, label_count),
    )
    scratch = Scratch(
        pointer_to(lane_costs),
        pointer_to(lane_weights),
        pointer_to(rows),
        pointer_to(minima),
        pointer_to(lane_optima),
        pointer_to(ones),
        pointer_to(pending),
        pointer_to(order),
        pointer_to(progress),
    )
    for node in range(nodes):
        for lane in range(lanes):
            pixel = first + node * node_step + min(lane, last) * chain_step
            lane_weights[node, lane] = weights[pixel]
    for lane in range(lanes):
        lane_optima[lane] = 0
    progress[:] = 0
    progress[NODES] = nodes
    progress[NODE_STEP], progress[CHAIN_STEP] = node_step * label_count, chain_step * label_count
    # There are about seven messages per node, and not all nodes have as many.
    progress[LAST_RUN], progress[RUNS_AT_A_TIME] = 2 * last + 1, lanes // 2 if block.hides else 0
    progress[F_LABELS] = 0 if plain or HIDES_ONE else label_count
    progress[FOLLOWING_LABELS] = 0 if following < 0 else label_count
    _bisect(block, scratch)
    progress[BROUGHT] = following
    for lane in range(end - begin):
        optima[begin + lane] = lane_optima[lane]
