"""Correlation + softmax on the CPU (paper, eq. 3 and 4), forward and backward.

    s(y, x, k) = <phi0(y, x), phi1(y, x - d_k)>,   f(y, x, k) = -softmax_k(s(y, x, .))

Neighbouring pixels of a row need a contiguous band of the other row, so a small matrix product
computes all scores of four of them (and some unused ones off the band), which are normalised while
they are in cache.  Only the cost volume itself is ever written to memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

import numpy as np
from numba import prange

from .cpu import buffers, correlation_gradient, simd
from .cpu.jit import compiled, part
from .cpu.lanes import lane_count, load_tile, prefetch_tile, store_tile, transposed
from .cpu.pointers import advance, never_inline, pointer_to, prefetch, restrict_arguments
from .cpu.products import BLOCK_ROWS, BLOCK_VECTORS, TILE_ROWS, block_of_three
from .cpu.simd import minimum
from .cpu.vectors import numbers_per_vector, widest_vectors
from .cpu.workers import run_tiles
from .label_positions import LabelPositions, label_positions

# Pixels by which those that are fetched from memory are ahead of those that are packed.
_PIXELS_AHEAD = 16


# In the forward pass the other row is stored from right to left, so that labels, whose positions
# move to the left, read it in ascending order.  ``products`` points to the product of a pixel with
# pixel 0 of the other row, which need not exist; the product with pixel x is ``products[-x]``.


@part()
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


@part()
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


@part(fastmath={"reassoc"})
def _add(a: Any, b: Any) -> Any:
    """a + b, in any order with other such sums: what lets the compiler vectorise a running sum."""
    return a + b


@part(fastmath={"contract"})
def _negated_softmax(scores: Any, costs: Any, label_count: int) -> Any:
    """costs = -softmax(scores), pointers to K; the scores are overwritten.

    Returns a sum and a shift, which say what it divides by: sum * exp(-shift).
    """
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
    return total, shift


@part()
def _pack_reversed(row: Any, panels: Any) -> None:
    """Bring a row, from right to left, into panels of as many pixels as a vector has lanes.

    row: (W, C); panels: (P, C, L), all of it: ``panels[p, c, l] = row[W-1 - (p*L + l), c]``.
    """
    never_inline()
    (width, channels), lanes = row.shape, panels.shape[2]
    ahead = -_PIXELS_AHEAD * channels
    side = lane_count(pointer_to(row))
    in_tiles = lanes % side == 0 and channels >= side
    step = side if in_tiles else 1
    for first in range(0, panels.shape[0] * lanes, step):  # pixel, from the right
        p, lane = first // lanes, first % lanes
        x = max(width - 1 - first, 0)  # any value will do beyond the image
        if in_tiles:
            for begin in range(0, channels, side):
                c = min(begin, channels - side)  # the last tiles overlap
                source = advance(pointer_to(row), x * channels + c)
                prefetch_tile(advance(source, ahead), -channels, side)
                tile = transposed(load_tile(source, -channels, min(x, side - 1)))
                target = advance(pointer_to(panels), (p * channels + c) * lanes + lane)
                store_tile(target, lanes, side, tile)
        else:
            for c in range(channels):
                prefetch(pointer_to(row), 0)  # no vectors, which take long to compile
                panels[p, c, lane] = row[x, c]


@part()
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
    log_sums: Any,
) -> None:
    """volume[x] = -softmax of the scores of pixel x, for all pixels of a row.

    left: (W, C); right: (V, C); volume: (W, K); log_sums: (W,), or (0,) if not wanted.
    Scratch: panels (P + 2, C, L), pixels (TILE_ROWS, C), products (TILE_ROWS, (P + 2) * L), scores
    (K,).  A label that looks outside the image scores 0 and stays in the softmax (docs/model.md 4).
    """
    widest_vectors()
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
                    total, shift = _negated_softmax(advance(pixel_zero, -newest), costs, count)
                    if log_sums.size:
                        log_sums[x] = log(total) - shift
                    continue
                _whole_scores(pixel_zero, newest, other, pointer_to(scores), count)
            else:
                _fractional_scores(
                    pixel_zero, x, other, positions.offsets, positions.fractions, pointer_to(scores)
                )
            total, shift = _negated_softmax(pointer_to(scores), costs, count)
            if log_sums.size:
                log_sums[x] = log(total) - shift


def correlation_forward(
    left: np.ndarray,
    right: np.ndarray,
    disparities: np.ndarray,
    costs: np.ndarray | None = None,
    log_sums: np.ndarray | None = None,
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
    log_sums
        (H, W), receives ``log(sum_k exp(s))``, if given.

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
    if log_sums is None:
        log_sums = np.empty((height, 0), dtype)

    def worker(rows: Iterator[int]) -> None:
        # Two panels more than the row has, because a block is three of them wide.
        shape = -(-right.shape[1] // lanes) + BLOCK_VECTORS - 1, channels, lanes
        panels = buffers.empty(shape, dtype)
        pixels = np.zeros((TILE_ROWS, channels), dtype)
        products = buffers.empty((TILE_ROWS, panels.shape[0] * lanes), dtype)
        scores = np.empty(positions.label_count, dtype)
        for y in rows:
            _correlate_row(
                left[y],
                right[y],
                positions,
                panels,
                pixels,
                products,
                scores,
                volume[y],
                log_sums[y],
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
        dL/dleft (H, W, C) and dL/dright (H, V, C).
    """
    positions = label_positions(disparities, left.dtype.type)
    ds, left, right = (np.ascontiguousarray(array) for array in (ds, left, right))
    dleft, dright = (buffers.empty(array.shape, array.dtype) for array in (left, right))
    widths = left.shape[1], right.shape[1]

    def worker(rows: Iterator[int]) -> None:
        scratch = correlation_gradient.band_scratch(widths, left.shape[2], positions, left.dtype)
        for y in rows:
            correlation_gradient.row_gradients(
                ds[y], left[y], right[y], positions, scratch, dleft[y], dright[y]
            )

    run_tiles(worker, range(left.shape[0]))
    return dleft, dright
