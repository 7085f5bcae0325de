"""Correlation + softmax on a GPU (paper, eq. 3 and 4), forward and backward.

    s(y, x, k) = <phi0(y, x), phi1(y, x - d_k)>,   f(y, x, k) = -softmax_k(s(y, x, .))

The twin of ``correlation_cpu.py``.  A block of threads takes 32 neighbouring pixels of a row and
multiplies them with all pixels of the other row at 128 neighbouring offsets; a thread keeps 4
pixels x 8 offsets in registers, for which it needs only 11 pixels of the other row.  From these
products, in shared memory, the scores of the labels are taken or interpolated.  They are kept in
the volume, in cache and written and read by one block only, until all labels are done and the
softmax replaces them.  `scores_backward` is in ``cuda/correlation_gradient.py``.
"""

from __future__ import annotations

from math import exp, inf, log
from typing import Any

import numpy as np
from numba import float32, float64, int32, uint32, uint64

from .cuda import cudalib
from .cuda.correlation_gradient import scores_backward
from .cuda.vectors import ALIGNMENT, load4
from .label_positions import label_positions

__all__ = ["correlation_forward", "scores_backward", "softmax_backward"]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_WARP = 32
_ALL_LANES = 0xFFFFFFFF
_PIXELS = 32  # per block
_OFFSETS = 128  # per block at a time
_RUN = 4  # pixels per thread
_SPAN = 8  # offsets of each of them
_THREADS = (_PIXELS // _RUN) * (_OFFSETS // _SPAN)
_WARPS = _THREADS // _WARP
_MOST_CHANNELS = 20  # in shared memory at a time
# Strides in shared memory: four more than the pixels, so that channels begin in different banks.
_LEFT_STRIDE = _PIXELS + 4
_RIGHT_STRIDE = _PIXELS + _OFFSETS + 4
_PRODUCT_STRIDE = _PIXELS + 1  # a pixel's products at neighbouring offsets in different banks
_SOFTMAX_WARPS = 8  # per block, one pixel each


def _real(dtype: str) -> Any:
    return float32 if dtype == "float32" else float64


@cudalib.device_function
def _warp_sum(value: Any) -> Any:
    """The sum over the lanes of a warp, in all of them."""
    for distance in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(_ALL_LANES, value, distance)
    return value


@cudalib.device_function
def _warp_max(value: Any) -> Any:
    """The largest value of a warp, in all its lanes."""
    for distance in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(_ALL_LANES, value, distance))
    return value


# ---------------------------------------------------------------- forward


@cudalib.kernel_family(
    ("float32", 20, True), ("float32", 16, True), ("float32", 3, False), ("float64", 20, True)
)
def _correlation_kernel(dtype: str, chunk: int, vector: bool) -> cudalib.Kernel:
    """The kernel for ``chunk`` channels at a time; grid: (blocks of pixels, rows)."""
    real = _real(dtype)
    step = 4 if vector else 1  # channels loaded at a time
    steps = chunk // step
    left_loads, right_loads = _PIXELS * steps, (_PIXELS + _OFFSETS) * steps
    right_base = chunk * _LEFT_STRIDE
    places = max(chunk * (_LEFT_STRIDE + _RIGHT_STRIDE), _OFFSETS * _PRODUCT_STRIDE)
    window = _RUN + _SPAN  # pixels of the other row that a thread needs, whole vectors
    sums_count = _RUN * _SPAN

    @cudalib.device_function
    def bring(features: Any, row: Any, x: Any, width: Any, channels: Any, channel: Any,
              shared: Any, place: Any, stride: Any) -> None:  # fmt: skip
        # Copy channels of one pixel to shared memory; zeros beyond the image.
        values = cuda.local.array(4, real)
        for i in range(4):
            values[i] = real(0)
        if 0 <= x < width and channel < channels:
            at = uint32((row * width + x) * channels + channel)
            if vector:
                values[0], values[1], values[2], values[3] = load4(features, at)
            else:
                values[0] = features[at]
        for i in range(step):
            shared[uint64(place + i * stride)] = values[i]

    array = f"{dtype}[::1]"

    @cudalib.kernel(f"{array}, {array}, int32[::1], {array}, int32[::1], {array}, {array}, " + (
        ", ".join(["int32"] * 8)), threads=_THREADS)  # fmt: skip
    def correlate(
        left: Any, right: Any, offsets: Any, fractions: Any, firsts: Any, volume: Any,
        log_sums: Any, width: Any, other_width: Any, channels: Any, label_count: Any, chunks: Any,
        highest: Any, advance: Any, keep: Any,
    ) -> None:  # fmt: skip
        # left: (H, W, C); right: (H, other_width, C); offsets, fractions: (K,), see
        # `label_positions`; volume: (H, W, K); firsts: (chunks + 1,), the first label of each chunk
        # of offsets; highest: the largest offset; advance: from the highest offset of a chunk to
        # that of the next; log_sums: (H, W), written only if ``keep``.
        shared = cuda.shared.array(places, real, ALIGNMENT)
        thread = uint32(cuda.threadIdx.x)
        lane = uint32(thread % _WARP)
        warp = uint32(thread // _WARP)
        run = uint32(thread % (_PIXELS // _RUN) * _RUN)
        span = uint32(thread // (_PIXELS // _RUN) * _SPAN)
        row = int32(cuda.blockIdx.y)
        first_pixel = int32(cuda.blockIdx.x * _PIXELS)
        here = uint32(_PIXELS)
        if here > width - first_pixel:
            here = uint32(width - first_pixel)
        base = uint32((row * width + first_pixel) * label_count)
        sums = cuda.local.array(sums_count, real)
        a = cuda.local.array(_RUN, real)
        b = cuda.local.array(window, real)

        for number in range(chunks):
            lowest = int32(highest - number * advance - (_OFFSETS - 1))
            for i in range(sums_count):
                sums[i] = real(0)
            first_channel = uint32(0)
            while first_channel < channels:
                load = thread
                while load < left_loads:
                    pixel = uint32(load // steps)
                    channel = uint32((load - pixel * steps) * step)
                    bring(left, row, first_pixel + pixel, width, channels,
                          uint32(first_channel + channel), shared, channel * _LEFT_STRIDE + pixel,
                          _LEFT_STRIDE)  # fmt: skip
                    load = uint32(load + _THREADS)
                load = thread
                while load < right_loads:
                    pixel = uint32(load // steps)
                    channel = uint32((load - pixel * steps) * step)
                    bring(right, row, first_pixel + lowest + pixel, other_width, channels,
                          uint32(first_channel + channel), shared,
                          right_base + channel * _RIGHT_STRIDE + pixel,
                          _RIGHT_STRIDE)  # fmt: skip
                    load = uint32(load + _THREADS)
                cuda.syncthreads()
                at = run
                other = uint32(right_base + run + span)
                while at < right_base:
                    a[0], a[1], a[2], a[3] = load4(shared, at)
                    for i in range(0, window, 4):
                        b[i], b[i + 1], b[i + 2], b[i + 3] = load4(shared, other + i)
                    for i in range(_RUN):
                        for j in range(_SPAN):
                            sums[i * _SPAN + j] += a[i] * b[i + j]
                    at = uint32(at + _LEFT_STRIDE)
                    other = uint32(other + _RIGHT_STRIDE)
                cuda.syncthreads()
                first_channel = uint32(first_channel + chunk)

            # The products overwrite the pixels.
            at = uint32(span * _PRODUCT_STRIDE + run)
            for i in range(_RUN):
                for j in range(_SPAN):
                    shared[uint64(at + j * _PRODUCT_STRIDE + i)] = sums[i * _SPAN + j]
            cuda.syncthreads()

            # A warp takes a pixel, a lane a label.  A label that looks outside the image scores 0
            # and stays in the softmax (docs/model.md 4).
            first, last = uint32(firsts[number]), uint32(firsts[number + 1])
            pixel = warp
            while pixel < here:
                k = uint32(first + lane)
                while k < last:
                    x = int32(first_pixel + pixel + offsets[k])
                    product = uint32((offsets[k] - lowest) * _PRODUCT_STRIDE + pixel)
                    score = real(0)
                    if 0 <= x < other_width:
                        if fractions[k] == 0:
                            score = shared[product]
                        elif x + 1 < other_width:
                            before = shared[product]
                            after = shared[uint32(product + _PRODUCT_STRIDE)]
                            score = before + fractions[k] * (after - before)
                    volume[uint32(base + pixel * label_count + k)] = score
                    k = uint32(k + _WARP)
                pixel = uint32(pixel + _WARPS)
            cuda.syncthreads()

        pixel = warp
        while pixel < here:
            own = uint32(base + pixel * label_count)
            largest = real(-inf)
            k = lane
            while k < label_count:
                largest = max(largest, volume[uint32(own + k)])
                k = uint32(k + _WARP)
            largest = _warp_max(largest)
            total = real(0)
            k = lane
            while k < label_count:
                total += exp(volume[uint32(own + k)] - largest)
                k = uint32(k + _WARP)
            total = _warp_sum(total)
            if keep and lane == 0:
                log_sums[uint32(row * width + first_pixel + pixel)] = largest + log(total)
            scale = real(-1) / total
            k = lane
            while k < label_count:
                volume[uint32(own + k)] = scale * exp(volume[uint32(own + k)] - largest)
                k = uint32(k + _WARP)
            pixel = uint32(pixel + _WARPS)

    return correlate


def correlation_forward(
    left: Any, right: Any, disparities: np.ndarray, log_sums: Any = None
) -> cudalib.DeviceArray:
    """Unary costs ``f = -softmax(s)`` of all labels.

    Parameters
    ----------
    left, right
        Features (H, W, C) and (H, V, C); of a tile the right view may be wider.
    disparities
        Disparity of every label (K,), ascending and equally spaced; label k of left pixel x
        matches right pixel ``x - disparities[k]``.
    log_sums
        (H, W), receives ``log(sum_k exp(s))``, if given.

    Returns
    -------
    f
        (H, W, K), in [-1, 0].
    """
    left, right = cudalib.to_device(left), cudalib.to_device(right, left.dtype)
    height, width, channels = left.shape
    positions = label_positions(cudalib.to_host(disparities), left.dtype)
    volume = cudalib.empty((height, width, positions.label_count), left.dtype)
    if not volume.size:
        return volume

    # Chunks of offsets; where labels are interpolated, neighbouring chunks share one offset.
    advance = _OFFSETS - positions.reach
    chunk_of_label = (positions.offsets[0] - positions.offsets) // advance
    chunks = int(chunk_of_label[-1]) + 1
    firsts = np.searchsorted(chunk_of_label, np.arange(chunks + 1)).astype(np.int32)

    vector = channels % 4 == 0
    channel_chunk = -(-channels // -(-channels // _MOST_CHANNELS))
    if vector:
        channel_chunk = -(-channel_chunk // 4) * 4
    keep = log_sums is not None
    kept = log_sums if keep else cudalib.empty((1,), left.dtype)
    cudalib.launch(
        _correlation_kernel(left.dtype.name, channel_chunk, vector),
        (cudalib.blocks_for(width, _PIXELS), height), _THREADS,
        left.reshape(-1), right.reshape(-1), cudalib.to_device(positions.offsets),
        cudalib.to_device(positions.fractions), cudalib.to_device(firsts), volume.reshape(-1),
        kept.reshape(-1), width, right.shape[1], channels, positions.label_count, chunks,
        positions.highest, advance, keep,
    )  # fmt: skip
    return volume


# ---------------------------------------------------------------- backward


@cudalib.kernel_family(("float32",), ("float64",))
def _softmax_backward_kernel(dtype: str) -> cudalib.Kernel:
    """The kernel of `softmax_backward`; a warp for every pixel."""
    real = _real(dtype)
    array = f"{dtype}[::1]"

    @cudalib.kernel(f"{array}, {array}, {array}, int32, int32", threads=_SOFTMAX_WARPS * _WARP)
    def softmax_gradient(f: Any, df: Any, ds: Any, pixels: Any, label_count: Any) -> None:
        # f, df, ds: (pixels, K); ds_k = f_k * (df_k + sum_j f_j df_j).
        lane = uint32(cuda.threadIdx.x % _WARP)
        pixel = uint32(cuda.blockIdx.x * _SOFTMAX_WARPS + cuda.threadIdx.x // _WARP)
        if pixel >= pixels:
            return
        base = uint32(pixel * label_count)
        mean = real(0)
        k = lane
        while k < label_count:
            mean += f[uint32(base + k)] * df[uint32(base + k)]
            k = uint32(k + _WARP)
        mean = _warp_sum(mean)
        k = lane
        while k < label_count:
            ds[uint32(base + k)] = f[uint32(base + k)] * (df[uint32(base + k)] + mean)
            k = uint32(k + _WARP)

    return softmax_gradient


def softmax_backward(f: Any, df: Any) -> cudalib.DeviceArray:
    """Gradient through ``f = -softmax(s)``.

    Parameters
    ----------
    f
        Costs (H, W, K) of `correlation_forward`.
    df
        dL/df (H, W, K).

    Returns
    -------
    ds
        dL/ds (H, W, K), ``f * (df + sum_j f_j df_j)``.
    """
    f, df = cudalib.to_device(f), cudalib.to_device(df, f.dtype)
    ds = cudalib.empty(f.shape, f.dtype)
    if ds.size:
        pixels = f.size // f.shape[-1]
        cudalib.launch(
            _softmax_backward_kernel(f.dtype.name),
            cudalib.blocks_for(pixels, _SOFTMAX_WARPS), _SOFTMAX_WARPS * _WARP,
            f.reshape(-1), df.reshape(-1), ds.reshape(-1), pixels, f.shape[-1],
        )  # fmt: skip
    return ds
