"""Correlation + softmax on the CPU (paper, eq. 3 and 4), forward and backward.

    s(y, x, k) = <phi0(y, x), phi1(y, x - d_k)>,   f(y, x, k) = -softmax_k(s(y, x, .))

Neighbouring pixels of a row need a contiguous band of the other row, so a small matrix product
computes all scores of four of them (and some unused ones off the band), which are normalised while
they are in cache.  Only the cost volume itself is ever written to memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from .cpu import buffers, simd
from .cpu.jit import compiled
from .cpu.lanes import lane_count, load_tile, prefetch_tile, store_tile, transposed
from .cpu.pointers import advance, never_inline, pointer_to, prefetch, restrict_arguments
from .cpu.products import BLOCK_ROWS, BLOCK_VECTORS, TILE_ROWS, block_of_three
from .cpu.simd import minimum
from .cpu.vectors import numbers_per_vector
from .cpu.workers import run_tiles
from .label_positions import LabelPositions, label_positions

# Pixels per block of the backward pass.  The product has (block + range) columns, of which `range`
# are useful: long blocks waste arithmetic, short ones BLAS efficiency.
_BLOCK = 64

# Panels of pixels that are fetched from memory ahead of the one that is packed.
_PANELS_AHEAD = 2


# In the forward pass the other row is stored from right to left, so that labels, whose positions
# move to the left, read it in ascending order.  ``products`` points to the product of a pixel with
# pixel 0 of the other row, which need not exist; the product with pixel x is ``products[-x]``.


@compiled(nogil=True, error_model="numpy")
def _whole_scores(products: Any, newest: int, width: int, scores: Any, label_count: int) -> None:
    """Scores of a pixel whose label k looks at ``newest - k``; scores: pointer to K."""
    restrict_arguments()
    # Inside the image are the labels in [low, high).
    low = min(max(newest - (width - 1), 0), label_count)
    high = max(min(newest + 1, label_count), low)
    for k in range(low):
        scores[k] = 0
    for k in range(low, high):
        scores[k] = products[k - newest]
    for k in range(high, label_count):
        scores[k] = 0


@compiled(nogil=True, error_model="numpy")
def _fractional_scores(
    products: Any, x: int, width: int, offsets: Any, fractions: Any, scores: Any
) -> None:
    """Scores of pixel x at any positions; offsets, fractions: (K,); scores: pointer to K."""
    for k in range(offsets.size):
        at = x + offsets[k]
        score = fractions.dtype.type(0)
        if 0 <= at < width:
            if fractions[k] == 0:
                score = products[-at]
            elif at + 1 < width:
                score = products[-at] + fractions[k] * (products[-at - 1] - products[-at])
        scores[k] = score


@compiled(nogil=True, error_model="numpy", fastmath={"reassoc"})
def _add(a: Any, b: Any) -> Any:
    """a + b, in any order with other such sums: what lets the compiler vectorise a running sum."""
    return a + b


@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def _negated_softmax(scores: Any, costs: Any, label_count: int) -> None:
    """costs = -softmax(scores), pointers to K; the scores are overwritten."""
    restrict_arguments()
    shift = -scores[0]
    for k in range(1, label_count):
        shift = minimum(shift, -scores[k])
    total = type(shift)(0)
    for k in range(label_count):
        value = simd.exp(scores[k] + shift)
        scores[k] = value
        total = _add(total, value)
    factor = type(shift)(-1) / total
    for k in range(label_count):
        costs[k] = scores[k] * factor


@compiled(nogil=True, error_model="numpy")
def _pack_reversed(row: Any, panels: Any) -> None:
    """Bring a row, from right to left, into panels of as many pixels as a vector has lanes.

    row: (W, C); panels: (P, C, L), all of it: ``panels[p, c, l] = row[W-1 - (p*L + l), c]``.
    """
    never_inline()
    (width, channels), lanes = row.shape, panels.shape[2]
    ahead = -_PANELS_AHEAD * lanes * channels
    in_tiles = lanes == lane_count(pointer_to(row)) and channels >= lanes
    for p in range(panels.shape[0]):
        x = max(width - 1 - p * lanes, 0)  # any value will do beyond the image
        if in_tiles:
            for begin in range(0, channels, lanes):
                c = min(begin, channels - lanes)  # the last tiles overlap
                source = advance(pointer_to(row), x * channels + c)
                prefetch_tile(advance(source, ahead), -channels, lanes)
                tile = transposed(load_tile(source, -channels, min(x, lanes - 1)))
                store_tile(
                    advance(pointer_to(panels), (p * channels + c) * lanes), lanes, lanes, tile
                )
        else:
            for lane in range(lanes):
                for c in range(channels):
                    prefetch(pointer_to(row), 0)  # no vectors, which take long to compile
                    panels[p, c, lane] = row[max(x - lane, 0), c]


@compiled(nogil=True, error_model="numpy")
def _panels_seen(lowest: int, highest: int, other: int, lanes: int) -> Any:
    """Panels [first, last) of a row of ``other`` pixels, where [lowest, highest) are looked at."""
    begin, end = max(lowest, 0), min(highest, other)
    if begin >= end:
        return 0, 0
    return (other - end) // lanes, (other - 1 - begin) // lanes + 1


@compiled(nogil=True, error_model="numpy")
def _correlate_row(
    left: Any,
    right: Any,
    positions: LabelPositions,
    panels: Any,
    pixels: Any,
    products: Any,
    scores: Any,
    volume: Any,
) -> None:
    """volume[x] = -softmax of the scores of pixel x, for all pixels of a row.

    left: (W, C); right: (V, C); volume: (W, K).  Scratch: panels (P + 2, C, L), pixels
    (TILE_ROWS, C), products (TILE_ROWS, (P + 2) * L), scores (K,).  A label that looks outside the
    image scores 0 and stays in the softmax (docs/model.md 4).
    """
    (width, channels), other = left.shape, right.shape[0]
    count, lanes, columns = scores.size, panels.shape[2], products.shape[1]
    apart = channels * lanes
    lowest, highest = positions.lowest, positions.highest + BLOCK_ROWS  # of four pixels from 0 on
    _pack_reversed(right, panels)
    for start in range(0, width, TILE_ROWS):
        rows = min(TILE_ROWS, width - start)
        for i in range(rows):
            for c in range(channels):
                pixels[i, c] = left[start + i, c]

        # Each four pixels are multiplied by the panels that they see themselves, and by up to two
        # more: blocks are three vectors wide.  Panels that all of them see stay in the cache.
        most = 0
        for i in range(0, rows, BLOCK_ROWS):
            x = start + i
            first, last = _panels_seen(x + lowest, x + highest, other, lanes)
            most = max(most, last - first)
        for panel in range(0, most, BLOCK_VECTORS):
            for i in range(0, rows, BLOCK_ROWS):
                x = start + i
                first, last = _panels_seen(x + lowest, x + highest, other, lanes)
                if first + panel < last:
                    block_of_three(
                        pixels, i * channels, channels, 1, panels, (first + panel) * apart, lanes,
                        apart, channels, products, i * columns + panel * lanes, columns, False,
                    )  # fmt: skip

        for i in range(rows):
            x = start + i
            begin = x - i % BLOCK_ROWS
            first, _ = _panels_seen(begin + lowest, begin + highest, other, lanes)
            pixel_zero = advance(pointer_to(products), i * columns + (other - 1 - first * lanes))
            costs = advance(pointer_to(volume), x * count)
            if positions.whole:
                newest = x + positions.offsets[0]
                if newest < other and newest + 1 >= count:  # all labels are inside the image
                    _negated_softmax(advance(pixel_zero, -newest), costs, count)
                    continue
                _whole_scores(pixel_zero, newest, other, pointer_to(scores), count)
            else:
                _fractional_scores(
                    pixel_zero, x, other, positions.offsets, positions.fractions, pointer_to(scores)
                )
            _negated_softmax(pointer_to(scores), costs, count)


def correlation_forward(
    left: np.ndarray,
    right: np.ndarray,
    disparities: np.ndarray,
    costs: np.ndarray | None = None,
) -> np.ndarray:
    """Unary costs ``f = -softmax(s)`` of all labels.

    Parameters
    ----------
    left, right
        Features (H, W, C) and (H, V, C); of a tile the right view may be wider.
    disparities
        Disparity of every label (K,), ascending and equally spaced; label k of left pixel x
        matches right pixel ``x - disparities[k]``.
    costs
        Where to put the result, if given: contiguous, of the features' type.

    Returns
    -------
    f
        (H, W, K), in [-1, 0].
    """
    (height, width, channels), dtype = left.shape, left.dtype
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    positions = label_positions(disparities, dtype.type)
    volume = costs
    if volume is None:
        volume = buffers.empty((height, width, positions.label_count), dtype)
    lanes = numbers_per_vector(dtype)

    def worker(rows: Iterator[int]) -> None:
        # Two panels more than the row has, because a block is three of them wide.
        panels = np.empty((-(-right.shape[1] // lanes) + BLOCK_VECTORS - 1, channels, lanes), dtype)
        pixels = np.zeros((TILE_ROWS, channels), dtype)
        products = np.empty((TILE_ROWS, panels.shape[0] * lanes), dtype)
        scores = np.empty(positions.label_count, dtype)
        for y in rows:
            _correlate_row(
                left[y], right[y], positions, panels, pixels, products, scores, volume[y]
            )

    run_tiles(worker, range(height))
    return volume


@compiled(parallel=True, error_model="numpy", fastmath={"reassoc", "nsz"})
def _softmax_backward_rows(f: Any, df: Any, ds: Any) -> None:
    """ds_k = f_k * (df_k + sum_j f_j df_j); all (N, K)."""
    for i in prange(f.shape[0]):
        mean = f.dtype.type(0)
        for k in range(f.shape[1]):
            mean += f[i, k] * df[i, k]
        for k in range(f.shape[1]):
            ds[i, k] = f[i, k] * (df[i, k] + mean)


def softmax_backward(f: np.ndarray, df: np.ndarray) -> np.ndarray:
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
    ds = buffers.empty(f.shape, f.dtype)
    label_count = f.shape[2]
    _softmax_backward_rows(
        f.reshape(-1, label_count), df.reshape(-1, label_count), ds.reshape(-1, label_count)
    )
    return ds


class _Block(NamedTuple):
    """Neighbouring pixels of a left row and the band of the right row that their labels see."""

    x: slice
    band: slice


def _blocks(width: int, positions: LabelPositions) -> list[_Block]:
    """The blocks of a row, from left to right; a band may be empty."""
    blocks = []
    for x in range(0, width, _BLOCK):
        end = min(x + _BLOCK, width)
        band_begin = min(max(x + positions.lowest, 0), width)
        band_end = max(min(end + positions.highest, width), band_begin)
        blocks.append(_Block(slice(x, end), slice(band_begin, band_end)))
    return blocks


def _band_buffer(width: int, positions: LabelPositions, dtype: Any) -> np.ndarray:
    """Room for the products of one block with its band."""
    return np.empty(_BLOCK * min(width, _BLOCK + positions.highest - positions.lowest), dtype)


def _band_view(buffer: np.ndarray, block: _Block) -> np.ndarray:
    """The part of `_band_buffer` that a block needs, as (pixels, band)."""
    pixels, columns = block.x.stop - block.x.start, block.band.stop - block.band.start
    return buffer[: pixels * columns].reshape(pixels, columns)


@compiled(nogil=True, error_model="numpy")
def _scatter_band(
    ds_row: Any,
    band_start: int,
    x_start: int,
    width: int,
    offsets: Any,
    fractions: Any,
    whole: bool,
    dband: Any,
) -> None:
    """dband = dL/d(products of a block with its band).

    ds_row: (W, K) dL/ds; dband: (pixels, B), overwritten, of pixels from ``x_start`` and a band
    from ``band_start``; the rest: see `LabelPositions`.
    """
    label_count = offsets.size
    for i in range(dband.shape[0]):
        x = x_start + i
        gradients = ds_row[x]
        products = dband[i]
        for j in range(products.size):
            products[j] = 0
        if whole:
            newest = x + offsets[0]
            low = min(max(newest - (width - 1), 0), label_count)
            high = max(min(newest + 1, label_count), low)
            if high > low:
                run = products[newest - (high - 1) - band_start :]
                for j in range(high - low):
                    run[j] = gradients[high - 1 - j]
            continue
        for k in range(label_count):
            at = x + offsets[k]
            if 0 <= at < width:
                if fractions[k] == 0:
                    products[at - band_start] += gradients[k]
                elif at + 1 < width:
                    after = fractions[k] * gradients[k]
                    products[at - band_start] += gradients[k] - after
                    products[at + 1 - band_start] += after


def scores_backward(
    ds: np.ndarray, left: np.ndarray, right: np.ndarray, disparities: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the scores ``s``; a label that looks outside the image passes none.

    Parameters
    ----------
    ds
        dL/ds (H, W, K).
    left, right, disparities
        As in `correlation_forward`.

    Returns
    -------
    dleft, dright
        dL/dleft and dL/dright (H, W, C).
    """
    height, width, channels = left.shape
    positions = label_positions(disparities, left.dtype.type)
    blocks = _blocks(width, positions)
    dleft = buffers.empty(left.shape, left.dtype)
    dright = buffers.empty(right.shape, right.dtype)

    def worker(rows: Iterator[int]) -> None:
        buffer = _band_buffer(width, positions, left.dtype)
        share = np.empty((buffer.size // _BLOCK, channels), left.dtype)
        for y in rows:
            dright[y] = 0
            # The bands of neighbouring blocks overlap, so dright is a sum over the blocks; a row
            # belongs to one worker, which adds them from left to right.
            for block in blocks:
                dband = _band_view(buffer, block)
                _scatter_band(
                    ds[y],
                    block.band.start,
                    block.x.start,
                    width,
                    positions.offsets,
                    positions.fractions,
                    positions.whole,
                    dband,
                )
                np.matmul(dband, right[y, block.band], out=dleft[y, block.x])
                part = share[: dband.shape[1]]
                np.matmul(dband.T, left[y, block.x], out=part)
                dright[y, block.band] += part

    run_tiles(worker, range(height))
    return dleft, dright
