"""What is done with one pair of many: read, match, write, and a record of how it went.

`process_pair` does all of it in one go, in whatever process it is called; its arguments but the
model, and the record that it returns, can be pickled.  `hybridstereo.batch.run` does the same in
three steps, of which the first and the last run beside the second one of another pair.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ..clock import OnStage
from ..errors import InputError, OutputError, StereoError
from ..io.atomic import check_distinct
from ..io.files import is_file
from ..io.images import read_image, read_pair
from ..io.volumes import read_volume
from ..labels import LabelRange, labels_for
from ..memory import volume_memory
from ..options import MatchOptions
from ..pair_check import Finding
from ..result import StereoResult
from ..rig import RigSource, StereoRig
from ..stereo import Stereo
from .outputs import DepthFile, MatchedPair, Output, PointsFile
from .pairs import Pair
from .places import folder_of_results, sweep_once

_ABOUT_LABELS = ("disparities", "min_disparity", "step", "paper_labels")

Status = Literal["done", "skipped", "failed"]
Keep = Callable[[Stereo, StereoResult], Any]
"""What a caller wants to know of a result, without its arrays."""


@dataclass(frozen=True)
class PairWork:
    """What is done with every pair.

    Attributes
    ----------
    folder
        Where the results go: a path or a URL.
    outputs
        What is written there.
    options
        How the model is run.
    rectify, scale, max_memory, max_pixels
        As for `Stereo.match`.
    check
        Look first whether it is a rectified pair, and report what is wrong.
    strict
        A pair with anything wrong fails.
    skip_existing
        Leave out pairs whose outputs all exist.
    costs
        The matching costs of another program to use instead of the network's: a pattern such as
        ``costs/{name}.npy`` (`Pair.fill`); right images are not read then.
    costs_scale
        Factor of those costs.
    rig
        The cameras, for depth and for the range that a calibration states; names of files are
        filled in for each pair (`Pair.fill`).
    keep
        Called with each result; what it returns is kept in the record.
    """

    folder: str
    outputs: tuple[Output, ...]
    options: MatchOptions = field(default_factory=MatchOptions)
    rectify: bool = False
    scale: int = 1
    max_memory: int | None = None
    max_pixels: int | None = None
    check: bool = True
    strict: bool = False
    skip_existing: bool = False
    costs: str | None = None
    costs_scale: float = 1.0
    rig: RigSource | None = None
    keep: Keep | None = None

    def paths(self, pair: Pair) -> list[str]:
        """The files that a pair gets."""
        return [os.path.join(self.folder, output.name_for(pair)) for output in self.outputs]

    @property
    def needs_rig(self) -> bool:
        """Whether any output is made of depth."""
        return any(isinstance(output, DepthFile | PointsFile) for output in self.outputs)


@dataclass(frozen=True)
class PairOutcome:
    """How it went with a pair.

    Attributes
    ----------
    pair
        The pair.
    status
        ``done``, ``skipped`` because all files were there, or ``failed``.
    files
        What was written, or was there, by kind.
    error
        Why it failed: a `StereoError`, with a message and perhaps a hint.
    findings
        What the check says about the pair; None if it was not checked.
    kept
        What the caller wanted to know of the result.
    rig
        The cameras, if depth was written.
    beyond
        How many pixels of a depth map in 16 bits are farther away than these can say.
    replaced
        How many of the files were there before; of URLs, which would have to be asked, none.
    """

    pair: Pair
    status: Status
    files: dict[str, list[str]] = field(default_factory=dict)
    error: StereoError | None = None
    findings: list[Finding] | None = None
    kept: Any = None
    rig: StereoRig | None = None
    beyond: int = 0
    replaced: int = 0


@dataclass(frozen=True, eq=False)
class LoadedPair:
    """A pair with its images, (H, W, 3) float32 RGB in [0, 1], and what a calibration says.

    There is no right one if the costs come from elsewhere.
    """

    pair: Pair
    left: np.ndarray
    right: np.ndarray | None
    rig: StereoRig | None
    stated: tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class MatchResult:
    """A pair that is matched but not written yet."""

    matched: MatchedPair
    findings: list[Finding] | None
    kept: Any


def process_pair(stereo: Stereo, pair: Pair, work: PairWork) -> PairOutcome:
    """Read, match and write one pair.

    Parameters
    ----------
    stereo
        The model.
    pair
        The images and the name of the results.
    work
        What to do.

    Returns
    -------
    PairOutcome
        Also if the pair cannot be used: nothing but a bug raises anything.
    """
    return write_pair(work, match_pair(stereo, work, load_pair(work, pair)))


def load_pair(work: PairWork, pair: Pair) -> LoadedPair | PairOutcome:
    """Read the images; the outcome, if there is nothing left to do or they cannot be used."""
    try:
        paths = work.paths(pair)
        for folder in sorted({os.path.dirname(path) for path in paths}):
            sweep_once(folder)
        if (there := skipped(work, pair)) is not None:
            return there
        source = None if work.rig is None else work.rig.renamed(pair.fill)
        calib = () if source is None else (*source.calib, source.calib_right)
        costs = None if work.costs is None else pair.fill(work.costs)
        check_distinct((pair.left, pair.right, costs, *calib), paths)
        if costs is None:
            left, right = read_pair(pair.left, pair.right, work.max_pixels)
        else:
            left, right = read_image(pair.left, work.max_pixels), None
        rig, stated = None, None
        if source is not None:
            height, width, _ = left.shape
            rig = source.read().for_size(width, height) if work.needs_rig else None
            if work.options.disparities == "auto":
                stated = source.stated_range(width, height)
        return LoadedPair(pair, left, right, rig, stated)
    except (StereoError, MemoryError, OSError) as error:
        return failed_pair(pair, error)


def skipped(work: PairWork, pair: Pair) -> PairOutcome | None:
    """That there is nothing to do, if all files of a pair exist and such pairs are left out."""
    paths = work.paths(pair)
    if work.skip_existing and all(map(is_file, paths)):
        return PairOutcome(pair, "skipped", _by_kind(work, paths))
    return None


def with_files(work: PairWork, outcome: PairOutcome) -> PairOutcome:
    """The outcome with its files named as ``work`` has them, wherever they were written."""
    if not outcome.files:
        return outcome
    return replace(outcome, files=_by_kind(work, work.paths(outcome.pair)))


def match_pair(
    stereo: Stereo,
    work: PairWork,
    loaded: LoadedPair | PairOutcome,
    on_stage: OnStage | None = None,
) -> MatchResult | PairOutcome:
    """Check and match a pair; an outcome stays what it is.

    ``on_stage`` is that of `Stereo.match`; what it raises ends the work.
    """
    if isinstance(loaded, PairOutcome):
        return loaded
    pair, findings = loaded.pair, None
    volumes = any(output.needs_volumes for output in work.outputs)
    try:
        if loaded.right is None:
            path = pair.fill(str(work.costs))
            result = optimise_stored(
                stereo, loaded.left, path, work.costs_scale, work.options, volumes, on_stage
            )
        else:
            images = loaded.left, loaded.right
            if work.check:
                findings = stereo.check(*images, rectify=work.rectify)
                if findings and work.strict:
                    problem = " ".join(finding.describe() for finding in findings)
                    raise InputError(problem.removesuffix("."))
            result = stereo.match(
                *images,
                **labelled(stereo, work.options, loaded.stated),
                rectify=work.rectify,
                scale=work.scale,
                max_memory=work.max_memory,
                volumes=volumes,
                on_stage=on_stage,
            )
        kept = None if work.keep is None else work.keep(stereo, result)
    except (StereoError, MemoryError, OSError) as error:
        return failed_pair(pair, error, findings)
    return MatchResult(MatchedPair(pair, loaded.left, result, loaded.rig), findings, kept)


def write_pair(work: PairWork, done: MatchResult | PairOutcome) -> PairOutcome:
    """Write all outputs of a pair, each complete or not at all; an outcome stays what it is."""
    if isinstance(done, PairOutcome):
        return done
    pair, findings = done.matched.pair, done.findings
    beyond = 0
    try:
        paths = work.paths(pair)
        replaced = sum(map(os.path.exists, paths))
        for output, path in zip(work.outputs, paths, strict=True):
            folder_of_results(os.path.dirname(path))
            beyond += output.write(path, done.matched)
    except (StereoError, MemoryError, OSError) as error:
        return failed_pair(pair, error, findings)
    return PairOutcome(
        pair,
        "done",
        _by_kind(work, paths),
        findings=findings,
        kept=done.kept,
        rig=done.matched.rig,
        beyond=beyond,
        replaced=replaced,
    )


def optimise_stored(
    stereo: Stereo,
    image: np.ndarray,
    path: str,
    scale: float,
    options: MatchOptions,
    volumes: bool,
    on_stage: OnStage | None,
) -> StereoResult:
    """The CRF on the costs of another matcher, which are in a file (`io.volumes`).

    Parameters
    ----------
    stereo
        Gives edge weights, penalties and defaults.
    image
        The left one.
    path, scale
        The file, and a factor of its costs.
    options
        ``min_disparity`` and ``step``, if the file does not say them right, and how to run the CRF.
    volumes, on_stage
        As for `Stereo.optimise`.
    """
    height, width, _ = image.shape
    stored = read_volume(path, height, width, scale, volume_memory())
    count = stored.costs.shape[2]
    return stereo.optimise(
        stored.costs,
        image,
        labels_for(
            LabelRange(stored.min_disparity, count, stored.step),
            disparities=count,
            min_disparity=options.min_disparity,
            step=options.step,
        ),
        iterations=options.iterations,
        method=options.method,
        refine=options.refine,
        precision=options.precision,
        volumes=volumes,
        on_stage=on_stage,
    )


def labelled(
    stereo: Stereo, options: MatchOptions, stated: tuple[int, int] | None
) -> dict[str, Any]:
    """The arguments of `Stereo.match`, with the range that a calibration states, if it does.

    Parameters
    ----------
    stereo
        The model.
    options
        How to run it; what they say about the labels holds.
    stated
        The first and the last whole disparity.
    """
    if stated is None:
        return vars(options)
    labels = labels_for(
        stereo.model.config.label_range,
        min_disparity=options.min_disparity,
        step=options.step,
        paper_labels=options.paper_labels,
        found=LabelRange(float(stated[0]), stated[1] - stated[0] + 1),
    )
    others = {name: value for name, value in vars(options).items() if name not in _ABOUT_LABELS}
    return {"labels": labels, **others}


def _by_kind(work: PairWork, paths: list[str]) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for output, path in zip(work.outputs, paths, strict=True):
        files.setdefault(output.key, []).append(path)
    return files


def failed_pair(
    pair: Pair,
    error: StereoError | MemoryError | OSError,
    findings: list[Finding] | None = None,
) -> PairOutcome:
    """What is told of a pair that failed."""
    if isinstance(error, MemoryError):
        error = StereoError(
            "Not enough memory", "Use fewer `disparities`, smaller images or `max_memory`"
        )
    elif not isinstance(error, StereoError):
        where = f"{error.filename}: " if error.filename else ""
        error = OutputError(f"{where}{error.strerror or error}")
    return PairOutcome(pair, "failed", error=error, findings=findings)
