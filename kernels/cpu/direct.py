"""Convolution as a sum over windows, for every kernel size and for float32 and float64.

A row of the image is cut into tiles of about a hundred pixels whose windows are gathered into a
small matrix, which is multiplied by the kernels while it is in cache.

The functions have the same interface as those of ``winograd.py``; ``conv_cpu.py`` chooses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from .jit import compiled
from .products import (
    TILE_ROWS,
    multiply,
    multiply_transposed,
    pack,
    padded_columns,
    padded_rows,
)
from .tiles import Plan, cut_strip, finish

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
    strip = np.zeros(max(kh * (_TILE + kw - 1) * inputs, _TILE * outputs), dtype)
    # More rows than pixels, because `multiply_transposed` reads a little past the end.
    windows = np.zeros((_TILE + TILE_ROWS, kh * kw * inputs), dtype)
    product = np.zeros((_TILE, padded_columns(outputs, dtype)), dtype)
    return strip, windows, product


@register_jitable
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
            multiply(windows, pixels, plan.panels, product)
            for p in range(pixels):
                source, target = product[p], strip[p * outputs : (p + 1) * outputs]
                for o in range(outputs):
                    target[o] = source[o] + plan.bias[o]
            finish(strip[: pixels * outputs], plan.activate, row[left * outputs :])


def empty_sums(taps: tuple[int, int, int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros to which `gradient_rows` adds the gradient of the kernels."""
    kh, kw, inputs, outputs = taps
    return np.zeros((padded_rows(kh * kw * inputs), padded_columns(outputs, dtype)), dtype)


@compiled(nogil=True)
def gradient_rows(
    taps: tuple[int, int, int, int], x: Any, dy: Any, y: Any, derivative: bool,
    first: int, last: int, buffers: Any, sums: Any, dbias: Any,
) -> None:  # fmt: skip
    """Add the gradients of kernels and biases from rows ``first`` to ``last`` - 1 of dy."""
    kh, kw, inputs, outputs = taps
    strip, windows, dz = buffers
    width = dy.shape[1]
    for r in range(first, last):
        for left in range(0, width, _TILE):
            pixels = min(width - left, _TILE)
            cut_strip(dy, y, derivative, r, left, 1, pixels, strip)
            for p in range(pixels):
                source, target = strip[p * outputs : (p + 1) * outputs], dz[p]
                for o in range(outputs):
                    target[o] = source[o]
                    dbias[o] += source[o]
            cut_strip(x, x, False, r, left, kh, pixels + kw - 1, strip)
            _gather_windows(strip, pixels, kh, kw * inputs, inputs, windows)
            multiply_transposed(windows, pixels, dz, sums)


def kernels_from_sums(sums: np.ndarray, taps: tuple[int, int, int, int]) -> np.ndarray:
    """The gradient (kh, kw, I, O) from the sums of `gradient_rows`."""
    kh, kw, inputs, outputs = taps
    return sums[: kh * kw * inputs, :outputs].reshape(taps)
