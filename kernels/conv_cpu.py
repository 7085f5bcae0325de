"""Convolution + bias + tanh on the CPU, channels last: forward and backward.

Every layer of the Unary-CNN and the Pairwise-CNN (paper, sec. 3) is a *true* convolution (kernel
rotated by 180 degrees, SPEC 1) over the valid extent:

    y[r, c, o] = act(b[o] + sum_i sum_{u,v} W[o, i, u, v] * x[r + kh-1-u, c + kw-1-v, i])

The 2x2 layers with many channels, nearly all of the work, go to ``winograd.py``.  The functions
here sum directly, for every kernel size and for float32 and float64: a row of the image is cut
into tiles of some hundred pixels whose windows are gathered into a small matrix that stays in
cache, multiplied by the kernels there, and passed through tanh.  Worker threads take rows; no
full-size im2col, padded copy or pre-activation ever exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from . import winograd
from .tiles import (
    TILE_ROWS,
    cut_strip,
    finish,
    multiply,
    multiply_transposed,
    pack,
    padded_columns,
    padded_rows,
    row_bands,
)
from .workers import run_tiles

_TILE = 8 * TILE_ROWS  # pixels; 3x3 windows of 64 channels take 0.2 MB of the L2 cache
_BAND = 1024  # pixels, at least, that a worker takes at a time
_CHUNK = 8192  # pixels, at least, whose kernel gradients a worker sums before handing them over


# ---------------------------------------------------------------- rows of pixels


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


@njit(nogil=True, cache=True)
def _convolve_rows(
    image: Any, y: Any, derivative: bool, kernel: tuple[int, int], padding: tuple[int, int],
    panels: Any, bias: Any, activate: bool, first: int, last: int,
    strip: Any, windows: Any, product: Any, result: Any,
) -> None:  # fmt: skip
    """Rows ``first`` to ``last`` - 1 of the correlation of the zero-padded image."""
    kh, kw = kernel
    inputs, (width, outputs) = image.shape[2], result.shape[1:]
    for r in range(first, last):
        row = result[r].reshape(-1)
        for left in range(0, width, _TILE):
            pixels = min(width - left, _TILE)
            cut_strip(
                image, y, derivative, r - padding[0], left - padding[1], kh, pixels + kw - 1, strip
            )
            _gather_windows(strip, pixels, kh, kw * inputs, inputs, windows)
            multiply(windows, pixels, panels, product)
            for p in range(pixels):
                source, target = product[p], strip[p * outputs : (p + 1) * outputs]
                for o in range(outputs):
                    target[o] = source[o] + bias[o]
            finish(strip[: pixels * outputs], activate, row[left * outputs :])


@njit(nogil=True, cache=True)
def _gradient_rows(
    x: Any, dy: Any, y: Any, derivative: bool, kernel: tuple[int, int], first: int, last: int,
    strip: Any, windows: Any, dz: Any, dmatrix: Any, dbias: Any,
) -> None:  # fmt: skip
    """Add the gradients from rows ``first`` to ``last`` - 1; dmatrix: (kh*kw*I, O), both padded."""
    kh, kw = kernel
    inputs, (width, outputs) = x.shape[2], dy.shape[1:]
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
            multiply_transposed(windows, pixels, dz, dmatrix)


def _scratch(
    taps: tuple[int, int, int, int], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Strip, windows and product of one worker; zeros, because unused lanes take part as well."""
    kh, kw, inputs, outputs = taps
    strip = np.zeros(max(kh * (_TILE + kw - 1) * inputs, _TILE * outputs), dtype)
    # More rows than pixels, because `multiply_transposed` reads a little past the end.
    windows = np.zeros((_TILE + TILE_ROWS, kh * kw * inputs), dtype)
    product = np.zeros((_TILE, padded_columns(outputs, dtype)), dtype)
    return strip, windows, product


# ---------------------------------------------------------------- whole images


def _contiguous(*arrays: np.ndarray | None) -> list[Any]:
    """C-contiguous versions of the arrays; mixed precision is refused, not converted."""
    kinds = {array.dtype for array in arrays if array is not None}
    if len(kinds) > 1:
        raise TypeError(f"arrays of one dtype expected, not {sorted(map(str, kinds))}")
    return [array if array is None else np.ascontiguousarray(array) for array in arrays]


def _convolve(
    image: np.ndarray, y: np.ndarray | None, padding: tuple[int, int], taps: np.ndarray,
    bias: np.ndarray | None, activate: bool,
) -> np.ndarray:  # fmt: skip
    """Correlate the zero-padded image with taps (kh, kw, I, O); y as in `cut_strip`, if any."""
    kh, kw, _, outputs = taps.shape
    panels = pack(taps.reshape(-1, outputs))
    shift = np.zeros(outputs, image.dtype) if bias is None else bias
    height = image.shape[0] + 2 * padding[0] - kh + 1
    width = image.shape[1] + 2 * padding[1] - kw + 1
    result = np.empty((height, width, outputs), image.dtype)

    def worker(bands: Iterator[tuple[int, int]]) -> None:
        scratch = _scratch(taps.shape, image.dtype)
        for first, last in bands:
            _convolve_rows(
                image, image if y is None else y, y is not None, (kh, kw), padding,
                panels, shift, activate, first, last, *scratch, result,
            )  # fmt: skip

    run_tiles(worker, row_bands(height, -(-_BAND // width)))
    return result


def _weight_gradient(
    dy: np.ndarray, y: np.ndarray | None, x: np.ndarray, kernel: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the kernels (O, I, kh, kw) and of the biases (O,)."""
    (height, width, outputs), inputs = dy.shape, x.shape[2]
    taps = (*kernel, inputs, outputs)
    bands = row_bands(height, -(-_CHUNK // width))
    shape = padded_rows(kernel[0] * kernel[1] * inputs), padded_columns(outputs, x.dtype)
    dmatrix = np.zeros((len(bands), *shape), x.dtype)
    dbias = np.zeros((len(bands), outputs))

    def worker(chunks: Iterator[tuple[int, tuple[int, int]]]) -> None:
        scratch = _scratch(taps, x.dtype)
        for chunk, (first, last) in chunks:
            _gradient_rows(
                x, dy, dy if y is None else y, y is not None, kernel, first, last,
                *scratch, dmatrix[chunk], dbias[chunk],
            )  # fmt: skip

    # Every chunk has its own sums, added in their order afterwards: the result does not depend
    # on which thread took which chunk.
    run_tiles(worker, enumerate(bands))
    dtaps = dmatrix.sum(axis=0)[: kernel[0] * kernel[1] * inputs, :outputs].reshape(taps)
    dweight = dtaps[::-1, ::-1].transpose(3, 2, 0, 1)
    return np.ascontiguousarray(dweight), dbias.sum(axis=0).astype(x.dtype)


def conv_forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activate: bool
) -> np.ndarray:
    """Valid convolution, bias and (optionally) tanh.

    Parameters
    ----------
    x
        Input (H, W, I), float32 or float64; copied if it is not C-contiguous.
    weight, bias
        Kernels (O, I, kh, kw) and biases (O,) or none, of the same dtype.
    activate
        Apply tanh.

    Returns
    -------
    y
        (H - kh + 1, W - kw + 1, O).
    """
    x, weight, bias = _contiguous(x, weight, bias)
    if winograd.suits(weight):
        return winograd.forward(x, weight, bias, activate)
    rotated = weight[:, :, ::-1, ::-1].transpose(2, 3, 1, 0)
    return _convolve(x, None, (0, 0), rotated, bias, activate)


def conv_backward(
    dy: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    y: np.ndarray | None,
    activate: bool,
    need_dx: bool = True,
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Gradients of a loss through `conv_forward`.

    Parameters
    ----------
    dy
        Gradient with respect to y.
    x, weight, activate
        The arguments of `conv_forward`.
    y
        Its result; not needed without tanh.
    need_dx
        Compute dx.  The first layer of a network does not need it.

    Returns
    -------
    dx, dweight, dbias
        Gradients with respect to x (or none), weight and bias; the same bits on every call,
        whatever the number of threads.
    """
    dy, x, weight, tanh_values = _contiguous(dy, x, weight, y if activate else None)
    dx = None
    if winograd.suits(weight):
        if need_dx:
            dx = winograd.input_gradient(dy, tanh_values, weight)
        return dx, *winograd.weight_gradient(dy, tanh_values, x)
    kh, kw = weight.shape[2:]
    if need_dx:
        transposed = weight.transpose(2, 3, 0, 1)
        dx = _convolve(dy, tanh_values, (kh - 1, kw - 1), transposed, None, False)
    return dx, *_weight_gradient(dy, tanh_values, x, (kh, kw))
