"""KITTI's ``calib_cam_to_cam.txt``: four cameras, as they are and rectified."""

from __future__ import annotations

import re

from hybridstereo.errors import InputError, shortened
from hybridstereo.io.cameras import (
    CameraPair,
    LensCamera,
    MatrixReader,
    RectifiedViews,
    check_agreement,
)
from hybridstereo.io.storage import Node

KITTI_CAMERAS = (2, 3)
"""The colour cameras, left and right; 0 and 1 are the grey ones."""
_LINE = re.compile(r"[ \t]*(?P<key>\w+):(?P<value>.*)")
_METRE = 1000.0


def is_kitti(text: str) -> bool:
    """Whether a text is such a file."""
    return re.search(r"^\s*K_0\d:", text, re.M) is not None


def parse_kitti_cameras(text: str, name: str, cameras: tuple[int, int] | None = None) -> CameraPair:
    """The pair of two of the cameras.

    Parameters
    ----------
    text
        The contents of the file.
    name
        What to call the file in an error message.
    cameras
        Numbers of the left and of the right camera; None: `KITTI_CAMERAS`.

    Raises
    ------
    InputError
        If the file lacks something of one of the cameras, or states nonsense.

    """
    values: dict[str, Node] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        pair = _LINE.fullmatch(line)
        if pair is None:
            raise InputError(
                f"{name}, line {number}: '{shortened(line.strip())}' is not 'key: numbers'"
            )
        if pair["key"] in values:
            raise InputError(
                f"{name}, line {number}: {shortened(pair['key'])} is given a second time"
            )
        values[pair["key"]] = list(pair["value"].split())
    reader = MatrixReader(name, values)
    numbers = KITTI_CAMERAS if cameras is None else cameras
    sides = [f"{number:02d}" for number in numbers]
    for side in sides:
        for key in ("S", "K", "D", "R", "T"):
            if f"{key}_{side}" not in values:
                raise InputError(
                    f"{name} lacks {key}_{side} of camera {int(side)}",
                    "Choose other `cameras`, or download the file again",
                )
    left, right = (
        LensCamera(reader.camera_matrix(f"K_{side}"), reader.distortion(f"D_{side}"))
        for side in sides
    )
    left_size, right_size = (reader.size(f"S_{side}") for side in sides)
    if left_size != right_size:
        raise InputError(f"{name} states cameras of different size", "Choose other `cameras`")
    # Both are given from camera 0.
    (R_left, T_left), (R_right, T_right) = (
        (reader.rotation(f"R_{side}"), reader.vector(f"T_{side}", 3)) for side in sides
    )
    rotation = R_right @ R_left.T
    return check_agreement(
        CameraPair(
            left,
            right,
            rotation,
            T_right - rotation @ T_left,
            left_size,
            _rectified(reader, sides),
            _METRE,
        ),
        name,
    )


def _rectified(reader: MatrixReader, sides: list[str]) -> RectifiedViews | None:
    """The rectification that the file states, if it does for both cameras."""
    keys = [f"{key}_rect_{side}" for key in ("R", "P", "S") for side in sides]
    if not all(key in reader.values for key in keys):
        return None
    sizes = [reader.size(key) for key in keys[4:]]
    if sizes[0] != sizes[1]:
        raise reader.error(keys[5], f"differs from {keys[4]}")
    R1, R2 = (reader.rotation(key) for key in keys[:2])
    P1, P2 = (reader.projection(key) for key in keys[2:4])
    return RectifiedViews((R1, R2), (P1, P2), sizes[0])
