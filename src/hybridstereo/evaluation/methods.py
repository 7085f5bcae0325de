"""Where maps come from: our models, folders of maps or of cost volumes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ..datasets import StereoPair
from ..errors import InputError
from ..io.disparity import MAP_SUFFIXES, read_disparity
from ..io.volumes import VOLUME_SUFFIXES, read_volume
from ..labels import LabelRange
from ..memory import volume_memory
from ..options import MatchOptions
from ..result import StereoResult
from ..stereo import Stereo
from .results import MethodInfo
from .scenes import Scene, find_file


@dataclass(frozen=True)
class Outcome:
    """What a method gives for a scene.

    Attributes
    ----------
    disparity
        (H, W), +inf where invalid.
    seconds
        Computing time; None if the map was read.
    unfilled
        The map before the left-right check or filling changed it; None if nothing did.
    confidence
        (H, W) in [0, 1], of the map before that; None unless asked for.
    """

    disparity: np.ndarray
    seconds: float | None
    unfilled: np.ndarray | None = None
    confidence: np.ndarray | None = None


class Method(Protocol):
    """Gives a map for every scene, or raises a `StereoError` that says why it cannot."""

    info: MethodInfo

    def compute(self, scene: Scene, pair: StereoPair) -> Outcome:
        """The map of a scene."""


class ModelMethod:
    """A model of ours.

    Parameters
    ----------
    name
        For tables.
    stereo
        The model and where it runs.
    options
        How to run it.
    baseline
        Whether it stands for a simpler method, such as its network alone.
    """

    def __init__(
        self,
        name: str,
        stereo: Stereo,
        options: MatchOptions | None = None,
        baseline: bool = False,
    ) -> None:
        self._stereo = stereo
        self._options = options or MatchOptions()
        self._warm = False
        self.info = MethodInfo(name, self._describe(), "baseline" if baseline else "model")

    def compute(self, scene: Scene, pair: StereoPair) -> Outcome:
        """The map of the model with the labels of the scene."""
        result = self.match(pair)
        seconds = sum(result.seconds.values())
        if not (self._options.lr_check or self._options.fill):
            return Outcome(result.disparity, seconds, confidence=result.confidence)
        begin = time.perf_counter()
        final = result.filled() if self._options.fill else result.masked()
        seconds += time.perf_counter() - begin
        return Outcome(final.disparity, seconds, result.disparity, result.confidence)

    def match(self, pair: StereoPair) -> StereoResult:
        """Everything that the model gives for a scene, with the labels of the scene.

        The map is not masked or filled yet: `compute` needs it before that, too.
        """
        left, right = pair.images()
        checks = self._options.lr_check or self._options.fill
        options = replace(self._options, validity=checks, lr_check=False, fill=False)
        if not self._warm:  # or the first image would pay for compilation
            small = replace(options, disparities=8, paper_labels=False)
            self._stereo.match(left[:24, :40], right[:24, :40], **vars(small))
            self._warm = True
        return self._stereo.match(left, right, **vars(options), search_range=pair.search_range)

    def _describe(self) -> str:
        config = self._stereo.model.config
        options = self._options.resolved(config)
        parts = [f"{len(self._stereo.model.unary)} layers"]
        if config.softmax != "left":
            parts.append(f"{config.softmax} softmax")
        if config.pyramid:
            parts.append("pyramid " + ", ".join(f"{weight:.3g}" for weight in config.pyramid))
        if options.method == "crf":
            penalties = f"P1 {config.p1:.4g}, P2 {config.p2:.4g}"
            parts += [edges_in_words(self._stereo), penalties, f"{options.iterations} iterations"]
        else:
            parts.append("argmax of the network, no CRF")
        if options.precision == "half":
            parts.append("half precision")
        parts.append("refined" if options.refine else "not refined")
        if options.disparities == "auto":
            parts.append("range found in each pair")
        if options.paper_labels:
            parts.append("labels rounded as in the paper")
        if options.fill or options.lr_check:
            parts.append("left-right check" + (", filled" if options.fill else ""))
        return ", ".join([*parts, self._stereo.device])


def edges_in_words(stereo: Stereo) -> str:
    """Where a model's edge weights come from."""
    return "Pairwise-CNN" if stereo.model.config.edge_model == "cnn" else "contrast weights"


class RefinedAndNot:
    """Two methods, a model with and without refinement, which share one run for each scene.

    Parameters
    ----------
    name
        For tables, of the method without refinement; the other one's is told apart by a suffix.
    stereo, options
        As for `ModelMethod`.
    """

    def __init__(self, name: str, stereo: Stereo, options: MatchOptions) -> None:
        self._whole = ModelMethod(name, stereo, replace(options, refine=True))
        self._last: tuple[StereoPair, StereoResult] | None = None
        labels_only = ModelMethod(name, stereo, replace(options, refine=False)).info
        refined = replace(self._whole.info, name=f"{name}, refined")
        self.unrefined: Method = _HalfOfRun(labels_only, self._match, "unrefined")
        self.refined: Method = _HalfOfRun(refined, self._match, "disparity")

    def _match(self, pair: StereoPair) -> StereoResult:
        if self._last is None or self._last[0] is not pair:
            self._last = None  # its memory is free before the next map needs it
            self._last = pair, self._whole.match(pair)
        return self._last[1]


@dataclass
class _HalfOfRun:
    """One of the maps of a result."""

    info: MethodInfo
    match: Callable[[StereoPair], StereoResult]
    part: str

    def compute(self, scene: Scene, pair: StereoPair) -> Outcome:
        result = self.match(pair)
        return Outcome(getattr(result, self.part), sum(result.seconds.values()))


class VolumesMethod:
    """Cost volumes that some matcher wrote to a folder, with our CRF on top or without.

    Parameters
    ----------
    name
        For tables.
    folder
        Holds a volume for every scene, named like it.
    stereo
        Gives edge weights, penalties, iterations, and where to compute.
    options
        ``iterations``, ``method`` and ``refine`` as for models; labels are those of the volumes.
    scale
        Factor of the costs.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        stereo: Stereo,
        options: MatchOptions | None = None,
        scale: float = 1.0,
    ) -> None:
        self._folder = folder
        self._stereo = stereo
        self._options = options or MatchOptions()
        self._scale = scale
        method = self._options.resolved(stereo.model.config).method
        rest = f"CRF with {edges_in_words(stereo)}" if method == "crf" else "argmax"
        self.info = MethodInfo(name, f"cost volumes in {folder} times {scale:g}, {rest}", "volume")

    def compute(self, scene: Scene, pair: StereoPair) -> Outcome:
        """The map from the volume of a scene; the seconds are those of the CRF."""
        if not pair.has_left:
            raise InputError("there is no left image for the edge weights", "Evaluate a data set")
        path = find_file(self._folder, scene.keys, VOLUME_SUFFIXES)
        volume = read_volume(path, pair.height, pair.width, self._scale, volume_memory())
        result = self._stereo.optimise(
            volume.costs,
            pair.left,
            LabelRange(volume.min_disparity, volume.costs.shape[2], volume.step),
            iterations=self._options.iterations,
            method=self._options.method,
            refine=self._options.refine,
            precision=self._options.precision,
        )
        return Outcome(result.disparity, sum(result.seconds.values()))


class MapsMethod:
    """Maps that some program wrote to a folder, named like the scenes."""

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self.info = MethodInfo(name, f"maps in {folder}", "folder")

    def compute(self, scene: Scene, pair: StereoPair) -> Outcome:
        """Read the map of a scene."""
        return Outcome(read_disparity(find_file(self._folder, scene.keys, MAP_SUFFIXES)), None)


class FileMethod:
    """One map in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.info = MethodInfo(path.name, str(path), "folder")

    def compute(self, scene: Scene, pair: StereoPair) -> Outcome:
        """Read the map."""
        return Outcome(read_disparity(self._path), None)
