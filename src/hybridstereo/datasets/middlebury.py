"""Middlebury's scenes of 2001 to 2021 and its benchmark v3: finding and reading them.

Each kind of download has its own names. A scene is a folder with the files of one of the rows of
`_LAYOUTS`; folders of scenes may lie anywhere below the root.
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
from hybridstereo.datasets.samples import Sample
from hybridstereo.errors import InputError
from hybridstereo.io.calib import Calibration, read_calibration
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import decode_pixels, read_bytes, read_pair
from hybridstereo.io.mask import read_mask

EXPECTED = (
    "Expected are scene folders, at most four levels down, with im0.png, im1.png and disp0GT.pfm or"
    " disp0.pfm (2014, 2021, MiddEval3), view1.png, view5.png and disp1.png (2005, 2006), or im2,"
    " im6 and disp2 (2001, 2003); see data/README.md"
)

_DEPTH = 4
# The test scenes of the benchmark have no truth. Illum1 and so on, below the scenes of 2005 and
# 2006, hold further exposures without one.
_SKIPPED = re.compile(r"test[QHF]|Illum\d|\..*")
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


_SIZES_2003: dict[int | None, int] = {1500: 1, 750: 2, 375: 4}
_LAYOUTS = (
    # MiddEval3, and what `hstereo synth` writes
    _Layout("im0.png", "im1.png", "disp0GT.pfm", "disp1GT.pfm"),
    # 2014, 2021
    _Layout("im0.png", "im1.png", "disp0.pfm", "disp1.pfm"),
    # 2005, 2006: the truth of all three sizes is in pixels of the full size
    _Layout("view1.png", "view5.png", "disp1.png", "disp5.png", encoding={1110: 1, 555: 2, 370: 3}),
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
        files, missing = _scene_files(folder, names)
        if files is not None:
            name = folder.name if folder == root else folder.relative_to(root).as_posix()
            samples.append(
                Sample(
                    name=name,
                    scene=f"middlebury/{scene_name(folder.name)}",
                    source="middlebury",
                    files=files.all(),
                    read=partial(_read, files),
                )
            )
        elif missing:
            warnings.append(f"{folder} is left out: {', '.join(missing)} missing")
    return samples, warnings


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

    def optional(name: str) -> Path | None:
        return folder / name if name in names else None

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
                optional(layout.right_truth),
                optional(layout.mask),
                optional(layout.calibration),
            ), []
        if len(missing) < (len(fewest) or len(required)):
            fewest = missing
    return None, fewest


def _read(files: _Files) -> StereoPair:
    left, right = read_pair(files.left, files.right)
    calibration = read_calibration(files.calibration) if files.calibration else Calibration()
    ndisp = calibration.ndisp
    if files.layout.encoding is not None:
        # Eight bits hold the values up to 255.
        ndisp = math.ceil(256 / _divisor(files, left.shape[0]))
    return build_pair(
        str(files.left.parent),
        left,
        right,
        _truth(files, files.truth, left.shape[0]),
        visible=None if files.mask is None else read_mask(files.mask),
        right_disparity=(
            None if files.right_truth is None else _truth(files, files.right_truth, left.shape[0])
        ),
        ndisp=ndisp,
        isint=bool(calibration.isint),
    )


def _truth(files: _Files, path: Path, height: int) -> Disparity:
    """Read the truth of one view."""
    if files.layout.encoding is None:
        return read_disparity(path)
    stored = decode_pixels(read_bytes(path), str(path))
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
