"""The cameras of a rectified pair, as far as depth needs them, from any calibration we can read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import InputError
from .io.calib import Calibration, read_calibration
from .io.camera_files import read_cameras
from .io.cameras import CameraPair, Size
from .io.files import read_file
from .limits import BASELINE, DISPARITY, FOCAL
from .remapping import checked_offset

UNITS = {"mm": 1.0, "cm": 10.0, "m": 1000.0, "in": 25.4}
"""Millimetres in a unit of length."""
_METRE = UNITS["m"]
_MOST_BYTES = 1 << 22
_MIDDLEBURY = re.compile(rb"^\s*(cam0|cam1|doffs|baseline|ndisp)\s*=", re.MULTILINE)
# Pixels by which the height of resized images may miss that of the calibration, from rounding.
_ROUNDED = 1.0


@dataclass(frozen=True)
class StereoRig:
    """Two rectified cameras; see docs/model.md 16.

    Attributes
    ----------
    focal
        Focal length of both rectified cameras, in pixels.
    baseline
        Distance of the cameras, in metres.
    doffs
        Difference of the principal points in x, right minus left, in pixels.
    centre
        Principal point of the left camera, x and y in pixels; None: the middle of the image.
    focal_y
        Focal length in y where that differs.
    size
        Width and height of the images that these numbers are for; None: of any.
    unit_known
        Whether the unit of the baseline was stated; if not, it was taken for millimetres.

    Raises
    ------
    InputError
        If a number cannot be that of a camera; a baseline of zero shows no depth.
    """

    focal: float
    baseline: float
    doffs: float = 0.0
    centre: tuple[float, float] | None = None
    focal_y: float | None = None
    size: Size | None = None
    unit_known: bool = True

    def __post_init__(self) -> None:
        FOCAL.check(self.focal, "The focal length in pixels is")
        FOCAL.check(self.focal if self.focal_y is None else self.focal_y, "The focal length is")
        if self.baseline == 0:
            raise InputError(
                "The `baseline` is 0: both cameras are at one place, which shows no depth",
                "Give the distance of the cameras in metres",
            )
        BASELINE.check(self.baseline, "The `baseline` in metres is")
        DISPARITY.check(self.doffs, "`doffs` is")

    def for_size(self, width: int, height: int) -> StereoRig:
        """The rig for images of another size than those that were calibrated.

        Focal length, principal point and ``doffs`` are in pixels and scale with the images; the
        baseline does not.

        Raises
        ------
        InputError
            If the images have another shape, or the principal point lies outside them.
        """
        rig = self
        if self.size is not None and self.size != (width, height):
            rig = self._resized(_enlarged(self.size, (width, height)))
        if rig.centre is None:
            return replace(rig, centre=((width - 1) / 2, (height - 1) / 2), size=(width, height))
        x, y = rig.centre
        if not (0 <= x < width and 0 <= y < height):
            raise InputError(
                f"The images have {width}x{height} pixels, but the calibration has its centre at"
                f" {x:.0f}, {y:.0f}",
                "Use images of the size that was calibrated",
            )
        return replace(rig, size=(width, height))

    def _resized(self, factor: float) -> StereoRig:
        """Pixel centres are whole numbers: the first one's left edge, -0.5, stays where it is."""
        centre = None
        if self.centre is not None:
            centre = (
                (self.centre[0] + 0.5) * factor - 0.5,
                (self.centre[1] + 0.5) * factor - 0.5,
            )
        return replace(
            self,
            focal=self.focal * factor,
            focal_y=None if self.focal_y is None else self.focal_y * factor,
            doffs=self.doffs * factor,
            centre=centre,
        )


@dataclass(frozen=True)
class RigSource:
    """Where the cameras of a pair are described; arguments as for `read_rig`.

    Attributes
    ----------
    rig
        The cameras themselves, instead of files.
    """

    calib: tuple[str, ...] = ()
    calib_right: str | None = None
    cameras: tuple[int, int] | None = None
    unit: str | None = None
    rig: StereoRig | None = None

    def renamed(self, rename: Callable[[str], str]) -> RigSource:
        """The same with other names of the files."""
        right = None if self.calib_right is None else rename(self.calib_right)
        return replace(self, calib=tuple(map(rename, self.calib)), calib_right=right)

    def read(self) -> StereoRig:
        """The cameras; raises InputError as `read_rig` does."""
        if self.rig is not None:
            return self.rig
        return read_rig(self.calib, self.calib_right, self.cameras, self.unit)

    def stated_range(self, width: int, height: int) -> tuple[int, int] | None:
        """The first and the last disparity to search, if the files say so: only Middlebury's do.

        For images of a size; InputError if the calibration cannot be theirs.
        """
        if not is_middlebury(self.calib):
            return None
        stated = read_calibration(self.calib[0])
        found = stated.disparity_range
        if found is None or stated.size is None:
            return found
        factor = _enlarged(stated.size, (width, height))
        return math.floor(found[0] * factor), math.ceil(found[1] * factor)


def read_rig(
    calib: str | Path | Sequence[str | Path],
    calib_right: str | Path | None = None,
    cameras: tuple[int, int] | None = None,
    unit: str | None = None,
) -> StereoRig:
    """Read the cameras of a rectified pair; the contents tell which program wrote the file.

    Parameters
    ----------
    calib
        Middlebury's ``calib.txt``, which `hstereo rectify` also writes; KITTI's
        ``calib_cam_to_cam.txt``; OpenCV's YAML or XML with the projections ``P1`` and ``P2`` of the
        rectified cameras, in one file or several; or ROS's camera_info of the left camera.
    calib_right
        ROS's camera_info of the right camera.
    cameras
        Which cameras of the file, see `hybridstereo.io.camera_files.read_cameras`.
    unit
        Of the baseline, one of `UNITS`; None: what the format says, which is millimetres for
        Middlebury and metres for KITTI and ROS, and otherwise millimetres.

    Raises
    ------
    InputError
        If a file cannot be read, or does not describe the cameras of a rectified pair.
    """
    if unit is not None and unit not in UNITS:
        raise InputError(f"There is no unit '{unit}'", f"Use one of {', '.join(UNITS)}")
    millimetres = None if unit is None else UNITS[unit]
    paths = [calib] if isinstance(calib, str | Path) else list(calib)
    if is_middlebury(paths):
        return _of_calibration(read_calibration(paths[0]), str(paths[0]), millimetres)
    pair = read_cameras(paths, calib_right, cameras)
    return _of_cameras(pair, " and ".join(map(str, paths)), millimetres)


def is_middlebury(paths: Sequence[str | Path]) -> bool:
    """Whether a calibration is one file in Middlebury's format."""
    return len(paths) == 1 and bool(_MIDDLEBURY.search(read_file(paths[0], _MOST_BYTES)))


def _enlarged(calibrated: Size, size: Size) -> float:
    """By which factor images are larger than those that were calibrated."""
    factor = size[0] / calibrated[0]
    if abs(size[1] - calibrated[1] * factor) > _ROUNDED:
        raise InputError(
            f"The images have {size[0]}x{size[1]} pixels, but the calibration is for"
            f" {calibrated[0]}x{calibrated[1]}",
            "Use images as they were calibrated, or reduced by the same factor in both directions",
        )
    return factor


def _of_calibration(stated: Calibration, name: str, millimetres: float | None) -> StereoRig:
    if stated.cam0 is None or stated.baseline is None:
        missing = "cam0" if stated.cam0 is None else "baseline"
        raise InputError(
            f"{name} states no {missing}, which depth needs",
            "Add it to the file, or give `focal` and `baseline` instead",
        )
    doffs = stated.doffs
    if doffs is None:
        doffs = 0.0 if stated.cam1 is None else stated.cam1[0][2] - stated.cam0[0][2]
    return _stated_rig(
        name,
        stated.cam0[0][0],
        stated.baseline * (millimetres or 1.0) / _METRE,
        doffs,
        (stated.cam0[0][2], stated.cam0[1][2]),
        stated.cam0[1][1],
        stated.size,
    )


def _of_cameras(pair: CameraPair, name: str, millimetres: float | None) -> StereoRig:
    views = pair.rectified
    if views is None:
        raise InputError(
            f"{name} does not state the cameras of the rectified views, P1 and P2",
            "Rectify the pair with 'hstereo rectify', and give the calib.txt that it writes",
        )
    unit = millimetres or pair.millimetres
    P1, P2 = views.projections
    return _stated_rig(
        name,
        float(P1[0, 0]),
        float(-checked_offset(views)[0] * (unit or 1.0) / _METRE),
        float(P2[0, 2] - P1[0, 2]),
        (float(P1[0, 2]), float(P1[1, 2])),
        float(P1[1, 1]),
        views.size or pair.size,
        unit is not None,
    )


def _stated_rig(name: str, *numbers: Any) -> StereoRig:
    """The rig of these numbers; of wrong ones, the file is to blame, and not an argument."""
    try:
        return StereoRig(*numbers)
    except InputError as error:
        raise InputError(
            f"{name}: {error.message.replace('`', '')}",
            "Correct the file, or give `focal` and `baseline` instead",
        ) from error
