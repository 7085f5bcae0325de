"""Costs of blocks of chains from the volumes to the scratch of a thread and back, CPU.

Volumes have the labels as their last axis, the scratch the lanes (`lanes`).  `chains` says when
what is moved.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from .jit import part_or_python
from .lanes import (
    above,
    at_most,
    lane_count,
    line_count,
    load_lanes,
    load_line,
    load_vectors,
    prefetch_tile_surely,
    splat,
    store_lanes,
    store_tile,
    store_vectors,
    stream_tile,
    transposed,
    where_less,
)
from .messages import Edge, inner
from .pointers import advance, never_inline, prefetch, prefetch_surely
from .registers import FETCHES_INTO_FIRST_LEVEL

__all__ = [
    "HIDES_ONE", "ChainBlock", "Scratch", "bring", "bring_back", "exchange", "fetch",
    "hides_memory", "vote",
]  # fmt: skip

# Messages of so many labels take long enough to hide what comes from memory (`fetch`), if they are
# of so few chains.  Those of 16 chains are short: on a Zen 5 they hide one of both volumes, the
# costs, and `exchange` fetches the other one ahead.
HIDES_ONE = FETCHES_INTO_FIRST_LEVEL
_HIDING_LABELS, _HIDING_LANES = (32, 16) if HIDES_ONE else (24, 8)

# Nodes that are fetched from memory ahead of the one that is brought by a walk.
AHEAD = 4
# Nodes that are fetched ahead of those that are handed over.  With 16 chains each takes twice the
# room in the caches.
_FETCHED_NODES = 12 if HIDES_ONE else 24

# What `Scratch.progress` holds: counters ...
FINISHED = 0  # nodes that were handed over
_FETCHED = 1  # nodes that were fetched ...
_RUNS = 2  # ... and runs of the next one, two for each chain
BROUGHT = 3  # the first chain of the block whose costs are in the scratch
# ... and what `fetch` has to know of the block.
NODES = 4
NODE_STEP = 5  # numbers from node to node
CHAIN_STEP = 6
LAST_RUN = 7
RUNS_AT_A_TIME = 8  # with a message
F_LABELS = 9  # labels of f that are needed, ...
FOLLOWING_LABELS = 10  # ... and of the costs of the following block
PROGRESS_SIZE = 11


class ChainBlock(NamedTuple):
    """Chains side by side, at most one per lane.

    The pointers point to the first node of the first chain.
    """

    f: Any  # unary costs, K per pixel
    costs: Any  # costs of the family of chains being processed, K per pixel
    out: Any  # receives the costs of the other family; may be the same memory as `costs`
    winners: Any  # receives the argmin of F, one per pixel ...
    vote: bool  # ... if this is set
    plain: bool  # the other family gets F itself instead of f + (F - costs)
    nodes: int
    node_step: int  # pixels from node to node
    chain_step: int  # pixels from chain to chain
    last: int  # the last chain; lanes beyond it repeat it
    following: Any  # `costs` of the block that comes next ...
    following_last: int  # ... and its last chain, -1 if there is none
    brought: bool  # the costs were brought with the block before this one
    label_count: int
    whole_lines: bool  # the labels of a pixel are whole cache lines of `out`
    penalties: Edge  # of edges of weight 1
    limit: Any  # of what is handed over in fixed point ...
    highest: Any  # ... as one number
    fixed: bool  # whether the numbers are fixed point
    hides: bool  # whether messages hide what comes from memory


class Scratch(NamedTuple):
    """Buffers of one thread; the floats have the lanes as their last axis."""

    costs: Any  # of all nodes, K per node
    weights: Any  # of all edges
    rows: Any  # of K + 1 labels, the last one +inf
    minima: Any  # of the rows
    optima: Any  # sums of the minima of F, float64
    ones: Any
    pending: Any  # stack of intervals: fresh end, far end, row of the fresh end
    order: Any  # in which the nodes are handed over
    progress: Any


@part_or_python
def hides_memory(lanes: int, label_count: int) -> bool:
    """Whether what a block needs from memory is fetched with its messages, and those before.

    Fetching takes longer than waiting where messages are short: of few labels, in fixed point, and
    with registers of AVX-512, where an Intel's own prefetching comes with the costs that a block
    brings itself.
    """
    return lanes <= _HIDING_LANES and label_count >= _HIDING_LABELS


def _exchanged(f: Any, cost: Any, minorant: Any, low: Any, limit: Any) -> Any:
    """``f + (minorant - cost)``; in fixed point relative to ``low`` and at most ``limit``."""
    raise NotImplementedError("only for compiled functions")


@overload(_exchanged)
def _choose_exchanged(f: Any, cost: Any, minorant: Any, low: Any, limit: Any) -> Any:
    def of_float(f: Any, cost: Any, minorant: Any, low: Any, limit: Any) -> Any:
        return f + (minorant - cost)

    def of_fixed(f: Any, cost: Any, minorant: Any, low: Any, limit: Any) -> Any:
        return np.int16(min(int(f) + (int(minorant) - int(low) - int(cost)), int(limit)))

    return of_fixed if isinstance(f, types.Integer) else of_float


@inner
def bring(
    block: ChainBlock, source: Any, last: int, target: Any, ahead: int, soon_target: Any
) -> None:
    """target = the costs of the chains at a node, (K, lanes); source: those of the first chain.

    Unless ``ahead`` is 0, the costs so many numbers further and the memory at ``soon_target`` are
    fetched meanwhile.
    """
    never_inline()
    label_count, step = block.label_count, block.chain_step * block.label_count
    lanes, line = lane_count(source), line_count(source)
    if label_count < line:
        for lane in range(lanes):
            for k in range(label_count):
                prefetch(source, 0)  # keeps LLVM from making vectors, which takes long to compile
                target[k * lanes + lane] = source[min(lane, last) * step + k]
        return
    for begin in range(0, label_count, line):
        k = min(begin, label_count - line)  # the last lines overlap
        if ahead != 0:
            prefetch_tile_surely(advance(source, k + ahead), step, last)
            prefetch_tile_surely(advance(soon_target, k * lanes), line, lanes)
        tile = transposed(load_line(advance(source, k), step, last))
        store_vectors(advance(target, k * lanes), tile)


@inner
def fetch(progress: Any, order: Any, f: Any, following: Any) -> None:
    """Fetch a few lines of what the next nodes that are handed over need from the volumes.

    A core can wait for some two dozen lines at a time.  So few are fetched with every message,
    which then come while it is computed.  Few arguments, since this is called so often.
    """
    never_inline()
    fetched, run = progress[_FETCHED], progress[_RUNS]
    end = min(progress[FINISHED] + _FETCHED_NODES, progress[NODES])
    runs, line = progress[RUNS_AT_A_TIME], line_count(f)
    while runs > 0 and fetched < end:
        at = order[fetched] * progress[NODE_STEP] + (run >> 1) * progress[CHAIN_STEP]
        volume = following if run & 1 else f
        for k in range(0, progress[F_LABELS + (run & 1)], line):
            prefetch_surely(volume, at + k)
        run += 1
        if run > progress[LAST_RUN]:
            fetched, run = fetched + 1, 0
        runs -= 1
    progress[_FETCHED], progress[_RUNS] = fetched, run


@inner
def _write_line(block: ChainBlock, target: Any, tile: Any) -> None:
    """Write a line of labels of every chain.  Lanes that repeat the last one write what it does.

    They are read again only after the rest of the volume, so they need no place in the caches.
    """
    step = block.chain_step * block.label_count
    if block.whole_lines:
        stream_tile(target, step, block.last, tile)
    else:
        store_tile(target, step, block.last, tile)


@inner
def bring_back(block: ChainBlock, pixel: int, minorant: Any, low: Any) -> None:
    """out = F at a node of the chains; minorant: (K, lanes), low: its minima."""
    never_inline()
    label_count, step, last = block.label_count, block.chain_step * block.label_count, block.last
    out = advance(block.out, pixel * label_count)
    lanes, line = lane_count(out), line_count(out)
    if label_count < line:
        for k in range(label_count):
            value = at_most(above(load_lanes(minorant, k), low), block.limit)
            store_lanes(minorant, k, value)
        for lane in range(last + 1):
            for k in range(label_count):
                prefetch(out, 0)
                out[lane * step + k] = minorant[k * lanes + lane]
        return
    for begin in range(0, label_count, line):
        k = min(begin, label_count - line)
        tile = at_most(above(load_vectors(advance(minorant, k * lanes)), low), block.limit)
        _write_line(block, advance(out, k), transposed(tile))


@inner
def exchange(
    block: ChainBlock, pixel: int, soon: int, costs: Any, minorant: Any, low: Any, lows: Any
) -> None:
    """out = f + (F - costs) (docs/model.md 6.2) at a node; costs, minorant: (K, lanes).

    low: the minima of F, which are also at the pointer ``lows``.  Unless `fetch` has done so, the
    unary costs at the pixel ``soon`` are fetched meanwhile.
    """
    never_inline()
    label_count, step, last = block.label_count, block.chain_step * block.label_count, block.last
    f, out = advance(block.f, pixel * label_count), advance(block.out, pixel * label_count)
    lanes, line = lane_count(f), line_count(f)
    if label_count < line:
        for lane in range(last + 1):
            for k in range(label_count):
                prefetch(out, 0)
                i, j = lane * step + k, k * lanes + lane
                out[i] = _exchanged(f[i], costs[j], minorant[j], lows[lane], block.highest)
        return
    ahead = (soon - pixel) * label_count
    for begin in range(0, label_count, line):
        k = min(begin, label_count - line)
        if not block.hides or HIDES_ONE:
            prefetch_tile_surely(advance(f, k + ahead), step, last)
        moved = above(load_vectors(advance(minorant, k * lanes)), low)
        moved = moved - load_vectors(advance(costs, k * lanes))
        tile = load_line(advance(f, k), step, last) + transposed(moved)
        _write_line(block, advance(out, k), at_most(tile, block.limit))


@inner
def vote(block: ChainBlock, pixel: int, minorant: Any) -> None:
    """winners = the first label of lowest F at a node, 0 if none is a number.  Overwrites F."""
    never_inline()
    lowest = load_lanes(minorant, block.label_count)
    best = splat(type(minorant[0])(0))
    for k in range(block.label_count):
        value = load_lanes(minorant, k)
        best = where_less(value, lowest, splat(type(minorant[0])(k)), best)
        lowest = where_less(value, lowest, value, lowest)
    store_lanes(minorant, 0, best)
    for lane in range(block.last + 1):
        block.winners[pixel + lane * block.chain_step] = int(minorant[lane])
