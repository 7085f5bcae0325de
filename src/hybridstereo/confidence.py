"""How likely the disparity of each pixel is right (docs/model.md 18; not in the paper).

`cues_of` gathers what the CRF knows of each pixel while its volumes exist; `confidence_of` adds
what the other view and the neighbourhood say, and turns all of it into a probability.  *Right*
means off by at most `RIGHT_WITHIN` pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .bands import rows_in_bands
from .crf import CrfSolution
from .disparity import join_tiles
from .kernels import Backend
from .opencv import cv2
from .validity import GOOD, INVALID, OCCLUDED, TOLERANCE, view_difference

RIGHT_WITHIN = 2.0
"""Pixels: a disparity that is off by more is wrong."""

KINDS = (GOOD, OCCLUDED, INVALID)
"""Of pixels, as `hybridstereo.validity` tells them apart; weights stand in this order."""

_BLOCK = 1 << 18  # costs that are looked at at once: 1 MB stays in the cache
# Pixels: the neighbourhood, and the region, which tells how hard this part of the scene is.
_RADII = (8, 48)
_JUMP = 2.0  # pixels between neighbours on different surfaces
_NO_RIVAL = 10.0  # the margin where all labels are neighbours; more than any real one


@dataclass(frozen=True)
class ConfidenceFit:
    """Numbers that ``tools/fit_confidence.py`` found; `hybridstereo.models.confidence_fits` reads.

    Attributes
    ----------
    model
        What they were fitted to.
    intercepts
        For each of `KINDS`.
    weights
        By the names of the terms, for each of `KINDS`.
    knots
        Evidence between which the calibration is a straight line.
    calibration
        For each of `KINDS`, what the evidence at the knots amounts to on scenes that were not
        fitted.
    steps
        Two rising rows: confidences, and what they are worth, once those that few scenes tell apart
        are pooled.
    """

    model: str
    intercepts: tuple[float, ...]
    weights: Mapping[str, tuple[float, ...]]
    knots: tuple[float, ...]
    calibration: tuple[tuple[float, ...], ...]
    steps: tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Cues:
    """What the CRF knows of each pixel; float32 (H, W) each.

    Attributes
    ----------
    margin
        By how much the best label that is no neighbour of the chosen one costs more, in the
        minorant, whose costs include what all other pixels want.
    row_difference
        Pixels between the labels that the rows and the columns choose: where they differ, the
        relaxation is not tight.
    """

    margin: np.ndarray
    row_difference: np.ndarray

    def cropped(self, rows: slice, columns: slice) -> Cues:
        """Those of some rows and columns."""
        return Cues(*(values[rows, columns] for values in vars(self).values()))

    @classmethod
    def joined(
        cls, tiles: Sequence[Cues], places: Sequence[tuple[slice, slice]], shape: tuple[int, int]
    ) -> Cues:
        """Those of several tiles, each at its place."""
        maps = zip(*(vars(x).values() for x in tiles), strict=True)
        return cls(*(join_tiles(parts, places, shape) for parts in maps))


def cues_of(backend: Backend, solution: CrfSolution, step: float) -> Cues:
    """Gather the cues of a solution.

    It has the labels of the rows; ``step`` is pixels per label.  The minorant is read in blocks of
    rows, so that next to no memory is needed, after it has come to the host if it is on a GPU.
    """
    label_map, of_rows, minorant = (
        backend.to_host(x) for x in (solution.label_map, solution.row_label_map, solution.minorant)
    )
    height, width, count = minorant.shape
    margin, difference = np.empty((2, height, width), np.float32)
    at_once = max(_BLOCK // (width * count), 1)
    for first in range(0, height, at_once):
        rows = np.s_[first : first + at_once]
        chosen = label_map[rows][..., np.newaxis]
        near = np.clip(chosen + np.array([-1, 0, 1]), 0, count - 1)
        rivals = minorant[rows].copy()
        lowest = np.take_along_axis(rivals, chosen, axis=2)[..., 0]
        np.put_along_axis(rivals, near, np.inf, axis=2)
        margin[rows] = np.minimum(rivals.min(axis=2) - lowest, _NO_RIVAL)
        difference[rows] = np.abs(of_rows[rows] - label_map[rows]) * np.float32(step)
    return Cues(margin, difference)


def confidence_of(
    disparity: np.ndarray,
    other: np.ndarray,
    direction: int,
    background: np.ndarray,
    validity: np.ndarray,
    cues: Cues,
    fit: ConfidenceFit,
) -> np.ndarray:
    """The probability that each pixel is right, float32 (H, W) in [0, 1].

    Logistic regression over the terms t of `terms_of`, with weights and a calibration c of their
    own for each of `KINDS`: ``s(1 / (1 + exp(-c(w0 + sum_i w_i t_i))))``.  The calibration consists
    of straight pieces and never falls; s are the steps.

    Parameters
    ----------
    disparity, other, direction
        As for `hybridstereo.validity.view_difference`.
    background
        The map as `hybridstereo.filling` fills it.  What only one view sees was not matched but
        guessed; where the CRF guessed the surface behind, it is mostly right.
    validity
        Of the map, as `hybridstereo.validity.validity_of` gives it.
    cues
        Of the view.
    fit
        Weights and calibration.
    """
    kinds = kinds_of(validity)
    evidence = np.take(np.array(fit.intercepts, np.float32), kinds)
    for name, term in terms_of(disparity, other, direction, background, validity, cues):
        weights = np.array(fit.weights[name], np.float32)
        for rows in rows_in_bands(evidence.shape):
            evidence[rows] += term[rows] * np.take(weights, kinds[rows])
    for rows in rows_in_bands(evidence.shape):
        counting = evidence[rows]
        for kind, values in enumerate(fit.calibration):
            inside = kinds[rows] == kind
            counting[inside] = np.interp(counting[inside], fit.knots, values)
        counting[...] = np.interp(1 / (1 + np.exp(-counting)), *fit.steps)
    return evidence


def kinds_of(validity: np.ndarray) -> np.ndarray:
    """The place of each pixel's kind in `KINDS`."""
    numbers = np.zeros(256, np.uint8)
    numbers[list(KINDS)] = range(len(KINDS))
    return numbers[validity]


def terms_of(
    disparity: np.ndarray,
    other: np.ndarray,
    direction: int,
    background: np.ndarray,
    validity: np.ndarray,
    cues: Cues,
) -> Iterator[tuple[str, np.ndarray]]:
    """The terms of the regression one after the other, with their names; float32 (H, W) each.

    Arguments as for `confidence_of`.  Quantities whose effect is no straight line are given as
    ramps, which make it one of straight pieces.
    """
    yield from _ramps("margin", cues.margin, (0, 0.02, 0.05, 0.1, 0.2, 0.4, 1))
    difference = view_difference(disparity, other, direction)
    outside = np.isinf(difference)
    apart = np.where(outside, 0, np.abs(difference))
    yield from _ramps("views differ", apart, (0, TOLERANCE, 3, 10, 30))
    nearer = ~outside & (difference > TOLERANCE)
    yield "the other view sees something nearer", nearer.astype(np.float32)
    yield "outside the other view", outside.astype(np.float32)
    contradicts = validity != GOOD
    behind = np.where(contradicts, background - disparity, 0)
    yield from _ramps("not the background", np.abs(behind), (0, 1, 3, 10))
    yield from _ramps("behind the background", behind, (1, 3))
    row_contradicts = cues.row_difference > TOLERANCE
    yield "rows and columns contradict", row_contradicts.astype(np.float32)
    for radius in _RADII:
        yield f"views contradict within {radius} px", _mean_around(contradicts, radius)
        yield (
            f"rows and columns contradict within {radius} px",
            _mean_around(row_contradicts, radius),
        )
        spread = _spread_around(disparity, radius)
        yield from _ramps(f"disparities vary within {radius} px", spread, (0, 1, 4))
        around = _mean_around(np.minimum(cues.margin, 1), radius)
        yield from _ramps(f"margin within {radius} px", around, (0, 0.05, 0.15, 0.4))
    yield from _ramps("distance to a depth edge", _edge_distance(disparity), (0, 2, 10))
    yield from _ramps("distance to a contradiction", _distance_to(contradicts), (0, 2, 5, 15))
    yield from _ramps("far from any confirmation", _distance_to(~contradicts), (0, 3, 10, 40))


def term_names() -> list[str]:
    """The names of the terms, in their order."""
    blank = np.zeros((2, 2), np.float32)
    return [name for name, _ in terms_of(blank, blank, -1, blank, blank, Cues(blank, blank))]


def _ramps(
    name: str, values: np.ndarray, knots: Sequence[float]
) -> Iterator[tuple[str, np.ndarray]]:
    """Between each two knots, how far the values have come, from 0 to 1; constant beyond."""
    for low, high in itertools.pairwise(knots):
        share = (np.clip(values, low, high) - low) / (high - low)
        yield f"{name}, {low:g} to {high:g}", share.astype(np.float32, copy=False)


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
    return _distance_to(at_edge)


def _distance_to(mask: np.ndarray) -> np.ndarray:
    """Pixels to the nearest one of a mask, which is more than the image has if there is none."""
    return cv2.distanceTransform((~mask).astype(np.uint8), cv2.DIST_L2, 3)
