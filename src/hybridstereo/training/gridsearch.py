"""Grid searches: contrast model of stage ``crf``, start of stage ``full`` (docs/training.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from ..datasets import Sample, StereoPair
from ..datasets.loader import PairCache
from ..engines.ranks import Alone, Ranks, interleaved, own_part
from ..evaluation.protocol import SceneScores
from ..kernels import Backend
from ..labels import LabelRange
from ..model import PYRAMID, StereoModel, scale_edges, with_config
from ..options import MatchOptions
from ..pyramid import pyramid_forward
from ..stereo import Stereo
from .validation import figures_of, sample_scores

GridPoint = dict[str, float]

# Coarse to fine: each round multiplies the best values so far by these factors, one plane of two
# parameters at a time (a full 4-D grid would need 20 times the evaluations).
# A network that is not sure of its costs needs small penalties, above all for slanted surfaces.
_COARSE_P1 = (0.15, 0.4, 1.0, 2.0)
_COARSE_P2 = (0.4, 1.0, 2.0, 4.0)
_FINE = (0.75, 1.0, 1.35)
_SHAPE = (0.5, 0.75, 1.0, 1.5)
_LEVELS = (0.5, 1.0, 2.0)
_Plane = tuple[str, str, tuple[float, ...], tuple[float, ...]]
_PLANES: tuple[_Plane, ...] = (
    ("p1", "p2", _COARSE_P1, _COARSE_P2),
    ("alpha", "beta", _SHAPE, (0.8, 1.0, 1.2)),
    ("p1", "p2", _FINE, _FINE),
    ("alpha", "beta", (0.85, 1.0, 1.2), (0.9, 1.0, 1.1)),
)

# Where a Pairwise-CNN is kept: its penalties suited another network.
_FINER: _Plane = ("p1", "p2", (0.85, 1.0, 1.2), (0.85, 1.0, 1.2))
# Contrast weights are the same function along rows and columns, and so is their imitation. But
# ground and floors change their disparity from row to row, hardly along a row (docs/training.md).
_FACTORS = ("wx_factor", "wy_factor")
_DIRECTIONS: _Plane = (*_FACTORS, (1.0, 1.4, 2.0), (0.7, 1.0, 1.4))
_KEPT_EDGES: tuple[_Plane, ...] = (_DIRECTIONS, ("p1", "p2", _FINE, _FINE), _FINER)

# Stage full: how much steeper the imitated contrast weights and how much larger the penalties (on
# KITTI flatter weights are better, on Middlebury steeper ones).
_STEEPER = (0.7, 1.0, 1.4, 2.0)
_LARGER = (1.0, 1.2, 1.5)

OnPoint = Callable[[GridPoint, dict[str, float]], None]
"""Called with every point tried and its figures, in order."""

IsOver = Callable[[], bool]
"""Whether the time for a search is over."""


def _never() -> bool:
    return False


class Judge(Protocol):
    """Figures of one network with different CRFs."""

    def figures(self, models: Iterable[StereoModel]) -> Iterator[dict[str, float]]:
        """Those of `validation.CRITERIA` for each model, in order.

        The levels' weights, edges and penalties are those of the models, the network is not.
        """


@dataclass(frozen=True)
class Problem:
    """A sample with what the network has to say about it, so that only the CRF is left to run.

    Attributes
    ----------
    sample, pair, label_range
        What is matched, and with which labels.
    levels
        The costs of all levels of the pyramid, in main memory.
    """

    sample: Sample
    pair: StereoPair
    label_range: LabelRange
    levels: list[np.ndarray]

    @classmethod
    def of(cls, model: StereoModel, backend: Backend, cache: PairCache, sample: Sample) -> Problem:
        """Run the Unary-CNN of a model on a sample."""
        stereo, pair = Stereo(model, backend), cache.load(sample)
        label_range = stereo.label_range(pair.width, MatchOptions(), pair.search_range)
        # On the host: the volumes of all pairs together are too much for a GPU.
        levels = stereo.level_costs(pair.left, pair.right, label_range)
        return cls(sample, pair, label_range, levels)

    def scores(self, model: StereoModel, backend: Backend) -> SceneScores:
        """Run the CRF of a model, and compare its map with the truth."""
        weights = model.config.pyramid
        levels = [backend.to_device(x) for x in self.levels[: 1 + len(weights)]]
        costs = backend.to_host(pyramid_forward(backend, levels, weights, in_place=False)[0])
        stereo = Stereo(model, backend)
        result = stereo.optimise(costs, self.pair.left, self.label_range, method="crf")
        return sample_scores(self.sample, self.pair, result.disparity)


class LocalJudge:
    """A `Judge` that runs the network once per pair, and then only the CRF.

    Parameters
    ----------
    model
        Its Unary-CNN gives the costs, at all levels of its pyramid.
    backend, cache, samples
        Where to compute, and on what.
    ranks
        Who shares the samples out; each keeps the costs of its own only.
    """

    def __init__(
        self,
        model: StereoModel,
        backend: Backend,
        cache: PairCache,
        samples: Sequence[Sample],
        ranks: Ranks | None = None,
    ) -> None:
        self._backend, self._samples, self._ranks = backend, samples, ranks or Alone()
        own = own_part(self._ranks, samples)
        self._problems = [Problem.of(model, backend, cache, sample) for sample in own]

    def figures(self, models: Iterable[StereoModel]) -> Iterator[dict[str, float]]:
        """Those of `validation.CRITERIA` for each model, when it is asked for."""
        for model in models:
            own = [problem.scores(model, self._backend) for problem in self._problems]
            yield figures_of(self._samples, interleaved(self._ranks.gathered(own)))


def _planes(model: StereoModel, keep_edges: bool) -> tuple[_Plane, ...]:
    """What to search: first how much the levels of a pyramid count, if the model has one."""
    levels = len(model.config.pyramid)
    others = _KEPT_EDGES if keep_edges else _PLANES
    if levels == 0:
        return others
    return ((*PYRAMID, _LEVELS, _LEVELS if levels > 1 else (1.0,)), *others)


def plan_length(model: StereoModel, keep_edges: bool = False) -> int:
    """At most how many points `search` evaluates."""
    return sum(len(first) * len(second) for _, _, first, second in _planes(model, keep_edges))


def search(
    model: StereoModel,
    judge: Judge,
    criterion: str,
    on_point: OnPoint,
    is_over: IsOver = _never,
    keep_edges: bool = False,
) -> StereoModel:
    """Stage ``crf``: the model with the contrast parameters that give the lowest error.

    Parameters
    ----------
    model
        Its configuration is the starting point.
    judge
        Knows the pairs.
    criterion
        The error: one of `validation.CRITERIA`.
    on_point
        Told what is tried.
    is_over
        Whether to end with the best point so far; asked before every point but the first.
    keep_edges
        Keep the model's Pairwise-CNN, and search only the penalties, the levels' weights and a
        factor of its weights for each direction.
    """
    model = with_config(model, method="crf", edge_model="cnn" if keep_edges else "contrast")
    names = ("p1", "p2", *(PYRAMID if model.config.pyramid else ()))
    start = {name: getattr(model.config, name) for name in names}
    if keep_edges:
        start = dict.fromkeys(_FACTORS, 1.0) | start
    else:
        start = {"alpha": model.config.alpha, "beta": model.config.beta} | start

    def errors(points: Sequence[GridPoint]) -> Iterator[float]:
        found = judge.figures(_at(model, point) for point in points)
        for point, figures in zip(points, found, strict=True):
            on_point(point, figures)
            yield figures[criterion]

    return _at(model, _lowest(start, _planes(model, keep_edges), errors, is_over))


def _at(model: StereoModel, point: GridPoint) -> StereoModel:
    """A model at a point of the grid."""
    config = {name: value for name, value in point.items() if name not in _FACTORS}
    model = with_config(model, **config)
    factors = [point.get(name, 1.0) for name in _FACTORS]
    return model if factors == [1.0, 1.0] else scale_edges(model, *factors)


def _lowest(
    start: GridPoint,
    planes: Sequence[_Plane],
    errors: Callable[[Sequence[GridPoint]], Iterator[float]],
    is_over: IsOver,
    start_error: float | None = None,
) -> GridPoint:
    """The point of the lowest error, searched plane by plane; no point is evaluated twice.

    The points of a plane do not depend on each other, and are asked for together.
    """
    best, best_error = start, next(errors([start])) if start_error is None else start_error
    known = {tuple(start.values()): best_error}
    for first, second, first_factors, second_factors in planes:
        factors = [(a, b) for a in first_factors for b in second_factors]
        points = [{**best, first: best[first] * a, second: best[second] * b} for a, b in factors]
        points = [point for point in points if point["p1"] <= point["p2"]]
        new = {tuple(x.values()): x for x in points if tuple(x.values()) not in known}
        found = errors(list(new.values()))
        for point in points:
            if is_over():
                return best
            key = tuple(point.values())
            if key not in known:
                known[key] = next(found)
            if known[key] < best_error:
                best, best_error = point, known[key]
    return best


def search_imitation(
    model: StereoModel,
    judge: Judge,
    criterion: str,
    on_point: OnPoint,
    imitate: Callable[[StereoModel], StereoModel],
    is_over: IsOver = _never,
) -> StereoModel:
    """Stage ``full``: the imitation of the model's contrast weights that gives the lowest error.

    The Pairwise-CNN sees normalised images, so it cannot know how strong an edge really is: its
    weights are a mean over images of different contrast, too large at edges. Imitating steeper
    weights, with larger penalties, makes up for it (Middlebury: 7.81 instead of 7.95 %, where the
    contrast weights had 7.83 %). The penalties of the best one are then searched by themselves.

    Parameters
    ----------
    model, judge, criterion, on_point, is_over
        As for `search`.
    imitate
        Puts a Pairwise-CNN in the place of a model's contrast weights.
    """
    config = model.config
    best, best_point = model, {"alpha": config.alpha, "p1": config.p1, "p2": config.p2}
    best_error = math.inf

    def errors(candidate: StereoModel, points: Sequence[GridPoint]) -> Iterator[float]:
        models = (with_config(candidate, p1=point["p1"], p2=point["p2"]) for point in points)
        for point, figures in zip(points, judge.figures(models), strict=True):
            on_point(point, figures)
            yield figures[criterion]

    for steeper in _STEEPER:
        if best is not model and is_over():
            break
        alpha = config.alpha * steeper
        imitation = imitate(with_config(model, alpha=alpha))
        points = [{"alpha": alpha, "p1": config.p1 * x, "p2": config.p2 * x} for x in _LARGER]
        found = errors(imitation, points)
        for point in points:
            if best is not model and is_over():
                break
            its_error = next(found)
            if best is model or its_error < best_error:
                best, best_point, best_error = imitation, point, its_error
    lowest = _lowest(best_point, [_FINER], partial(errors, best), is_over, best_error)
    return with_config(best, p1=lowest["p1"], p2=lowest["p2"])
