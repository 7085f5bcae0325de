"""Dual_MM on the GPU: the twin of ``dualmm_cpu.py``; the sweeps are in ``cuda/chains.py``.

In the read-out a warp processes a pixel, each lane some of its labels.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import float64, int32, uint32, uint64

from .backend import CrfGradients
from .constants import SMALLEST_CURVATURE, TIE_BLOCK, TIE_TOLERANCE
from .cuda import cudalib
from .cuda.chain_gradients import chain_gradients
from .cuda.chains import move_minorants
from .cuda.cudalib import Kernel, blocks_for, device_function, kernel, kernel_family, launch
from .cuda.sums import add_up, sum_of, total
from .penalty import rho

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_LANES = 32
_WARPS = 4  # per block
_BLOCK = (_LANES, _WARPS)
_THREADS = _LANES * _WARPS
_ALL_LANES = 0xFFFFFFFF
_NO_LABEL = 2**31 - 1

_rho = device_function(rho)


def dual_mm(
    f: Any,
    wx: Any,
    wy: Any,
    p1: float,
    p2: float,
    iterations: int,
    row_label_map: Any = None,
    costs: Any = None,
) -> tuple[Any, np.ndarray]:
    """Minimise the CRF by Dual_MM; arguments and results as `dualmm_cpu.dual_mm`.

    ``f``, the minorant, ``row_label_map`` and ``costs`` are on the device, the bounds are not.
    """
    height, width, label_count = f.shape
    volume = cudalib.to_device(f).reshape(-1)
    weights = [cudalib.to_device(w, volume.dtype).reshape(-1) for w in (wx, wy)]
    rows, columns = (height, width, width, 1), (width, height, 1, width)
    volumes = [cudalib.empty(volume.shape, volume.dtype) for _ in range(2)]
    sweeps = 2 * iterations
    minima = cudalib.empty((height * width,), volume.dtype)
    sums = []
    no_winners = cudalib.empty((1,), np.int32)
    # The costs start as f, and f - f + F is F.
    start = volume if costs is None else costs.reshape(-1)
    for sweep in range(sweeps):
        vote = row_label_map is not None and sweep == sweeps - 2
        move_minorants(
            volume,
            volumes[(sweep - 1) % 2] if sweep else start,
            volumes[sweep % 2],
            weights[sweep % 2],
            minima,
            row_label_map.reshape(-1) if vote else no_winners,
            columns if sweep % 2 else rows,
            (p1, p2),
            plain=(sweep == 0 and costs is None) or sweep == sweeps - 1,
            vote=vote,
        )
        sums.append(add_up(minima))
    minorant = volumes[(sweeps - 1) % 2].reshape(height, width, label_count)
    bounds = np.array([total(x) for x in sums])
    if costs is not None:
        carry_into(costs, volumes[sweeps % 2], minorant, 0.0)  # a copy
        bounds[0] = -np.inf
    return minorant, bounds


# ---------------------------------------------------------------- gradients


@kernel_family(("float32",), ("float64",))
def _weight_gradient_kernel(dtype: str) -> Kernel:
    """The gradients of edge weights, and the terms of those of P1 and P2."""

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}, {dtype}, {dtype}[::1], float64[::1],"
        " float64[::1], int32",
        _THREADS,
    )
    def dualmm_weight_gradient(
        weights: Any, dsteps: Any, djumps: Any, p1: Any, p2: Any, dweights: Any, p1_terms: Any,
        p2_terms: Any, pixels: Any,
    ) -> None:  # fmt: skip
        # All (pixels,).
        i = uint32(cuda.grid(1))
        if i < pixels:
            dstep, djump = dsteps[i], djumps[i]
            dweights[i] = p1 * dstep + p2 * djump
            p1_terms[i] = float64(weights[i]) * float64(dstep)
            p2_terms[i] = float64(weights[i]) * float64(djump)

    return dualmm_weight_gradient


def dual_mm_backward(
    f: Any, wx: Any, wy: Any, p1: float, p2: float, iterations: int, dminorant: Any
) -> CrfGradients:
    """Gradients of what `dual_mm` depends on, as `dualmm_cpu.dual_mm_backward`."""
    height, width = f.shape[:2]
    volume = cudalib.to_device(f).reshape(-1)
    dtype = volume.dtype
    weights = [cudalib.to_device(w, dtype).reshape(-1) for w in (wx, wy)]
    grids = (height, width, width, 1), (width, height, 1, width)
    pixels = height * width
    minima, no_winners = cudalib.empty((pixels,), dtype), cudalib.empty((1,), np.int32)
    costs = [volume]  # at the beginning of every sweep
    for sweep in range(2 * iterations - 1):
        following = cudalib.empty(volume.shape, dtype)
        move_minorants(
            volume, costs[-1], following, weights[sweep % 2], minima, no_winners, grids[sweep % 2],
            (p1, p2), plain=sweep == 0, vote=False,
        )  # fmt: skip
        costs.append(following)
    df, dcosts = (cudalib.empty(volume.shape, dtype) for _ in range(2))
    dsteps, djumps = (
        [cudalib.to_device(np.zeros(pixels, dtype)) for _ in range(2)] for _ in range(2)
    )
    gradient = cudalib.to_device(dminorant, dtype).reshape(-1)
    for sweep in reversed(range(2 * iterations)):
        chain_gradients(
            costs.pop(), weights[sweep % 2], gradient, dcosts, df, dsteps[sweep % 2],
            djumps[sweep % 2], grids[sweep % 2], (p1, p2),
            first_sweep=sweep == 0, last_sweep=sweep == 2 * iterations - 1,
        )  # fmt: skip
        gradient = dcosts
    dweights, p1_sums, p2_sums = [], [], []
    for weight, dstep, djump in zip(weights, dsteps, djumps, strict=True):
        dweight = cudalib.empty((height, width), dtype)
        terms = [cudalib.empty((pixels,), np.float64) for _ in range(2)]
        launch(
            _weight_gradient_kernel(str(dtype)), blocks_for(pixels, _THREADS), _THREADS,
            weight, dstep, djump, p1, p2, dweight.reshape(-1), *terms, pixels,
        )  # fmt: skip
        dweights.append(dweight)
        p1_sums.append(add_up(terms[0]))
        p2_sums.append(add_up(terms[1]))
    dp1, dp2 = (sum(total(x) for x in parts) for parts in (p1_sums, p2_sums))
    return CrfGradients(df.reshape(*f.shape), dweights[0], dweights[1], dp1, dp2)


# ---------------------------------------------------------------- a start for another problem


@kernel_family(("float32",), ("float64",))
def _carry_kernel(dtype: str) -> Kernel:
    """costs[i] = f[i] + share * (minorant[i] - costs[i]), or f[i] with a share of 0."""

    @kernel(f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}, int32", _THREADS)
    def dualmm_carry(costs: Any, f: Any, minorant: Any, share: Any, size: Any) -> None:
        i = uint32(cuda.grid(1))
        if i < size:
            if share == 0:
                costs[i] = f[i]
            else:
                costs[i] = f[i] + share * (minorant[i] - costs[i])

    return dualmm_carry


def carry_into(costs: Any, f: Any, minorant: Any, share: float) -> None:
    """Make working costs a start for another problem, as `dualmm_cpu.carry_into`."""
    launch(
        _carry_kernel(str(costs.dtype)), blocks_for(costs.size, _THREADS), _THREADS,
        costs.reshape(-1), cudalib.to_device(f).reshape(-1), minorant.reshape(-1), share,
        costs.size,
    )  # fmt: skip


# ---------------------------------------------------------------- read-out


@device_function
def _warp_min(value: Any) -> Any:
    """The minimum over the lanes, in all of them."""
    value = min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 16))
    value = min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 8))
    value = min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 4))
    value = min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 2))
    return min(value, cuda.shfl_xor_sync(_ALL_LANES, value, 1))


@kernel_family(("float32", False), ("float32", True))
def _read_out_kernel(dtype: str, break_ties: bool) -> Kernel:
    """label_map[i] = the label of smallest cost of pixel i, the lowest on ties.

    With ``break_ties``, the tie-break is that of `dualmm_cpu.read_out`.  The second pass over the
    costs finds them in cache.
    """
    number = getattr(numba, dtype)
    infinity = math.inf

    @kernel(f"{dtype}[::1], int32[::1], int32, int32", _THREADS)
    def dualmm_read_out(volume: Any, label_map: Any, pixels: Any, label_count: Any) -> None:
        lane = int32(cuda.threadIdx.x)
        pixel = int32(cuda.blockIdx.x * _WARPS + cuda.threadIdx.y)
        if pixel >= pixels:
            return
        at = uint64(uint32(pixel)) * uint64(uint32(label_count))
        low = number(infinity)
        for k in range(lane, label_count, _LANES):
            low = min(low, volume[at + uint64(k)])
        low = _warp_min(low)
        limit = low
        if break_ties:
            limit = low + number(TIE_TOLERANCE) * abs(low)
        first = int32(_NO_LABEL)
        for k in range(lane, label_count, _LANES):
            if volume[at + uint64(k)] <= limit:
                first = min(first, int32(k))
        first = _warp_min(first)
        if first == _NO_LABEL:  # all costs are NaN: callers need a valid index
            first = int32(0)
        if break_ties:
            # The highest tied label of its block: the lowest of the negated ones.
            begin = int32(first // TIE_BLOCK * TIE_BLOCK)
            k = int32(begin + lane)
            tied = int32(-first)
            if lane < TIE_BLOCK and k < label_count and volume[at + uint64(k)] <= limit:
                tied = int32(-k)
            first = int32(-_warp_min(tied))
        if lane == 0:
            label_map[uint32(pixel)] = first

    return dualmm_read_out


def _label_per_pixel(volume: Any, break_ties: bool) -> Any:
    volume = cudalib.to_device(volume)
    height, width, label_count = volume.shape
    label_map = cudalib.empty((height, width), np.int32)
    launch(
        _read_out_kernel(str(volume.dtype), break_ties), blocks_for(label_map.size, _WARPS), _BLOCK,
        volume.reshape(-1), label_map.reshape(-1), label_map.size, label_count,
    )  # fmt: skip
    return label_map


def argmin(volume: Any) -> Any:
    """The label of smallest cost, the lowest on ties: (H, W, K) -> int32 (H, W)."""
    return _label_per_pixel(volume, break_ties=False)


def read_out(minorant: Any) -> Any:
    """The solution that a minorant stands for, as `dualmm_cpu.read_out`."""
    return _label_per_pixel(minorant, break_ties=True)


# ---------------------------------------------------------------- costs of single labels

# If every lane looked up its own label, it would use 4 bytes of each 32-byte sector that memory
# delivers.  So lanes are grouped by sectors (8 for float32, 4 for float64): they take turns, all
# lanes of the group load the sector that one of them needs, and those that hold its costs pass them
# on by shuffles.  Memory traffic is then minimal, one sector per pixel and for the refinement
# sometimes two, each loaded once; a pass over all labels of a pixel would load K / 8.  It is also
# what limits these kernels: the turns take less time.  Indices fit into 32 bits, since no device
# array has more elements (`devices.py`).
_SECTOR_BYTES = 32


def _lanes_per_sector(dtype: str) -> int:
    return _SECTOR_BYTES // np.dtype(dtype).itemsize


@kernel_family(("float32",), ("float64",))
def _energy_kernel(dtype: str) -> Kernel:
    """terms[i] = what pixel i contributes to the energy: its cost and its two edges."""
    number = getattr(numba, dtype)
    sector = _lanes_per_sector(dtype)

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1], float64, float64, int32[::1], float64[::1],"
        " int32, int32, int32",
        _THREADS,
    )
    def dualmm_energy(
        f: Any, wx: Any, wy: Any, p1: Any, p2: Any, label_map: Any, terms: Any,
        height: Any, width: Any, label_count: Any,
    ) -> None:  # fmt: skip
        # f: (height * width, K); the others: (height * width,).
        thread = uint32(cuda.grid(1))
        pixels = int32(height * width)
        i = min(thread, uint32(pixels - 1))  # every lane takes part in the shuffles
        label = label_map[i]
        member = uint32(thread % sector)
        group = uint32(cuda.threadIdx.x % _LANES - member)
        last = uint32(uint32(pixels) * uint32(label_count) - 1)
        at = int32(i * uint32(label_count) + uint32(label))
        cost = number(0)
        for turn in range(sector):
            asked = uint32(cuda.shfl_sync(_ALL_LANES, at, group + turn))
            held = f[min(uint32(asked - asked % sector + member), last)]
            held = cuda.shfl_sync(_ALL_LANES, held, group + asked % sector)
            if member == turn:
                cost = held
        if thread >= pixels:
            return
        term = float64(cost)
        if int32(i) % width + 1 < width:
            jump = abs(label - label_map[uint32(i + 1)])
            if jump > 0:
                term += float64(wx[i]) * _rho(jump, p1, p2)
        if int32(i) + width < pixels:
            jump = abs(label - label_map[uint32(i + width)])
            if jump > 0:
                term += float64(wy[i]) * _rho(jump, p1, p2)
        terms[i] = term

    return dualmm_energy


def energy(f: Any, wx: Any, wy: Any, p1: float, p2: float, label_map: Any) -> float:
    """Energy (paper, eq. 1) of a label map, accumulated in float64; arguments as `dual_mm`."""
    f = cudalib.to_device(f)
    height, width, label_count = f.shape
    terms = cudalib.empty((height * width,), np.float64)
    launch(
        _energy_kernel(str(f.dtype)), blocks_for(terms.size, _THREADS), _THREADS,
        f.reshape(-1),
        *(cudalib.to_device(w, f.dtype).reshape(-1) for w in (wx, wy)),
        p1, p2, cudalib.to_device(label_map, np.int32).reshape(-1), terms,
        height, width, label_count,
    )  # fmt: skip
    return sum_of(terms)


@kernel_family(("float32",), ("float64",))
def _refine_kernel(dtype: str) -> Kernel:
    """offsets[i] = sub-label shift of pixel i, in pixels."""
    number = getattr(numba, dtype)
    sector = _lanes_per_sector(dtype)

    @kernel(f"{dtype}[::1], int32[::1], float64, float32[::1], int32, int32", _THREADS)
    def dualmm_refine(
        volume: Any, label_map: Any, step: Any, offsets: Any, pixels: Any, label_count: Any
    ) -> None:
        # volume: (pixels, K); label_map, offsets: (pixels,).
        thread = uint32(cuda.grid(1))
        i = min(thread, uint32(pixels - 1))  # every lane takes part in the shuffles
        z = label_map[i]
        inside = 0 < z < label_count - 1
        member = uint32(thread % sector)
        group = uint32(cuda.threadIdx.x % _LANES - member)
        last = uint32(uint32(pixels) * uint32(label_count) - 1)
        # At the first and last label there is no parabola: any valid index will do.
        at = int32(i * uint32(label_count) + uint32(z - 1 if inside else 0))
        before, here, after = number(0), number(0), number(0)
        for turn in range(sector):
            asked = uint32(cuda.shfl_sync(_ALL_LANES, at, group + turn))
            place = uint32(asked % sector)
            own = uint32(asked - place + member)
            held = volume[min(own, last)]
            # Costs beyond this sector are at the beginning of the next; lanes whose own cost was
            # not requested take them.
            if place + 2 >= sector:
                next_held = volume[min(uint32(own + sector), last)]
                if member < place:
                    held = next_held
            first = cuda.shfl_sync(_ALL_LANES, held, group + place)
            second = cuda.shfl_sync(_ALL_LANES, held, group + (place + 1) % sector)
            third = cuda.shfl_sync(_ALL_LANES, held, group + (place + 2) % sector)
            if member == turn:
                before, here, after = first, second, third
        if thread >= pixels:
            return
        shift = 0.0
        if inside:
            slope = float64(before - after) / (2.0 * step)
            bend = float64(before) - 2.0 * float64(here) + float64(after)
            curvature = bend / (step * step)
            shift = min(max(slope / max(SMALLEST_CURVATURE, curvature), -step), step)
        offsets[i] = shift

    return dualmm_refine


def refine(volume: Any, label_map: Any, step: float) -> Any:
    """Sub-label refinement, as `dualmm_cpu.refine`: offsets in pixels, float32 (H, W)."""
    volume = cudalib.to_device(volume)
    offsets = cudalib.empty(label_map.shape, np.float32)
    launch(
        _refine_kernel(str(volume.dtype)), blocks_for(offsets.size, _THREADS), _THREADS,
        volume.reshape(-1), cudalib.to_device(label_map, np.int32).reshape(-1), step,
        offsets.reshape(-1), offsets.size, volume.shape[2],
    )  # fmt: skip
    return offsets
