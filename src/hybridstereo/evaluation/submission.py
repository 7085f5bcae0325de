"""Folders as the benchmarks want them uploaded.

KITTI 2015
    ``disp_0/000000_10.png`` and so on for the 200 pairs of ``testing``: 16-bit PNG, 256 times the
    disparity, 0 invalid.  The runtime is asked for in the upload form; ``runtime.txt`` beside the
    folder holds it.
Middlebury v3
    ``trainingH/Adirondack/disp0NAME.pfm`` and so on for all training and test scenes of one
    resolution; maps with invalid pixels are called ``disp0NAME_s.pfm``; ``timeNAME.txt`` beside
    each holds nothing but the seconds.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..datasets import StereoPair
from ..datasets.pair import truth_pair
from ..errors import InputError, OutputError, StereoError
from ..io.atomic import atomic_write
from ..io.calib import read_calibration
from ..io.disparity import write_disparity
from ..io.images import read_pair
from .methods import Method, Outcome
from .runner import OnRun
from .scenes import Scene

_KITTI_NDISP = 256
_KITTI_LEAST = 1 / 256  # a stored 0 would mean "invalid"
_KITTI_MOST = (65536 - 1) / 256
_MIDDLEBURY_FOLDER = re.compile(r"(training|test)([QHF])")


@dataclass(frozen=True)
class Submission:
    """What was written.

    Attributes
    ----------
    files
        In the order of writing.
    failures
        The name of each missing pair and why it is missing, as a sentence.
    warnings
        What the benchmark would complain about.
    """

    files: list[Path]
    failures: list[tuple[str, str]]
    warnings: list[str]


def write_submission(
    benchmark: str,
    root: Path,
    folder: Path,
    method: Method,
    on_run: OnRun | None = None,
) -> Submission:
    """Run a method on the pairs of a benchmark and write its maps for an upload.

    Parameters
    ----------
    benchmark
        A key of `BENCHMARKS`.
    root
        The data set: a folder with ``testing`` (KITTI), or with ``trainingH`` and ``testH``, or
        another resolution (Middlebury).
    folder
        Where to write; created if it does not exist.
    method
        What to run.
    on_run
        Called before each pair.

    Raises
    ------
    InputError
        If there are no such pairs.
    """
    wanted = BENCHMARKS[benchmark]
    scenes = wanted.scenes(root)
    warnings = []
    if len(scenes) != wanted.pairs:
        warnings.append(f"{root} has {len(scenes)} pairs but {benchmark} wants {wanted.pairs}")
    files: list[Path] = []
    failures: list[tuple[str, str]] = []
    seconds: list[float] = []
    for number, scene in enumerate(scenes):
        if on_run is not None:
            on_run(number, len(scenes), scene.name, method.info.name)
        try:
            outcome = method.compute(scene, scene.load())
        except StereoError as error:
            failures.append((scene.name, str(error)))
            continue
        except MemoryError:
            failures.append((scene.name, "Not enough memory."))
            continue
        files += wanted.write(folder, scene.name, outcome, method.info.name)
        if outcome.seconds is not None:
            seconds.append(outcome.seconds)
    if wanted.mean_runtime and seconds:
        files.append(_write_text(folder / "runtime.txt", math.fsum(seconds) / len(seconds)))
    return Submission(files, failures, warnings)


def _kitti_scenes(root: Path) -> list[Scene]:
    places: list[Path] = []
    if os.path.isdir(root):
        places = [root, root / "testing", *sorted(root.glob("*/testing"))]
    for testing in places:
        lefts = sorted((testing / "image_2").glob("*_10.png"))
        if lefts and testing.name == "testing":
            return [
                Scene(
                    left.stem,
                    (left.stem,),
                    partial(_load, left, testing / "image_3" / left.name, None),
                )
                for left in lefts
            ]
    raise InputError(
        f"{root} holds no test pairs of KITTI 2015",
        "Expected are testing/image_2 and testing/image_3 with files such as 000000_10.png",
    )


def _middlebury_scenes(root: Path) -> list[Scene]:
    parts = [p for p in sorted(root.iterdir()) if _resolution(p)] if os.path.isdir(root) else []
    folders = [scene for part in parts for scene in sorted(part.iterdir()) if os.path.isdir(scene)]
    if not folders:
        raise InputError(
            f"{root} holds no scenes of the Middlebury benchmark",
            "Expected are folders such as trainingH/Adirondack and testH/Australia",
        )
    resolutions = sorted({_resolution(part) for part in parts})
    if len(resolutions) > 1:
        raise InputError(
            f"{root} holds several resolutions: {', '.join(resolutions)}",
            "Submit one: give a folder with trainingQ and testQ only, or H, or F",
        )
    return [
        Scene(
            f"{scene.parent.name}/{scene.name}",
            (scene.name,),
            partial(_load, scene / "im0.png", scene / "im1.png", scene / "calib.txt"),
        )
        for scene in folders
    ]


def _resolution(folder: Path) -> str:
    match = _MIDDLEBURY_FOLDER.fullmatch(folder.name)
    return match[2] if match else ""


def _load(left: Path, right: Path, calibration: Path | None) -> StereoPair:
    """Read a pair without truth."""
    left_image, right_image = read_pair(left, right)
    ndisp = _KITTI_NDISP if calibration is None else read_calibration(calibration).ndisp
    if ndisp is None:
        raise InputError(f"{calibration} does not state ndisp", "Download the scene again")
    unknown = np.full(left_image.shape[:2], np.inf, np.float32)
    return truth_pair(unknown, left=left_image, right=right_image, ndisp=ndisp)


def _write_kitti(folder: Path, scene: str, outcome: Outcome, method: str) -> Sequence[Path]:
    disparity = outcome.disparity
    storable = np.clip(disparity, _KITTI_LEAST, _KITTI_MOST)
    path = _created(folder / "disp_0") / f"{scene}.png"
    write_disparity(path, np.where(np.isfinite(disparity), storable, np.inf))
    return [path]


def _write_middlebury(folder: Path, scene: str, outcome: Outcome, method: str) -> Sequence[Path]:
    short = re.sub(r"[^A-Za-z0-9-]+", "", method) or "method"
    target = _created(folder / scene)
    sparse = "" if np.isfinite(outcome.disparity).all() else "_s"
    path = target / f"disp0{short}{sparse}.pfm"
    write_disparity(path, outcome.disparity)
    if outcome.seconds is None:
        return [path]
    return [path, _write_text(target / f"time{short}.txt", outcome.seconds)]


def _created(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The folder {folder} cannot be created: {error.strerror}", "Choose another folder"
        ) from error
    return folder


def _write_text(path: Path, seconds: float) -> Path:
    with atomic_write(path) as temporary:
        temporary.write_text(f"{seconds:.3f}\n", encoding="ascii")
    return path


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark wants.

    Attributes
    ----------
    pairs
        How many.
    scenes
        Finds them below a root.
    write
        Writes the files of one: folder, scene, outcome, method -> what was written.
    mean_runtime
        Whether it asks for the mean runtime, instead of one for each pair.
    """

    pairs: int
    scenes: Callable[[Path], list[Scene]]
    write: Callable[[Path, str, Outcome, str], Sequence[Path]]
    mean_runtime: bool


BENCHMARKS = {
    "kitti": Benchmark(200, _kitti_scenes, _write_kitti, mean_runtime=True),
    "middlebury": Benchmark(30, _middlebury_scenes, _write_middlebury, mean_runtime=False),
}
