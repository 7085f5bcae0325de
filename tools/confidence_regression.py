"""The regression and the calibration of ``tools/fit_confidence.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from confidence_evidence import Evidence, Scene

from hybridstereo.confidence import KINDS, ConfidenceFit, term_names

RIDGE = 3e-3  # pulls weights to zero: the scenes are few
CALIBRATION_RIDGE = 3e-2  # pulls the calibration to none where little speaks for one
KNOTS = (-6.0, -2.0, 0.0, 2.0, 4.0, 8.0, 12.0)
"""Evidence between which the calibration is a straight line."""
PARTS = 6  # of the scenes, for the calibration
LEAST_SLOPE = 0.1  # of the calibration, so that it keeps the order of the pixels
BLOCKS = 400  # of equal weight, which are pooled
# Of a step: its standard error, were other scenes fitted, and its share of the pixels, for what few
# pixels have is decided by few scenes, whatever the error says; docs/model.md 18 has the choice.
LARGEST_ERROR, LEAST_SHARE = 0.0225, 0.03
LEAST_STEP = 0.003  # of confidence from step to step
STEP_WIDTH = 0.001  # of confidence, so that a step keeps the order of its pixels

Shares = Mapping[str, float]
"""How much each data set counts."""


def evidence_of(pixels: Evidence, found: np.ndarray) -> np.ndarray:
    """(N,): with intercepts and weights (kinds, 1 + T), before the calibration."""
    evidence = found[pixels.kind, 0]
    for term in range(pixels.terms.shape[1]):
        evidence += found[pixels.kind, 1 + term] * pixels.terms[:, term]
    return evidence


def confidence_of(pixels: Evidence, fit: ConfidenceFit) -> np.ndarray:
    """(N,): as `hybridstereo.confidence.confidence_of`, of pixels whose terms are known."""
    evidence = evidence_of(pixels, np.column_stack([fit.intercepts, *fit.weights.values()]))
    return np.interp(calibrated(pixels, evidence, np.array(fit.calibration)), *fit.steps)


def calibrated(pixels: Evidence, evidence: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """(N,): the confidence before the steps, from evidence (N,) at `KNOTS`."""
    counting = np.empty(evidence.size)
    for kind, values in enumerate(calibration):
        inside = pixels.kind == kind
        counting[inside] = np.interp(evidence[inside], KNOTS, values)
    return logistic(counting)


def logistic(evidence: np.ndarray) -> np.ndarray:
    """The probability that goes with some evidence."""
    return 1 / (1 + np.exp(-evidence))


def bounded_regression(
    terms: np.ndarray,
    right: np.ndarray,
    weight: np.ndarray,
    start: np.ndarray,
    least: np.ndarray,
    ridge: float,
) -> np.ndarray:
    """Logistic regression by projected Newton steps.

    Parameters
    ----------
    terms, right, weight
        (N, T), (N,) and (N,): what is seen of each pixel, whether it is right, how much it counts.
    start
        (T,), where the coefficients begin, and what a ridge pulls them to.
    least
        (T,), their lower bounds.
    ridge
        How strongly; the counts of all pixels add up to 1.
    """
    weight = weight / weight.sum()
    sign = np.where(right, -1.0, 1.0)

    def loss(found: np.ndarray) -> float:
        misfit = np.logaddexp(0, sign * (terms @ found)) @ weight
        return float(misfit + ridge / 2 * np.sum((found - start) ** 2))

    found = np.maximum(start, least)
    before = loss(found)
    for _ in range(100):
        probability = logistic(terms @ found)
        gradient = terms.T @ (weight * (probability - right)) + ridge * (found - start)
        curvature = (terms * (weight * probability * (1 - probability))[:, np.newaxis]).T @ terms
        curvature += ridge * np.eye(found.size)
        free = (found > least) | (gradient < 0)
        step = np.zeros(found.size)
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        while (after := loss(moved := np.maximum(found - step, least))) > before:
            step /= 2
            if np.abs(step).max() < 1e-6:
                return found
        if before - after < 1e-9:
            return moved
        found, before = moved, after
    raise SystemExit("the regression does not converge")


def pixel_weights(scenes: Sequence[Scene], shares: Shares) -> np.ndarray:
    """(N,): every data set counts by its share, its scenes the same, and so do their pixels."""
    groups = [scene.group for scene in scenes]
    parts = []
    for scene in scenes:
        count = groups.count(scene.group) * scene.right.size
        parts.append(np.full(scene.right.size, shares[scene.group] / count))
    return np.concatenate(parts)


def fit(scenes: Sequence[Scene], shares: Shares) -> np.ndarray:
    """Intercepts and weights (kinds, 1 + T) of which none counts against its meaning."""
    terms = np.concatenate([x.evidence.terms for x in scenes]).astype(np.float64)
    right = np.concatenate([x.right for x in scenes])
    kind = np.concatenate([x.evidence.kind for x in scenes])
    weight = pixel_weights(scenes, shares)
    # Terms are turned so that none may count against its sign; those without one may.
    signs = np.array([_sign(name) for name in term_names()])
    turned = np.column_stack([np.ones(len(terms)), terms * np.where(signs < 0, -1, 1)])
    least = np.where(np.concatenate([[0], signs]) == 0, -np.inf, 0.0)
    found = []
    for number in range(len(KINDS)):
        inside = kind == number
        coefficients = bounded_regression(
            turned[inside], right[inside], weight[inside], np.zeros(least.size), least, RIDGE
        )
        found.append(coefficients * np.concatenate([[1], np.where(signs < 0, -1, 1)]))
    return np.stack(found)


def evidence_of_others(scenes: Sequence[Scene], shares: Shares) -> list[np.ndarray]:
    """The evidence of each scene by weights that were fitted to other scenes.

    Scenes differ more than the terms can tell, so weights that suit the fitted ones are too sure of
    themselves on others. So each part of the scenes is judged by weights that were fitted to the
    other parts, and that corrects the evidence of the weights fitted to all.
    """
    names = sorted({scene.name for scene in scenes})
    part = {name: number % PARTS for number, name in enumerate(names)}
    evidence = [np.zeros(0)] * len(scenes)
    for number in range(PARTS):
        found = fit([scene for scene in scenes if part[scene.name] != number], shares)
        for place, scene in enumerate(scenes):
            if part[scene.name] == number:
                evidence[place] = evidence_of(scene.evidence, found)
    return evidence


def calibrate(
    scenes: Sequence[Scene], shares: Shares, evidence: Sequence[np.ndarray]
) -> np.ndarray:
    """(kinds, knots): what the evidence at `KNOTS` amounts to, by `evidence_of_others`."""
    knots = np.array(KNOTS)
    steps = np.diff(knots)
    # How far the evidence has come within each piece; the coefficients are how much that counts.
    pieces = np.clip((np.concatenate(evidence)[:, np.newaxis] - knots[:-1]) / steps, 0, 1)
    pieces = np.column_stack([np.ones(len(pieces)), pieces])
    right = np.concatenate([scene.right for scene in scenes])
    kind = np.concatenate([scene.evidence.kind for scene in scenes])
    weight = pixel_weights(scenes, shares)
    start = np.concatenate([knots[:1], steps])
    least = np.concatenate([[-np.inf], LEAST_SLOPE * steps])
    return np.stack(
        [
            np.cumsum(
                bounded_regression(
                    pieces[inside], right[inside], weight[inside], start, least, CALIBRATION_RIDGE
                )
            )
            for inside in (kind == number for number in range(len(KINDS)))
        ]
    )


class _Block:
    """Confidences between two bounds; how much each scene counts there (S,), and what is right."""

    def __init__(self, counts: np.ndarray, right: np.ndarray, groups: np.ndarray) -> None:
        self.counts, self.right, self._groups = counts, right, groups
        self.weight = float(counts.sum())
        self.level = right.sum() / self.weight
        excess = right - self.level * counts
        variance = 0.0
        for group in np.unique(groups):
            of_group = excess[groups == group]
            variance += of_group.size * np.var(of_group, ddof=min(1, of_group.size - 1))
        self.error = float(np.sqrt(variance)) / self.weight

    def __add__(self, other: _Block) -> _Block:
        return _Block(self.counts + other.counts, self.right + other.right, self._groups)


def pool(
    scenes: Sequence[Scene],
    shares: Shares,
    evidence: Sequence[np.ndarray],
    calibration: np.ndarray,
    largest_error: float = LARGEST_ERROR,
    least_share: float = LEAST_SHARE,
) -> tuple[np.ndarray, np.ndarray]:
    """The steps of a `ConfidenceFit`: which confidences are told apart, and what they are worth.

    Confidences that few pixels have come from few scenes, and other scenes would give them another
    value.  So neighbouring blocks are pooled, first as far as what is right must rise (isotonic
    regression), then the block that is worst with the neighbour that is nearer, until no standard
    error is above ``largest_error`` and no share of the pixels below ``least_share``.  The error is
    that of scenes drawn anew within each data set, each of which counts the same.
    """
    sure = [
        calibrated(x.evidence, found, calibration)
        for x, found in zip(scenes, evidence, strict=True)
    ]
    each = np.split(
        pixel_weights(scenes, shares), np.cumsum([scene.right.size for scene in scenes])[:-1]
    )
    order = np.argsort(np.concatenate(sure))
    total = np.cumsum(np.concatenate(each)[order])
    cuts = np.searchsorted(total, np.arange(1, BLOCKS) * total[-1] / BLOCKS)
    bounds = np.unique(np.concatenate(sure)[order][cuts]).tolist()
    groups = np.array([scene.group for scene in scenes])

    def table(weights: Sequence[np.ndarray]) -> np.ndarray:
        """(scenes, blocks): sums of weights."""
        rows = [
            np.bincount(np.searchsorted(bounds, x, side="right"), y, minlength=len(bounds) + 1)
            for x, y in zip(sure, weights, strict=True)
        ]
        return np.stack(rows)

    rights = [x * scene.right for x, scene in zip(each, scenes, strict=True)]
    columns = zip(table(each).T, table(rights).T, strict=True)
    blocks = [_Block(counts, right, groups) for counts, right in columns]

    def merge(first: int) -> None:
        blocks[first] += blocks.pop(first + 1)
        bounds.pop(first)

    place = 0
    while place < len(blocks) - 1:
        if blocks[place].level + LEAST_STEP < blocks[place + 1].level:
            place += 1
        else:
            merge(place)
            place = max(place - 1, 0)

    def excess(place: int) -> float:
        """By which factor a block is too uncertain, or too small; up to 1 it is neither."""
        block = blocks[place]
        return max(block.error / largest_error, least_share * total[-1] / block.weight)

    while len(blocks) > 1:
        worst = max(range(len(blocks)), key=excess)
        if excess(worst) <= 1:
            break
        beside = [x for x in (worst - 1, worst + 1) if 0 <= x < len(blocks)]
        nearer = min(beside, key=lambda x: abs(blocks[x].level - blocks[worst].level))
        merge(min(worst, nearer))
    return _line(bounds, [block.level for block in blocks])


def _line(bounds: Sequence[float], levels: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """A rising line that is nearly level between the bounds."""
    ends = [0.0, *bounds, 1.0]
    gaps = [2 * levels[0], *(b - a for a, b in pairwise(levels)), 2 * (1 - levels[-1])]
    before, after = [], []
    for place, level in enumerate(levels):
        half = min(STEP_WIDTH / 2, gaps[place] / 3, gaps[place + 1] / 3)
        margin = min(1e-5, (ends[place + 1] - ends[place]) / 4)  # between steps it is steep
        before += [ends[place] + margin, ends[place + 1] - margin]
        after += [level - half, level + half]
    before[0], before[-1] = 0.0, 1.0
    return np.array(before), np.array(after)


def _sign(name: str) -> int:
    """Which way a term may go: more of it is better, worse, or (0) either.

    What the other view sees instead says something only of pixels that it does not confirm.
    """
    if name.startswith(("the other view", "outside")):
        return 0
    return 1 if name.startswith(("margin", "distance")) else -1
