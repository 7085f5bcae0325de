"""Convolution with 2x2 kernels by Winograd's minimal filtering F(3x3, 2x2), forward and backward.

Three outputs of a filter with two taps need four products instead of six (Winograd 1980; Lavin
and Gray, CVPR 2016), in two dimensions 16 instead of 36 for a tile of 3x3 pixels.  With d the 4x4
input patch of a tile, g the (rotated) kernel and y the 3x3 outputs, for every pair of channels

    y = A^T [ (G g G^T) * (B^T d B) ] A     (* element by element)

and the sum over input channels moves inside the bracket, where it becomes 16 matrix products.
The matrices hold 0, 1, -1 and 1/2 only, so that the rounding error stays that of the direct sum;
larger tiles save more products but lose a digit.

The gradients are the same formula read backwards: that of the input is a convolution again, that
of the kernels is  dg = G^T [ sum over tiles (B^T d B) * (A dy A^T) ] G.

A row of tiles is worked off in blocks whose transforms, V of the input and M of the output, stay
in cache.  Patches that stick out of the image are cut out of a zero-filled strip, so that no
padded image is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from .tiles import (
    TILE_ROWS,
    cut_strip,
    finish,
    load,
    multiply,
    multiply_transposed,
    pack,
    padded_columns,
    padded_rows,
    row_bands,
    store,
    vector_lanes,
)
from .workers import run_tiles

_POINTS = 16
_BLOCK = 3 * TILE_ROWS  # tiles; V and M of 100 channels then take 0.45 MB, the L2 cache of a core
_CHUNK = 1024  # tiles whose kernel gradients are summed before they leave the worker
_CHANNELS = 16  # below that the transforms cost more than the products they save

# G for both dimensions, (points, taps).
_G = np.kron(*[np.array([[1.0, 0.0], [0.5, 0.5], [0.5, -0.5], [0.0, 1.0]])] * 2)


def suits(weight: np.ndarray) -> bool:
    """Whether these functions are made for kernels of such shape and type."""
    outputs, inputs, kh, kw = weight.shape
    return (kh, kw) == (2, 2) and min(outputs, inputs) >= _CHANNELS and weight.dtype == np.float32


# ---------------------------------------------------------------- transforms of a block of tiles


@register_jitable
def _load3(source: Any, at: int, step: int) -> Any:
    return load(source, at), load(source, at + step), load(source, at + 2 * step)


@register_jitable
def _load4(source: Any, at: int, step: int) -> Any:
    a, b, c = _load3(source, at, step)
    return a, b, c, load(source, at + 3 * step)


@register_jitable
def _apply_b(d: Any) -> Any:
    """B^T d."""
    return d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]


@register_jitable
def _apply_a(m: Any) -> Any:
    """A^T m."""
    return m[0] + m[1] + m[2], m[1] - m[2], m[1] + m[2] + m[3]


@register_jitable
def _apply_a_transposed(d: Any) -> Any:
    """A d."""
    return d[0], d[0] + d[2] + d[1], d[0] + d[2] - d[1], d[2]


@register_jitable
def _input_to_points(source: Any, start: int, line: int, tiles: int, V: Any) -> None:
    """V[point, tile] = B^T d B.

    Parameters
    ----------
    source, start, line
        The patch of tile t begins at ``start + 3*t*I`` of the (flat) source; its rows are
        ``line`` apart.
    V
        (16, _BLOCK, I).
    """
    channels, lanes = V.shape[2], vector_lanes(V)
    for t in range(tiles):
        for begin in range(0, channels, lanes):
            c = min(begin, channels - lanes)  # the last vector overlaps: no scalar rest
            at = start + 3 * t * channels + c
            r0 = _apply_b(_load4(source, at, channels))
            r1 = _apply_b(_load4(source, at + line, channels))
            r2 = _apply_b(_load4(source, at + 2 * line, channels))
            r3 = _apply_b(_load4(source, at + 3 * line, channels))
            for j in range(4):
                for i, value in enumerate(_apply_b((r0[j], r1[j], r2[j], r3[j]))):
                    store(V, ((4 * i + j) * _BLOCK + t) * channels + c, value)


@register_jitable
def _points_to_output(M: Any, bias: Any, tiles: int, strip: Any) -> None:
    """strip = A^T M A + bias; M: (16, _BLOCK, padded O); strip: (3, 3*tiles, O), flat."""
    channels, lanes = bias.size, vector_lanes(M)
    step = M.shape[1] * M.shape[2]
    for t in range(tiles):
        for begin in range(0, channels, lanes):
            c = min(begin, channels - lanes)
            at = t * M.shape[2] + c
            r0 = _apply_a(_load4(M, at, step))
            r1 = _apply_a(_load4(M, at + 4 * step, step))
            r2 = _apply_a(_load4(M, at + 8 * step, step))
            r3 = _apply_a(_load4(M, at + 12 * step, step))
            shift = load(bias, c)
            for j in range(3):
                for i, value in enumerate(_apply_a((r0[j], r1[j], r2[j], r3[j]))):
                    pixel = 3 * (i * tiles + t) + j
                    store(strip, pixel * channels + c, value + shift)


@register_jitable
def _gradient_to_points(strip: Any, channels: int, tiles: int, M: Any) -> None:
    """M[point, tile] = A dy A^T; strip: (3, 3*tiles, O), flat."""
    lanes, line = vector_lanes(M), 3 * tiles * channels
    for t in range(tiles):
        for begin in range(0, channels, lanes):
            c = min(begin, channels - lanes)
            at = 3 * t * channels + c
            r0 = _apply_a_transposed(_load3(strip, at, channels))
            r1 = _apply_a_transposed(_load3(strip, at + line, channels))
            r2 = _apply_a_transposed(_load3(strip, at + 2 * line, channels))
            for j in range(4):
                for i, value in enumerate(_apply_a_transposed((r0[j], r1[j], r2[j]))):
                    store(M, ((4 * i + j) * _BLOCK + t) * M.shape[2] + c, value)


@register_jitable
def _patches_to_points(
    image: Any, y: Any, derivative: bool, top: int, left: int, tiles: int, strip: Any, V: Any
) -> None:
    """V of the tiles whose first patch begins at (top, left), possibly outside the image."""
    height, width, channels = image.shape
    columns = 3 * tiles + 1
    inside = top >= 0 and left >= 0 and top + 4 <= height and left + columns <= width
    if inside and not derivative:
        line = width * channels
        _input_to_points(image, top * line + left * channels, line, tiles, V)
    else:
        cut_strip(image, y, derivative, top, left, 4, columns, strip)
        _input_to_points(strip, 0, columns * channels, tiles, V)


# ---------------------------------------------------------------- rows of tiles


@njit(nogil=True, cache=True)
def _convolve_rows(
    image: Any, y: Any, derivative: bool, padding: int, panels: Any, bias: Any, activate: bool,
    first: int, last: int, strip: Any, V: Any, M: Any, result: Any,
) -> None:  # fmt: skip
    """Tile rows ``first`` to ``last`` - 1 of the convolution of the zero-padded image."""
    height, width, channels = result.shape
    for top in range(3 * first, 3 * last, 3):
        for left in range(0, width, 3 * _BLOCK):
            columns = min(width - left, 3 * _BLOCK)
            tiles = (columns + 2) // 3
            _patches_to_points(image, y, derivative, top - padding, left - padding, tiles, strip, V)
            for k in range(_POINTS):
                multiply(V[k], tiles, panels[k], M[k])
            _points_to_output(M, bias, tiles, strip)
            for r in range(min(3, height - top)):
                begin = 3 * tiles * channels * r
                source = strip[begin : begin + columns * channels]
                finish(source, activate, result[top + r].reshape(-1)[left * channels :])


@njit(nogil=True, cache=True)
def _gradient_rows(
    x: Any, dy: Any, y: Any, derivative: bool, first: int, last: int,
    strip: Any, V: Any, M: Any, dU: Any, dbias: Any,
) -> None:  # fmt: skip
    """Add the gradients from tile rows ``first`` to ``last`` - 1; dU: (16, padded I, padded O)."""
    width, channels = dy.shape[1:]
    for top in range(3 * first, 3 * last, 3):
        for left in range(0, width, 3 * _BLOCK):
            tiles = (min(width - left, 3 * _BLOCK) + 2) // 3
            _patches_to_points(x, x, False, top, left, tiles, strip, V)
            cut_strip(dy, y, derivative, top, left, 3, 3 * tiles, strip)
            _gradient_to_points(strip, channels, tiles, M)
            for k in range(_POINTS):
                multiply_transposed(V[k], tiles, M[k], dU[k])
            # Point (1, 1) of A dy A^T is the sum over the tile.
            for t in range(tiles):
                sums = M[5, t]
                for o in range(dbias.size):
                    dbias[o] += sums[o]


def _scratch(inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Strip, V and M of one worker; zeros, because unused lanes take part as well."""
    strip = np.zeros(4 * (3 * _BLOCK + 1) * max(inputs, outputs), np.float32)
    # One point more, because `multiply_transposed` reads a little past the end.
    V = np.zeros((_POINTS + 1, _BLOCK, inputs), np.float32)
    M = np.zeros((_POINTS, _BLOCK, padded_columns(outputs, V.dtype)), np.float32)
    return strip, V, M


# ---------------------------------------------------------------- whole images


def _convolve(
    image: np.ndarray, y: np.ndarray | None, padding: int, taps: np.ndarray,
    bias: np.ndarray | None, activate: bool,
) -> np.ndarray:  # fmt: skip
    """Correlate the zero-padded image with taps (4, I, O); y as in `cut_strip`, if any."""
    inputs, outputs = taps.shape[1:]
    points = np.tensordot(_G, taps.astype(np.float64), 1).astype(np.float32)
    panels = pack(points)
    shift = np.zeros(outputs, np.float32) if bias is None else bias
    height, width = (size - 1 + 2 * padding for size in image.shape[:2])
    result = np.empty((height, width, outputs), np.float32)

    def worker(bands: Iterator[tuple[int, int]]) -> None:
        scratch = _scratch(inputs, outputs)
        for first, last in bands:
            _convolve_rows(
                image, image if y is None else y, y is not None, padding, panels, shift, activate,
                first, last, *scratch, result,
            )  # fmt: skip

    run_tiles(worker, row_bands(-(-height // 3), 1 + 3 * _BLOCK // width))
    return result


def forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activate: bool
) -> np.ndarray:
    """`conv_cpu.conv_forward` for kernels that `suits` accepts."""
    rotated = weight[:, :, ::-1, ::-1]
    taps = rotated.transpose(2, 3, 1, 0).reshape(4, *weight.shape[1::-1])
    return _convolve(x, None, 0, taps, bias, activate)


def input_gradient(dy: np.ndarray, y: np.ndarray | None, weight: np.ndarray) -> np.ndarray:
    """Gradient of the input; y the outputs if tanh was applied: a correlation with the kernels."""
    taps = weight.transpose(2, 3, 0, 1).reshape(4, *weight.shape[:2])
    return _convolve(dy, y, 1, taps, None, False)


def weight_gradient(
    dy: np.ndarray, y: np.ndarray | None, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the kernels (O, I, 2, 2) and of the biases (O,)."""
    (height, width, outputs), inputs = dy.shape, x.shape[2]
    tiles_across = -(-width // 3)
    bands = row_bands(-(-height // 3), -(-_CHUNK // tiles_across))
    dtaps = np.empty((len(bands), 4, inputs, outputs), np.float32)
    dbias = np.zeros((len(bands), outputs))
    G = _G.T.astype(np.float32)

    def worker(chunks: Iterator[tuple[int, tuple[int, int]]]) -> None:
        strip, V, M = _scratch(inputs, outputs)
        dU = np.empty((_POINTS, padded_rows(inputs), M.shape[2]), np.float32)
        for chunk, (first, last) in chunks:
            dU[:] = 0
            _gradient_rows(
                x, dy, dy if y is None else y, y is not None, first, last,
                strip, V, M, dU, dbias[chunk],
            )  # fmt: skip
            dtaps[chunk] = np.tensordot(G, dU[:, :inputs, :outputs], 1)

    # Every chunk has its own sums, added in their order afterwards: the result does not depend
    # on which thread took which chunk.
    run_tiles(worker, enumerate(bands))
    dweight = dtaps.sum(axis=0).reshape(2, 2, inputs, outputs)[::-1, ::-1].transpose(3, 2, 0, 1)
    return np.ascontiguousarray(dweight), dbias.sum(axis=0).astype(np.float32)
