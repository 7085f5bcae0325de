"""By how much the rows of two views differ, and how points move, from points that both show."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .rectification import matched_points

# Views are reduced to so many pixels, and so many points are taken of each: a few hundredths of the
# time that the disparity map takes, and the rows of hundreds of points still tell 0.1 px.
_MOST_PIXELS, _MOST_POINTS, _LAYERS = 250_000, 1000, 3
# By how many pixels of the reduced views matches may differ from what the others say.
_TOLERANCE = 1.0
# Where Huber's loss turns from squared to absolute, in the same pixels: half of SIFT's points lie
# closer, and wrong matches, which lie anywhere within the tolerance, count for less.
_HUBER = 0.2
# Fewer matches, or a smaller share of them that agrees, do not tell a pair from chance.
FEWEST, _AGREEING = 20, 0.5
# Draws of three matches: one without a wrong match is among them for certain (1 - 1e-17) if half of
# the matches are right.  A drawn model may not turn, scale or shift by more than a pair could.
_DRAWS, _MOST_SLOPE, _MOST_SHIFT = 300, 0.2, 0.25
_ROUNDS = 10
# Less than this at the border is no harm, whatever the angle; and standard errors to be sure.
_AT_BORDER, _ERRORS = 0.75, 3.0
# Nor can points tell less than this, in pixels of the reduced views: 24 megapixels that were
# generated without any difference seem to be off by 0.14 at the centre and 0.25 at the border.
_SUBPIXEL = 0.3
# What a quick look saw, and so many of its errors more, must be less than this share of a limit.
# In 15 pairs of KITTI and Middlebury it saw rows within 0.11 px of where the thorough look did at
# the centre, and within 0.3 px at the border: 3 errors.
_SURELY, _SHARE = 3.0, 0.75


def pixels_per_pixel(height: int, width: int) -> float:
    """Pixels per pixel of the views in which points are looked for."""
    return max(math.sqrt(height * width / _MOST_PIXELS), 1.0)


def row_matches(first: np.ndarray, second: np.ndarray, height: int, width: int) -> np.ndarray:
    """Points that both of two reduced views show, (N, 4), in pixels of the views themselves."""
    exact = np.tile([width / first.shape[1], height / first.shape[0]], 2)
    return (matched_points(first, second, _MOST_POINTS, _LAYERS) + 0.5) * exact - 0.5


@dataclass(frozen=True)
class RowPlane:
    """By how much the rows of a right view differ, as a plane over it, and how points move.

    Attributes
    ----------
    size
        Height and width of the views.
    plane, errors
        Rows by which points lie lower, at the centre, per column and per row; standard errors.
    disparities
        Of the matches that agree.
    moved
        Pixels, in any direction, that three of four of these do not exceed.
    pixel
        Pixels per pixel of the reduced views.
    """

    size: tuple[int, int]
    plane: np.ndarray
    errors: np.ndarray
    disparities: np.ndarray
    moved: float
    pixel: float

    def exceeds(self, index: int, limit: float, reach: float) -> bool:
        """Whether an entry of the plane certainly does, and matters ``reach`` pixels away."""
        size = abs(self.plane[index])
        certain = size - _ERRORS * self.errors[index] > 0.5 * limit
        noticeable = max(_AT_BORDER, _SUBPIXEL * self.pixel)
        return bool(size > limit and certain and size * reach > noticeable)

    def stays_below(self, index: int, limit: float, reach: float) -> bool:
        """Whether no look at all pixels would say that an entry of the plane `exceeds` a limit."""
        most = abs(self.plane[index]) + _SURELY * self.errors[index]
        return bool(most < _SHARE * max(limit, _AT_BORDER / reach))


def fitted_rows(matches: np.ndarray, height: int, width: int, pixel: float) -> RowPlane | None:
    """A plane through the differences of rows, by random sampling; None if too few agree.

    Parameters
    ----------
    matches
        (N, 4), as `row_matches` gives them.
    height, width
        Of the views.
    pixel
        Pixels per pixel of the reduced views.
    """
    if len(matches) < FEWEST:
        return None
    tolerance = _TOLERANCE * pixel
    centre = np.array([(width - 1) / 2, (height - 1) / 2])
    places = np.hstack([np.ones((len(matches), 1)), matches[:, 2:] - centre])
    lower = matches[:, 3] - matches[:, 1]
    # Always the same draws: the same pair has the same findings.
    drawn = np.random.default_rng(0).integers(0, len(matches), (_DRAWS, 3))
    solvable = np.abs(np.linalg.det(places[drawn])) > 1.0
    drawn = drawn[solvable]
    planes = np.linalg.solve(places[drawn], lower[drawn][..., None])[..., 0]
    likely = np.abs(planes) < [_MOST_SHIFT * height, _MOST_SLOPE, _MOST_SLOPE]
    planes = np.vstack([[np.median(lower), 0.0, 0.0], planes[likely.all(axis=1)]])
    residuals = lower - np.einsum("pk,nk->pn", planes, places)
    plane = planes[np.argmax(np.count_nonzero(np.abs(residuals) < tolerance, axis=1))]
    agreeing, errors = np.zeros(len(matches), bool), np.full(3, np.inf)
    for _ in range(_ROUNDS):
        residuals = lower - np.einsum("nk,k->n", places, plane)
        agreeing = np.abs(residuals) < tolerance
        if np.count_nonzero(agreeing) < max(FEWEST, _AGREEING * len(matches)):
            return None
        kept, rest = places[agreeing], residuals[agreeing]
        weights = 1 / np.maximum(np.abs(rest), _HUBER * pixel)
        curvature = np.einsum("ni,n,nj->ij", kept, weights, kept)
        if np.linalg.cond(curvature) > 1 / np.finfo(np.float32).eps ** 2:  # all on one line
            return None
        inverse = np.linalg.inv(curvature)
        errors = np.sqrt(np.diag(inverse) * np.mean(weights * rest**2))
        plane = plane + np.einsum("ij,nj,n->i", inverse, kept, weights * rest)
    disparities = (matches[:, 0] - matches[:, 2])[agreeing]
    moved = np.maximum(np.abs(disparities), np.abs(lower[agreeing]))
    return RowPlane(
        (height, width), plane, errors, disparities, float(np.quantile(moved, 0.75)), pixel
    )
