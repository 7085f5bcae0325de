"""Error figures of disparity maps as KITTI and Middlebury define them; pure NumPy, no model.

Conventions, the same for all figures:

- *Truth* that is not finite is unknown; such pixels, and those outside the mask, are not evaluated.
- A *prediction* that is not finite is invalid. An evaluated pixel without a prediction is bad at
  every threshold; average, RMS and quantiles are taken over the other pixels.
- Percentages lie in [0, 100], errors are in pixels of the truth.
- With nothing to evaluate, or nothing predicted, a figure is NaN.

``docs/metrics.md`` gives each definition with its source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError

Disparity = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_] | NDArray[np.uint8]

BAD_THRESHOLDS = (0.5, 1.0, 2.0, 3.0, 4.0)
QUANTILES = (50, 90, 95, 99)

KITTI_ABSOLUTE = 3.0
KITTI_RELATIVE = 0.05

MIDDLEBURY_V3_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "Adirondack": 1.0,
        "ArtL": 1.0,
        "Jadeplant": 1.0,
        "Motorcycle": 1.0,
        "MotorcycleE": 1.0,
        "Piano": 1.0,
        "PianoL": 0.5,
        "Pipes": 1.0,
        "Playroom": 0.5,
        "Playtable": 0.5,
        "PlaytableP": 1.0,
        "Recycle": 1.0,
        "Shelves": 0.5,
        "Teddy": 1.0,
        "Vintage": 0.5,
    }
)
"""The benchmark's weights of its 15 training scenes: the hardest five count half."""


@dataclass(frozen=True)
class Scores:
    """The figures of one disparity map, or of several pooled.

    Parameters
    ----------
    pixels
        How many pixels were evaluated.
    invalid_pixels
        How many of them the method left without a prediction.
    measured_pixels
        How many of them have an error: those with a prediction, and after `score_kitti` also
        those whose hole was filled.
    bad_pixels
        For each threshold, how many pixels have a larger error or none.
    d1_pixels
        How many are outliers in the sense of KITTI 2015, or have no error.
    error_sum, squared_sum
        Sums of the absolute and of the squared errors over the measured pixels.
    quantiles
        For each percentage p, the smallest error that at least p % of the measured pixels do not
        exceed; empty if unknown, as for pooled figures.

    """

    pixels: int
    invalid_pixels: int
    measured_pixels: int
    bad_pixels: Mapping[float, int]
    d1_pixels: int
    error_sum: float
    squared_sum: float
    quantiles: Mapping[int, float]

    def bad(self, threshold: float) -> float:
        """Percentage of pixels whose error is above the threshold (bad-x)."""
        return _percentage(self.bad_pixels[threshold], self.pixels)

    @property
    def d1(self) -> float:
        """Percentage of KITTI outliers: error above 3 px and above 5 % of the truth."""
        return _percentage(self.d1_pixels, self.pixels)

    @property
    def invalid(self) -> float:
        """Percentage of evaluated pixels that the method left without a prediction."""
        return _percentage(self.invalid_pixels, self.pixels)

    @property
    def average(self) -> float:
        """Mean absolute error in pixels."""
        return _ratio(self.error_sum, self.measured_pixels)

    @property
    def epe(self) -> float:
        """End-point error: for disparities, whose motion has one component, the average error."""
        return self.average

    @property
    def rms(self) -> float:
        """Root of the mean squared error in pixels."""
        return math.sqrt(_ratio(self.squared_sum, self.measured_pixels))

    def quantile(self, percent: int) -> float:
        """The error quantile A``percent`` in pixels; NaN if unknown."""
        return self.quantiles.get(percent, math.nan)

    def as_dict(self) -> dict[str, float]:
        """All figures by name: ``bad1``, ``d1``, ``avgerr``, ``rms``, ``a50``, ``invalid``..."""
        figures = {f"bad{threshold:g}": self.bad(threshold) for threshold in self.bad_pixels}
        figures |= {"d1": self.d1, "avgerr": self.average, "epe": self.epe, "rms": self.rms}
        figures |= {f"a{percent}": self.quantile(percent) for percent in QUANTILES}
        return figures | {"invalid": self.invalid}


def score(
    predicted: Disparity,
    truth: Disparity,
    mask: Mask | None = None,
    thresholds: Sequence[float] = BAD_THRESHOLDS,
) -> Scores:
    """Compare a disparity map with the truth.

    Parameters
    ----------
    predicted, truth
        (H, W), in pixels; see the module for what is invalid or unknown.
    mask
        (H, W), True where to evaluate; or uint8 as Middlebury stores it, where 255 is evaluated
        and all else (128 occluded, 0 unknown) is not. None: wherever the truth is known.
    thresholds
        For the bad-x percentages.

    Raises
    ------
    InputError
        If the sizes differ.

    """
    evaluated = _evaluated(truth, mask)
    _check_size("prediction", predicted, truth)
    return _score(predicted, truth, evaluated, thresholds)


def score_kitti(
    predicted: Disparity,
    truth: Disparity,
    mask: Mask | None = None,
    thresholds: Sequence[float] = BAD_THRESHOLDS,
) -> Scores:
    """Compare as KITTI's development kit does: holes are filled first (`fill_background`).

    ``invalid_pixels`` still counts the holes. Give ``disp_occ_0`` as truth for the figures named
    "all", ``disp_noc_0`` for "non-occ".

    Parameters
    ----------
    predicted, truth, mask, thresholds
        As for `score`.

    Raises
    ------
    InputError
        If the sizes differ.

    """
    evaluated = _evaluated(truth, mask)
    _check_size("prediction", predicted, truth)
    holes = int(np.count_nonzero(evaluated & ~np.isfinite(predicted)))
    return _score(fill_background(predicted), truth, evaluated, thresholds, holes)


def score_middlebury(
    predicted: Disparity,
    truth: Disparity,
    mask: Mask | None = None,
    *,
    ndisp: int,
    isint: bool = False,
    thresholds: Sequence[float] = BAD_THRESHOLDS,
) -> Scores:
    """Compare as version 3 of the Middlebury benchmark does.

    A map of half or quarter the size of the truth is replicated and multiplied by 2 or 4. All
    figures are then in pixels of the truth.

    Parameters
    ----------
    predicted
        (h, w), of the size of the truth, half of it or a quarter.
    truth, mask, thresholds
        As for `score`.
    ndisp
        Valid predictions are clipped to [0, ndisp]; at the resolution of the prediction, as its
        own ``calib.txt`` states it.
    isint
        Whether the truth is whole numbers (``isint`` in the ``calib.txt`` of the truth): then
        predictions are rounded, halves upwards.

    Raises
    ------
    InputError
        If the sizes do not fit.

    """
    evaluated = _evaluated(truth, mask)
    factor = truth.shape[1] // max(predicted.shape[-1], 1)
    fits = predicted.ndim == 2 and truth.shape == tuple(factor * side for side in predicted.shape)
    if factor not in (1, 2, 4) or not fits:
        raise InputError(
            f"the prediction is {_size(predicted)} but the truth is {_size(truth)}",
            hint="The truth must be exactly 1, 2 or 4 times as large as the prediction",
        )
    larger = factor * predicted.repeat(factor, axis=0).repeat(factor, axis=1).astype(np.float64)
    valid = np.isfinite(larger)
    clipped = np.clip(larger, 0.0, factor * ndisp)
    if isint:
        clipped = np.floor(clipped + 0.5)
    return _score(np.where(valid, clipped, np.inf), truth, evaluated, thresholds)


def fill_background(disparity: Disparity) -> NDArray[np.float64]:
    """Fill the holes of a disparity map as KITTI's development kit does.

    A hole within a row takes the smaller of the two disparities beside it, that of the background;
    holes at the ends of a row take the nearest value. Then columns are extended to the top and the
    bottom. Empty rows between others stay invalid, as in the original.

    Parameters
    ----------
    disparity
        (H, W), not finite where invalid.

    Returns
    -------
    ndarray of float64, (H, W)
        +inf where still invalid.

    """
    valid = np.isfinite(disparity)
    height, width = disparity.shape
    rows, columns = np.arange(height)[:, np.newaxis], np.arange(width)
    # The column of the last valid pixel up to here, and of the next one from here; -1 and width
    # stand for none and are looked up in a border of +inf on both sides.
    before = np.maximum.accumulate(np.where(valid, columns, -1), axis=1)
    after = np.minimum.accumulate(np.where(valid, columns, width)[:, ::-1], axis=1)[:, ::-1]
    bordered = np.full((height, width + 2), np.inf)
    bordered[:, 1:-1] = np.where(valid, disparity, np.inf)
    filled = np.minimum(bordered[rows, before + 1], bordered[rows, after + 1])
    complete = np.flatnonzero(np.isfinite(filled).all(axis=1))
    if complete.size:
        filled[: complete[0]] = filled[complete[0]]
        filled[complete[-1] + 1 :] = filled[complete[-1]]
    return filled


def outliers(predicted: Disparity, truth: Disparity) -> NDArray[np.bool_]:
    """Where a prediction is an outlier in the sense of KITTI 2015: D1 counts these.

    Pixels whose truth is unknown are none; without a prediction they are, as everywhere.
    """
    target = truth.astype(np.float64)
    known = np.isfinite(target)
    errors = np.abs(np.where(known, predicted, 0) - np.where(known, target, 0))
    right = (errors <= KITTI_ABSOLUTE) | (errors <= KITTI_RELATIVE * np.abs(target))
    return known & ~right


SPARSIFICATION_SHARES = np.arange(1, 101) / 100
"""Shares of the pixels, the most confident ones, at which sparsification curves are sampled."""


@dataclass(frozen=True)
class Sparsification:
    """How the error falls when only the most confident pixels are kept.

    Parameters
    ----------
    curve
        Percentage of bad pixels among the most confident ones, for each of
        `SPARSIFICATION_SHARES`.

    """

    curve: NDArray[np.float64]

    @property
    def area(self) -> float:
        """The mean of the curve in %: that of a random order is the error of the whole map."""
        return float(self.curve.mean())

    def density(self, error: float) -> float:
        """Percentage of pixels that can be kept with at most this percentage of bad ones."""
        kept = SPARSIFICATION_SHARES[self.curve <= error]
        return 100.0 * float(kept.max()) if kept.size else 0.0


def sparsification(confidence: NDArray[Any], bad: NDArray[np.bool_]) -> Sparsification:
    """Keep the most confident share of the pixels, for all shares, and count the bad ones.

    Pixels of equal confidence count as if their order were random.

    Parameters
    ----------
    confidence, bad
        (N,) of the evaluated pixels; NaN everywhere without any.

    """
    if bad.size == 0:
        return Sparsification(np.full(SPARSIFICATION_SHARES.shape, np.nan))
    descending = -confidence.astype(np.float64)
    _, tied, count = np.unique(descending, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    bad_until = np.cumsum(np.bincount(tied.reshape(-1), bad, minlength=count.size))
    kept = SPARSIFICATION_SHARES * bad.size
    found = np.interp(kept, np.concatenate([[0], ends]), np.concatenate([[0], bad_until]))
    return Sparsification(100.0 * found / kept)


def pooled(scores: Sequence[Scores]) -> Scores:
    """Figures over all pixels of all images together: each pixel counts the same (KITTI 2015).

    Parameters
    ----------
    scores
        Of single images, all with the same thresholds.

    Returns
    -------
    Scores
        Without quantiles, which cannot be derived from those of the images.

    """
    return Scores(
        pixels=sum(one.pixels for one in scores),
        invalid_pixels=sum(one.invalid_pixels for one in scores),
        measured_pixels=sum(one.measured_pixels for one in scores),
        bad_pixels={
            threshold: sum(one.bad_pixels[threshold] for one in scores)
            for threshold in (scores[0].bad_pixels if scores else ())
        },
        d1_pixels=sum(one.d1_pixels for one in scores),
        error_sum=math.fsum(one.error_sum for one in scores),
        squared_sum=math.fsum(one.squared_sum for one in scores),
        quantiles={},
    )


def middlebury_mean(figures: Mapping[str, float]) -> float:
    """Mean of one figure over Middlebury v3 training scenes with the official weights.

    Parameters
    ----------
    figures
        For each scene, named as in `MIDDLEBURY_V3_WEIGHTS`, its figure. With fewer than the 15
        scenes it is the weighted mean of those given; a NaN makes the mean NaN.

    Raises
    ------
    InputError
        If a scene has no weight.

    """
    unknown = sorted(set(figures) - set(MIDDLEBURY_V3_WEIGHTS))
    if unknown:
        raise InputError(
            f"{', '.join(unknown)} has no weight in the Middlebury benchmark",
            hint=f"Its training scenes are {', '.join(MIDDLEBURY_V3_WEIGHTS)}",
        )
    weights = [MIDDLEBURY_V3_WEIGHTS[scene] for scene in figures]
    weighted = math.fsum(w * value for w, value in zip(weights, figures.values(), strict=True))
    return _ratio(weighted, math.fsum(weights))


def _score(
    predicted: Disparity,
    truth: Disparity,
    evaluated: NDArray[np.bool_],
    thresholds: Sequence[float],
    invalid_pixels: int | None = None,
) -> Scores:
    """Count over the evaluated pixels; ``invalid_pixels``: if other than those not measured."""
    # float64 holds the difference of two float32 numbers exactly enough for any threshold.
    guess, target = predicted[evaluated].astype(np.float64), truth[evaluated].astype(np.float64)
    measured = np.isfinite(guess)
    missing = int(measured.size - np.count_nonzero(measured))
    target = target[measured]
    errors = np.abs(guess[measured] - target)
    return Scores(
        pixels=measured.size,
        invalid_pixels=missing if invalid_pixels is None else invalid_pixels,
        measured_pixels=errors.size,
        bad_pixels={
            threshold: missing + int(np.count_nonzero(errors > threshold))
            for threshold in thresholds
        },
        d1_pixels=missing + int(np.count_nonzero(outliers(guess[measured], target))),
        error_sum=float(errors.sum()),
        squared_sum=float(np.square(errors).sum()),
        quantiles=_quantiles(errors),
    )


def _quantiles(errors: NDArray[np.float64]) -> dict[int, float]:
    """For each percentage p, the smallest error that at least p % of the errors do not exceed."""
    if errors.size == 0:
        return {}
    # Ranks in whole numbers: 0.95 * 20 need not be 19 in floating point. -(-a // b) rounds up.
    places = {percent: -(-percent * errors.size // 100) - 1 for percent in QUANTILES}
    ordered = np.partition(errors, sorted(set(places.values())))
    return {percent: float(ordered[place]) for percent, place in places.items()}


def _evaluated(truth: Disparity, mask: Mask | None) -> NDArray[np.bool_]:
    """Where the truth is known and the mask allows."""
    if truth.ndim != 2:
        raise ValueError(f"expected a disparity map of shape (H, W), got {truth.shape}")
    known = np.isfinite(truth)
    if mask is None:
        return known
    _check_size("mask", mask, truth)
    if mask.dtype == np.bool_:
        return known & mask.astype(np.bool_)
    if mask.dtype == np.uint8:
        return known & (mask == 255)
    raise ValueError(f"expected a mask of bool or uint8, got {mask.dtype}")


def _check_size(name: str, values: NDArray[Any], truth: Disparity) -> None:
    if values.shape != truth.shape:
        raise InputError(
            f"the {name} is {_size(values)} but the truth is {_size(truth)}",
            hint="Both must belong to the same image",
        )


def _size(values: NDArray[Any]) -> str:
    """Width first, as images are usually described."""
    return "x".join(str(side) for side in values.shape[1::-1] + values.shape[2:])


def _percentage(part: float, whole: int) -> float:
    return 100.0 * _ratio(part, whole)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
