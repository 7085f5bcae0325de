"""The targets: bytes in; a `StereoError` or nothing out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np

from hybridstereo.batch.lists import listed_pairs
from hybridstereo.datasets.csvlist import find_samples
from hybridstereo.depth import point_cloud
from hybridstereo.errors import StereoError
from hybridstereo.io.calib import read_calibration
from hybridstereo.io.camera_files import read_cameras
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import read_image
from hybridstereo.io.mask import read_mask
from hybridstereo.io.volumes import read_volume
from hybridstereo.io.weights import WeightFile, read_weights, write_weights
from hybridstereo.models.convert import published_model
from hybridstereo.models.published import read_published_config, read_published_parameters
from hybridstereo.models.zoo import load_model
from hybridstereo.remapping import plan_remapping
from hybridstereo.rig import read_rig
from hybridstereo.stereo import Stereo
from hybridstereo.training.options import options_from_config
from hybridstereo.training.runfolder import RunFolder

from . import corpus, options
from .corpus import H, K, W
from .decisions import Decisions
from .mutate import sealed_png, sealed_zip

_MAX_PIXELS = 1 << 20  # keeps an image that decodes quick
_LONGEST_MESSAGE = 1000


@dataclass(frozen=True)
class Target:
    """A reader under attack.

    Attributes
    ----------
    seeds
        Valid inputs.
    run
        Takes an input; all that is not a `StereoError` is a finding.
    seal
        Corrects the checksums of an input, so that what lies behind them is reached.
    """

    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], Any]
    seal: Callable[[bytes], bytes] | None = None


def attempt(run: Callable[[bytes], Any], data: bytes) -> str | None:
    """Run a target; returns the message if the input was refused.

    Raises
    ------
    BaseException
        What the target raised and should not have.
    """
    try:
        run(data)
    except StereoError as error:
        message = str(error)
        assert "\n" not in message, message
        assert len(message) < _LONGEST_MESSAGE, message[:_LONGEST_MESSAGE]
        return message
    return None


@cache
def scratch() -> Path:
    """A folder for the inputs, in memory where there is such a file system."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and "TMPDIR" not in os.environ else None
    keeper = tempfile.TemporaryDirectory(prefix="hstereo-fuzz-", dir=parent)
    _KEPT.append(keeper)
    return Path(keeper.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def _file(name: str, data: bytes) -> Path:
    path = scratch() / name
    path.write_bytes(data)
    return path


def _reads(read: Callable[[Path], Any], name: str) -> Callable[[bytes], Any]:
    """Run a reader on a file of that name."""
    return lambda data: read(_file(name, data))


def _volume(suffix: str) -> Target:
    read = partial(read_volume, height=H, width=W, max_bytes=1 << 24)
    return Target(partial(corpus.volumes, suffix), _reads(read, f"costs{suffix}"))


def _cameras(data: bytes) -> None:
    """What is read is also used: odd numbers may do harm only then."""
    plan_remapping(read_cameras(_file("cameras", data)), (W, H))


def _ros_cameras(data: bytes) -> None:
    left = _file("left.yaml", corpus.ros_camera(right=False)[0])
    plan_remapping(read_cameras(left, _file("right.yaml", data)), (W, H))


def _rig(data: bytes) -> None:
    rig = replace(read_rig(_file("cameras", data)), size=None, centre=None)
    point_cloud(np.ones((H, W), np.float32), rig, np.ones((H, W, 3), np.float32))


def _pairs(data: bytes) -> None:
    for pair in islice(listed_pairs(_file("many.csv", data)), 100):
        pair.fill("{dir}/{name}{stem:.3}")


def _list(data: bytes) -> None:
    folder = scratch()
    if not (folder / "truth.pfm").exists():
        _file("left.png", corpus.images()[0])
        _file("right.png", corpus.images()[0])
        _file("truth.pfm", corpus.maps(".pfm")[0])
    samples, _ = find_samples(_file("pairs.csv", data))
    for sample in samples[:2]:
        sample.read()


def _parameters(data: bytes) -> None:
    published_model(read_published_parameters(_file("params.npz", data)), None, "params.npz")


# --- contents behind valid checksums ------------------------------------------------------------

_ODD_NUMBERS = (0, 1, -1, 2, 10**9, 2**63 - 1, -(2**63), 0.0, 0.5, -0.5, 1e-300, 1e9, 1e300, 3e38)
_ODD_VALUES = (*_ODD_NUMBERS, "", "crf", "cnn", "contrast", "x" * 5000, "\x1b[2J\n", True, False)
_ODD_SHAPES = (
    (1,), (4,), (3, 3), (1, 1, 1), (4, 3, 3, 3), (4, 4, 2, 2), (2, 3, 1, 1), (1, 1, 1, 1),
    (4, 5, 3, 3), (3, 3, 31, 1), (2, 2, 32, 32), (100, 4, 1, 2), (1, 1, 1, 1, 1), (4097, 3, 1, 1),
)  # fmt: skip
_TYPES = ("f4", "f4", "f8", "i8", "u8", "u1")


def _odd_contents(
    decisions: Decisions, config: dict[str, Any], tensors: dict[str, np.ndarray]
) -> None:
    """Change some attributes and arrays of a model file."""
    for name in list(config):
        if decisions.rarely():
            if decisions.rarely():
                del config[name]
            else:
                config[name] = decisions.chosen(_ODD_VALUES)
    for name in list(tensors):
        if decisions.rarely():
            change = decisions.below(4)
            if change == 0:
                tensors[name] = tensors[name].astype(decisions.chosen(_TYPES))
            elif change == 1:
                shape = decisions.chosen(_ODD_SHAPES)
                tensors[name] = np.full(shape, 0.5, decisions.chosen(_TYPES))
            elif change == 2:
                factor = decisions.chosen((0.0, -1.0, 1e9, 1e-9, 1e30))
                tensors[name] = tensors[name] * tensors[name].dtype.type(factor)
            else:
                del tensors[name]
    if decisions.rarely():
        tensors[decisions.chosen(("unary/7/weight", "other", "unary/0", "momentum/p1"))] = np.ones(
            decisions.chosen(_ODD_SHAPES)
        )


def _writes(path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> bool:
    """Whether our own writer takes such contents; what it refuses no reader will see."""
    try:
        write_weights(path, config, tensors)
    except (ValueError, TypeError, StereoError):
        return False
    return True


def _model_contents(data: bytes) -> None:
    """A model of odd contents is refused, or it runs."""
    decisions = Decisions(data)
    stored = corpus.model(pairwise=decisions.byte() % 2 == 0).to_file()
    config, tensors = dict(stored.config), dict(stored.tensors)
    _odd_contents(decisions, config, tensors)
    path = scratch() / "contents.h5"
    if _writes(path, config, tensors):
        stereo = Stereo(load_model(path), "cpu", threads=1)
        image = corpus.pixels()
        small = {"disparities": K, "iterations": 1, "min_disparity": 0.0, "step": 1.0}
        with np.errstate(all="ignore"):
            stereo.match(image, image, **small)  # type: ignore[arg-type]


@cache
def _whole_checkpoint() -> WeightFile:
    return read_weights(_file("whole.h5", corpus.checkpoints()[0]))


def _checkpoint_contents(data: bytes) -> None:
    decisions = Decisions(data)
    run = _empty_run()
    stored = _whole_checkpoint()
    config, tensors = dict(stored.config), dict(stored.tensors)
    _odd_contents(decisions, config, tensors)
    if _writes(run.last, config, tensors):
        run.load()
        _log_is_short(run)


def _empty_run() -> RunFolder:
    folder = scratch() / "run"
    folder.mkdir(exist_ok=True)
    run = RunFolder(folder)
    _log_of(run).write_bytes(corpus.logs()[0])
    return run


def _log_of(run: RunFolder) -> Path:
    return run.path / "log.jsonl"


def _log_is_short(run: RunFolder) -> None:
    size = _log_of(run).stat().st_size
    if size > 1 << 20:
        _log_of(run).unlink()
        raise AssertionError(f"the log has grown to {size} bytes")


def _checkpoint(data: bytes) -> None:
    run = _empty_run()
    run.last.write_bytes(data)
    run.load()
    _log_is_short(run)


def _run_config(data: bytes) -> None:
    run = _empty_run()
    (run.path / "config.json").write_bytes(data)
    options_from_config(run.config())


def _log(data: bytes) -> None:
    run = _empty_run()
    _log_of(run).write_bytes(data)
    run.log.entries()
    run.log.cut_back("joint", 3)


def _volume_contents(data: bytes) -> None:
    """HDF5 files of all kinds, whose checksums are right because the library wrote them."""
    decisions = Decisions(data)
    path = scratch() / "contents-volume.h5"
    shape = decisions.chosen(
        ((H, W, K), (K, H, W), (1, K, H, W), (H, W), (), (0,), (H, W, 0), (H, W, 5000), (1,) * 9)
    )
    kind = decisions.chosen(("f4", "f8", "f2", ">f4", "i4", "S5", "?", "c8", "V3"))
    with h5py.File(path, "w", libver=decisions.chosen(("latest", "earliest"))) as file:
        where = decisions.chosen(("costs", "other", "group/costs", "cöst"))
        packed: dict[str, Any] = {}
        if shape and 0 not in shape and decisions.rarely():
            packed = {"compression": decisions.chosen(("gzip", "lzf")), "fletcher32": True}
            packed["maxshape"] = (None,) * len(shape)
        if decisions.rarely():
            file["costs"] = h5py.Empty("f4")
        else:
            dataset = file.create_dataset(where, data=np.zeros(shape, kind), **packed)
            for name in ("min_disparity", "step"):
                if decisions.rarely():
                    dataset.attrs[name] = decisions.chosen(
                        (*_ODD_VALUES[:-4], np.zeros(0), np.ones(3), h5py.Empty("f8"), np.nan)
                    )
        if decisions.rarely():
            file["more"] = decisions.chosen(
                (h5py.SoftLink("/more"), h5py.ExternalLink("/etc/passwd", "/"), np.ones(2), "text")
            )
    read_volume(path, H, W, max_bytes=1 << 24)


_BYTES = bytes(range(256))
"""Decisions of all kinds; mutations lead to others."""


def _decisions() -> list[bytes]:
    rare = (bytes([8 * i + 7]) * 40 for i in range(0, 32, 5))
    return [b"", _BYTES, *rare, *(Random(i).randbytes(80) for i in range(20))]


TARGETS: dict[str, Target] = {
    "image": Target(
        corpus.images, _reads(partial(read_image, max_pixels=_MAX_PIXELS), "i.png"), sealed_png
    ),
    "mask": Target(
        corpus.images, _reads(partial(read_mask, max_pixels=_MAX_PIXELS), "m.png"), sealed_png
    ),
    **{
        f"map-{suffix[1:]}": Target(
            partial(corpus.maps, suffix),
            _reads(partial(read_disparity, max_pixels=_MAX_PIXELS), f"map{suffix}"),
            sealed_png if suffix == ".png" else None,
        )
        for suffix in (".pfm", ".npy", ".tif", ".png")
    },
    "calib": Target(corpus.calibrations, _reads(read_calibration, "calib.txt")),
    "rig": Target(lambda: [corpus.calibrations()[0], *corpus.kitti_cameras()], _rig),
    "pairs": Target(corpus.pair_lists, _pairs),
    "cameras-opencv": Target(corpus.opencv_cameras, _cameras),
    "cameras-kitti": Target(corpus.kitti_cameras, _cameras),
    "cameras-ros": Target(corpus.ros_camera, _ros_cameras),
    "cfg": Target(corpus.published_configs, _reads(read_published_config, "model.cfg")),
    "csv": Target(corpus.lists, _list),
    "npz": Target(corpus.published_parameters, _parameters, sealed_zip),
    "weights": Target(corpus.models, _reads(load_model, "model.h5")),
    "model-contents": Target(_decisions, _model_contents),
    "checkpoint": Target(corpus.checkpoints, _checkpoint),
    "checkpoint-contents": Target(_decisions, _checkpoint_contents),
    "run-config": Target(corpus.run_configs, _run_config),
    "run-log": Target(corpus.logs, _log),
    "volume-npy": _volume(".npy"),
    "volume-h5": _volume(".h5"),
    "volume-bin": _volume(".bin"),
    "volume-contents": Target(_decisions, _volume_contents),
    "cli": Target(_decisions, options.run_command),
}
"""All targets by name."""
