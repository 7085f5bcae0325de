"""What methods are compared on: the scenes of a data set, or of a folder of truth maps."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from ..datasets import Dataset, Sample, StereoPair
from ..datasets.pair import NO_IMAGE, truth_pair
from ..errors import InputError
from ..io.calib import Calibration, read_calibration
from ..io.disparity import MAP_SUFFIXES, read_disparity
from ..io.images import read_image
from ..io.mask import read_mask


@dataclass(frozen=True)
class Scene:
    """A scene that has not been read yet.

    Attributes
    ----------
    name
        As in the tables.
    keys
        Names under which other programs may have stored its map, the most specific first.
    load
        Reads it; raises `InputError` if a file is unusable.
    """

    name: str
    keys: tuple[str, ...]
    load: Callable[[], StereoPair] = field(repr=False, compare=False)


def dataset_scenes(dataset: Dataset) -> list[Scene]:
    """The scenes of a data set, by the shortest names that are unique."""
    shortened = [sample.name.rpartition("/")[2] for sample in dataset.samples]
    unique = len(set(shortened)) == len(shortened)
    return [
        Scene(short if unique else sample.name, _keys(sample), sample.read)
        for short, sample in zip(shortened, dataset.samples, strict=True)
    ]


def _keys(sample: Sample) -> tuple[str, ...]:
    return sample.keys or tuple(dict.fromkeys([sample.name, sample.name.rpartition("/")[2]]))


def folder_scenes(truth: Path, masks: Path | None = None) -> list[Scene]:
    """The scenes of a folder of truth maps: files, or Middlebury's folders with disp0GT.pfm.

    Parameters
    ----------
    truth
        The folder.
    masks
        A folder of masks with the same names, or None; Middlebury's own masks are found without
        it.
    """
    if not os.path.isdir(truth):
        raise InputError(f"{truth} is not a folder", "Name the folder of the truth maps with `gt`")
    files = sorted(p for p in truth.iterdir() if p.suffix.lower() in MAP_SUFFIXES)
    scenes = [_file_scene(file, masks) for file in files]
    scenes += [_middlebury_scene(file, masks) for file in sorted(truth.glob("*/disp0GT.pfm"))]
    if not scenes:
        raise InputError(
            f"{truth} holds no disparity maps",
            f"Expected are files ({', '.join(MAP_SUFFIXES)}) or folders with disp0GT.pfm",
        )
    twice = sorted({s.name for s in scenes if sum(s.name == other.name for other in scenes) > 1})
    if twice:
        raise InputError(f"{truth} holds several truth maps named {twice[0]}", "Keep one of them")
    return scenes


def _file_scene(file: Path, masks: Path | None) -> Scene:
    mask = None if masks is None else _mask_of(masks, file.stem)
    return Scene(file.stem, (file.stem,), partial(load_files, file, mask))


def _middlebury_scene(file: Path, masks: Path | None) -> Scene:
    folder = file.parent
    own = folder / "mask0nocc.png"
    mask = own if os.path.isfile(own) else None
    if masks is not None:
        mask = _mask_of(masks, folder.name)
    return Scene(folder.name, (folder.name,), partial(load_files, file, mask))


def _mask_of(masks: Path, name: str) -> Path:
    path = masks / f"{name}.png"
    if not os.path.isfile(path):
        raise InputError(f"{path}, the mask of {name}, does not exist")
    return path


def load_files(truth: Path, mask: Path | None) -> StereoPair:
    """Read a truth map, its mask, and what lies beside it in Middlebury's layout."""
    disparity = read_disparity(truth)
    visible = None if mask is None else read_mask(mask)
    if visible is not None and visible.shape != disparity.shape:
        raise InputError(
            f"the mask {mask} is {visible.shape[1]}x{visible.shape[0]} but the truth {truth} is"
            f" {disparity.shape[1]}x{disparity.shape[0]}",
            "Both must belong to the same image",
        )
    calib, left = truth.parent / "calib.txt", truth.parent / "im0.png"
    calibration = read_calibration(calib) if os.path.isfile(calib) else Calibration()
    image = read_image(left) if os.path.isfile(left) else NO_IMAGE
    if image.shape[:2] != disparity.shape:
        image = NO_IMAGE  # of another resolution; it would only serve the report
    return truth_pair(
        disparity,
        visible,
        left=image,
        ndisp=calibration.ndisp,
        isint=bool(calibration.isint),
    )


def select_scenes(scenes: Sequence[Scene], wanted: Sequence[str], limit: int | None) -> list[Scene]:
    """The scenes whose name, or the end of it, matches a wanted pattern; at most ``limit``."""
    chosen = list(scenes)
    if wanted:
        for pattern in wanted:
            if not any(_matches(scene, pattern) for scene in scenes):
                known = ", ".join(scene.name for scene in scenes[:8])
                more = " and others" if len(scenes) > 8 else ""
                raise InputError(f"No scene is called '{pattern}'", f"There are {known}{more}")
        chosen = [s for s in scenes if any(_matches(s, pattern) for pattern in wanted)]
    return chosen[:limit]


def _matches(scene: Scene, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (scene.name, *scene.keys))


def find_file(folder: Path, keys: Sequence[str], suffixes: Sequence[str]) -> Path:
    """The file of a scene in a folder that another program wrote.

    Tried in this order: ``<key>.<suffix>``, Middlebury's ``<key>/disp0*.pfm`` (for maps), a single
    file with one of the suffixes in the folder ``<key>``.
    """
    for key in keys:
        found = [p for suffix in suffixes if os.path.isfile(p := folder / f"{key}{suffix}")]
        if not found and os.path.isdir(folder / key):
            inside = sorted(p for p in (folder / key).iterdir() if p.suffix.lower() in suffixes)
            named = [p for p in inside if re.fullmatch(r"disp0(?!GT).*", p.stem)]
            found = named or inside
        if len(found) > 1:
            names = ", ".join(str(p) for p in found)
            raise InputError(f"several files could be meant: {names}", "Keep one of them")
        if found:
            return found[0]
    raise InputError(
        f"{folder} has no file {keys[-1]}{suffixes[0]} ({', '.join(suffixes[1:])} would also do)",
        "The files must be named like the scenes",
    )
