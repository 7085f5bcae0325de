"""Stage ``crf``: alpha, beta, P1 and P2 of the contrast model by grid search (TRAINING.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..crf import EdgeWeights, solve
from ..datasets import Sample, StereoPair
from ..datasets.loader import PairCache
from ..kernels import Backend
from ..labels import LabelRange
from ..model import StageClock, StereoModel, edge_weights, unary_volume, with_config
from .validation import labels_for, mean_figures, score_prediction

Point = dict[str, float]

# Coarse to fine: each round multiplies the best values so far by these factors, one plane of two
# parameters at a time (a full 4-D grid would need 20 times the evaluations).
# A network that is not sure of its costs needs small penalties, above all for slanted surfaces.
_COARSE_P1 = (0.15, 0.4, 1.0, 2.0)
_COARSE_P2 = (0.4, 1.0, 2.0, 4.0)
_FINE = (0.75, 1.0, 1.35)
_SHAPE = (0.5, 0.75, 1.0, 1.5)
_PLANES: tuple[tuple[str, str, tuple[float, ...], tuple[float, ...]], ...] = (
    ("p1", "p2", _COARSE_P1, _COARSE_P2),
    ("alpha", "beta", _SHAPE, (0.8, 1.0, 1.2)),
    ("p1", "p2", _FINE, _FINE),
    ("alpha", "beta", (0.85, 1.0, 1.2), (0.9, 1.0, 1.1)),
)


@dataclass(frozen=True)
class _Problem:
    pair: StereoPair
    labels: LabelRange
    volume: np.ndarray


def plan_length() -> int:
    """At most how many points `search` evaluates."""
    return sum(len(first) * len(second) for _, _, first, second in _PLANES)


def search(
    model: StereoModel,
    backend: Backend,
    cache: PairCache,
    samples: Sequence[Sample],
    disparities: int | None,
    criterion: str,
    on_point: Callable[[Point, dict[str, float]], None],
) -> StereoModel:
    """The model with the contrast parameters that give the lowest error on ``samples``.

    The network runs once per pair; every point then costs one CRF per pair.

    Parameters
    ----------
    model
        Its configuration is the starting point.
    backend, cache, samples, disparities
        Where to compute, and on what.
    criterion
        The error: one of `validation.CRITERIA`.
    on_point
        Called with every point tried and its figures, in order.
    """
    model = with_config(model, method="crf", edge_model="contrast")
    problems = []
    for sample in samples:
        pair = cache.load(sample)
        labels = labels_for(pair, disparities)
        # On the host: the volumes of all pairs together are too much for a GPU.
        volume = backend.to_host(
            unary_volume(model, backend, pair.left, pair.right, labels, StageClock())
        )
        problems.append(_Problem(pair, labels, volume))

    tried: dict[tuple[float, ...], float] = {}
    best: Point = {name: getattr(model.config, name) for name in ("alpha", "beta", "p1", "p2")}

    def error(point: Point) -> float:
        key = tuple(point.values())
        if key not in tried:
            figures = _evaluate(with_config(model, **point), backend, problems)
            on_point(point, figures)
            tried[key] = figures[criterion]
        return tried[key]

    for first, second, first_factors, second_factors in _PLANES:
        centre = dict(best)
        for a in first_factors:
            for b in second_factors:
                point = {**centre, first: centre[first] * a, second: centre[second] * b}
                if point["p1"] <= point["p2"] and error(point) < error(best):
                    best = point
    return with_config(model, **best)


def _evaluate(model: StereoModel, backend: Backend, problems: list[_Problem]) -> dict[str, Any]:
    scores = []
    for problem in problems:
        edges: EdgeWeights = edge_weights(model, backend, problem.pair.left, StageClock())
        config = model.config
        solution = solve(backend, problem.volume, edges, config.penalties, config.iterations)
        disparity = problem.labels.to_disparity(backend.to_host(solution.labels))
        disparity += backend.to_host(
            backend.refine(solution.minorant, solution.labels, problem.labels.step)
        )
        scores.append(score_prediction(disparity, problem.pair))
    return mean_figures(scores)
