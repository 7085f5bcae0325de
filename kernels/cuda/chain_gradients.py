"""The gradient of the minorants of chains on the GPU: the twin of ``cpu/chain_gradients.py``.

A warp does the bisection of a chain once more, as the list of operations that ``bisection.py``
gives, keeps every row in global memory, and takes the operations in reverse.  A row is spread over
the lanes as in ``chains.py``.  Lanes touch only their own labels in memory and pass on what goes to
neighbouring ones in registers, so nothing has to wait for anything.

A chain has some nine times as many rows as nodes, and their gradients take as much again: only so
many chains are processed at a time as `kept_rows_bytes` allows.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import int32, uint32, uint64

from ..bisection import REPLY, SPLIT, bisection
from . import cudalib
from .chains import TYPICAL, row_functions
from .cudalib import Kernel, device_function, kernel, kernel_family, launch
from .warps import warp_sum

__all__ = ["chain_gradients", "kept_rows_bytes"]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_LANES = 32  # also the threads of a block: the few chains shall spread over all multiprocessors
_ALL_LANES = 0xFFFFFFFF
_MOST_SCRATCH = 512 << 20  # bytes, unless a single chain needs more


@kernel_family(*TYPICAL)
def _backward_kernel(per_lane: int, dtype: str) -> Kernel:
    """The gradients of chains, see `chain_gradients`; grid: chains."""
    number = getattr(numba, dtype)
    infinity = math.inf
    last = per_lane - 1
    row_length = _LANES * per_lane
    rows_of = row_functions(per_lane, dtype)
    position, load, store, message, lowest, first_of = (
        rows_of.position, rows_of.load, rows_of.store, rows_of.message, rows_of.lowest,
        rows_of.first_of,
    )  # fmt: skip

    @device_function
    def load_gradient(volume: Any, at: Any, inside: Any, row: Any) -> None:
        """As `load`, with 0 beyond the labels."""
        for j in range(per_lane):
            if j < last or inside:
                row[j] = volume[at + uint64(_LANES * j)]
            else:
                row[j] = number(0)

    @device_function
    def message_back(
        row: Any, dmessage: Any, p1: Any, p2: Any, lane: Any, drow: Any
    ) -> tuple[Any, Any]:
        """Add the gradient of the row's message to that of the row; overwrites ``dmessage``.

        Returns what the penalties get: P1 this lane's part, P2 all of it.
        """
        low = lowest(row)
        jump = p2 + low
        # Neighbours as in `message`.
        below = cuda.local.array(per_lane, number)
        carried = number(infinity)
        for j in range(per_lane):
            rotated = cuda.shfl_sync(_ALL_LANES, row[j], (lane + 31) & 31)
            below[j] = carried if lane == 0 else rotated
            carried = rotated
        carried = number(infinity)
        dstep, djump = number(0), number(0)
        for i in range(per_lane):
            j = last - i
            rotated = cuda.shfl_sync(_ALL_LANES, row[j], (lane + 1) & 31)
            above = carried if lane == 31 else rotated
            carried = rotated
            near = p1 + min(below[j], above)
            g = dmessage[j]
            stays = row[j] <= near and row[j] <= jump
            steps = not stays and near <= jump
            down = steps and below[j] <= above
            drow[j] += g if stays else number(0)
            dstep += g if steps else number(0)
            djump += g if not stays and not steps else number(0)
            # From here on, what the label below and the label above get.
            below[j] = g if down else number(0)
            dmessage[j] = g if steps and not down else number(0)
        carried = number(0)
        for i in range(per_lane):
            j = last - i
            rotated = cuda.shfl_sync(_ALL_LANES, below[j], (lane + 1) & 31)
            drow[j] += carried if lane == 31 else rotated
            carried = rotated
        carried = number(0)
        for j in range(per_lane):
            rotated = cuda.shfl_sync(_ALL_LANES, dmessage[j], (lane + 31) & 31)
            drow[j] += carried if lane == 0 else rotated
            carried = rotated
        djump = warp_sum(djump)
        best = first_of(row, low, lane)
        for j in range(per_lane):
            if lane + _LANES * j == best:
                drow[j] += djump
        return dstep, djump

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}[::1],"
        f" {dtype}[::1], int32[:, ::1], {dtype}[::1], int32[::1], {dtype}[::1], {dtype}[::1],"
        f" int32, int32, int32, int32, int32, int32, {dtype}, {dtype}, int32, int32",
        _LANES,
    )
    def dualmm_backward(
        costs: Any, weights: Any, dfollowing: Any, dcosts: Any, df: Any, dsteps: Any, djumps: Any,
        operations: Any, shares: Any, minorants: Any, rows: Any, drows: Any,
        first_chain: Any, nodes: Any, chain_step: Any, node_step: Any, label_count: Any,
        row_count: Any, p1: Any, p2: Any, first_sweep: Any, last_sweep: Any,
    ) -> None:  # fmt: skip
        # costs, dfollowing, dcosts, df: (pixels, K); weights, dsteps, djumps: (pixels,);
        # operations: (5, M); shares: (M,); minorants: (nodes,); rows, drows: (chains of this
        # launch, row_count, row_length), with +inf and 0 beyond the labels.
        lane = int32(cuda.threadIdx.x)
        own = int32(cuda.blockIdx.x * row_count)
        first = int32((first_chain + cuda.blockIdx.x) * chain_step)
        count = int32(operations.shape[1])
        inside = lane + _LANES * last < label_count
        source = cuda.local.array(per_lane, number)
        base = cuda.local.array(per_lane, number)
        dtarget = cuda.local.array(per_lane, number)
        for j in range(per_lane):
            dtarget[j] = number(0)
        for node in range(nodes):
            pixel = int32(first + node * node_step)
            at = position(int32(own + node), row_length, lane)
            load(costs, position(pixel, label_count, lane), inside, source)
            store(source, rows, at, True)
            store(dtarget, drows, at, True)

        # Lanes look up 32 operations together.  What is read next was often written last, and is
        # still in registers.
        held = int32(-1)
        for begin in range(int32(0), count, int32(_LANES)):
            mine = uint32(min(begin + lane, count - 1))
            my_share = shares[mine]
            my_weight = weights[uint32(first + operations[1, mine] * node_step)]
            my_kind, my_source = operations[0, mine], operations[2, mine]
            my_base, my_target = operations[3, mine], operations[4, mine]
            for i in range(min(int32(count - begin), int32(_LANES))):
                kind = cuda.shfl_sync(_ALL_LANES, my_kind, i)
                source_row = cuda.shfl_sync(_ALL_LANES, my_source, i)
                base_row = cuda.shfl_sync(_ALL_LANES, my_base, i)
                target = cuda.shfl_sync(_ALL_LANES, my_target, i)
                weight = cuda.shfl_sync(_ALL_LANES, my_weight, i)
                share = cuda.shfl_sync(_ALL_LANES, my_share, i)
                at_target = position(int32(own + target), row_length, lane)
                if source_row != held:
                    load(rows, position(int32(own + source_row), row_length, lane), True, source)
                load(rows, position(int32(own + base_row), row_length, lane), True, base)
                message(source, p1 * weight, p2 * weight, lane, source)
                held = target
                if kind == SPLIT:
                    for j in range(per_lane):
                        source[j] = share * (source[j] + base[j]) - source[j]
                    store(source, rows, at_target, True)
                elif kind == REPLY:
                    for j in range(per_lane):
                        base[j] += source[j]
                    store(base, rows, at_target, True)
                    held = int32(target + 1)
                    for j in range(per_lane):
                        source[j] = -source[j] if j < last or inside else number(infinity)
                    at_negated = position(int32(own + held), row_length, lane)
                    store(source, rows, at_negated, True)
                    store(dtarget, drows, at_negated, True)
                else:
                    for j in range(per_lane):
                        source[j] += base[j]
                    store(source, rows, at_target, True)
                store(dtarget, drows, at_target, True)  # still 0

        for node in range(nodes):
            pixel = int32(first + node * node_step)
            at = position(int32(own + minorants[uint32(node)]), row_length, lane)
            load_gradient(dfollowing, position(pixel, label_count, lane), inside, dtarget)
            store(dtarget, drows, at, True)

        dbase = cuda.local.array(per_lane, number)
        dsource = cuda.local.array(per_lane, number)
        held = int32(-1)
        batches = int32((count + _LANES - 1) // _LANES)
        for done in range(batches):
            begin = int32((batches - 1 - done) * _LANES)
            mine = uint32(min(begin + lane, count - 1))
            my_share = shares[mine]
            my_pixel = int32(first + operations[1, mine] * node_step)
            my_weight = weights[uint32(my_pixel)]
            my_kind, my_source = operations[0, mine], operations[2, mine]
            my_base, my_target = operations[3, mine], operations[4, mine]
            size = min(int32(count - begin), int32(_LANES))
            for back in range(size):
                i = int32(size - 1 - back)
                kind = cuda.shfl_sync(_ALL_LANES, my_kind, i)
                source_row = cuda.shfl_sync(_ALL_LANES, my_source, i)
                base_row = cuda.shfl_sync(_ALL_LANES, my_base, i)
                target = cuda.shfl_sync(_ALL_LANES, my_target, i)
                weight = cuda.shfl_sync(_ALL_LANES, my_weight, i)
                pixel = cuda.shfl_sync(_ALL_LANES, my_pixel, i)
                share = cuda.shfl_sync(_ALL_LANES, my_share, i)
                at_source = position(int32(own + source_row), row_length, lane)
                at_base = position(int32(own + base_row), row_length, lane)
                if target == held:
                    for j in range(per_lane):
                        dtarget[j] = dsource[j]
                else:
                    at_target = position(int32(own + target), row_length, lane)
                    load(drows, at_target, True, dtarget)
                load(rows, at_source, True, source)
                load(drows, at_source, True, dsource)
                load(drows, at_base, True, dbase)  # another row than the source
                factor = share if kind == SPLIT else number(1)
                for j in range(per_lane):
                    dbase[j] += factor * dtarget[j]
                store(dbase, drows, at_base, True)
                if kind == SPLIT:
                    for j in range(per_lane):
                        dtarget[j] = share * dtarget[j] - dtarget[j]
                elif kind == REPLY:
                    at_negated = position(int32(own + target + 1), row_length, lane)
                    load(drows, at_negated, True, dbase)
                    for j in range(per_lane):
                        dtarget[j] -= dbase[j]
                dstep, djump = message_back(
                    source, dtarget, p1 * weight, p2 * weight, lane, dsource
                )
                store(dsource, drows, at_source, True)
                held = source_row
                dstep = warp_sum(dstep)
                if lane == 0:
                    dsteps[uint32(pixel)] += dstep
                    djumps[uint32(pixel)] += djump

        # The costs of the next sweep are f - costs + F(costs), those of the first one f; of the
        # last sweep F itself is the result.
        for node in range(nodes):
            pixel = int32(first + node * node_step)
            at = position(pixel, label_count, lane)
            load(drows, position(int32(own + node), row_length, lane), True, dsource)
            for j in range(per_lane):
                dbase[j] = number(0)
            if not last_sweep:
                load_gradient(df, at, inside, dbase)
                load_gradient(dfollowing, at, inside, dtarget)
                for j in range(per_lane):
                    dbase[j] += dsource[j] if first_sweep else dtarget[j]
                    dsource[j] -= dtarget[j]
            store(dbase, df, at, inside)
            store(dsource, dcosts, at, inside)

    return dualmm_backward


def _scratch_plan(chains: int, nodes: int, label_count: int, itemsize: int) -> tuple[int, int]:
    """Rows and gradients of a chain in bytes, and how many chains are processed at a time."""
    row_length = cudalib.round_up(label_count, _LANES)
    size = 2 * bisection(nodes).rows * row_length * itemsize
    return size, max(min(_MOST_SCRATCH // size, chains), 1)


def kept_rows_bytes(chains: int, nodes: int, label_count: int) -> int:
    """Bytes that `chain_gradients` needs beside its arguments, in single precision."""
    size, together = _scratch_plan(chains, nodes, label_count, 4)
    return together * size


def chain_gradients(
    costs: Any, weights: Any, dfollowing: Any, dcosts: Any, df: Any, dsteps: Any, djumps: Any,
    grid: tuple[int, int, int, int], penalties: tuple[float, float],
    first_sweep: bool, last_sweep: bool,
) -> None:  # fmt: skip
    """The backward pass of a sweep over all chains of one orientation.

    Parameters
    ----------
    costs, weights, grid, penalties
        As for `move_minorants`.
    dfollowing
        Gradient of what the sweep hands on, ``f - costs + F``, or of F if it is the last one.
    dcosts
        Receives the gradient of the costs, except for the first sweep; may be ``dfollowing``.
    df, dsteps, djumps
        The gradients of f, and of P1 and P2 of every edge: this sweep's are added.  The last sweep,
        which is processed first, makes df anew.
    """
    chains, nodes, chain_step, node_step = grid
    label_count = costs.size // weights.size
    dtype = costs.dtype
    operations, shares, minorants, row_count = bisection(nodes)
    size, together = _scratch_plan(chains, nodes, label_count, dtype.itemsize)
    rows, drows = (cudalib.empty((together * size // 2 // dtype.itemsize,), dtype) for _ in "rd")
    on_device = (
        cudalib.to_device(np.ascontiguousarray(operations[:, :5].T)),
        cudalib.to_device(shares, dtype),
        cudalib.to_device(minorants),
    )
    for first in range(0, chains, together):
        launch(
            _backward_kernel(-(-label_count // _LANES), str(dtype)),
            min(together, chains - first), _LANES,
            costs, weights, dfollowing, dcosts, df, dsteps, djumps, *on_device, rows, drows,
            first, nodes, chain_step, node_step, label_count, row_count, *penalties,
            first_sweep, last_sweep,
        )  # fmt: skip
