"""Middlebury's scenes of 2001 to 2021 and its benchmark v3: finding and reading them.

Each kind of download has its own names. A scene is a folder with the files of one of the rows of
`_LAYOUTS`; folders of scenes may lie anywhere below the root. The scenes of 2005 and 2006 also come
under several lights and exposures, ``Illum1/Exp0`` and so on, which share their folder's truth.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hybridstereo.datasets.pair import Disparity, StereoPair, build_pair
from hybridstereo.datasets.samples import Conditions, Sample
from hybridstereo.errors import InputError
from hybridstereo.io.calib import Calibration, read_calibration
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import read_pair, read_pixels
from hybridstereo.io.mask import read_mask
from hybridstereo.rectification import Camera

EXPECTED = (
    "Expected are scene folders, at most four levels down, with im0.png, im1.png and disp0GT.pfm or"
    " disp0.pfm (2014, 2021, MiddEval3), view1.png, view5.png and disp1.png (2005, 2006; the views"
    " may lie in Illum1/Exp0 and so on), or im2, im6 and disp2 (2001, 2003); see data/README.md"
)

_DEPTH = 4
# The test scenes of the benchmark have no truth. Illum1 and so on belong to the folder above.
_SKIPPED = re.compile(r"test[QHF]|Illum\d+|\..*")
_CONDITION = re.compile(r"Illum(\d+)/Exp(\d+)")
# v3 names further exposures (E), lightings (L) and rectifications (P) of a scene; 2003 its sizes.
_VARIANT = re.compile(r"-(im)?perfect$|(?<=[a-z0-9])[ELPFHQ]$")


@dataclass(frozen=True)
class _Layout:
    """Names of the files of a scene; those with a default are optional.

    ``encoding`` gives the number that 8-bit truth is divided by, for the height of the image, and
    under None for any other height; it is None where the truth is PFM.
    """

    left: str
    right: str
    truth: str
    right_truth: str = ""
    mask: str = "mask0nocc.png"
    calibration: str = "calib.txt"
    encoding: Mapping[int | None, int] | None = None


# The truth of all three sizes is in pixels of the full size.
_LAYOUT_2005 = _Layout(
    "view1.png", "view5.png", "disp1.png", "disp5.png", encoding={1110: 1, 555: 2, 370: 3}
)
_SIZES_2003: dict[int | None, int] = {1500: 1, 750: 2, 375: 4}
_LAYOUTS = (
    # MiddEval3, and what `hstereo synth` writes
    _Layout("im0.png", "im1.png", "disp0GT.pfm", "disp1GT.pfm"),
    # 2014, 2021
    _Layout("im0.png", "im1.png", "disp0.pfm", "disp1.pfm"),
    # 2005, 2006
    _LAYOUT_2005,
    # 2003: likewise
    _Layout("im2.png", "im6.png", "disp2.png", "disp6.png", encoding=_SIZES_2003),
    # 2001, and the PPM version of 2003
    _Layout("im2.ppm", "im6.ppm", "disp2.pgm", "disp6.pgm", encoding={**_SIZES_2003, None: 8}),
    # 2001, Tsukuba
    _Layout(
        "scene1.row3.col3.ppm",
        "scene1.row3.col4.ppm",
        "truedisp.row3.col3.pgm",
        encoding={None: 16},
    ),
)


@dataclass(frozen=True)
class _Files:
    """The files of one scene."""

    layout: _Layout
    left: Path
    right: Path
    truth: Path
    right_truth: Path | None
    mask: Path | None
    calibration: Path | None

    def all(self) -> tuple[Path, ...]:
        optional = (self.right_truth, self.mask, self.calibration)
        return (self.left, self.right, self.truth, *(path for path in optional if path))


def find_samples(root: Path) -> tuple[list[Sample], list[str]]:
    """Find the scenes below a folder.

    Parameters
    ----------
    root
        A scene, or a folder that holds scenes at most four levels down.

    Returns
    -------
    samples
        Of the scenes whose images and truth exist, named by their folders below the root.
    warnings
        What is missing, one sentence for each incomplete scene.

    """
    samples: list[Sample] = []
    warnings: list[str] = []
    for folder, names in _folders(root):
        name = folder.name if folder == root else folder.relative_to(root).as_posix()
        files, missing = _scene_files(folder, names)
        if files is not None:
            samples.append(_sample(name, files))
        lit, incomplete = _lit_samples(name, folder, names)
        samples += lit
        warnings += incomplete
        if missing and not lit:
            warnings.append(f"{folder} is left out: {', '.join(missing)} missing")
    return samples, warnings


def _sample(name: str, files: _Files, conditions: Conditions | None = None) -> Sample:
    return Sample(
        name=name,
        scene=f"middlebury/{scene_name(files.truth.parent.name)}",
        source="middlebury",
        files=files.all(),
        read=partial(_read, files),
        conditions=conditions,
    )


@dataclass(frozen=True, order=True)
class _Condition:
    """A light and an exposure, under which both views were taken."""

    light: int
    exposure: int
    folder: Path

    @property
    def name(self) -> str:
        return f"I{self.light}E{self.exposure}"


def _lit_samples(name: str, folder: Path, names: set[str]) -> tuple[list[Sample], list[str]]:
    """Two samples of a scene with several conditions, one with the same for both views.

    In training they draw from all conditions: one the same for both views, one different ones.
    What `Sample.read` reads is fixed, and the name says it: the middle exposure of the middle
    light; for different ones, the middle exposures of the first and the last light, or, of a
    single light, the middle and the last exposure.
    """
    layout = _LAYOUT_2005
    if layout.truth not in names:
        return [], []
    conditions, warnings = _conditions(folder)
    if not conditions:
        return [], warnings
    left, right = (
        tuple(condition.folder / view for condition in conditions)
        for view in (layout.left, layout.right)
    )

    def sample(suffix: str, first: _Condition, second: _Condition) -> Sample:
        files = _Files(
            layout,
            first.folder / layout.left,
            second.folder / layout.right,
            folder / layout.truth,
            _optional(folder, names, layout.right_truth),
            _optional(folder, names, layout.mask),
            None,
        )
        return _sample(f"{name}-{suffix}", files, Conditions(left, right, first != second))

    lights = sorted({condition.light for condition in conditions})
    exposures = {
        light: [condition for condition in conditions if condition.light == light]
        for light in lights
    }
    middle = {light: found[len(found) // 2] for light, found in exposures.items()}
    same = middle[lights[len(lights) // 2]]
    samples = [sample(same.name, same, same)]
    if len(conditions) > 1:
        first, last = middle[lights[0]], middle[lights[-1]]
        if first == last:
            ordered = exposures[lights[0]]
            first, last = ordered[(len(ordered) - 1) // 2], ordered[-1]
        samples.append(sample(f"{first.name}-{last.name}", first, last))
    return samples, warnings


def _conditions(folder: Path) -> tuple[list[_Condition], list[str]]:
    """The conditions of a scene, by light and exposure; what is missing from incomplete ones."""
    conditions: list[_Condition] = []
    warnings: list[str] = []
    for path in folder.glob("Illum*/Exp*/"):
        numbers = _CONDITION.fullmatch(path.relative_to(folder).as_posix())
        if numbers is None:
            continue
        views = (_LAYOUT_2005.left, _LAYOUT_2005.right)
        missing = [view for view in views if not (path / view).is_file()]
        if missing:
            warnings.append(f"{path} is left out: {', '.join(missing)} missing")
        else:
            conditions.append(_Condition(int(numbers[1]), int(numbers[2]), path))
    return sorted(conditions), sorted(warnings)


def scene_name(folder: str) -> str:
    """What a folder shows: the same for all versions of a scene.

    Parameters
    ----------
    folder
        For example ``Teddy``, ``teddyH``, ``ArtL``, ``MotorcycleE`` or ``Piano-perfect``.

    Returns
    -------
    str
        For example ``teddy``, ``art``, ``motorcycle``, ``piano``.

    """
    return _VARIANT.sub("", folder).lower()


def _folders(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield the root and the folders below it with the names of their files, in a fixed order."""
    for path, folders, names in os.walk(root, followlinks=True):
        folder = Path(path)
        yield folder, set(names)
        deep = len(folder.relative_to(root).parts) >= _DEPTH
        folders[:] = [] if deep else sorted(f for f in folders if not _SKIPPED.fullmatch(f))


def _scene_files(folder: Path, names: set[str]) -> tuple[_Files | None, list[str]]:
    """The files of a scene; or None and what is missing from the layout that fits best."""
    fewest: list[str] = []
    for layout in _LAYOUTS:
        required = (layout.left, layout.right, layout.truth)
        missing = [name for name in required if name not in names]
        if not missing:
            return _Files(
                layout,
                folder / layout.left,
                folder / layout.right,
                folder / layout.truth,
                _optional(folder, names, layout.right_truth),
                _optional(folder, names, layout.mask),
                _optional(folder, names, layout.calibration),
            ), []
        if len(missing) < (len(fewest) or len(required)):
            fewest = missing
    return None, fewest


def _optional(folder: Path, names: set[str], name: str) -> Path | None:
    return folder / name if name in names else None


def _read(files: _Files) -> StereoPair:
    left, right = read_pair(files.left, files.right)
    calibration = read_calibration(files.calibration) if files.calibration else Calibration()
    ndisp = calibration.ndisp
    if files.layout.encoding is not None:
        # Eight bits hold the values up to 255.
        ndisp = math.ceil(256 / _divisor(files, left.shape[0]))
    return build_pair(
        str(files.truth.parent),
        left,
        right,
        _truth(files, files.truth, left.shape[0]),
        visible=None if files.mask is None else read_mask(files.mask),
        right_disparity=(
            None if files.right_truth is None else _truth(files, files.right_truth, left.shape[0])
        ),
        ndisp=ndisp,
        isint=bool(calibration.isint),
        right_camera=_camera(calibration),
    )


def _camera(calibration: Calibration) -> Camera | None:
    """The right camera, if the calibration states it."""
    if calibration.cam1 is None:
        return None
    (focal, _, cx), (_, _, cy), _ = calibration.cam1
    return Camera(focal, cx, cy)


def _truth(files: _Files, path: Path, height: int) -> Disparity:
    """Read the truth of one view."""
    if files.layout.encoding is None:
        return read_disparity(path)
    stored = read_pixels(path)
    if stored.dtype != np.uint8 or stored.ndim != 2:
        raise InputError(
            f"{path} is not a disparity map as Middlebury stored it before 2014",
            hint="An 8-bit image with one channel is needed",
        )
    disparity = stored.astype(np.float32) / np.float32(_divisor(files, height))
    disparity[stored == 0] = np.inf
    return disparity


def _divisor(files: _Files, height: int) -> int:
    """What the stored 8-bit truth is divided by to give pixels of these images."""
    encoding = files.layout.encoding or {}
    divisor = encoding.get(height, encoding.get(None))
    if divisor is None:
        heights = ", ".join(str(known) for known in encoding)
        raise InputError(
            f"{files.left} has {height} rows, so the unit of its truth is unknown",
            hint=f"The original images have {heights}; list other versions in a CSV file with "
            "disparities in pixels",
        )
    return divisor
