"""Correlation + softmax on the CPU (paper, eq. 3 and 4).

    s(y, x, k) = <phi0(y, x), phi1(y, x - d_k)>,   f(y, x, k) = -softmax_k(s(y, x, .))

A block of neighbouring pixels of a row needs a contiguous band of the other row, so one small
matrix product gives all its scores (and some unused ones off the band); the diagonal is read out
and normalised while it is in cache.  Only the cost volume itself is ever written to memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from . import simd
from .simd import minimum
from .workers import run_tiles

# Pixels per block.  The product has (block + range) columns for `range` useful ones: long blocks
# waste arithmetic, short ones BLAS efficiency.
_BLOCK = 64


def _label_positions(disparities: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where each label looks: pixel ``x + offset`` and, with weight ``fraction``, the one after.

    ``x - d = (x + floor(-d)) + fraction``; a whole-pixel disparity has fraction 0.
    """
    offsets = np.floor(-disparities)
    return offsets.astype(np.int64), (-disparities - offsets).astype(dtype)


@njit(nogil=True, cache=True, error_model="numpy")
def _softmax_band(
    band: Any,
    band_start: int,
    x_start: int,
    pixels: int,
    width: int,
    offsets: Any,
    fractions: Any,
    whole: bool,
    volume_row: Any,
) -> None:
    """volume_row[x] = -softmax of the scores of pixel x, for ``pixels`` pixels from x_start on.

    band: (pixels, B) products with the pixels from ``band_start`` on; offsets, fractions: (K,);
    volume_row: (W, K).  A label that looks outside the image scores 0 and stays in the softmax
    (SPEC 4).  Whole-pixel labels one apart (``whole``) are a plain reversed run of the band.
    """
    labels = offsets.size
    for i in range(pixels):
        x = x_start + i
        scores = volume_row[x]
        products = band[i]
        if whole:
            # Label k looks at x + offsets[0] - k: inside the image for k in [low, high).
            newest = x + offsets[0]
            low = min(max(newest - (width - 1), 0), labels)
            high = max(min(newest + 1, labels), low)
            for k in range(low):
                scores[k] = 0
            run = products[newest - (high - 1) - band_start :] if high > low else products
            count = high - low
            for j in range(count):
                scores[high - 1 - j] = run[j]
            for k in range(high, labels):
                scores[k] = 0
        else:
            for k in range(labels):
                at = x + offsets[k]
                score = products.dtype.type(0)
                if 0 <= at < width:
                    if fractions[k] == 0:
                        score = products[at - band_start]
                    elif at + 1 < width:
                        here, after = products[at - band_start], products[at + 1 - band_start]
                        score = here + fractions[k] * (after - here)
                scores[k] = score

        negated_highest = -scores[0]
        for k in range(labels):
            negated_highest = minimum(negated_highest, -scores[k])
        total = scores.dtype.type(0)
        for k in range(labels):
            value = simd.exp(scores[k] + negated_highest)
            scores[k] = value
        for k in range(labels):
            total += scores[k]
        scale = -1 / total
        for k in range(labels):
            scores[k] *= scale


def correlation_forward(left: np.ndarray, right: np.ndarray, disparities: np.ndarray) -> np.ndarray:
    """Unary costs ``f = -softmax(s)`` of all labels.

    Parameters
    ----------
    left, right
        Features (H, W, C), C-contiguous.
    disparities
        Disparity of every label (K,), ascending and equally spaced; label k of left pixel x
        matches right pixel ``x - disparities[k]``.

    Returns
    -------
    f
        (H, W, K), in [-1, 0].
    """
    height, width, _ = left.shape
    disparities = np.asarray(disparities, np.float64)
    offsets, fractions = _label_positions(disparities, left.dtype.type)
    whole = not fractions.any() and bool(np.all(np.diff(offsets) == -1))
    lowest, highest = int(offsets[-1]), int(offsets[0]) + (0 if whole else 1)
    volume = np.empty((height, width, disparities.size), left.dtype)

    def worker(rows: Iterator[int]) -> None:
        buffer = np.empty(_BLOCK * min(width, _BLOCK + highest - lowest), left.dtype)
        for y in rows:
            for x in range(0, width, _BLOCK):
                pixels = min(_BLOCK, width - x)
                begin = min(max(x + lowest, 0), width)
                end = max(min(x + pixels + highest, width), begin)
                band = buffer[: pixels * (end - begin)].reshape(pixels, end - begin)
                np.matmul(left[y, x : x + pixels], right[y, begin:end].T, out=band)
                _softmax_band(band, begin, x, pixels, width, offsets, fractions, whole, volume[y])

    run_tiles(worker, range(height))
    return volume
