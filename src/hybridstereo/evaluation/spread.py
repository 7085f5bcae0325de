"""How much the figures of a method differ between scenes, and where a baseline beats a model.

A mean over a few scenes says little without it: one scene may decide, or all may be alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .results import Evaluation


@dataclass(frozen=True)
class Spread:
    """A figure of one method over the scenes that have it.

    Attributes
    ----------
    scenes
        How many.
    mean, median
        Over the scenes, each counting the same.
    worst, worst_scene
        The highest value, and where.
    standard_error
        Of the mean: the standard deviation over the scenes, divided by the root of their number;
        NaN for one scene.
    """

    scenes: int
    mean: float
    median: float
    worst: float
    worst_scene: str
    standard_error: float


@dataclass(frozen=True)
class Defeat:
    """The scenes on which a baseline has a lower error than a model, of those that both have."""

    model: str
    baseline: str
    scenes: tuple[str, ...]
    of: int

    def describe(self) -> str:
        """One line for tables."""
        names = f": {', '.join(self.scenes)}" if self.scenes else ""
        count = f"{len(self.scenes)} of {self.of} scene{'s' * (self.of != 1)}"
        return f"{self.baseline} is better than {self.model} on {count}{names}"


def values_of(evaluation: Evaluation, method: str, figure: str) -> dict[str, float]:
    """A figure of a method by scene, where there is a value."""
    found = {
        x.scene: x.figures.get(figure, math.nan) for x in evaluation.results if x.method == method
    }
    return {scene: value for scene, value in found.items() if not math.isnan(value)}


def spread_of(evaluation: Evaluation, method: str, figure: str | None = None) -> Spread | None:
    """The spread of a figure, by default the one to rank by; None without a value."""
    values = values_of(evaluation, method, figure or evaluation.primary)
    return spread(values) if values else None


def spread(values: Mapping[str, float]) -> Spread:
    """The spread of values by scene, of which there is at least one."""
    worst = max(values, key=lambda scene: values[scene])
    numbers = list(values.values())
    return Spread(
        len(numbers),
        math.fsum(numbers) / len(numbers),
        statistics.median(numbers),
        values[worst],
        worst,
        standard_error(numbers),
    )


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of independent values; NaN if there are fewer than two."""
    if len(values) < 2:
        return math.nan
    return statistics.stdev(values) / math.sqrt(len(values))


def defeats(evaluation: Evaluation) -> list[Defeat]:
    """Every model beside every baseline, by the figure to rank by."""
    found = []
    for model in (x.name for x in evaluation.methods if x.kind == "model"):
        ours = values_of(evaluation, model, evaluation.primary)
        for baseline in (x.name for x in evaluation.methods if x.kind == "baseline"):
            theirs = values_of(evaluation, baseline, evaluation.primary)
            found.append(compared(model, ours, baseline, theirs))
    return found


def compared(
    model: str, ours: Mapping[str, float], baseline: str, theirs: Mapping[str, float]
) -> Defeat:
    """A model beside a baseline, both by scene."""
    both = [scene for scene in ours if scene in theirs]
    lost = tuple(scene for scene in both if theirs[scene] < ours[scene])
    return Defeat(model, baseline, lost, len(both))
