"""A pair of ROS's camera_info files, ``left.yaml`` and ``right.yaml``, as its calibrator writes."""

from __future__ import annotations

from collections.abc import Sequence

from hybridstereo.errors import InputError, shortened
from hybridstereo.io.cameras import (
    CameraPair,
    Floats,
    LensCamera,
    MatrixReader,
    RectifiedViews,
    Size,
)
from hybridstereo.io.storage import Node

# As the calibrator calls them, then as messages do (ROS 1, ROS 2).
_KEYS = {
    "width": ("image_width", "width"),
    "height": ("image_height", "height"),
    "matrix": ("camera_matrix", "K", "k"),
    "distortion": ("distortion_coefficients", "D", "d"),
    "rotation": ("rectification_matrix", "R", "r"),
    "projection": ("projection_matrix", "P", "p"),
}
# ROS's names of lenses, and whether OpenCV has them among its fish-eyes.
_LENSES = {"plumb_bob": False, "rational_polynomial": False, "equidistant": True, "fisheye": True}
_METRE = 1000.0


def is_camera_info(values: dict[str, Node]) -> bool:
    """Whether values are those of one camera of ROS."""
    return all(any(key in values for key in _KEYS[part]) for part in ("matrix", "projection"))


def ros_cameras(readers: Sequence[MatrixReader]) -> CameraPair:
    """The pair that the left and the right file describe.

    Raises
    ------
    InputError
        If a file lacks something or states nonsense.

    """
    (left, R1, P1, left_size), (right, R2, P2, right_size) = map(_camera, readers)
    if left_size != right_size:
        raise InputError(
            f"{readers[0].name} is of images of {left_size[0]}x{left_size[1]} but "
            f"{readers[1].name} of {right_size[0]}x{right_size[1]}",
            "Both cameras must have been calibrated together",
        )
    return CameraPair.of_rectified(
        left, right, RectifiedViews((R1, R2), (P1, P2)), left_size, _METRE
    )


def _camera(reader: MatrixReader) -> tuple[LensCamera, Floats, Floats, Size]:
    keys = {}
    for part, names in _KEYS.items():
        found = next((name for name in names if name in reader.values), None)
        if found is None:
            raise InputError(
                f"{reader.name} lacks {names[0]}",
                "Give the files that ROS's camera_calibration wrote for the left and right camera",
            )
        keys[part] = found
    lens = reader.values.get("distortion_model", "plumb_bob")
    if not isinstance(lens, str) or lens not in _LENSES:
        raise InputError(
            f"{reader.name}: there is no distortion_model '{shortened(lens)}'",
            f"These are known: {', '.join(_LENSES)}",
        )
    width, height = (
        reader.pixels(keys[side], reader.vector(keys[side], 1)[0]) for side in ("width", "height")
    )
    camera = LensCamera(
        reader.camera_matrix(keys["matrix"]),
        reader.distortion(keys["distortion"], _LENSES[lens]),
        _LENSES[lens],
    )
    return (
        camera,
        reader.rotation(keys["rotation"]),
        reader.projection(keys["projection"]),
        (width, height),
    )
