"""How the benchmarks score a map and average over images, on top of `hybridstereo.metrics`.

Names of figures: those of `Scores.as_dict` are over non-occluded pixels, or over all known ones
where nothing is known about occlusion; with ``_all`` they are over all known pixels, occluded ones
included.  D1 is always named ``d1_noc`` and ``d1_all`` where both can exist.  With ``_unfilled``
they are those of the map before the left-right check or filling.  ``ausc``, ``ausc_best`` and
``density1`` are about the confidence, over all known pixels.

Means: the plain name is the benchmark's own mean (Middlebury v3: weighted; others: each image
counts the same), ``_pooled`` means that each pixel counts the same (KITTI 2015's leaderboard).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..datasets import KINDS, NAMES, StereoPair
from ..errors import InputError
from ..metrics import (
    MIDDLEBURY_V3_WEIGHTS,
    Scores,
    Sparsification,
    fill_background,
    middlebury_mean,
    outliers,
    pooled,
    score,
    score_kitti,
    score_middlebury,
    sparsification,
)
from .results import CURVE_ERRORS, Figures


@dataclass(frozen=True)
class Rules:
    """The rules of a benchmark.

    Attributes
    ----------
    name
        ``kitti``, ``middlebury`` or ``plain``.
    summary
        How maps are treated before they are scored, in a few words.
    primary
        The figure that methods are ranked by.
    columns
        What the text table shows, if there is a value for it.
    """

    name: str
    summary: str
    primary: str
    columns: tuple[str, ...]

    def primary_of(self, figures: Mapping[str, float]) -> str:
        """The figure to rank by among those that exist: ``d1`` if occlusion is unknown."""
        plain = self.primary.removesuffix("_noc")
        return self.primary if self.primary in figures or plain not in figures else plain


_ERRORS = ("avgerr", "rms", "a50", "a90", "a99")
_CONFIDENCE = ("ausc", "ausc_best", "density1")
_DENSITY_ERROR = 1.0  # percent of bad pixels for ``density1``

RULES = {
    "kitti": Rules(
        "kitti",
        "KITTI's rules (holes filled)",
        "d1_noc",
        (
            *("d1", "d1_noc", "d1_all", "bad2", "bad3", "bad4", "avgerr", "a99", "invalid"),
            *("d1_unfilled", "d1_noc_unfilled", "d1_all_unfilled", *_CONFIDENCE),
        ),
    ),
    "middlebury": Rules(
        "middlebury",
        "Middlebury's rules (clipped to ndisp)",
        "bad1",
        (
            *("bad0.5", "bad1", "bad2", "bad4", "bad1_all", *_ERRORS, "invalid"),
            *("bad1_unfilled", "bad1_all_unfilled", *_CONFIDENCE),
        ),
    ),
    "plain": Rules(
        "plain",
        "no filling, no clipping",
        "bad1",
        (
            *("bad0.5", "bad1", "bad2", "bad3", "bad4", "d1", "d1_noc", "bad1_all"),
            *(*_ERRORS, "invalid", "bad1_unfilled", "bad1_all_unfilled", *_CONFIDENCE),
        ),
    ),
}


def dataset_rules(dataset: str) -> Rules:
    """The rules of a data set; mixtures have none in common."""
    if dataset not in NAMES:
        raise InputError(
            f"There is no data set '{dataset}' to evaluate", f"Use one of {', '.join(NAMES)}"
        )
    return RULES[KINDS[dataset].rules]


@dataclass(frozen=True)
class SceneScores:
    """The counts of one map: over non-occluded (or all known) pixels, and over all if they differ.

    Attributes
    ----------
    main, everywhere
        The counts.
    masked
        Whether the first are over non-occluded pixels.
    unfilled
        Of the map before the left-right check or filling; None if nothing changed it.
    by_confidence, best_order
        What is left of the error when only the most confident pixels are kept, and at best; None
        without a confidence.
    """

    main: Scores
    everywhere: Scores | None
    masked: bool
    unfilled: SceneScores | None = None
    by_confidence: Sparsification | None = None
    best_order: Sparsification | None = None

    def figures(self) -> Figures:
        """All figures by name."""
        figures = _named(self.main, "", "_noc" if self.masked else "")
        if self.everywhere is not None:
            figures |= _named(self.everywhere, "_all", "_all")
        if self.unfilled is not None:
            before = self.unfilled.figures()
            names = [name for name in before if name.startswith(("bad", "d1"))]
            figures |= {f"{name}_unfilled": before[name] for name in names}
        if self.by_confidence is not None and self.best_order is not None:
            figures |= {"ausc": self.by_confidence.area, "ausc_best": self.best_order.area}
            figures["density1"] = self.by_confidence.density(_DENSITY_ERROR)
        return figures


def _named(scores: Scores, suffix: str, d1_suffix: str) -> Figures:
    return {
        name + (d1_suffix if name == "d1" else suffix): value
        for name, value in scores.as_dict().items()
    }


def score_scene(
    rules: Rules,
    disparity: np.ndarray,
    pair: StereoPair,
    unfilled: np.ndarray | None = None,
    confidence: np.ndarray | None = None,
) -> SceneScores:
    """Compare a map with the truth of a scene by the rules of a benchmark.

    Parameters
    ----------
    rules
        Of the benchmark.
    disparity
        (H, W), the map.
    pair
        The truth.
    unfilled
        The map before the left-right check or filling, if something changed it.
    confidence
        (H, W), of the map before that, if there is one.
    """
    main = _score(rules, disparity, pair, pair.valid)
    everywhere = by_confidence = best_order = None
    if pair.knows_occlusion and pair.covers_occluded:
        everywhere = _score(rules, disparity, pair, None)
    before = None if unfilled is None else score_scene(rules, unfilled, pair)
    if confidence is not None:
        known = np.isfinite(pair.disparity)
        bad = _bad_pixels(rules, disparity if unfilled is None else unfilled, pair)[known]
        by_confidence, best_order = (sparsification(x, bad) for x in (confidence[known], ~bad))
    return SceneScores(main, everywhere, pair.knows_occlusion, before, by_confidence, best_order)


def _bad_pixels(rules: Rules, disparity: np.ndarray, pair: StereoPair) -> np.ndarray:
    """Where the figure that the benchmark ranks by counts an error, bool (H, W)."""
    guess = _treated(rules, disparity, pair)
    if rules.primary.startswith("d1"):
        return outliers(guess, pair.disparity)
    threshold = float(rules.primary.removeprefix("bad"))
    with np.errstate(invalid="ignore"):  # unknown truth
        return ~(np.abs(guess.astype(np.float64) - pair.disparity) <= threshold)


def _score(
    rules: Rules, disparity: np.ndarray, pair: StereoPair, mask: np.ndarray | None
) -> Scores:
    truth = pair.disparity
    if rules.name == "kitti":
        return score_kitti(disparity, truth, mask)
    if rules.name == "middlebury":
        # ndisp belongs to the size of the truth; the metric expects that of the prediction.
        factor = max(truth.shape[1] // max(disparity.shape[-1], 1), 1)
        ndisp = math.ceil(pair.search_range / factor)
        return score_middlebury(disparity, truth, mask, ndisp=ndisp, isint=pair.isint)
    return score(disparity, truth, mask)


def enlarged(disparity: np.ndarray, pair: StereoPair) -> np.ndarray:
    """The map at the size of the truth: half- and quarter-size maps replicated, as Middlebury."""
    factor = max(pair.width // max(disparity.shape[1], 1), 1)
    larger = factor * disparity.repeat(factor, axis=0).repeat(factor, axis=1)
    return larger.astype(np.float32)


def error_curve(rules: Rules, disparity: np.ndarray, pair: StereoPair) -> np.ndarray:
    """Percentage of evaluated pixels whose error is at most each of `CURVE_ERRORS`.

    ``disparity`` has the size of the truth.  NaN if nothing is evaluated.
    """
    guess = _treated(rules, disparity, pair)
    errors = np.abs(guess[pair.valid].astype(np.float64) - pair.disparity[pair.valid])
    errors[~np.isfinite(errors)] = np.inf
    if errors.size == 0:
        return np.full(CURVE_ERRORS.shape, np.nan)
    return 100.0 * np.searchsorted(np.sort(errors), CURVE_ERRORS, side="right") / errors.size


def _treated(rules: Rules, disparity: np.ndarray, pair: StereoPair) -> np.ndarray:
    """A map of the truth's size as a benchmark compares it: holes filled, or clipped."""
    if rules.name == "kitti":
        return fill_background(disparity)
    if rules.name == "middlebury":
        clipped = np.clip(disparity, 0, pair.search_range)
        return np.where(np.isfinite(disparity), clipped, np.inf)
    return disparity


def mean_sparsification(scores: Iterable[SceneScores]) -> np.ndarray | None:
    """The mean of the scenes' sparsification curves; None if there is none."""
    curves = [one.by_confidence.curve for one in scores if one.by_confidence is not None]
    known = [curve for curve in curves if np.isfinite(curve).all()]
    return np.mean(known, axis=0) if known else None


def mean_name(rules: Rules, scenes: Sequence[str]) -> str:
    """What kind of mean `mean_figures` takes."""
    return "weighted mean" if _weighted(rules, scenes) else "mean"


def mean_figures(rules: Rules, scores: Mapping[str, SceneScores]) -> Figures:
    """Means over scenes; a figure's mean skips the scenes that have no value for it.

    Parameters
    ----------
    rules
        Decide about weights.
    scores
        By scene.
    """
    tables = {scene: one.figures() for scene, one in scores.items()}
    names = dict.fromkeys(name for table in tables.values() for name in table)
    weighted = _weighted(rules, list(scores))
    means: Figures = {}
    for name in names:
        values = {s: t[name] for s, t in tables.items() if not math.isnan(t.get(name, math.nan))}
        if not values:
            means[name] = math.nan
        elif weighted:
            means[name] = middlebury_mean({_plain(s): v for s, v in values.items()})
        else:
            means[name] = math.fsum(values.values()) / len(values)
    for pool, suffix in (("main", ""), ("everywhere", "_all")):
        counted = [x for one in scores.values() if (x := getattr(one, pool)) is not None]
        if counted:
            masked = all(one.masked for one in scores.values())
            d1_suffix = suffix or ("_noc" if masked else "")
            means |= {
                f"{name}_pooled": value
                for name, value in _named(pooled(counted), suffix, d1_suffix).items()
                if not math.isnan(value)
            }
    return means


def _weighted(rules: Rules, scenes: Sequence[str]) -> bool:
    """Whether all scenes are, once each, those of Middlebury's benchmark v3."""
    plain = [_plain(scene) for scene in scenes]
    known = rules.name == "middlebury" and len(set(plain)) == len(plain)
    return known and bool(plain) and set(plain) <= set(MIDDLEBURY_V3_WEIGHTS)


def _plain(scene: str) -> str:
    return scene.rpartition("/")[2]
