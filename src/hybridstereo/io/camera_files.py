"""Calibration files of a pair of cameras, of any kind we know."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hybridstereo.errors import InputError, shortened
from hybridstereo.io.cameras import CameraPair, MatrixReader
from hybridstereo.io.files import read_file
from hybridstereo.io.kitti_cameras import is_kitti, parse_kitti_cameras
from hybridstereo.io.opencv_cameras import opencv_cameras
from hybridstereo.io.ros_cameras import is_camera_info, ros_cameras
from hybridstereo.io.storage import MOST_BYTES, Node, parse_storage

_STRAIGHT, _EXCHANGED = (1, 2), (2, 1)


def read_cameras(
    calib: str | Path | Sequence[str | Path],
    calib_right: str | Path | None = None,
    cameras: tuple[int, int] | None = None,
) -> CameraPair:
    """Read the calibration of a pair; the contents tell which program wrote it.

    Parameters
    ----------
    calib
        OpenCV's YAML or XML, of several files all together (``intrinsics.yml`` and
        ``extrinsics.yml``); KITTI's ``calib_cam_to_cam.txt``; or ROS's camera_info of the left
        camera.
    calib_right
        ROS's camera_info of the right camera.
    cameras
        Which cameras of the file took the left and the right image: KITTI's numbers, by default 2
        and 3; for the others 1 and 2, or 2 and 1.

    Raises
    ------
    InputError
        If a file cannot be read, or does not describe two cameras.

    """
    paths = [calib] if isinstance(calib, str | Path) else list(calib)
    contents = [read_file(path, MOST_BYTES) for path in paths]
    name = " and ".join(map(str, paths))
    kitti = next((data for data in contents if is_kitti(data.decode("utf-8", "replace"))), None)
    if kitti is not None:
        if len(paths) > 1 or calib_right is not None:
            raise InputError("KITTI's calibration is one file", "Give that file alone as `calib`")
        return parse_kitti_cameras(kitti.decode("utf-8", "replace"), name, cameras)
    _refuse_middlebury(contents, name)
    if cameras is not None and cameras not in (_STRAIGHT, _EXCHANGED):
        raise InputError(
            f"{name} has no cameras {cameras[0]} and {cameras[1]}",
            "Only KITTI's files number their cameras otherwise than 1 and 2",
        )
    merged = MatrixReader(name, _merged(contents, [str(path) for path in paths]))
    if calib_right is not None:
        right_name = str(calib_right)
        values = parse_storage(read_file(calib_right, MOST_BYTES), right_name)
        right = MatrixReader(right_name, values)
        pair = ros_cameras((merged, right))
    elif is_camera_info(merged.values):
        raise InputError(
            f"{name} describes one camera only",
            "Give the file of the right camera as `calib_right`",
        )
    else:
        pair = opencv_cameras(merged)
    return pair.exchanged() if cameras == _EXCHANGED else pair


def _merged(contents: Sequence[bytes], names: Sequence[str]) -> dict[str, Node]:
    """The values of all files; what two of them state must be the same."""
    values: dict[str, Node] = {}
    for data, name in zip(contents, names, strict=True):
        for key, node in parse_storage(data, name).items():
            if values.setdefault(key, node) != node:
                raise InputError(
                    f"{name} states another {shortened(key)} than the file before it",
                    "Give the files of one calibration",
                )
    return values


def _refuse_middlebury(contents: Sequence[bytes], name: str) -> None:
    if any(data.lstrip().startswith(b"cam0") for data in contents):
        raise InputError(
            f"{name} is Middlebury's calib.txt, of a pair that is rectified already",
            "Leave out `calib`",
        )
