"""Convolution as a sum over windows, for every kernel size and for float32 and float64.

A row of the image is cut into tiles of about a hundred pixels whose windows are gathered into a
small matrix, which is multiplied by the kernels while it is in cache.

The functions have the same interface as those of ``winograd.py``; ``conv_cpu.py`` chooses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .buffers import aligned_zeros
from .jit import compiled, part_or_python
from .products import (
    TILE_ROWS,
    multiply,
    multiply_transposed,
    pack,
    padded_columns,
    size_of_sums,
    unpack_sums,
)
from .tiles import Plan, add_pixels, cut_strip, finish
from .vectors import widest_vectors

_TILE = 8 * TILE_ROWS  # pixels; 3x3 windows of 64 channels take 0.2 MB of the L2 cache


def prepare(taps: np.ndarray, bias: np.ndarray | None, activate: bool) -> Plan:
    """Parameters in the order of the loops; taps: (kh, kw, I, O), applied as a correlation."""
    panels = pack(taps.reshape(-1, taps.shape[3]))
    shift = np.zeros(taps.shape[3], taps.dtype) if bias is None else bias
    return Plan(taps.shape, panels, shift, activate)


def tile_side(taps: tuple[int, int, int, int]) -> int:
    """Rows of a tile: a pixel does not depend on where the rows before it were cut."""
    return 1


def scratch(
    taps: tuple[int, int, int, int], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Strip, windows and product of one worker; zeros, because unused lanes are multiplied, too."""
    kh, kw, inputs, outputs = taps
    strip = aligned_zeros((max(kh * (_TILE + kw - 1) * inputs, _TILE * outputs),), dtype)
    # More rows than pixels, because `multiply_transposed` reads a little past the end.
    windows = aligned_zeros((_TILE + TILE_ROWS, kh * kw * inputs), dtype)
    # One row more, for the sum of a tile's pixels.
    product = aligned_zeros((_TILE + 1, padded_columns(outputs, dtype)), dtype)
    return strip, windows, product


@part_or_python
def _gather_windows(strip: Any, pixels: int, kh: int, run: int, step: int, windows: Any) -> None:
    """windows[p] = the kh x kw window of the strip's pixel p, row by row of ``run`` numbers.

    The strip is flat, its pixels are ``step`` apart.
    """
    line = (pixels - 1) * step + run
    for p in range(pixels):
        window = windows[p]
        for u in range(kh):
            source = strip[u * line + p * step : u * line + p * step + run]
            target = window[u * run : (u + 1) * run]
            for j in range(run):
                target[j] = source[j]


@compiled(nogil=True)
def convolve_rows(
    plan: Any, image: Any, y: Any, derivative: bool, padding: tuple[int, int],
    first: int, last: int, buffers: Any, result: Any,
) -> None:  # fmt: skip
    """Rows ``first`` to ``last`` - 1 of the correlation of the zero-padded image.

    Parameters
    ----------
    plan
        From `prepare`.
    image, y, derivative
        As in `tiles.cut_strip`.
    padding
        Rows and columns of zeros around the image.
    buffers
        From `scratch`.
    """
    widest_vectors()
    kh, kw, inputs, outputs = plan.taps
    strip, windows, product = buffers
    width = result.shape[1]
    for r in range(first, last):
        row = result[r].reshape(-1)
        for left in range(0, width, _TILE):
            pixels = min(width - left, _TILE)
            cut_strip(
                image, y, derivative, r - padding[0], left - padding[1], kh, pixels + kw - 1, strip
            )
            _gather_windows(strip, pixels, kh, kw * inputs, inputs, windows)
            multiply(windows, pixels, windows.shape[1], plan.panels, product)
            for p in range(pixels):
                source, target = product[p], strip[p * outputs : (p + 1) * outputs]
                for o in range(outputs):
                    target[o] = source[o] + plan.bias[o]
            finish(strip[: pixels * outputs], plan.activate, row[left * outputs :])


# ---------------------------------------------------------------- backward


def empty_sums(taps: tuple[int, int, int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros to which `backward_rows` adds the gradient of the kernels."""
    kh, kw, outputs, inputs = taps
    return np.zeros(size_of_sums(kh * kw * inputs, outputs, dtype), dtype)


def backward_scratch(taps: tuple[int, int, int, int], dtype: np.dtype) -> Any:
    """The scratch of one worker for dx, and for the gradient of the kernels."""
    kh, kw, outputs, inputs = taps
    return scratch(taps, dtype), scratch((kh, kw, inputs, outputs), dtype)


def backward_rows(
    plan: Any, x: Any, dy: Any, y: Any, derivative: bool, first: int, last: int, need_dx: bool,
    buffers: Any, dx: Any, sums: Any, dbias: Any,
) -> None:  # fmt: skip
    """Rows ``first`` to ``last`` - 1 of dx, and what belongs to them of the other gradients.

    Parameters
    ----------
    plan
        From `prepare` with taps (kh, kw, O, I): dx is a correlation of dz, the gradient before
        tanh, with the kernels as they are.
    x
        The input (H, W, I) of the convolution.
    dy, y, derivative
        As in `tiles.cut_strip`.
    buffers
        From `backward_scratch`.
    dx, sums, dbias
        (H, W, I), not written if ``need_dx`` is false; from `empty_sums`; (O,), float64.
    """
    kh, kw = plan.taps[:2]
    for_dx, for_kernels = buffers
    if need_dx:
        convolve_rows(plan, dy, y, derivative, (kh - 1, kw - 1), first, last, for_dx, dx)
    _gradient_rows(
        (kh, kw), x, dy, y, derivative, first, min(last, len(dy)), for_kernels, sums, dbias
    )


@compiled(nogil=True)
def _gradient_rows(
    taps: tuple[int, int], x: Any, dy: Any, y: Any, derivative: bool,
    first: int, last: int, buffers: Any, sums: Any, dbias: Any,
) -> None:  # fmt: skip
    """Add the gradients of kernels and biases from rows ``first`` to ``last`` - 1 of dy."""
    kh, kw = taps
    inputs = x.shape[2]
    strip, windows, dz = buffers
    width, outputs = dy.shape[1:]
    for r in range(first, last):
        for left in range(0, width, _TILE):
            pixels = min(width - left, _TILE)
            cut_strip(dy, y, derivative, r, left, 1, pixels, strip)
            add_pixels(strip, 1, pixels, 0, dz[_TILE], dbias)
            for p in range(pixels):
                source, target = strip[p * outputs : (p + 1) * outputs], dz[p]
                for o in range(outputs):
                    target[o] = source[o]
            cut_strip(x, x, False, r, left, kh, pixels + kw - 1, strip)
            _gather_windows(strip, pixels, kh, kw * inputs, inputs, windows)
            multiply_transposed(windows, windows.shape[1], pixels, dz, sums)


def kernels_from_sums(sums: np.ndarray, taps: tuple[int, int, int, int]) -> np.ndarray:
    """The gradient (kh, kw, O, I) of the taps from the sums of `backward_rows`."""
    kh, kw, outputs, inputs = taps
    windows = unpack_sums(sums, kh * kw * inputs, outputs).reshape(kh, kw, inputs, outputs)
    return windows[::-1, ::-1].swapaxes(2, 3)
