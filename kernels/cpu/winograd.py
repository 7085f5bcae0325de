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

A row of tiles is processed in blocks whose transforms, V of the input and M of the output, stay in
cache.  Patches that extend beyond the image are cut from a zero-filled strip, so that no padded
image is ever made.  The functions have the same interface as those of ``direct.py``;
``conv_cpu.py`` chooses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from .jit import compiled
from .tiles import (
    TILE_ROWS,
    Plan,
    cut_strip,
    finish,
    load,
    multiply,
    multiply_transposed,
    pack,
    padded_columns,
    padded_rows,
    store,
    vector_lanes,
)

_POINTS = 16
_BLOCK = 3 * TILE_ROWS  # tiles; V and M of 100 channels then take 0.45 MB, the L2 cache of a core
_CHANNELS = 16  # below this the transforms cost more than the products they save


def suits(weight: np.ndarray) -> bool:
    """Whether these functions support, and speed up, kernels of this shape and type."""
    outputs, inputs, kh, kw = weight.shape
    return (kh, kw) == (2, 2) and min(outputs, inputs) >= _CHANNELS and weight.dtype == np.float32


# ---------------------------------------------------------------- transforms of the kernels


def _kernels_to_points(taps: np.ndarray) -> np.ndarray:
    """G g G^T: (2, 2, I, O) -> (16, I, O)."""

    def apply_g(g: np.ndarray) -> np.ndarray:
        return np.stack([g[0], (g[0] + g[1]) / 2, (g[0] - g[1]) / 2, g[1]])

    columns = apply_g(taps.astype(np.float64)).swapaxes(0, 1)
    points = apply_g(columns).swapaxes(0, 1)
    return points.reshape(_POINTS, *taps.shape[2:]).astype(np.float32)


def _points_to_kernels(dU: np.ndarray) -> np.ndarray:
    """G^T dU G: (16, I, O) -> (2, 2, I, O)."""

    def apply_g_transposed(p: np.ndarray) -> np.ndarray:
        return np.stack([p[0] + (p[1] + p[2]) / 2, (p[1] - p[2]) / 2 + p[3]])

    columns = apply_g_transposed(dU.reshape(4, 4, *dU.shape[1:])).swapaxes(0, 1)
    return apply_g_transposed(columns).swapaxes(0, 1)


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
            c = min(begin, channels - lanes)  # the last vector overlaps: no scalar remainder
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


def prepare(taps: np.ndarray, bias: np.ndarray | None, activate: bool) -> Plan:
    """Parameters in the order of the loops; taps: (2, 2, I, O), applied as a correlation."""
    shift = np.zeros(taps.shape[3], np.float32) if bias is None else bias
    return Plan(taps.shape, pack(_kernels_to_points(taps)), shift, activate)


def whole_rows(rows: int) -> int:
    """How many of the next ``rows`` rows are in complete tiles."""
    return rows // 3 * 3


def tile_at(row: int, phase: int) -> tuple[int, int]:
    """First row of the tile that holds ``row``, and the first row of the image that ``row`` needs.

    See `direct.tile_at`.  Every row of a tile is computed by way of the second and third row of the
    patch, which may cancel but round; the first row of the patch enters that of the tile only.
    """
    begin = row - (row - phase) % 3
    return begin, begin + (row > begin)


def scratch(
    taps: tuple[int, int, int, int], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Strip, V and M of one worker; zeros, because unused lanes are multiplied, too."""
    _, _, inputs, outputs = taps
    strip = np.zeros(4 * (3 * _BLOCK + 1) * max(inputs, outputs), dtype)
    # One point more, because `multiply_transposed` reads a little past the end.
    V = np.zeros((_POINTS + 1, _BLOCK, inputs), dtype)
    M = np.zeros((_POINTS, _BLOCK, padded_columns(outputs, dtype)), dtype)
    return strip, V, M


@compiled(nogil=True)
def convolve_rows(
    plan: Any, image: Any, y: Any, derivative: bool, padding: tuple[int, int],
    first: int, last: int, buffers: Any, result: Any,
) -> None:  # fmt: skip
    """Rows ``first``, a multiple of 3, to ``last`` - 1; see `direct.convolve_rows`."""
    strip, V, M = buffers
    width, channels = result.shape[1:]
    for top in range(first, last, 3):
        for left in range(0, width, 3 * _BLOCK):
            columns = min(width - left, 3 * _BLOCK)
            tiles = (columns + 2) // 3
            corner = top - padding[0], left - padding[1]
            _patches_to_points(image, y, derivative, *corner, tiles, strip, V)
            for k in range(_POINTS):
                multiply(V[k], tiles, plan.panels[k], M[k])
            _points_to_output(M, plan.bias, tiles, strip)
            for r in range(min(3, last - top)):
                begin = 3 * tiles * channels * r
                source = strip[begin : begin + columns * channels]
                finish(source, plan.activate, result[top + r].reshape(-1)[left * channels :])


def empty_sums(taps: tuple[int, int, int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros to which `gradient_rows` adds the gradient of the kernels."""
    _, _, inputs, outputs = taps
    return np.zeros((_POINTS, padded_rows(inputs), padded_columns(outputs, dtype)), dtype)


@compiled(nogil=True)
def gradient_rows(
    taps: tuple[int, int, int, int], x: Any, dy: Any, y: Any, derivative: bool,
    first: int, last: int, buffers: Any, sums: Any, dbias: Any,
) -> None:  # fmt: skip
    """Add the gradients from rows ``first``, a multiple of 3, to ``last`` - 1 of dy."""
    strip, V, M = buffers
    width, channels = dy.shape[1:]
    for top in range(first, last, 3):
        for left in range(0, width, 3 * _BLOCK):
            tiles = (min(width - left, 3 * _BLOCK) + 2) // 3
            _patches_to_points(x, x, False, top, left, tiles, strip, V)
            cut_strip(dy, y, derivative, top, left, 3, 3 * tiles, strip)
            _gradient_to_points(strip, channels, tiles, M)
            for k in range(_POINTS):
                multiply_transposed(V[k], tiles, M[k], sums[k])
            # Point (1, 1) of A dy A^T is the sum over the tile.
            for t in range(tiles):
                totals = M[5, t]
                for o in range(dbias.size):
                    dbias[o] += totals[o]


def kernels_from_sums(sums: np.ndarray, taps: tuple[int, int, int, int]) -> np.ndarray:
    """The gradient (2, 2, I, O) from the sums of `gradient_rows`."""
    _, _, inputs, outputs = taps
    return _points_to_kernels(sums[:, :inputs, :outputs])
