"""Which pixels of a map both views agree on, and what to put where they do not (model.md 17).

The left-right check: left pixel x says that it matches right pixel x - d; it is believed if that
pixel says the same of x.  Not in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .bands import rows_in_bands
from .labels import LabelRange

INVALID, OCCLUDED, GOOD = 0, 128, 255
"""Values of a validity map, those of Middlebury's masks: the views contradict each other; the
other view does not see the point; they agree."""

TOLERANCE = 1.0
"""Pixels by which the two disparities of one point may differ: they belong to different places
between whole pixels, over which the disparity of a slanted surface changes."""


def view_difference(disparity: np.ndarray, other: np.ndarray, direction: int) -> np.ndarray:
    """What the other view says of the disparity of a point, less what this one says.

    The point lies between two pixels of the other view, one of which may belong to another surface:
    the one that agrees better counts.  The difference is positive where the other view sees
    something nearer.

    Parameters
    ----------
    disparity
        (H, W), of the view to check, in pixels; not finite where unknown.
    other
        (H, W), of the other view.
    direction
        -1 if ``disparity`` belongs to the left view, whose pixel x matches right pixel ``x - d``; 1
        if to the right view, whose pixel x matches left pixel ``x + d``.

    Returns
    -------
    ndarray, float32 (H, W)
        In pixels; +inf where the point lies outside the other view, or a disparity is unknown.
    """
    least = np.full(disparity.shape, np.inf, np.float32)
    for rows in rows_in_bands(disparity.shape):
        own, found = disparity[rows], least[rows]
        for column, inside in _matches(own, direction):
            there = np.take_along_axis(other[rows], column, axis=1)
            difference = np.subtract(there, own, where=inside, out=np.full_like(found, np.inf))
            np.copyto(found, difference, where=np.abs(difference) < np.abs(found))
    return least


def _matches(
    disparity: np.ndarray, direction: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """The columns on either side of each pixel's match, and where they lie in the other view."""
    width = disparity.shape[1]
    match = np.arange(width) + direction * disparity.astype(np.float64)
    for column in (np.floor(match), np.ceil(match)):
        inside = (column >= 0) & (column < width)
        yield np.where(inside, column, 0).astype(np.intp), inside


def validity_of(
    disparity: np.ndarray, other: np.ndarray, direction: int, labels: LabelRange
) -> np.ndarray:
    """The left-right check of a map: `GOOD`, `OCCLUDED` or `INVALID`, uint8 (H, W).

    Where the views differ by more than a pixel (or a label, if that is more), the point is occluded
    if no pixel of the other view claims to show it, and a mismatch if one does.

    Parameters
    ----------
    disparity, other, direction
        As for `view_difference`.
    labels
        What was searched.
    """
    difference = np.abs(view_difference(disparity, other, direction))
    agreeing = difference <= max(TOLERANCE, labels.step)
    validity = np.full(disparity.shape, OCCLUDED, np.uint8)
    validity[_claimed(other, -direction)] = INVALID
    validity[agreeing] = GOOD
    return validity


def _claimed(other: np.ndarray, direction: int) -> np.ndarray:
    """Which pixels of a view some pixel of the other one matches, bool (H, W)."""
    claimed = np.zeros(other.shape, np.bool_)
    for rows in rows_in_bands(other.shape):
        for column, inside in _matches(other[rows], direction):
            claimed[rows][np.nonzero(inside)[0], column[inside]] = True
    return claimed


def masked_disparity(disparity: np.ndarray, validity: np.ndarray) -> np.ndarray:
    """The map with +inf, which means invalid, wherever it is not `GOOD`."""
    return np.where(validity == GOOD, disparity, np.float32(np.inf))
