"""Convolution + bias + tanh on the CPU, channels last.

Every layer of the Unary-CNN and the Pairwise-CNN (paper, sec. 3) is a *true* convolution (kernel
rotated by 180 degrees, SPEC 1) over the valid extent:

    y[r, c, o] = act(b[o] + sum_i sum_{u,v} W[o, i, u, v] * x[r + kh-1-u, c + kw-1-v, i])

The image is cut into tiles of some hundred pixels whose windows are gathered into a small matrix
that stays in cache; BLAS multiplies it by the kernels, and bias and tanh are applied while the
product is still there.  Worker threads take tiles; no full-size im2col ever exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from . import simd
from .workers import run_tiles

# Pixels per tile: the gathered windows of a 2x2 layer with 100 channels (0.3 MB) fit in L2.
_TILE_PIXELS = 192


def _tiles(height: int, width: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut (height, width) into rectangles (top, left, rows, columns) of about _TILE_PIXELS."""
    pieces = -(-width // _TILE_PIXELS)
    columns = -(-width // pieces)
    rows = max(1, _TILE_PIXELS // columns)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield top, left, min(rows, height - top), min(columns, width - left)


def _kernel_matrix(weight: np.ndarray) -> np.ndarray:
    """(O, I, kh, kw) -> (kh*kw*I, O), rotated so that rows follow the window of the input."""
    rotated = weight[:, :, ::-1, ::-1]
    return np.ascontiguousarray(rotated.transpose(2, 3, 1, 0).reshape(-1, weight.shape[0]))


@njit(nogil=True, cache=True)
def _gather_windows(
    x: Any, top: int, left: int, rows: int, columns: int, kh: int, kw: int, windows: Any
) -> None:
    """windows[p] = x[r:r+kh, c:c+kw, :] of the tile's pixel p; x: (H, W, I); windows: (P, kh*kw*I)."""
    run = kw * x.shape[2]
    for r in range(rows):
        for u in range(kh):
            line = x[top + r + u].reshape(-1)
            for c in range(columns):
                begin = (left + c) * x.shape[2]
                row = windows[r * columns + c]
                for j in range(run):
                    row[u * run + j] = line[begin + j]


@njit(nogil=True, cache=True)
def _add_bias(
    product: Any, bias: Any, activate: bool, top: int, left: int, rows: int, columns: int, y: Any
) -> None:
    """y[tile] = act(product + bias); product: (P, O); y: (H, W, O)."""
    for r in range(rows):
        for c in range(columns):
            source = product[r * columns + c]
            target = y[top + r, left + c]
            if activate:
                for o in range(bias.size):
                    target[o] = simd.tanh(source[o] + bias[o])
            else:
                for o in range(bias.size):
                    target[o] = source[o] + bias[o]


def conv_forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activate: bool
) -> np.ndarray:
    """Valid convolution, bias and (optionally) tanh.

    Parameters
    ----------
    x
        Input (H, W, I), C-contiguous.
    weight, bias
        Kernels (O, I, kh, kw) and biases (O,) or none.
    activate
        Apply tanh.

    Returns
    -------
    y
        (H - kh + 1, W - kw + 1, O).
    """
    outputs, _, kh, kw = weight.shape
    height, width = x.shape[0] - kh + 1, x.shape[1] - kw + 1
    matrix = _kernel_matrix(weight)
    shift = np.zeros(outputs, x.dtype) if bias is None else bias
    y = np.empty((height, width, outputs), x.dtype)

    def worker(tiles: Iterator[tuple[int, int, int, int]]) -> None:
        windows = np.empty((_TILE_PIXELS, matrix.shape[0]), x.dtype)
        product = np.empty((_TILE_PIXELS, outputs), x.dtype)
        for top, left, rows, columns in tiles:
            pixels = rows * columns
            _gather_windows(x, top, left, rows, columns, kh, kw, windows)
            np.matmul(windows[:pixels], matrix, out=product[:pixels])
            _add_bias(product, shift, activate, top, left, rows, columns, y)

    run_tiles(worker, _tiles(height, width))
    return y
