"""Edge weights on the GPU: the twin of ``edges_cpu.py``."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import float64, int32, uint32

from .constants import LUMA, SMALLEST_WEIGHT, SMOOTHING_RADIUS, SMOOTHING_SIGMA
from .cuda import cudalib
from .cuda.cudalib import Kernel, blocks_for, device_function, kernel, kernel_family, launch

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_RED, _GREEN, _BLUE = LUMA
_CHANNELS = 3
_THREADS = 128

# ---------------------------------------------------------------- from image contrast


def _gaussian_taps() -> list[float]:
    """The weights of the pixel itself and of those one, two and three pixels away."""
    taps = np.exp(-0.5 * (np.arange(SMOOTHING_RADIUS + 1) / SMOOTHING_SIGMA) ** 2)
    return [float(x) for x in taps / (taps[0] + 2 * taps[1:].sum())]


# The sums are float64, as on the CPU: a weight changes fast where the contrast is small.


@kernel_family(("float32",))
def _luma_kernel(dtype: str) -> Kernel:
    """Luma of the pixels of an image, three channels each.

    A block reads its pixels in memory order and then separates the channels.
    """
    number = getattr(numba, dtype)
    values = _THREADS * _CHANNELS

    @kernel(f"{dtype}[::1], {dtype}[::1], int32", _THREADS)
    def contrast_luma(image: Any, luma: Any, pixels: Any) -> None:
        window = cuda.shared.array(values, number)
        thread = int32(cuda.threadIdx.x)
        first = int32(cuda.blockIdx.x * values)
        for i in range(thread, values, _THREADS):
            if first + i < pixels * _CHANNELS:
                window[i] = image[uint32(first + i)]
        cuda.syncthreads()
        pixel = int32(cuda.blockIdx.x * _THREADS + thread)
        if pixel < pixels:
            at = int32(_CHANNELS * thread)
            luma[uint32(pixel)] = (
                _RED * window[at] + _GREEN * window[at + 1] + _BLUE * window[at + 2]
            )

    return contrast_luma


@kernel_family(("float32", False), ("float32", True))
def _smooth_kernel(dtype: str, along_rows: bool) -> Kernel:
    """Filter an image (H, W) along its rows or columns; the border pixel is repeated."""

    @device_function
    def beside(source: Any, x: Any, y: Any, distance: Any, height: Any, width: Any) -> Any:
        """The sum of the two pixels at a distance."""
        if along_rows:
            before = int32(y * width + max(x - distance, 0))
            after = int32(y * width + min(x + distance, width - 1))
        else:
            before = int32(max(y - distance, 0) * width + x)
            after = int32(min(y + distance, height - 1) * width + x)
        return float64(source[uint32(before)]) + float64(source[uint32(after)])

    @kernel(
        f"{dtype}[::1], float64, float64, float64, float64, {dtype}[::1], int32, int32", _THREADS
    )
    def contrast_smooth(
        source: Any, tap0: Any, tap1: Any, tap2: Any, tap3: Any, target: Any,
        height: Any, width: Any,
    ) -> None:  # fmt: skip
        x = int32(cuda.grid(1))
        y = int32(cuda.blockIdx.y)
        if x < width:
            at = uint32(y * width + x)
            total = tap0 * source[at]
            total += tap1 * beside(source, x, y, 1, height, width)
            total += tap2 * beside(source, x, y, 2, height, width)
            total += tap3 * beside(source, x, y, 3, height, width)
            target[at] = total

    return contrast_smooth


@kernel_family(("float32",))
def _weights_kernel(dtype: str) -> Kernel:
    """Weights of the forward differences; 0 where there is no edge."""
    number = getattr(numba, dtype)

    @kernel(
        f"{dtype}[::1], {dtype}, {dtype}, {dtype}, {dtype}[::1], {dtype}[::1], int32, int32",
        _THREADS,
    )
    def contrast_weights(
        smooth: Any, scale: Any, alpha: Any, beta: Any, wx: Any, wy: Any, height: Any, width: Any
    ) -> None:
        x = int32(cuda.grid(1))
        y = int32(cuda.blockIdx.y)
        if x < width:
            i = uint32(y * width + x)
            here = smooth[i]
            horizontal = number(0)
            vertical = number(0)
            if x + 1 < width:
                difference = abs(smooth[uint32(i + 1)] - here)
                weight = scale * math.exp(-alpha * difference**beta)
                horizontal = max(weight, number(SMALLEST_WEIGHT))
            if y + 1 < height:
                difference = abs(smooth[uint32(i + width)] - here)
                weight = scale * math.exp(-alpha * difference**beta)
                vertical = max(weight, number(SMALLEST_WEIGHT))
            wx[i] = horizontal
            wy[i] = vertical

    return contrast_weights


def contrast_weights(image: Any, scale: float, alpha: float, beta: float) -> tuple[Any, Any]:
    """Edge weights from image contrast; arguments and results as `edges_cpu.contrast_weights`'s."""
    image = cudalib.to_device(image)
    height, width, _ = image.shape
    kind = str(image.dtype)
    taps = _gaussian_taps()
    pixels = height * width
    luma, along_rows, smooth, wx, wy = (cudalib.empty((pixels,), image.dtype) for _ in range(5))
    launch(
        _luma_kernel(kind), blocks_for(pixels, _THREADS), _THREADS,
        image.reshape(-1), luma, pixels,
    )  # fmt: skip
    grid = blocks_for(width, _THREADS), height
    size = height, width
    launch(_smooth_kernel(kind, True), grid, _THREADS, luma, *taps, along_rows, *size)
    launch(_smooth_kernel(kind, False), grid, _THREADS, along_rows, *taps, smooth, *size)
    launch(
        _weights_kernel(kind), grid, _THREADS,
        smooth, scale, alpha, beta, wx, wy, *size,
    )  # fmt: skip
    return wx.reshape(height, width), wy.reshape(height, width)


# ---------------------------------------------------------------- from the Pairwise-CNN


@kernel_family(("float32",))
def _magnitude_kernel(dtype: str) -> Kernel:
    """Even elements of the (H, W, 2) array go to wx, odd ones to wy."""

    @kernel(f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}, int32", _THREADS)
    def magnitude_forward(linear: Any, wx: Any, wy: Any, scale: Any, size: Any) -> None:
        i = uint32(cuda.grid(1))
        if i < size:
            weight = abs(linear[i]) * scale
            if i & 1:
                wy[i >> 1] = weight
            else:
                wx[i >> 1] = weight

    return magnitude_forward


@kernel_family(("float32",))
def _magnitude_gradient_kernel(dtype: str) -> Kernel:
    @kernel(f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}, {dtype}[::1], int32", _THREADS)
    def magnitude_backward(
        dwx: Any, dwy: Any, linear: Any, scale: Any, dlinear: Any, size: Any
    ) -> None:
        i = uint32(cuda.grid(1))
        if i < size:
            gradient = (dwy[i >> 1] if i & 1 else dwx[i >> 1]) * scale
            value = linear[i]
            if value < 0:
                gradient = -gradient
            elif value == 0:
                gradient = 0 * gradient
            dlinear[i] = gradient

    return magnitude_backward


def magnitude_forward(linear: Any, scale: float) -> tuple[Any, Any]:
    """Weights of the edges to the right and to the lower neighbour: (H, W, 2) -> two (H, W)."""
    linear = cudalib.to_device(linear)
    wx, wy = (cudalib.empty(linear.shape[:2], linear.dtype) for _ in range(2))
    launch(
        _magnitude_kernel(str(linear.dtype)), blocks_for(linear.size, _THREADS), _THREADS,
        linear.reshape(-1), wx.reshape(-1), wy.reshape(-1), scale, linear.size,
    )  # fmt: skip
    return wx, wy


def magnitude_backward(dwx: Any, dwy: Any, linear: Any, scale: float) -> Any:
    """Gradient with respect to ``linear`` from those of the weights; zero where it is zero."""
    linear = cudalib.to_device(linear)
    dlinear = cudalib.empty(linear.shape, linear.dtype)
    launch(
        _magnitude_gradient_kernel(str(linear.dtype)), blocks_for(linear.size, _THREADS), _THREADS,
        *(cudalib.to_device(x, linear.dtype).reshape(-1) for x in (dwx, dwy)),
        linear.reshape(-1), scale, dlinear.reshape(-1), linear.size,
    )  # fmt: skip
    return dlinear
