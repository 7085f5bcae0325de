"""Results of OpenCV's ``stereoCalibrate`` and ``stereoRectify`` under the names they are given."""

from __future__ import annotations

import re

from hybridstereo.errors import InputError
from hybridstereo.io.cameras import (
    CameraPair,
    LensCamera,
    MatrixReader,
    RectifiedViews,
    Size,
    check_agreement,
)
from hybridstereo.io.storage import Node

# Compared in lower case, without signs: "Camera_Matrix_1" is "cameramatrix1".
_BASES = {
    "matrix": ("cameramatrix", "intrinsicmatrix", "intrinsics", "intrinsic", "k", "m", "mtx"),
    "distortion": (
        "distcoeffs", "distcoeff", "distcoefs", "distortioncoefficients", "distortioncoeffs",
        "distortion", "dist", "d",
    ),
    "rotation": ("r", "rect", "rectification", "rectificationmatrix"),
    "projection": ("p", "proj", "projection", "projectionmatrix"),
}  # fmt: skip
_SIDES = (("1", "2"), ("left", "right"), ("l", "r"), ("0", "1"))
_BETWEEN = {
    "R": ("r", "rot", "rotation", "rotationmatrix"),
    "T": ("t", "trans", "translation", "translationvector", "tvec"),
}
_SIZES = ("imagesize", "imgsize", "size", "calibimagesize")
_WIDTHS, _HEIGHTS = ("imagewidth", "width", "w"), ("imageheight", "height", "h")
_EXPECTED = (
    "An OpenCV file has K1, D1, K2, D2 with R and T, or with R1, R2, P1 and P2 "
    "(cameraMatrix1, distCoeffs1, M1, left and right and the like will do)"
)


def opencv_cameras(reader: MatrixReader) -> CameraPair:
    """The pair that a file describes.

    Parameters
    ----------
    reader
        Its values, under any of the common names; those of both cameras may lie in ``left`` and
        ``right``.

    Raises
    ------
    InputError
        If something is missing or nonsense.

    """
    reader = MatrixReader(reader.name, _flat(reader.values))
    names = {_plain(key): key for key in reversed(reader.values)}
    matrices = _of_both(names, "matrix")
    distortions = _of_both(names, "distortion")
    if matrices is None or distortions is None:
        missing = "camera matrices" if matrices is None else "distortion coefficients"
        raise InputError(f"{reader.name} lacks the {missing} of two cameras", _EXPECTED)
    left, right = (
        LensCamera(reader.camera_matrix(matrix), reader.distortion(distortion))
        for matrix, distortion in zip(matrices, distortions, strict=True)
    )
    size = _size(reader, names)
    rectified = _rectified_views(reader, names)
    R, T = (next((names[x] for x in _BETWEEN[key] if x in names), None) for key in "RT")
    if R is None or T is None:
        if rectified is None:
            raise InputError(
                f"{reader.name} says nothing about where the cameras stand: R and T are missing",
                _EXPECTED,
            )
        return CameraPair.of_rectified(left, right, rectified, size)
    pair = CameraPair(left, right, reader.rotation(R), reader.vector(T, 3), size, rectified)
    return check_agreement(pair, reader.name)


def _flat(values: dict[str, Node], prefix: str = "") -> dict[str, Node]:
    """The values with those of mappings beside the others: ``left_K`` for K of left."""
    flat: dict[str, Node] = {}
    for key, node in values.items():
        if isinstance(node, dict) and "data" not in node:
            flat |= _flat(node, f"{prefix}{key}_")
        else:
            flat[f"{prefix}{key}"] = node
    return flat


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())


def _of_both(names: dict[str, str], part: str) -> tuple[str, str] | None:
    """The names that a file gives to some part of the left and of the right camera."""
    for sides in _SIDES:
        for base in _BASES[part]:
            for form in ("{base}{side}", "{side}{base}", "{side}camera{base}"):
                first, second = (form.format(base=base, side=side) for side in sides)
                if first in names and second in names:
                    return names[first], names[second]
    return None


def _rectified_views(reader: MatrixReader, names: dict[str, str]) -> RectifiedViews | None:
    rotations, projections = (_of_both(names, part) for part in ("rotation", "projection"))
    if rotations is None or projections is None:
        return None
    R1, R2 = map(reader.rotation, rotations)
    P1, P2 = map(reader.projection, projections)
    return RectifiedViews((R1, R2), (P1, P2))


def _size(reader: MatrixReader, names: dict[str, str]) -> Size | None:
    """The size of the images, if it is stated."""
    for name in _SIZES:
        if name in names:
            return reader.size(names[name])
    found = [next((names[x] for x in side if x in names), None) for side in (_WIDTHS, _HEIGHTS)]
    if None in found:
        return None
    width, height = (reader.pixels(str(key), reader.vector(str(key), 1)[0]) for key in found)
    return width, height
