"""The results of an evaluation: plain data for tables, files and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from ..datasets import StereoPair
from ..rectification import Rectification

Figures = dict[str, float]
"""Metric name -> value: ``bad1``, ``avgerr``, ``a50``, ``d1_noc``...; percentages in [0, 100]."""

MethodKind = Literal["model", "baseline", "folder", "volume"]

CURVE_ERRORS = np.concatenate([np.arange(0.0, 4.0, 0.1), np.arange(4.0, 16.01, 0.5)])
"""The errors in pixels at which cumulative error curves are sampled."""


@dataclass(frozen=True)
class MethodInfo:
    """A column of the comparison.

    Attributes
    ----------
    name
        Unique within an evaluation.
    settings
        One line that says what exactly was run.
    kind
        Where its maps come from.
    """

    name: str
    settings: str
    kind: MethodKind


@dataclass(frozen=True)
class SceneResult:
    """The figures of one method on one scene.

    Attributes
    ----------
    scene, method
        Names.
    figures
        Empty if the method failed.
    seconds
        Computing time without reading files; None for maps that were read.
    error
        Why there are no figures, as a sentence; None if there are.
    """

    scene: str
    method: str
    figures: Figures
    seconds: float | None
    error: str | None


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured.

    Attributes
    ----------
    dataset
        Name of the data set, or of the folder of the truth.
    methods, scenes
        In the order of the command line and of the data set.
    results
        One per scene and method, scene by scene.
    means
        By method, with the names that `hybridstereo.evaluation.protocol` explains; empty for a
        method that failed everywhere.
    primary
        The figure to sort by, such as ``bad1`` or ``d1_noc``: lower is better.
    mean_name
        What kind of mean the plain names in ``means`` are: ``mean`` or ``weighted mean``.
    rectifications
        By scene, how the right view that all methods were given was corrected; empty if that was
        not asked for.
    sparsification
        By method that has a confidence, the mean of its scenes' sparsification curves, at
        `hybridstereo.metrics.SPARSIFICATION_SHARES`.
    """

    dataset: str
    methods: list[MethodInfo]
    scenes: list[str]
    results: list[SceneResult]
    means: dict[str, Figures]
    primary: str
    mean_name: str = "mean"
    rectifications: dict[str, Rectification] = field(default_factory=dict)
    sparsification: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def failures(self) -> list[SceneResult]:
        """The results without figures."""
        return [result for result in self.results if result.error is not None]


class Sink(Protocol):
    """Receives the maps of a scene while they are in memory, so that none is kept for later."""

    def scene(
        self,
        name: str,
        pair: StereoPair,
        maps: Mapping[str, np.ndarray],
        curves: Mapping[str, np.ndarray],
    ) -> None:
        """Receive one scene, as soon as all methods have run on it.

        Parameters
        ----------
        name
            As in `Evaluation.scenes`.
        pair
            The truth, and the images if there are any.
        maps
            By method, the disparity map (H, W) of the truth's size, +inf where invalid; methods
            that failed are missing.
        curves
            By method, the percentage of evaluated (non-occluded, known) pixels whose error is at
            most `CURVE_ERRORS`, one value each.
        """

    def finish(self, evaluation: Evaluation) -> None:
        """Receive the figures; called once, after the last scene."""
