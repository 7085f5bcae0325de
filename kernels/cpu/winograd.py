"""Convolution with 2x2 or 3x3 kernels by Winograd's minimal filtering, forward and backward.

Six products give five outputs of a filter with two taps, which needs ten, or four of one with
three, which needs twelve (Winograd 1980; Lavin and Gray, CVPR 2016).  In two dimensions that is 36
products instead of 100 for a tile of 5x5 pixels, F(5x5, 2x2), and instead of 144 for one of 4x4,
F(4x4, 3x3).  With d the 6x6 input patch of a tile, g the (rotated) kernel and y the outputs, for
every pair of channels

    y = A^T [ (G g G^T) * (B^T d B) ] A     (* element by element)

and the sum over input channels moves inside the bracket, where it becomes 36 matrix products.

A filter is the product of two polynomials, which is known from its values at six points.  They
decide how much rounding errors grow.  With 0, +-11/16, +-3/2 and infinity the largest error of a
layer of the paper is 4e-6 for outputs of about 1, twice that of the direct sum; with 0, +-1, +-2
and infinity, the usual choice, it is five times as large.

The gradients are the same formula read backwards: that of the input is a convolution of dz, the
gradient before tanh, and that of the kernels is

    dg = G^T [ sum over tiles (B^T dz B) * (A x A^T) ] G

with the same patches of dz, and the tiles of the input at which the gradient is computed.  So one
transform of dz serves both (`backward_rows`).

A row of tiles is processed in blocks whose transforms, V of the input and M of the output, stay in
cache.  Patches that extend beyond the image are cut from a zero-filled strip, so that no padded
image is ever made.  The functions have the same interface as those of ``direct.py``;
``conv_cpu.py`` chooses.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from . import simd
from .buffers import aligned_zeros
from .jit import compiled, part_or_python
from .pointers import pointer_to, prefetch
from .products import (
    TILE_ROWS,
    multiply,
    multiply_transposed,
    pack,
    padded_columns,
    size_of_sums,
    unpack_sums,
)
from .tiles import Plan, add_pixels, cut_strip
from .vectors import load, load_if, scaled, scaled_sum, store, vector_lanes

_SIDE = 6  # of a patch
_POINTS = _SIDE * _SIDE
_LARGEST = 5  # side of a tile, that of 2x2 kernels
_BLOCK = 3 * TILE_ROWS  # tiles
_CHANNELS = 16  # below this the transforms cost more than the products they save

# The finite points are 0, a, -a, b and -b.  Their rows of G have one over the product of the
# differences to all others as a factor, so that those of B^T, below, need none.
_A, _B = 11 / 16, 3 / 2
_FINITE = np.array([0, _A, -_A, _B, -_B])
_FACTORS = np.array([1 / np.prod([x - y for y in _FINITE if y != x]) for x in _FINITE])


def suits(weight: np.ndarray) -> bool:
    """Whether these functions support, and speed up, kernels of this shape and type."""
    outputs, inputs, kh, kw = weight.shape
    few = min(outputs, inputs) < _CHANNELS
    return (kh, kw) in ((2, 2), (3, 3)) and not few and weight.dtype == np.float32


@part_or_python
def tile_side(taps: tuple[int, int, int, int]) -> int:
    """Rows and columns of a tile."""
    return _SIDE + 1 - taps[0]


# ---------------------------------------------------------------- transforms of the kernels


@cache
def _kernel_matrix(side: int) -> np.ndarray:
    """G for both axes of a kernel, (36, side * side)."""
    finite = _FACTORS[:, None] * _FINITE[:, None] ** np.arange(side)
    G = np.concatenate([finite, np.eye(side)[-1:]])
    return np.kron(G, G)


def _kernels_to_points(taps: np.ndarray) -> np.ndarray:
    """G g G^T of each kernel: (k * k, N) -> (36, N)."""
    G = _kernel_matrix(math.isqrt(len(taps)))
    # NaN and infinity of a model pass in silence, as in all kernels; the stage names them.
    with np.errstate(invalid="ignore"):
        points = aligned_zeros((_POINTS, taps.shape[1]), np.dtype(np.float32))
        points[...] = G @ taps.astype(np.float64)
    return points


def _points_to_kernels(dU: np.ndarray, side: int) -> np.ndarray:
    """G^T dU G of each kernel: (36, N) -> (k * k, N)."""
    # In the precision of the sums, whose errors are larger than those of 36 more terms.
    return _kernel_matrix(side).T.astype(dU.dtype) @ dU


# ---------------------------------------------------------------- transforms of a block of tiles


@part_or_python
def _load6(source: Any, at: int, step: int) -> Any:
    return (
        load(source, at), load(source, at + step), load(source, at + 2 * step),
        load(source, at + 3 * step), load(source, at + 4 * step), load(source, at + 5 * step),
    )  # fmt: skip


@part_or_python
def _apply_b(d: Any) -> Any:
    """B^T d: the coefficients of x (x^2 - a^2) (x^2 - b^2), divided by x - x_i for point x_i."""
    outer_odd, outer_even = scaled_sum(-(_B**2), d[1], d[3]), scaled_sum(-(_B**2), d[2], d[4])
    inner_odd, inner_even = scaled_sum(-(_A**2), d[1], d[3]), scaled_sum(-(_A**2), d[2], d[4])
    return (
        scaled_sum(-(_A**2), scaled_sum(-(_B**2), d[0], d[2]), outer_even),
        scaled_sum(_A, outer_odd, outer_even),
        scaled_sum(-_A, outer_odd, outer_even),
        scaled_sum(_B, inner_odd, inner_even),
        scaled_sum(-_B, inner_odd, inner_even),
        scaled_sum(-(_A**2), outer_odd, scaled_sum(-(_B**2), d[3], d[5])),
    )


@part_or_python
def _apply_a(m: Any, fourth: int, fifth: int) -> Any:
    """A^T m: powers of the points; that at infinity counts in the last row of a tile only."""
    inner_even, inner_odd = m[1] + m[2], m[1] - m[2]
    outer_even, outer_odd = m[3] + m[4], m[3] - m[4]
    return (
        m[0] + (inner_even + outer_even),
        scaled_sum(_A, inner_odd, scaled(_B, outer_odd)),
        scaled_sum(_A**2, inner_even, scaled(_B**2, outer_even)),
        scaled_sum(fourth, m[5], scaled_sum(_A**3, inner_odd, scaled(_B**3, outer_odd))),
        scaled_sum(fifth, m[5], scaled_sum(_A**4, inner_even, scaled(_B**4, outer_even))),
    )


@part_or_python
def _apply_a_transposed(d: Any, infinity: Any) -> Any:
    """A d; ``infinity`` is the last d that there is, the fourth or the fifth."""
    inner_even = scaled_sum(_A**2, scaled_sum(_A**2, d[4], d[2]), d[0])
    outer_even = scaled_sum(_B**2, scaled_sum(_B**2, d[4], d[2]), d[0])
    inner_odd, outer_odd = scaled_sum(_A**2, d[3], d[1]), scaled_sum(_B**2, d[3], d[1])
    return (
        d[0],
        scaled_sum(_A, inner_odd, inner_even),
        scaled_sum(-_A, inner_odd, inner_even),
        scaled_sum(_B, outer_odd, outer_even),
        scaled_sum(-_B, outer_odd, outer_even),
        infinity,
    )


@part_or_python
def _fetch(source: Any, at: int, line: int, channels: int, side: int) -> None:
    """Fetch the part of the next patch that is not in this one into the cache.

    The processor does not guess it: the patch is 36 short pieces of memory.
    """
    for r in range(_SIDE):
        for x in range(_SIDE - side, _SIDE):
            prefetch(pointer_to(source), at + r * line + x * channels)


@part_or_python
def _input_to_points(
    source: Any, start: int, line: int, channels: int, side: int, tiles: int, V: Any
) -> None:
    """V[point, tile] = B^T d B.

    Parameters
    ----------
    source, start, line
        The patch of tile t begins at ``start + side*t*I`` of the (flat) source; its rows are
        ``line`` apart.
    V
        (36, _BLOCK, padded I).
    """
    lanes = vector_lanes(V)
    for t in range(tiles):
        for begin in range(0, channels, lanes):
            c = min(begin, channels - lanes)  # the last vector overlaps: no scalar remainder
            at = start + side * t * channels + c
            _fetch(source, at + side * channels, line, channels, side)
            r0 = _apply_b(_load6(source, at, channels))
            r1 = _apply_b(_load6(source, at + line, channels))
            r2 = _apply_b(_load6(source, at + 2 * line, channels))
            r3 = _apply_b(_load6(source, at + 3 * line, channels))
            r4 = _apply_b(_load6(source, at + 4 * line, channels))
            r5 = _apply_b(_load6(source, at + 5 * line, channels))
            for j in range(_SIDE):
                column = r0[j], r1[j], r2[j], r3[j], r4[j], r5[j]
                for i, value in enumerate(_apply_b(column)):
                    store(V, ((_SIDE * i + j) * _BLOCK + t) * V.shape[2] + c, value)


@part_or_python
def _points_to_tiles(
    M: Any, bias: Any, activate: bool, side: int, first: int, last: int,
    target: Any, start: int, line: int,
) -> None:  # fmt: skip
    """Tiles ``first`` to ``last`` - 1 of the output, A^T M A + bias, after tanh if ``activate``.

    Parameters
    ----------
    M
        (36, _BLOCK, padded O).
    target, start, line
        Tile ``first`` begins at ``start`` of the (flat) target; its rows are ``line`` apart.
    """
    channels, lanes = bias.size, vector_lanes(M)
    step = M.shape[1] * M.shape[2]
    fourth, fifth = _LARGEST - side, side - (_LARGEST - 1)  # one of them is 1
    for t in range(first, last):
        for begin in range(0, channels, lanes):
            c = min(begin, channels - lanes)
            at = t * M.shape[2] + c
            r0 = _apply_a(_load6(M, at, step), fourth, fifth)
            r1 = _apply_a(_load6(M, at + 6 * step, step), fourth, fifth)
            r2 = _apply_a(_load6(M, at + 12 * step, step), fourth, fifth)
            r3 = _apply_a(_load6(M, at + 18 * step, step), fourth, fifth)
            r4 = _apply_a(_load6(M, at + 24 * step, step), fourth, fifth)
            r5 = _apply_a(_load6(M, at + 30 * step, step), fourth, fifth)
            shift = load(bias, c)
            for j in range(_LARGEST):
                column = r0[j], r1[j], r2[j], r3[j], r4[j], r5[j]
                place = start + (side * (t - first) + j) * channels + c
                for i, value in enumerate(_apply_a(column, fourth, fifth)):
                    if i < side and j < side:
                        y = value + shift
                        store(target, place + i * line, simd.tanh(y) if activate else y)


@part_or_python
def _points_to_rows(
    M: Any, bias: Any, activate: bool, side: int, top: int, left: int, tiles: int, last: int,
    tile: Any, result: Any,
) -> None:  # fmt: skip
    """The output of ``tiles`` tiles from (top, left) on, as far as it is above row ``last``.

    Parameters
    ----------
    M, bias, activate
        As in `_points_to_tiles`.
    tile
        Flat, with room for a tile, of which only a part is in the result.
    result
        (H, W, O).
    """
    width, channels = result.shape[1:]
    whole = min((width - left) // side, tiles) if top + side <= last else 0
    flat = result.reshape(-1)
    t = 0
    while t < tiles:
        x, inside = left + side * t, t < whole
        # One call for both cases, and for one type of array: it takes long to compile.
        end, target, start, line = t + 1, tile, 0, side * channels
        if inside:
            end, target, start, line = whole, flat, (top * width + x) * channels, width * channels
        _points_to_tiles(M, bias, activate, side, t, end, target, start, line)
        if not inside:
            for r in range(min(side, last - top)):
                place = ((top + r) * width + x) * channels
                for k in range(min(side, width - x) * channels):
                    flat[place + k] = tile[r * line + k]
        t = end


@part_or_python
def _tile_row(source: Any, at: int, step: int, side: int, there: bool) -> Any:
    """A d of a row of a tile, or of zeros if it has no such row."""
    d = (
        load_if(there, source, at), load_if(there, source, at + step),
        load_if(there, source, at + 2 * step), load_if(there, source, at + 3 * step),
        load_if(there and side == _LARGEST, source, at + 4 * step),
    )  # fmt: skip
    return _apply_a_transposed(d, load_if(there, source, at + (side - 1) * step))


@part_or_python
def _input_tiles_to_points(
    source: Any, start: int, line: int, channels: int, side: int, tiles: int, X: Any
) -> None:
    """X[point, tile] = A x A^T.

    Parameters
    ----------
    source, start, line
        Tile t begins at ``start + side*t*I`` of the (flat) source; its rows are ``line`` apart.
    X
        (36, _BLOCK, padded I).
    """
    lanes, fifth = vector_lanes(X), side == _LARGEST
    for t in range(tiles):
        for begin in range(0, channels, lanes):
            c = min(begin, channels - lanes)
            at = start + side * t * channels + c
            _fetch(source, at + (2 * side - _SIDE) * channels, line, channels, side)
            r0 = _tile_row(source, at, channels, side, True)
            r1 = _tile_row(source, at + line, channels, side, True)
            r2 = _tile_row(source, at + 2 * line, channels, side, True)
            r3 = _tile_row(source, at + 3 * line, channels, side, True)
            r4 = _tile_row(source, at + 4 * line, channels, side, fifth)
            for j in range(_SIDE):
                column = r0[j], r1[j], r2[j], r3[j], r4[j]
                infinity = r4[j] if fifth else r3[j]
                for i, value in enumerate(_apply_a_transposed(column, infinity)):
                    store(X, ((_SIDE * i + j) * _BLOCK + t) * X.shape[2] + c, value)


@part_or_python
def _patches_to_points(
    image: Any, y: Any, derivative: bool, top: int, left: int, side: int, tiles: int,
    strip: Any, V: Any,
) -> None:  # fmt: skip
    """V of the tiles whose first patch begins at (top, left), possibly outside the image."""
    height, width, channels = image.shape
    columns = side * (tiles - 1) + _SIDE
    inside = top >= 0 and left >= 0 and top + _SIDE <= height and left + columns <= width
    # One call for both cases, and for one type of array: it takes long to compile.
    source, start, line = strip, 0, columns * channels
    if inside and not derivative:
        source, line = image.reshape(-1), width * channels
        start = top * line + left * channels
    else:
        cut_strip(image, y, derivative, top, left, _SIDE, columns, strip)
    _input_to_points(source, start, line, channels, side, tiles, V)


@part_or_python
def _tiles_to_points(
    image: Any, top: int, left: int, side: int, tiles: int, strip: Any, X: Any
) -> None:
    """X of the tiles the first of which begins at (top, left), with zeros outside the image."""
    height, width, channels = image.shape
    source, start, line = strip, 0, side * tiles * channels
    if top + side <= height and left + side * tiles <= width:
        source, line = image.reshape(-1), width * channels
        start = top * line + left * channels
    else:
        cut_strip(image, image, False, top, left, side, side * tiles, strip)
    _input_tiles_to_points(source, start, line, channels, side, tiles, X)


# ---------------------------------------------------------------- rows of tiles


def prepare(taps: np.ndarray, bias: np.ndarray | None, activate: bool) -> Plan:
    """Parameters in the order of the loops; taps: (k, k, I, O), applied as a correlation."""
    side, _, inputs, outputs = taps.shape
    shift = np.zeros(outputs, np.float32) if bias is None else bias
    # Brought into their order first, while they are few.
    panels = _kernels_to_points(pack(taps.reshape(side * side, inputs, outputs)))
    return Plan(taps.shape, panels, shift, activate)


def scratch(
    taps: tuple[int, int, int, int], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Strip, V and M of one worker; zeros, because unused lanes are multiplied, too."""
    _, _, inputs, outputs = taps
    columns = tile_side(taps) * _BLOCK + 2
    strip = aligned_zeros((columns * max(_SIDE * inputs, _LARGEST * outputs),), dtype)
    # One point more: `multiply_transposed` reads a little past the end, and `backward_rows` sums
    # up pixels there.
    V, M = (
        aligned_zeros((_POINTS + 1, _BLOCK, padded_columns(channels, dtype)), dtype)
        for channels in (inputs, outputs)
    )
    return strip, V, M


@compiled(nogil=True)
def convolve_rows(
    plan: Any, image: Any, y: Any, derivative: bool, padding: tuple[int, int],
    first: int, last: int, buffers: Any, result: Any,
) -> None:  # fmt: skip
    """Rows ``first``, with which a tile begins, to ``last`` - 1; see `direct.convolve_rows`."""
    strip, V, M = buffers
    width, side = result.shape[1], tile_side(plan.taps)
    for top in range(first, last, side):
        for left in range(0, width, side * _BLOCK):
            tiles = min((width - left + side - 1) // side, _BLOCK)
            corner = top - padding[0], left - padding[1]
            _patches_to_points(image, y, derivative, *corner, side, tiles, strip, V)
            for k in range(_POINTS):
                multiply(V[k], tiles, image.shape[2], plan.panels[k], M[k])
            _points_to_rows(
                M, plan.bias, plan.activate, side, top, left, tiles, last, strip, result
            )


# ---------------------------------------------------------------- backward


def empty_sums(taps: tuple[int, int, int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros to which `backward_rows` adds the gradient of the kernels."""
    _, _, outputs, inputs = taps
    return np.zeros((_POINTS, size_of_sums(outputs, inputs, dtype)), dtype)


def backward_scratch(
    taps: tuple[int, int, int, int], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same as of `scratch`: M has the points of x before it has those of dx."""
    return scratch(taps, dtype)


@compiled(nogil=True)
def backward_rows(
    plan: Any, x: Any, dy: Any, y: Any, derivative: bool, first: int, last: int, need_dx: bool,
    buffers: Any, dx: Any, sums: Any, dbias: Any,
) -> None:  # fmt: skip
    """Rows ``first``, with which a tile begins, to ``last`` - 1; see `direct.backward_rows`."""
    strip, V, M = buffers
    width, outputs = x.shape[1], dy.shape[2]
    side, border = tile_side(plan.taps), plan.taps[0] - 1
    for top in range(first, last, side):
        for left in range(0, width, side * _BLOCK):
            tiles = min((width - left + side - 1) // side, _BLOCK)
            wide = side * (tiles - 1) + _SIDE
            cut_strip(dy, y, derivative, top - border, left - border, _SIDE, wide, strip)
            # Of each patch its first rows and columns, so that every pixel counts once.
            add_pixels(strip, side, side * tiles, wide * outputs, V[_POINTS, 0], dbias)
            _input_to_points(strip, 0, wide * outputs, outputs, side, tiles, V)
            _tiles_to_points(x, top, left, side, tiles, strip, M)
            for k in range(_POINTS):
                multiply_transposed(V[k], outputs, tiles, M[k], sums[k])
            if not need_dx:
                continue
            for k in range(_POINTS):
                multiply(V[k], tiles, outputs, plan.panels[k], M[k])
            _points_to_rows(M, plan.bias, False, side, top, left, tiles, last, strip, dx)


def kernels_from_sums(sums: np.ndarray, taps: tuple[int, int, int, int]) -> np.ndarray:
    """The gradient (k, k, O, I) of the taps from the sums of `backward_rows`."""
    side, _, outputs, inputs = taps
    return unpack_sums(_points_to_kernels(sums, side), outputs, inputs).reshape(taps)
