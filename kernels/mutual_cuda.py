"""The softmax of both views on the GPU: the twin of ``mutual_cpu.py``, which has the formulas.

Label k of left pixel x matches right pixel ``r = x + nearest[k]``: the matches of a right pixel lie
on a diagonal of a row's costs (W, K).  To add them up, a block takes some neighbouring right pixels
and each of its warps some neighbouring labels, whose sums it keeps in shared memory.  It goes from
one left pixel to the next; its lanes then read neighbouring costs of that pixel, which belong to
different right pixels.  Warps have sums of their own, added in a fixed order: no atomics.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt
from typing import Any

import numba
import numpy as np
from numba import int32, uint32

from .constants import SMALLEST_SUM
from .cuda import cudalib
from .cuda.cudalib import Kernel, blocks_for, kernel, kernel_family, launch
from .cuda.warps import warp_max, warp_sum
from .label_positions import label_positions

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_WARP = 32
_ALL_LANES = 0xFFFFFFFF
_SEGMENT = 256  # right pixels of a block
_WARPS = 4  # of a block at most
_SUMS = _WARPS * _SEGMENT  # sizes of shared arrays have to be plain constants
_AHEAD = 4  # left pixels whose costs are read before the first of them is added
_PIXEL_WARPS = 8  # of a block with a warp for every left pixel

_FURTHEST = log(SMALLEST_SUM)


# ---------------------------------------------------------------- sums over a right pixel's matches


@kernel_family(("float32", False, 1), ("float32", False, 2), ("float32", True, 1),
               ("float32", True, 2), ("float64", False, 1), ("float64", True, 1))  # fmt: skip
def _match_kernel(dtype: str, backward: bool, together: int) -> Kernel:
    """Sums of a right pixel's matches; grid: (segments of right pixels, rows).

    Forward of what the right softmax divides by, backward of half of ``f df``.  ``together`` is the
    most labels that match the same pixel.
    """
    real = getattr(numba, dtype)
    array = f"{dtype}[::1]"

    @kernel(f"{array}, {array}, {array}, int32[::1], {array}, {array}, int32, int32, int32",
            _WARPS * _WARP)  # fmt: skip
    def add_matches(
        f: Any, other: Any, largest: Any, nearest: Any, sums: Any, factors: Any,
        width: Any, right_width: Any, label_count: Any,
    ) -> None:  # fmt: skip
        # f: (H, W, K); other: forward log_sums (H, W), backward df (H, W, K); largest: (H,), that
        # of a row of log_sums; nearest: (K,), descending; sums: (H, V), forward of them the
        # logarithms; factors: (H, V), forward 1 / sqrt(sum).
        shared = cuda.shared.array(_SUMS, real)
        values = cuda.local.array(_AHEAD, real)
        thread = int32(cuda.threadIdx.x)
        threads = int32(cuda.blockDim.x)
        lane = int32(thread % _WARP)
        own = int32(thread // _WARP * _SEGMENT)
        own_turn = uint32(lane % together)
        row = int32(cuda.blockIdx.y)
        first_right = int32(cuda.blockIdx.x * _SEGMENT)
        here = int32(min(right_width - first_right, _SEGMENT))
        top = real(0)
        if not backward:
            top = largest[row]
        for i in range(thread, _SUMS, threads):
            shared[i] = real(0)
        cuda.syncthreads()

        low_label = int32(thread - lane)
        while low_label < label_count:
            high_label = int32(min(low_label + _WARP, label_count) - 1)
            # The left pixels of which one of these labels matches a right pixel of the block.
            first = int32(max(first_right - nearest[low_label], 0))
            last = int32(min(first_right + here - nearest[high_label], width))
            # Those of them that this lane's label matches with one.
            k = int32(low_label + lane)
            low, high, shift = last, first, int32(0)
            if k < label_count:
                shift = int32(nearest[k] - first_right)
                low, high = int32(max(first, -shift)), int32(min(last, here - shift))
            at = uint32((row * width + first) * label_count + k)
            place = int32(own + first + shift)
            share = real(0)
            x = first
            while x < last:
                if not backward and x + lane < last:
                    # A lane for each of the next left pixels.
                    near = other[uint32(row * width + x + lane)] - top
                    share = -exp(max(near, real(_FURTHEST)))
                pixel = uint32(0)
                while pixel < _WARP and x < last:
                    for j in range(_AHEAD):
                        values[j] = real(0)
                        if low <= x + j < high:
                            values[j] = f[uint32(at + j * label_count)]
                            if backward:
                                values[j] *= other[uint32(at + j * label_count)]
                    for j in range(_AHEAD):
                        weight = real(0.5)
                        if not backward:
                            weight = cuda.shfl_sync(_ALL_LANES, share, uint32(pixel + j))
                        # Labels ``together`` apart match different pixels: lanes that add at the
                        # same time never share one.
                        for turn in range(together):
                            if low <= x + j < high and turn == own_turn:
                                shared[uint32(place + j)] += weight * values[j]
                            cuda.syncwarp()
                    pixel = uint32(pixel + _AHEAD)
                    x = int32(x + _AHEAD)
                    at = uint32(at + _AHEAD * label_count)
                    place = int32(place + _AHEAD)
            low_label = int32(low_label + threads)
        cuda.syncthreads()

        for r in range(thread, here, threads):
            total = real(0)
            for start in range(int32(0), int32(threads // _WARP * _SEGMENT), _SEGMENT):
                total += shared[start + r]
            i = uint32(row * right_width + first_right + r)
            if backward:
                sums[i] = total
            else:
                total = max(total, real(SMALLEST_SUM))
                sums[i] = top + log(total)
                factors[i] = real(1) / sqrt(total)

    return add_matches


def _add_matches(f: Any, other: Any, largest: Any, sums: Any, factors: Any, nearest: Any,
                 together: int, backward: bool) -> None:  # fmt: skip
    """Launch `_match_kernel`; sums (H, V)."""
    height, width, label_count = f.shape
    right_width = sums.shape[1]
    warps = min(blocks_for(label_count, _WARP), _WARPS)
    launch(
        _match_kernel(f.dtype.name, backward, together),
        (blocks_for(right_width, _SEGMENT), height), warps * _WARP,
        f.reshape(-1), other.reshape(-1), largest, nearest, sums.reshape(-1), factors.reshape(-1),
        width, right_width, label_count,
    )  # fmt: skip


def _matches(disparities: np.ndarray) -> tuple[Any, int]:
    """``r - x`` of every label (K,), and how many labels at most have the same."""
    positions = label_positions(cudalib.to_host(disparities), np.float64)
    together = int(np.unique(positions.nearest, return_counts=True)[1].max())
    return cudalib.to_device(positions.nearest), together


# ---------------------------------------------------------------- forward


@kernel_family(("float32",), ("float64",))
def _largest_kernel(dtype: str) -> Kernel:
    """The largest log_sums of every row; a warp for each."""
    real = getattr(numba, dtype)

    @kernel(f"{dtype}[::1], {dtype}[::1], int32", _WARP)
    def largest_of_rows(log_sums: Any, largest: Any, width: Any) -> None:
        # log_sums: (H, W); largest: (H,).
        lane = int32(cuda.threadIdx.x)
        row = int32(cuda.blockIdx.x)
        found = real(-inf)
        for x in range(lane, width, _WARP):
            found = max(found, log_sums[uint32(row * width + x)])
        found = warp_max(found)
        if lane == 0:
            largest[row] = found

    return largest_of_rows


@kernel_family(("float32",), ("float64",))
def _normalise_kernel(dtype: str) -> Kernel:
    """f (H, W, K) from the left softmax alone -> that of both views; a warp for every pixel."""
    real = getattr(numba, dtype)
    array = f"{dtype}[::1]"

    @kernel(f"{array}, {array}, {array}, {array}, int32[::1], int32, int32, int32, int32",
            _PIXEL_WARPS * _WARP)  # fmt: skip
    def normalise(
        f: Any, log_sums: Any, largest: Any, factors: Any, nearest: Any,
        pixels: Any, width: Any, right_width: Any, label_count: Any,
    ) -> None:  # fmt: skip
        # log_sums: (H, W); largest: (H,); factors: (H, V); nearest: (K,).
        lane = uint32(cuda.threadIdx.x % _WARP)
        pixel = int32(cuda.blockIdx.x * _PIXEL_WARPS + cuda.threadIdx.x // _WARP)
        if pixel >= pixels:
            return
        row = int32(pixel // width)
        x = int32(pixel - row * width)
        near = max(log_sums[uint32(pixel)] - largest[row], real(_FURTHEST))
        share = exp(real(0.5) * near)
        first = int32(row * right_width)
        base = uint32(pixel * label_count)
        k = lane
        while k < label_count:
            r = int32(x + nearest[k])
            if 0 <= r < right_width:
                f[uint32(base + k)] *= share * factors[uint32(first + r)]
            k = uint32(k + _WARP)

    return normalise


def mutual_forward(
    f: Any, log_sums: Any, right_width: int, disparities: np.ndarray
) -> cudalib.DeviceArray:
    """Costs of both views' softmax, in f; arguments as `mutual_cpu.mutual_forward`'s.

    Returns right_log_sums (H, V).
    """
    height, width, label_count = f.shape
    log_sums = cudalib.to_device(log_sums, f.dtype)
    right_log_sums, factors = (cudalib.empty((height, right_width), f.dtype) for _ in range(2))
    if not f.size:
        return right_log_sums
    nearest, together = _matches(disparities)
    largest = cudalib.empty((height,), f.dtype)
    launch(_largest_kernel(f.dtype.name), height, _WARP, log_sums.reshape(-1), largest, width)
    _add_matches(f, log_sums, largest, right_log_sums, factors, nearest, together, False)
    launch(
        _normalise_kernel(f.dtype.name),
        blocks_for(height * width, _PIXEL_WARPS), _PIXEL_WARPS * _WARP,
        f.reshape(-1), log_sums.reshape(-1), largest, factors.reshape(-1), nearest,
        height * width, width, right_width, label_count,
    )  # fmt: skip
    return right_log_sums


# ---------------------------------------------------------------- backward


@kernel_family(("float32",), ("float64",))
def _gradient_kernel(dtype: str) -> Kernel:
    """ds (H, W, K) from df (H, W, K); a warp for every pixel."""
    real = getattr(numba, dtype)
    array = f"{dtype}[::1]"

    @kernel(", ".join([*[array] * 5, "int32[::1]", array, *["int32"] * 4]),
            _PIXEL_WARPS * _WARP)  # fmt: skip
    def mutual_gradient(
        f: Any, df: Any, log_sums: Any, right_log_sums: Any, sums: Any, nearest: Any, ds: Any,
        pixels: Any, width: Any, right_width: Any, label_count: Any,
    ) -> None:  # fmt: skip
        # log_sums: (H, W); right_log_sums, sums of `_match_kernel`: (H, V); nearest: (K,).
        # With g = f df: ds = g - p0 sum_x(g / 2, or g where there is no match) - p1 sum_r(g / 2).
        lane = uint32(cuda.threadIdx.x % _WARP)
        pixel = int32(cuda.blockIdx.x * _PIXEL_WARPS + cuda.threadIdx.x // _WARP)
        if pixel >= pixels:
            return
        row = int32(pixel // width)
        x = int32(pixel - row * width)
        first = int32(row * right_width)
        base = uint32(pixel * label_count)
        total = real(0)
        k = lane
        while k < label_count:
            i = uint32(base + k)
            g = f[i] * df[i]
            if 0 <= x + nearest[k] < right_width:
                g *= real(0.5)
            total += g
            k = uint32(k + _WARP)
        total = warp_sum(total)
        log_sum = log_sums[uint32(pixel)]
        k = lane
        while k < label_count:
            i = uint32(base + k)
            r = int32(x + nearest[k])
            both = total
            if 0 <= r < right_width:
                # p1 = -f * ratio, p0 = -f / ratio
                ratio = exp(real(0.5) * (log_sum - right_log_sums[uint32(first + r)]))
                both = total / ratio + sums[uint32(first + r)] * ratio
            ds[i] = f[i] * (df[i] + both)
            k = uint32(k + _WARP)

    return mutual_gradient


def mutual_backward(
    f: Any, df: Any, log_sums: Any, right_log_sums: Any, disparities: np.ndarray
) -> cudalib.DeviceArray:
    """Gradient ds (H, W, K) of the scores; arguments as `mutual_cpu.mutual_backward`'s."""
    f, df = cudalib.to_device(f), cudalib.to_device(df, f.dtype)
    log_sums, right_log_sums = (cudalib.to_device(x, f.dtype) for x in (log_sums, right_log_sums))
    height, width, label_count = f.shape
    ds = cudalib.empty(f.shape, f.dtype)
    if not f.size:
        return ds
    nearest, together = _matches(disparities)
    sums = cudalib.empty(right_log_sums.shape, f.dtype)
    unused = cudalib.empty((1,), f.dtype)
    _add_matches(f, df, unused, sums, unused, nearest, together, True)
    launch(
        _gradient_kernel(f.dtype.name),
        blocks_for(height * width, _PIXEL_WARPS), _PIXEL_WARPS * _WARP,
        f.reshape(-1), df.reshape(-1), log_sums.reshape(-1), right_log_sums.reshape(-1),
        sums.reshape(-1), nearest, ds.reshape(-1),
        height * width, width, right_log_sums.shape[1], label_count,
    )  # fmt: skip
    return ds
