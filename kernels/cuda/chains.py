"""The minorants of all chains (docs/model.md 6.4) on the GPU: the twin of ``cpu/chains.py``.

All intervals of one level of the bisection are cut at the same time, for all chains of one
orientation, by one warp each.  A warp holds the costs of a node in registers, label ``k`` in lane
``k % 32``: neighbouring labels and the minimum over labels are a few shuffles away, and a row of
costs is read from memory in whole lines.

The rows that a later level reads are kept in the output volume, at their own pixels.  Intervals of
at most four nodes are cut to the end in registers, and the results overwrite the rows.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import int32, uint32, uint64

from . import cudalib
from .cudalib import Kernel, blocks_for, device_function, kernel, kernel_family, launch

__all__ = ["TYPICAL", "RowFunctions", "move_minorants", "row_functions"]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_LANES = 32
_WARPS = 4  # per block
_BLOCK = (_LANES, _WARPS)
_THREADS = _LANES * _WARPS
_ALL_LANES = 0xFFFFFFFF
_LARGEST_LEAF = 4  # nodes of an interval that is finished in registers
_NO_LABEL = 2**31 - 1

# Typical members of the kernel families: labels per lane and type.
TYPICAL = tuple((lanes, "float32") for lanes in (1, 4, 8))


# ---------------------------------------------------------------- rows of costs in registers


@device_function
def _warp_min(value: Any) -> Any:
    """The minimum over the lanes, in all of them."""
    value = min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 16))
    value = min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 8))
    value = min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 4))
    value = min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 2))
    return min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 1))


class RowFunctions:
    """Device functions on rows of ``per_lane`` registers per lane; beyond the labels is +inf.

    ``at`` is the position of the lane's first label in a flat volume.  Indices are unsigned because
    Numba lets signed ones count from the end, which costs instructions.
    """

    def __init__(self, per_lane: int, dtype: str) -> None:
        number = getattr(numba, dtype)
        infinity = math.inf
        last = per_lane - 1

        @device_function
        def position(pixel: Any, label_count: Any, lane: Any) -> Any:
            return uint64(uint32(pixel)) * uint64(uint32(label_count)) + uint64(uint32(lane))

        @device_function
        def load(volume: Any, at: Any, inside: Any, row: Any) -> None:
            """Only the last register can lie beyond the labels: ``inside`` is false if it does."""
            for j in range(per_lane):
                if j < last or inside:
                    row[j] = volume[at + uint64(_LANES * j)]
                else:
                    row[j] = number(infinity)

        @device_function
        def store(row: Any, volume: Any, at: Any, inside: Any) -> None:
            for j in range(per_lane):
                if j < last or inside:
                    volume[at + uint64(_LANES * j)] = row[j]

        @device_function
        def lowest(row: Any) -> Any:
            low = row[0]
            for j in range(1, per_lane):
                low = min(low, row[j])
            return _warp_min(low)

        @device_function
        def message(row: Any, p1: Any, p2: Any, lane: Any, target: Any) -> None:
            """target(t) = min(row(t), p1 + min(row(t-1), row(t+1)), p2 + min row)."""
            jump = p2 + lowest(row)
            below = cuda.local.array(per_lane, number)
            carried = number(infinity)
            for j in range(per_lane):
                # Lane 0 continues the labels of the previous register.
                rotated = cuda.shfl_sync(_ALL_LANES, row[j], (lane + 31) & 31)
                below[j] = carried if lane == 0 else rotated
                carried = rotated
            carried = number(infinity)
            for i in range(per_lane):
                j = last - i
                rotated = cuda.shfl_sync(_ALL_LANES, row[j], (lane + 1) & 31)
                above = carried if lane == 31 else rotated
                carried = rotated
                near = p1 + min(below[j], above)
                target[j] = min(min(row[j], near), jump)

        @device_function
        def cut(
            near: Any, far: Any, p1: Any, p2: Any, r: Any, lane: Any, inside: Any, m: Any, back: Any
        ) -> None:
            """Replace an edge by ``m`` at its near and ``back`` at its far end (docs/model.md 6.4).

            ``r`` is the near side's share of the edge's min-marginal.
            """
            message(near, p1, p2, lane, back)
            for j in range(per_lane):
                back[j] = r * (back[j] + far[j]) - back[j]
            message(back, p1, p2, lane, m)
            for j in range(per_lane):
                back[j] = -m[j] if j < last or inside else number(infinity)
            message(back, p1, p2, lane, back)

        @device_function
        def add(a: Any, b: Any, target: Any) -> None:
            for j in range(per_lane):
                target[j] = a[j] + b[j]

        @device_function
        def first_of(row: Any, low: Any, lane: Any) -> Any:
            """The first label whose cost is ``low``."""
            label = int32(_NO_LABEL)
            for i in range(per_lane):
                j = last - i
                if row[j] == low:
                    label = int32(lane + _LANES * j)
            return _warp_min(label)

        @device_function
        def finish(
            row: Any, cost: Any, f: Any, out: Any, minima: Any, winners: Any,
            pixel: Any, at: Any, inside: Any, lane: Any, plain: Any, vote: Any,
        ) -> None:  # fmt: skip
            """The row is F: out = f - cost + F (docs/model.md 6.2), or F (``plain``)."""
            low = lowest(row)
            if lane == 0:
                minima[uint32(pixel)] = low
            if vote:
                winner = first_of(row, low, lane)
                if lane == 0:
                    winners[uint32(pixel)] = winner
            if not plain:
                unary = cuda.local.array(per_lane, number)
                load(f, at, inside, unary)
                for j in range(per_lane):
                    row[j] = unary[j] - cost[j] + row[j]
            store(row, out, at, inside)

        self.position, self.load, self.store = position, load, store
        self.message, self.cut, self.add, self.finish = message, cut, add, finish
        self.lowest, self.first_of = lowest, first_of


@cache
def row_functions(per_lane: int, dtype: str) -> RowFunctions:
    """The device functions for this many labels per lane."""
    return RowFunctions(per_lane, dtype)


# ---------------------------------------------------------------- a sweep
#
# Chain j begins at pixel j*chain_step, its nodes are node_step pixels apart.  Volumes are flat,
# K values per pixel; ``costs`` are those of the family being processed, ``out`` another volume.


@kernel_family(*TYPICAL)
def _begin_kernel(per_lane: int, dtype: str) -> Kernel:
    """The messages from the last node of every chain to the middle.

    The first interval is the whole chain, node 0 its fresh end.
    """
    number = getattr(numba, dtype)
    rows = row_functions(per_lane, dtype)
    position, load, store, message, add = (
        rows.position, rows.load, rows.store, rows.message, rows.add,
    )  # fmt: skip

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1],"
        f" int32, int32, int32, int32, int32, {dtype}, {dtype}",
        _THREADS,
    )
    def dualmm_begin(
        costs: Any, out: Any, weights: Any,
        chains: Any, nodes: Any, chain_step: Any, node_step: Any, label_count: Any,
        p1: Any, p2: Any,
    ) -> None:  # fmt: skip
        lane = cuda.threadIdx.x
        chain = int32(cuda.blockIdx.x * _WARPS + cuda.threadIdx.y)
        if chain >= chains:
            return
        inside = lane + _LANES * (per_lane - 1) < label_count
        row = cuda.local.array(per_lane, number)
        cost = cuda.local.array(per_lane, number)
        pixel = int32(chain * chain_step)
        at = position(pixel, label_count, lane)
        load(costs, at, inside, row)
        store(row, out, at, inside)

        pixel = int32(pixel + (nodes - 1) * node_step)
        at = position(pixel, label_count, lane)
        load(costs, at, inside, row)
        store(row, out, at, inside)
        # Nodes of the far part whose rows are read again: see `dualmm_level`.
        halvings = int32(0)
        while nodes >> (halvings + 1) > 0:
            halvings = int32(halvings + 1)
        for count in range(2, nodes // 2 + 1):
            pixel = int32(pixel - node_step)
            weight = weights[uint32(pixel)]
            at = position(pixel, label_count, lane)
            load(costs, at, inside, cost)
            message(row, p1 * weight, p2 * weight, lane, row)
            add(row, cost, row)
            if count == nodes >> (halvings - 1):
                halvings = int32(halvings - 1)
                store(row, out, at, inside)

    return dualmm_begin


@kernel_family(*TYPICAL)
def _level_kernel(per_lane: int, dtype: str) -> Kernel:
    """Cut every interval of a level in two; intervals: (count, 2), fresh and far end of each.

    ``out`` holds the row of the fresh end and those that the walk from the far end left behind: in
    an interval of n nodes those that are n//2, n//4, ..., 1 nodes from the far end, where the far
    parts of later intervals begin.
    """
    number = getattr(numba, dtype)
    rows = row_functions(per_lane, dtype)
    position, load, store, message, cut, add = (
        rows.position, rows.load, rows.store, rows.message, rows.cut, rows.add,
    )  # fmt: skip

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1], int32[:, ::1],"
        f" int32, int32, int32, int32, {dtype}, {dtype}",
        _THREADS,
    )
    def dualmm_level(
        costs: Any, out: Any, weights: Any, intervals: Any,
        chains: Any, chain_step: Any, node_step: Any, label_count: Any, p1: Any, p2: Any,
    ) -> None:  # fmt: skip
        lane = cuda.threadIdx.x
        chain = int32(cuda.blockIdx.x * _WARPS + cuda.threadIdx.y)
        if chain >= chains:
            return
        inside = lane + _LANES * (per_lane - 1) < label_count
        interval = cuda.blockIdx.y
        fresh = intervals[interval, 0]
        far = intervals[interval, 1]
        step = node_step if far > fresh else int32(-node_step)
        size = int32(abs(far - fresh) + 1)
        near_size = int32((size + 1) // 2)

        # Walk from the fresh end to the last node of its half.
        row = cuda.local.array(per_lane, number)
        cost = cuda.local.array(per_lane, number)
        pixel = int32(chain * chain_step + fresh * node_step)
        load(out, position(pixel, label_count, lane), inside, row)
        halvings = int32(0)
        while near_size >> (halvings + 1) > 0:
            halvings = int32(halvings + 1)
        for count in range(2, near_size + 1):
            following = int32(pixel + step)
            weight = weights[uint32(min(pixel, following))]
            pixel = following
            at = position(pixel, label_count, lane)
            load(costs, at, inside, cost)
            message(row, p1 * weight, p2 * weight, lane, row)
            add(row, cost, row)
            if count == near_size >> (halvings - 1):
                halvings = int32(halvings - 1)
                if count < near_size:
                    store(row, out, at, inside)

        # Cut the edge to the other half; both parts start again from their nodes' own costs.
        beyond = int32(pixel + step)
        weight = weights[uint32(min(pixel, beyond))]
        at_beyond = position(beyond, label_count, lane)
        other = cuda.local.array(per_lane, number)
        load(out, at_beyond, inside, other)
        m = cuda.local.array(per_lane, number)
        back = cuda.local.array(per_lane, number)
        share = number(near_size) / number(size)
        cut(row, other, p1 * weight, p2 * weight, share, lane, inside, m, back)
        add(m, cost, m)
        store(m, out, position(pixel, label_count, lane), inside)
        load(costs, at_beyond, inside, cost)
        add(back, cost, back)
        store(back, out, at_beyond, inside)

    return dualmm_level


@kernel_family(*TYPICAL)
def _leaves_kernel(per_lane: int, dtype: str) -> Kernel:
    """Cut intervals of two to four nodes until every node is alone, and write the results."""
    number = getattr(numba, dtype)
    rows = row_functions(per_lane, dtype)
    position, load, message, cut, add, finish = (
        rows.position, rows.load, rows.message, rows.cut, rows.add, rows.finish,
    )  # fmt: skip

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}[::1], int32[::1],"
        f" int32[:, ::1], int32, int32, int32, int32, {dtype}, {dtype}, int32, int32",
        _THREADS,
    )
    def dualmm_leaves(
        f: Any, costs: Any, out: Any, weights: Any, minima: Any, winners: Any, intervals: Any,
        chains: Any, chain_step: Any, node_step: Any, label_count: Any, p1: Any, p2: Any,
        plain: Any, vote: Any,
    ) -> None:  # fmt: skip
        lane = cuda.threadIdx.x
        chain = int32(cuda.blockIdx.x * _WARPS + cuda.threadIdx.y)
        if chain >= chains:
            return
        inside = lane + _LANES * (per_lane - 1) < label_count
        interval = cuda.blockIdx.y
        fresh = intervals[interval, 0]
        far = intervals[interval, 1]
        step = node_step if far > fresh else int32(-node_step)
        size = int32(abs(far - fresh) + 1)
        half = number(0.5)

        # Nodes x, a on the near side and b, z on the far side; with fewer than four nodes there
        # is no z, with two no x either.
        row_x = cuda.local.array(per_lane, number)
        cost_x = cuda.local.array(per_lane, number)
        row_a = cuda.local.array(per_lane, number)
        cost_a = cuda.local.array(per_lane, number)
        row_b = cuda.local.array(per_lane, number)
        cost_b = cuda.local.array(per_lane, number)
        m = cuda.local.array(per_lane, number)
        back = cuda.local.array(per_lane, number)

        pixel_x = int32(chain * chain_step + fresh * node_step)
        at_x = position(pixel_x, label_count, lane)
        pixel_a = pixel_x
        weight_x = number(0)
        if size > 2:
            pixel_a = int32(pixel_x + step)
            weight_x = weights[uint32(min(pixel_x, pixel_a))]
            load(out, at_x, inside, row_x)
        at_a = position(pixel_a, label_count, lane)
        load(costs, at_a, inside, cost_a)
        if size > 2:
            message(row_x, p1 * weight_x, p2 * weight_x, lane, row_a)
            add(row_a, cost_a, row_a)
        else:
            load(out, at_a, inside, row_a)
        pixel_b = int32(pixel_a + step)
        at_b = position(pixel_b, label_count, lane)
        load(out, at_b, inside, row_b)
        load(costs, at_b, inside, cost_b)

        weight = weights[uint32(min(pixel_a, pixel_b))]
        share = number((size + 1) // 2) / number(size)
        cut(row_a, row_b, p1 * weight, p2 * weight, share, lane, inside, m, back)
        if size > 3:
            add(cost_b, back, row_b)
        else:
            add(row_b, back, row_b)
            finish(row_b, cost_b, f, out, minima, winners, pixel_b, at_b, inside, lane, plain, vote)
        if size > 2:
            add(cost_a, m, row_a)
            cut(row_a, row_x, p1 * weight_x, p2 * weight_x, half, lane, inside, m, back)
            add(row_x, back, row_x)
            if not plain:
                load(costs, at_x, inside, cost_x)
            finish(row_x, cost_x, f, out, minima, winners, pixel_x, at_x, inside, lane, plain, vote)
        add(row_a, m, row_a)
        finish(row_a, cost_a, f, out, minima, winners, pixel_a, at_a, inside, lane, plain, vote)
        if size > 3:
            pixel_z = int32(pixel_b + step)
            at_z = position(pixel_z, label_count, lane)
            weight = weights[uint32(min(pixel_b, pixel_z))]
            load(out, at_z, inside, row_x)
            cut(row_b, row_x, p1 * weight, p2 * weight, half, lane, inside, m, back)
            add(row_b, m, row_b)
            finish(row_b, cost_b, f, out, minima, winners, pixel_b, at_b, inside, lane, plain, vote)
            add(row_x, back, row_x)
            if not plain:
                load(costs, at_z, inside, cost_x)
            finish(row_x, cost_x, f, out, minima, winners, pixel_z, at_z, inside, lane, plain, vote)

    return dualmm_leaves


@kernel_family(*TYPICAL)
def _lone_nodes_kernel(per_lane: int, dtype: str) -> Kernel:
    """Chains of one node have no edges: F is the node's cost."""
    number = getattr(numba, dtype)
    rows = row_functions(per_lane, dtype)
    position, load, finish = rows.position, rows.load, rows.finish

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}[::1], int32[::1],"
        " int32, int32, int32, int32",
        _THREADS,
    )
    def dualmm_lone_nodes(
        f: Any, costs: Any, out: Any, minima: Any, winners: Any,
        pixels: Any, label_count: Any, plain: Any, vote: Any,
    ) -> None:  # fmt: skip
        lane = cuda.threadIdx.x
        pixel = int32(cuda.blockIdx.x * _WARPS + cuda.threadIdx.y)
        if pixel >= pixels:
            return
        inside = lane + _LANES * (per_lane - 1) < label_count
        row = cuda.local.array(per_lane, number)
        cost = cuda.local.array(per_lane, number)
        at = position(pixel, label_count, lane)
        load(costs, at, inside, row)
        load(costs, at, inside, cost)
        finish(row, cost, f, out, minima, winners, pixel, at, inside, lane, plain, vote)

    return dualmm_lone_nodes


@cache
def _levels(nodes: int) -> list[np.ndarray]:
    """The intervals of every level, (count, 2) each; those of the last have 2 to 4 nodes."""
    levels = [np.array([[0, nodes - 1]], np.int32)]
    while (np.abs(levels[-1][:, 1] - levels[-1][:, 0]) + 1).max() > _LARGEST_LEAF:
        fresh, far = levels[-1].T
        way = np.sign(far - fresh)
        a = fresh + way * ((np.abs(far - fresh) + 2) // 2 - 1)
        parts = np.stack([np.stack([a, fresh], 1), np.stack([a + way, far], 1)], 1)
        levels.append(np.ascontiguousarray(parts.reshape(-1, 2), np.int32))
    return levels


def move_minorants(
    f: Any, costs: Any, out: Any, weights: Any, minima: Any, winners: Any,
    grid: tuple[int, int, int, int], penalties: tuple[float, float], plain: bool, vote: bool,
) -> None:  # fmt: skip
    """All chains of one orientation: out = f - costs + F, or F; minima = min F of every pixel.

    grid: number of chains, their length, pixels from chain to chain and from node to node.
    """
    chains, nodes, chain_step, node_step = grid
    label_count = f.size // minima.size
    kind = -(-label_count // _LANES), str(f.dtype)
    blocks = blocks_for(chains, _WARPS)
    if nodes == 1:
        launch(
            _lone_nodes_kernel(*kind), blocks, _BLOCK,
            f, costs, out, minima, winners, chains, label_count, plain, vote,
        )  # fmt: skip
        return
    launch(
        _begin_kernel(*kind), blocks, _BLOCK,
        costs, out, weights, chains, nodes, chain_step, node_step, label_count, *penalties,
    )  # fmt: skip
    steps = chains, chain_step, node_step, label_count
    *levels, leaves = _levels(nodes)
    for intervals in levels:
        launch(
            _level_kernel(*kind), (blocks, len(intervals)), _BLOCK,
            costs, out, weights, cudalib.to_device(intervals), *steps, *penalties,
        )  # fmt: skip
    launch(
        _leaves_kernel(*kind), (blocks, len(leaves)), _BLOCK,
        f, costs, out, weights, minima, winners, cudalib.to_device(leaves),
        *steps, *penalties, plain, vote,
    )  # fmt: skip
