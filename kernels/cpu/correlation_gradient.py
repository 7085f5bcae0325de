"""Gradients of the correlation's scores: products with a band instead of a full matrix.

    dphi0(y, x) = sum_k ds(y, x, k) phi1(y, x - d_k)
    dphi1(y, v) = sum_k ds(y, v + d_k, k) phi0(y, v + d_k)

The gradients ds of a row, as a matrix over pixels of both views, are zero but for a band along the
diagonal.  Stored by the distance from it, both sums read the band in place, one along its rows and
one along its columns: neither needs more products than there are labels, and up to five more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from ..label_positions import LabelPositions
from .buffers import aligned_zeros
from .jit import compiled
from .products import (
    BLOCK_VECTORS,
    TILE_ROWS,
    block_of_four,
    block_of_three,
    block_of_two,
    padded_columns,
    vectors_of_next_block,
)
from .vectors import vector_lanes

# Zeros on either side of the band: a block has up to six rows, whose bands begin one further each.
_MARGIN = 5


def band_scratch(
    widths: tuple[int, int], channels: int, positions: LabelPositions, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Band, features and sums of one worker, for `row_gradients` of rows of these two widths.

    Zeros, because margins and unused lanes are multiplied, too.  The last block of pixels may go
    beyond the row.  Where every second vector lies in two cache lines, a fifth of the time is lost.
    """
    rows, columns = max(widths) + TILE_ROWS, padded_columns(channels, dtype)
    reach = positions.highest - positions.lowest + 1
    band = aligned_zeros((widths[0] + TILE_ROWS, reach + 2 * _MARGIN), dtype)
    return band, aligned_zeros((rows, columns), dtype), aligned_zeros((rows, columns), dtype)


@register_jitable
def _fill_band(ds: Any, positions: LabelPositions, width: int, band: Any) -> None:
    """band[x, m + j] = gradient of the product of pixel x with pixel x + lowest + j of the other.

    ds: (W, K); band: (W or more, reach + 2m), zero in its margins m; ``width``: of the other view.
    """
    pixels, label_count = ds.shape
    if positions.whole:
        last = _MARGIN + label_count - 1
        for x in range(pixels):
            for k in range(label_count):
                band[x, last - k] = ds[x, k]
        return
    for x in range(pixels):
        for j in range(_MARGIN, band.shape[1] - _MARGIN):
            band[x, j] = 0
        for k in range(label_count):
            at, j = x + positions.offsets[k], _MARGIN + positions.offsets[k] - positions.lowest
            if 0 <= at < width:
                if positions.fractions[k] == 0:
                    band[x, j] += ds[x, k]
                elif at + 1 < width:
                    after = positions.fractions[k] * ds[x, k]
                    band[x, j] += ds[x, k] - after
                    band[x, j + 1] += after


@register_jitable
def _multiply_band(
    band: Any, origin: int, row: int, step: int, lowest: int, highest: int, features: Any,
    width: int, channels: int, sums: Any, result: Any,
) -> None:  # fmt: skip
    """result[i] = sum_j b[i, j] * features[j], over j from i + lowest to i + highest in the image.

    Parameters
    ----------
    band, origin, row, step
        ``b[i, j]`` is at ``origin + i*row + j*step`` of the flat band.
    features
        (J, padded C), of which ``width`` are in the image.
    sums, result
        (I or more, padded C), overwritten, and (I, C).
    """
    count, lanes, columns = result.shape[0], vector_lanes(sums), sums.shape[1]
    # The features of a tile and a block of columns stay in the nearest cache.
    for tile in range(0, count, TILE_ROWS):
        column = 0
        while column < columns:
            vectors = vectors_of_next_block((columns - column) // lanes)
            rows = TILE_ROWS // vectors
            for i in range(tile, min(tile + TILE_ROWS, count), rows):
                begin = max(i + lowest, 0)
                depth = min(i + rows + highest, width) - begin
                to = i * columns + column
                at, start = origin + i * row + begin * step, begin * columns + column
                if depth > 0 and vectors == BLOCK_VECTORS:
                    block_of_three(
                        band, at, row, step, features, start, columns, lanes, depth, sums, to,
                        columns, False,
                    )  # fmt: skip
                elif depth > 0 and vectors > BLOCK_VECTORS:
                    block_of_four(
                        band, at, row, step, features, start, columns, lanes, depth, sums, to,
                        columns, False,
                    )  # fmt: skip
                elif depth > 0:
                    block_of_two(
                        band, at, row, step, features, start, columns, lanes, depth, sums, to,
                        columns, False,
                    )  # fmt: skip
                else:
                    sums[i : i + rows, column : column + vectors * lanes] = 0
            column += vectors * lanes
    for i in range(count):
        for c in range(channels):
            result[i, c] = sums[i, c]


@register_jitable
def _pad(row: Any, padded: Any) -> None:
    """padded[x, c] = row[x, c]: (W, C) into (W or more, C or more)."""
    for x in range(row.shape[0]):
        for c in range(row.shape[1]):
            padded[x, c] = row[x, c]


@compiled(nogil=True, error_model="numpy")
def row_gradients(
    ds: Any, left: Any, right: Any, positions: LabelPositions, buffers: Any, dleft: Any, dright: Any
) -> None:
    """dleft and dright of a row.

    ds: (W, K); left, dleft: (W, C); right, dright: (V, C); buffers: see `band_scratch`.
    """
    band, features, sums = buffers
    width, channels = right.shape
    lowest, highest = positions.lowest, positions.highest
    origin, diagonal = _MARGIN - lowest, band.shape[1] - 1
    _fill_band(ds, positions, width, band)
    _pad(right, features)
    _multiply_band(
        band, origin, diagonal, 1, lowest, highest, features, width, channels, sums, dleft
    )
    _pad(left, features)
    _multiply_band(
        band, origin, 1, diagonal, -highest, -lowest, features, left.shape[0], channels, sums,
        dright,
    )  # fmt: skip
