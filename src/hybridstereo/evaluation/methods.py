"""Where maps come from: our models, folders of maps or of cost volumes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ..datasets import StereoPair
from ..errors import InputError
from ..io.disparity import read_disparity
from ..io.volumes import VOLUME_SUFFIXES, fill_unknown, read_volume
from ..kernels import Backend
from ..labels import LabelRange
from ..memory import require_memory
from ..model import Prediction, StereoModel, predict, predict_from_volume
from .results import MethodInfo
from .scenes import MAP_SUFFIXES, Scene, find_file


@dataclass(frozen=True)
class Outcome:
    """A disparity map (H, W), +inf where invalid, and its computing time, if it was computed."""

    disparity: np.ndarray
    seconds: float | None


class Method(Protocol):
    """Gives a map for every scene, or raises a `StereoError` that says why it cannot."""

    info: MethodInfo

    def compute(self, scene: Scene, target: StereoPair) -> Outcome:
        """The map of a scene."""


@dataclass(frozen=True)
class RunOptions:
    """How models are run; None means "as the model says".

    Attributes
    ----------
    disparities
        Labels, instead of the data set's range.
    paper_labels
        Round their number up to a power of two, at most 256.
    iterations
        Of Dual_MM.
    method
        ``crf`` or ``argmax``.
    refine
        Sub-label refinement.
    """

    disparities: int | None = None
    paper_labels: bool = False
    iterations: int | None = None
    method: str | None = None
    refine: bool | None = None


def labels_for(model: StereoModel, search_range: int, options: RunOptions) -> LabelRange:
    """The model's first disparity and step, and as many labels as the data set's range needs."""
    config = model.config
    span = options.disparities or search_range - min(config.min_disparity, 0.0)
    count = max(math.ceil(span / (1.0 if options.disparities else config.step)), 1)
    labels = LabelRange(config.min_disparity, count, config.step)
    return labels.paper_rounding() if options.paper_labels else labels


class ModelMethod:
    """A model of ours.

    Parameters
    ----------
    name
        For tables.
    model, backend
        What to run and where.
    options
        How to run it.
    baseline
        Whether it stands for a simpler method, such as its network alone.
    """

    def __init__(
        self,
        name: str,
        model: StereoModel,
        backend: Backend,
        options: RunOptions | None = None,
        baseline: bool = False,
    ) -> None:
        self._model = model
        self._backend = backend
        self._options = options or RunOptions()
        self._warm = False
        self.info = MethodInfo(name, self._describe(), "baseline" if baseline else "model")

    def compute(self, scene: Scene, target: StereoPair) -> Outcome:
        """The map of the model with the labels of the scene."""
        prediction = self.predict(target)
        return Outcome(prediction.disparity, sum(prediction.seconds.values()))

    def predict(self, target: StereoPair) -> Prediction:
        """Everything that the model gives for a scene, with the labels of the scene."""
        left, right = target.images()
        labels = labels_for(self._model, target.search_range, self._options)
        height, width, _ = left.shape
        require_memory(self._model, height, width, labels.count, self._backend)
        if not self._warm:  # or the first image would pay for compilation
            self._predict(left[:24, :40], right[:24, :40], LabelRange(labels.minimum, 8))
            self._warm = True
        return self._predict(left, right, labels)

    def _predict(self, left: np.ndarray, right: np.ndarray, labels: LabelRange) -> Prediction:
        options = self._options
        return predict(
            self._model,
            self._backend,
            np.ascontiguousarray(left),
            np.ascontiguousarray(right),
            labels=labels,
            method=options.method,
            iterations=options.iterations,
            refine=options.refine,
        )

    def _describe(self) -> str:
        config, options = self._model.config, self._options
        method = options.method or config.method
        parts = [f"{len(self._model.unary)} layers"]
        if method == "crf":
            edges = "Pairwise-CNN" if config.edge_model == "cnn" else "contrast weights"
            iterations = options.iterations or config.iterations
            parts += [edges, f"P1 {config.p1:.4g}, P2 {config.p2:.4g}", f"{iterations} iterations"]
        else:
            parts.append("argmax of the network, no CRF")
        refine = method == "crf" if options.refine is None else options.refine
        parts.append("refined" if refine else "not refined")
        if options.paper_labels:
            parts.append("labels rounded as in the paper")
        return ", ".join([*parts, self._backend.name])


class RefinedAndNot:
    """Two methods, a model with and without refinement, which share one run for each scene.

    Parameters
    ----------
    name
        For tables, of the method without refinement; the other one's is told apart by a suffix.
    model, backend, options
        As for `ModelMethod`.
    """

    def __init__(
        self, name: str, model: StereoModel, backend: Backend, options: RunOptions
    ) -> None:
        self._whole = ModelMethod(name, model, backend, replace(options, refine=True))
        self._last: tuple[StereoPair, Prediction] | None = None
        labels_only = ModelMethod(name, model, backend, replace(options, refine=False)).info
        refined = replace(self._whole.info, name=f"{name}, refined")
        self.unrefined: Method = _HalfOfRun(labels_only, self._predict, "unrefined")
        self.refined: Method = _HalfOfRun(refined, self._predict, "disparity")

    def _predict(self, target: StereoPair) -> Prediction:
        if self._last is None or self._last[0] is not target:
            self._last = None  # its memory is free before the next map needs it
            self._last = target, self._whole.predict(target)
        return self._last[1]


@dataclass
class _HalfOfRun:
    """One of the maps of a prediction."""

    info: MethodInfo
    predict: Callable[[StereoPair], Prediction]
    part: str

    def compute(self, scene: Scene, target: StereoPair) -> Outcome:
        prediction = self.predict(target)
        return Outcome(getattr(prediction, self.part), sum(prediction.seconds.values()))


class VolumesMethod:
    """Cost volumes that some matcher wrote to a folder, with our CRF on top or without.

    Parameters
    ----------
    name
        For tables.
    folder
        Holds a volume for every scene, named like it.
    model, backend
        Edge weights, penalties, iterations; where to compute.
    options
        ``method`` and ``refine`` as for models; labels are those of the volumes.
    scale
        Factor of the costs.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        model: StereoModel,
        backend: Backend,
        options: RunOptions | None = None,
        scale: float = 1.0,
    ) -> None:
        self._folder = folder
        self._model = model
        self._backend = backend
        self._options = options or RunOptions()
        self._scale = scale
        method = self._options.method or model.config.method
        edges = "Pairwise-CNN" if model.config.edge_model == "cnn" else "contrast weights"
        rest = f"CRF with {edges}" if method == "crf" else "argmax"
        self.info = MethodInfo(name, f"cost volumes in {folder} times {scale:g}, {rest}", "volume")

    def compute(self, scene: Scene, target: StereoPair) -> Outcome:
        """The map from the volume of a scene; the seconds are those of the CRF."""
        if not target.has_left:
            raise InputError("there is no left image for the edge weights", "Evaluate a data set")
        path = find_file(self._folder, scene.keys, VOLUME_SUFFIXES)
        volume = read_volume(path, *target.left.shape[:2])
        costs = fill_unknown(volume.costs)
        costs *= np.float32(self._scale)
        labels = LabelRange(volume.min_disparity or 0.0, costs.shape[2], volume.step or 1.0)
        found = predict_from_volume(
            self._model,
            self._backend,
            target.left,
            costs,
            labels,
            method=self._options.method,
            iterations=self._options.iterations,
            refine=self._options.refine,
        )
        return Outcome(found.prediction.disparity, sum(found.prediction.seconds.values()))


class MapsMethod:
    """Maps that some program wrote to a folder, named like the scenes."""

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self.info = MethodInfo(name, f"maps in {folder}", "folder")

    def compute(self, scene: Scene, target: StereoPair) -> Outcome:
        """Read the map of a scene."""
        return Outcome(read_disparity(find_file(self._folder, scene.keys, MAP_SUFFIXES)), None)


class FileMethod:
    """One map in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.info = MethodInfo(path.name, str(path), "folder")

    def compute(self, scene: Scene, target: StereoPair) -> Outcome:
        """Read the map."""
        return Outcome(read_disparity(self._path), None)
