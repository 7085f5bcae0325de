"""How likely the disparity of each pixel is right (docs/model.md 16; not in the paper).

`cues_of` gathers what the CRF knows of each pixel while its volumes exist; `confidence_of` adds
what the other view and the neighbourhood say, and turns all of it into a probability.  *Right*
means off by at most `RIGHT_WITHIN` pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .confidence_weights import INTERCEPT, WEIGHTS
from .crf import CrfSolution
from .kernels import Array, Backend
from .opencv import cv2
from .validity import TOLERANCE, view_difference

RIGHT_WITHIN = 2.0
"""Pixels: a disparity that is off by more is wrong."""

_BLOCK = 1 << 22  # costs that are looked at at once, to bound the memory
_TINY = 1e-12
_RADII = (4, 8)  # pixels: how far the neighbourhood reaches
_JUMP = 2.0  # pixels between neighbours on different surfaces
_NO_RIVAL = 10.0  # the margin where all labels are neighbours; more than any real one


@dataclass(frozen=True, eq=False)
class Cues:
    """What the CRF knows of each pixel; float32 (H, W) each.

    Attributes
    ----------
    margin
        By how much the best label that is no neighbour of the chosen one costs more, in the
        minorant, whose costs include what all other pixels want.
    share
        Of the matching costs' softmax, what the chosen label and its neighbours have: what the
        networks say without the CRF.
    row_difference
        Pixels between the labels that the rows and the columns choose: where they differ, the
        relaxation is not tight.
    """

    margin: np.ndarray
    share: np.ndarray
    row_difference: np.ndarray

    def rows(self, first: int, last: int) -> Cues:
        """Those of some rows."""
        return Cues(*(values[first:last] for values in vars(self).values()))

    @classmethod
    def stacked(cls, strips: Sequence[Cues]) -> Cues:
        """Those of several strips of rows, from top to bottom."""
        return cls(*map(np.concatenate, zip(*(vars(x).values() for x in strips), strict=True)))


def cues_of(backend: Backend, costs: Array, solution: CrfSolution, step: float) -> Cues:
    """Gather the cues of a solution; ``costs`` (H, W, K) are what it minimises.

    ``solution`` has the labels of the rows.  The volumes are read in blocks of rows, so that next
    to no memory is needed for it, and brought to the host if they are on a GPU.
    """
    label_map, of_rows = (backend.to_host(x) for x in (solution.label_map, solution.row_label_map))
    height, width, count = costs.shape
    margin, share = (np.empty((height, width), np.float32) for _ in range(2))
    at_once = max(_BLOCK // (width * count), 1)
    for first in range(0, height, at_once):
        rows = np.s_[first : first + at_once]
        near = label_map[rows][..., np.newaxis] + np.array([-1, 0, 1])
        exists = (near >= 0) & (near < count)
        near = np.clip(near, 0, count - 1)
        rivals = backend.to_host(solution.minorant[rows]).copy()
        lowest = np.take_along_axis(rivals, near[..., 1:2], axis=2)[..., 0]
        np.put_along_axis(rivals, near, np.inf, axis=2)
        margin[rows] = np.minimum(rivals.min(axis=2) - lowest, _NO_RIVAL)
        unary = backend.to_host(costs[rows])
        around = np.where(exists, np.take_along_axis(unary, near, axis=2), 0).sum(axis=2)
        share[rows] = around / np.minimum(unary.sum(axis=2), -_TINY)
    difference = np.abs(of_rows - label_map).astype(np.float32) * np.float32(step)
    return Cues(margin, share, difference)


def confidence_of(
    disparity: np.ndarray, other: np.ndarray, direction: int, cues: Cues
) -> np.ndarray:
    """The probability that each pixel is right, float32 (H, W) in [0, 1].

    Logistic regression: ``1 / (1 + exp(-(w0 + sum_i w_i t_i)))`` over the terms t of `terms_of`,
    with the weights that ``tools/fit_confidence.py`` found.

    Parameters
    ----------
    disparity, other, direction
        As for `hybridstereo.validity.view_difference`.
    cues
        Of the view.
    """
    evidence = np.full(disparity.shape, INTERCEPT, np.float32)
    for name, term in terms_of(disparity, other, direction, cues):
        evidence += np.float32(WEIGHTS[name]) * term
    return 1 / (1 + np.exp(-evidence))


def terms_of(
    disparity: np.ndarray, other: np.ndarray, direction: int, cues: Cues
) -> Iterator[tuple[str, np.ndarray]]:
    """The terms of the regression one after the other, with their names; float32 (H, W) each.

    Arguments as for `confidence_of`.  Quantities whose effect is no straight line are given as
    ramps, which make it one of straight pieces.
    """
    yield from _ramps("margin", cues.margin, (0, 0.02, 0.05, 0.1, 0.2, 0.4, 1))
    yield from _ramps("share", cues.share, (0, 0.1, 0.3, 0.6, 1))
    difference = view_difference(disparity, other, direction)
    outside, differs = np.isinf(difference), difference > TOLERANCE
    yield from _ramps("views differ", difference, (0, TOLERANCE, 3))
    yield "views contradict", differs.astype(np.float32)
    yield "outside the other view", outside.astype(np.float32)
    row_differs = cues.row_difference > TOLERANCE
    yield from _ramps("rows and columns differ", cues.row_difference, (0, 2))
    yield "rows and columns contradict", row_differs.astype(np.float32)
    for radius in _RADII:
        yield f"views contradict within {radius} px", _mean_around(differs, radius)
        yield f"rows and columns contradict within {radius} px", _mean_around(row_differs, radius)
        spread = _spread_around(disparity, radius)
        yield from _ramps(f"disparities vary within {radius} px", spread, (0, 1, 4))
    around = _mean_around(np.minimum(cues.margin, 1), _RADII[0])
    yield from _ramps(f"margin within {_RADII[0]} px", around, (0, 0.05, 0.15, 0.4))
    yield from _ramps("distance to a depth edge", _edge_distance(disparity), (0, 2, 10))


def _ramps(
    name: str, values: np.ndarray, knots: Sequence[float]
) -> Iterator[tuple[str, np.ndarray]]:
    """Between each two knots, how far the values have come, from 0 to 1; constant beyond."""
    for low, high in itertools.pairwise(knots):
        share = (np.clip(values, low, high) - low) / (high - low)
        yield f"{name}, {low:g} to {high:g}", share.astype(np.float32)


def _mean_around(values: np.ndarray, radius: int) -> np.ndarray:
    """The mean over the square around each pixel."""
    size = 2 * radius + 1
    return cv2.blur(values.astype(np.float32), (size, size), borderType=cv2.BORDER_REFLECT)


def _spread_around(disparity: np.ndarray, radius: int) -> np.ndarray:
    """The standard deviation of the disparities around each pixel."""
    centred = disparity - disparity.mean()  # or the difference of two large numbers cancels
    variance = _mean_around(centred**2, radius) - _mean_around(centred, radius) ** 2
    return np.sqrt(np.maximum(variance, 0))


def _edge_distance(disparity: np.ndarray) -> np.ndarray:
    """Pixels to the nearest jump of the disparity by more than `_JUMP`."""
    at_edge = np.zeros(disparity.shape, np.bool_)
    for axis in (0, 1):
        jumps = np.abs(np.diff(disparity, axis=axis)) > _JUMP
        none = ((0, 1), (0, 0)) if axis == 0 else ((0, 0), (0, 1))
        before = np.pad(jumps, none)
        at_edge |= before | np.roll(before, 1, axis=axis)
    return cv2.distanceTransform((~at_edge).astype(np.uint8), cv2.DIST_L2, 3)
