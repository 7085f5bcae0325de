"""Labelling -> disparity map: read-out and sub-label refinement (docs/model.md 6.3, 7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .kernels import Array, Backend
from .labels import LabelRange


def cheapest_labels(backend: Backend, costs: Array) -> Array:
    """The label of the lowest cost at every pixel, int32 (H, W): the network without a CRF."""
    return backend.argmin(costs)


def label_disparity(backend: Backend, label_map: Array, label_range: LabelRange) -> np.ndarray:
    """The disparity of every pixel's label, float32 (H, W) in pixels."""
    return label_range.to_disparity(backend.to_host(label_map))


def refined_disparity(
    backend: Backend, costs: Array, label_map: Array, unrefined: np.ndarray, step: float
) -> np.ndarray:
    """Disparities moved to the minimum of the parabola through a label's cost and its neighbours'.

    ``costs`` (H, W, K) are those the labels were chosen by: the CRF's minorant or, without a CRF,
    the matching costs.  ``unrefined`` (H, W) is what `label_disparity` gives.
    """
    return unrefined + backend.to_host(backend.refine(costs, label_map, step=step))


def enlarged_disparity(disparity: np.ndarray, factor: int, height: int, width: int) -> np.ndarray:
    """A map of views at 1/``factor`` of their size, as one of the views themselves.

    Bilinear where the four nearest pixels of the small map lie on one surface, which is where they
    differ by at most one of its pixels; else the nearest of them, so that no disparity appears
    that belongs to neither side of an edge.

    Parameters
    ----------
    disparity
        float32 (h, w), in small pixels.
    factor
        Pixels per small pixel; a small pixel is the mean of ``factor`` x ``factor``.
    height, width
        Of the views, at most ``factor`` times those of the map.

    Returns
    -------
    ndarray, float32 (height, width)
        In pixels.
    """
    row, row_share = _between(height, factor, disparity.shape[0])
    column, column_share = _between(width, factor, disparity.shape[1])
    down = np.minimum(row + 1, disparity.shape[0] - 1)
    right = np.minimum(column + 1, disparity.shape[1] - 1)
    corners = [disparity[np.ix_(y, x)] for y in (row, down) for x in (column, right)]
    shares = [
        np.outer(a, b) for a in (1 - row_share, row_share) for b in (1 - column_share, column_share)
    ]
    smooth = sum(share * corner for share, corner in zip(shares, corners, strict=True))
    spread = np.maximum.reduce(corners) - np.minimum.reduce(corners)
    nearest_row = np.where(row_share > 0.5, down, row)
    nearest_column = np.where(column_share > 0.5, right, column)
    nearest = disparity[np.ix_(nearest_row, nearest_column)]
    return (factor * np.where(spread <= 1, smooth, nearest)).astype(np.float32)


def _between(length: int, factor: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each of ``length`` pixels, the small pixel before its centre, and how far beyond it."""
    position = np.clip((np.arange(length) + 0.5) / factor - 0.5, 0, count - 1)
    before = np.floor(position).astype(np.intp)
    return before, (position - before).astype(np.float32)


def join_tiles(
    parts: Sequence[np.ndarray], places: Sequence[tuple[slice, slice]], shape: tuple[int, int]
) -> np.ndarray:
    """One map (H, W) of its parts, which together cover it."""
    joined = np.empty(shape, parts[0].dtype)
    for part, place in zip(parts, places, strict=True):
        joined[place] = part
    return joined
