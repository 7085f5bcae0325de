"""Holes of a disparity map, filled from the background (docs/model.md 17; not in the paper).

What only one view sees lies beside a nearer object, or outside the other view, and belongs to the
surface behind: that of the end of the hole with the smaller disparity.  The disparity of a plane
changes linearly over the image, so this surface is continued into the hole as a plane.
"""

from __future__ import annotations

import numpy as np

from .bands import rows_in_bands
from .labels import LabelRange

# The plane is fitted to so many rows above and below the end of a hole, and columns beyond it, in
# rounds: a first guess from the nearest columns tells which of the farther pixels belong to it.
_ROWS, _COLUMNS = 5, (8, 16, 32)
# Pixels: what is farther from the plane belongs to another surface.
_SAME_SURFACE = 1.5
# Pulls slopes towards zero, in squared pixels per column: few pixels say little about a slope.
_SHRINKAGE = 1.0
# Pixels per pixel: steeper surfaces are hardly visible, and a wrong slope does the more harm.
_STEEPEST = 0.25
_AT_ONCE = 256  # ends of holes: 352 pixels of each, in double precision, stay in the cache


def filled_disparity(disparity: np.ndarray, good: np.ndarray, labels: LabelRange) -> np.ndarray:
    """A map whose other pixels are replaced by the surface behind them.

    Parameters
    ----------
    disparity
        float32 (H, W), in pixels.
    good
        bool (H, W), which pixels to keep.
    labels
        What was searched: nothing is filled in beyond it.

    Returns
    -------
    ndarray, float32 (H, W)
        Unchanged if no pixel is good.
    """
    if good.all() or not good.any():
        return disparity
    filled = disparity.copy()
    for band in rows_in_bands(disparity.shape):
        ends, beyond = _farther_ends(disparity[band], good[band])
        rows, columns = np.nonzero(~good[band] & (beyond != 0))  # the row has a good pixel
        if rows.size == 0:
            continue
        ends, beyond = ends[rows, columns], beyond[rows, columns]
        rows += band.start
        # All pixels of a hole share its end: each is fitted once.
        different, which = np.unique(np.stack([rows, ends, beyond]), axis=1, return_inverse=True)
        height, slope = _planes(disparity, good, *different)
        which = which.reshape(-1)
        continued = height[which] + slope[which] * (columns - ends)
        filled[rows, columns] = np.clip(continued, labels.minimum, labels.maximum)
    known = np.asarray(good.any(axis=1))
    return filled if known.all() else filled[_nearest(known)]


def _farther_ends(disparity: np.ndarray, good: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each pixel the column of the good pixel that its hole is filled from, and its side.

    The nearest good pixels of the row to the left and to the right are compared: the smaller
    disparity is farther away.  The side is -1 or 1; 0 where the row has no good pixel.
    """
    height, width = disparity.shape
    rows, columns = np.arange(height)[:, np.newaxis], np.arange(width)
    before = np.maximum.accumulate(np.where(good, columns, -1), axis=1)
    after = np.minimum.accumulate(np.where(good, columns, width)[:, ::-1], axis=1)[:, ::-1]
    # -1 and width stand for none and are looked up in a border of +inf on both sides.
    bordered = np.pad(disparity, ((0, 0), (1, 1)), constant_values=np.inf)
    left, right = bordered[rows, before + 1], bordered[rows, after + 1]
    side = np.where(left <= right, -1, 1)
    side[~np.isfinite(np.minimum(left, right))] = 0
    return np.where(side < 0, before, np.minimum(after, width - 1)), side


def _planes(
    disparity: np.ndarray, good: np.ndarray, rows: np.ndarray, columns: np.ndarray, side: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Disparity and horizontal slope of the surface at each end (N,) of a hole."""
    heights, slopes = np.empty(rows.size), np.empty(rows.size)
    for first in range(0, rows.size, _AT_ONCE):
        part = np.s_[first : first + _AT_ONCE]
        heights[part], slopes[part] = _fit(disparity, good, rows[part], columns[part], side[part])
    return heights, slopes


def _fit(
    disparity: np.ndarray, good: np.ndarray, rows: np.ndarray, columns: np.ndarray, side: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least squares over the good pixels beside each end that lie near the plane so far."""
    image_rows, image_columns = disparity.shape
    down, across = np.meshgrid(np.arange(-_ROWS, _ROWS + 1), np.arange(_COLUMNS[-1]), indexing="ij")
    y = rows[:, np.newaxis] + down.ravel()
    x = columns[:, np.newaxis] + side[:, np.newaxis] * across.ravel()
    seen = (y >= 0) & (y < image_rows) & (x >= 0) & (x < image_columns)
    place = np.where(seen, y, 0), np.where(seen, x, 0)
    seen &= good[place]
    values = np.where(seen, disparity[place], 0).astype(np.float64)
    offsets = np.stack([x - columns[:, np.newaxis], y - rows[:, np.newaxis]]).astype(np.float64)
    height = disparity[rows, columns].astype(np.float64)
    slope = np.zeros((2, rows.size))
    for reach in _COLUMNS:
        plane = height[:, np.newaxis] + np.einsum("dn,dnp->np", slope, offsets)
        near = np.abs(values - plane) <= _SAME_SURFACE
        weight = (seen & near & (across.ravel() < reach)).astype(np.float64)
        count = np.maximum(weight.sum(axis=1), 1)
        centre = (offsets * weight).sum(axis=2) / count
        mean = (values * weight).sum(axis=1) / count
        moved = (offsets - centre[..., np.newaxis]) * weight
        spread = np.einsum("dnp,enp->nde", moved, moved)
        spread += _SHRINKAGE * reach**2 * np.eye(2)
        tilt = np.einsum("dnp,np->nd", moved, values - mean[:, np.newaxis])
        slope = np.linalg.solve(spread, tilt[..., np.newaxis])[..., 0].T
        height = mean - (slope * centre).sum(axis=0)
    return height, np.clip(slope[0], -_STEEPEST, _STEEPEST)


def _nearest(known: np.ndarray) -> np.ndarray:
    """For each row the nearest known one, itself if it is known; bool (H,) -> int (H,)."""
    places, rows = np.flatnonzero(known), np.arange(known.size)
    after = np.minimum(np.searchsorted(places, rows), places.size - 1)
    before = np.maximum(np.searchsorted(places, rows, side="right") - 1, 0)
    nearer_after = np.abs(places[after] - rows) < np.abs(rows - places[before])
    return places[np.where(nearer_after, after, before)]
