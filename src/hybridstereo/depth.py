"""Disparity -> depth -> points in space (docs/model.md 16)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .io.points import write_ply
from .limits import DEPTH
from .opencv import cv2
from .rig import StereoRig

# Pixels by which the disparities of neighbours on one surface may differ.  A surface that both
# cameras see changes by less than one pixel from column to column.
_LARGEST_STEP = 1.0
# The same as a share of the distance, for what is far: a step of one pixel at disparity 4 leads
# from 10 m to 13 m.
_LARGEST_SHARE = 0.1
# Pixels of the smallest surface that has points; fewer float in space as specks.
_SMALLEST_SURFACE = 20
_AXES = ("metres: x to the right, y down, z along the optical axis of the left camera",)


@dataclass(frozen=True, eq=False)
class PointCloud:
    """Points in the left camera's system: x to the right, y down, z along the optical axis.

    Attributes
    ----------
    positions
        float32 (N, 3), in metres.
    colors
        uint8 (N, 3), RGB.
    """

    positions: NDArray[np.float32]
    colors: NDArray[np.uint8]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the points as ``.ply``, binary and little-endian."""
        write_ply(os.fspath(path), self.positions, self.colors, _AXES)


def depth_map(disparity: NDArray[np.floating], rig: StereoRig) -> NDArray[np.float32]:
    """Distance along the optical axis, ``focal * baseline / (disparity + doffs)``.

    Parameters
    ----------
    disparity
        (H, W) in pixels; what is not finite is invalid.
    rig
        The cameras of these images, or of larger or smaller ones.

    Returns
    -------
    ndarray of float32, (H, W)
        In metres; NaN where the disparity is invalid, or not above ``-doffs``: no point in front
        of the cameras has it.

    Raises
    ------
    InputError
        If the rig is that of images of another shape.
    """
    height, width = disparity.shape
    fitted = rig.for_size(width, height)
    shifted = disparity.astype(np.float64) + fitted.doffs
    valid = np.isfinite(shifted) & (shifted > 0)
    depth = np.full(disparity.shape, np.nan)
    np.divide(fitted.focal * fitted.baseline, shifted, out=depth, where=valid)
    with np.errstate(over="ignore"):
        result = depth.astype(np.float32)
    result[np.isinf(result)] = np.nan
    return result


def on_surfaces(disparity: NDArray[np.floating], doffs: float) -> NDArray[np.bool_]:
    """Which pixels lie on a surface, and not where one ends and another one begins, bool (H, W).

    A pixel is left out if its disparity and that of one of its four neighbours differ by more than
    a pixel, or by more than a tenth, which is a tenth of the distance.  Points of such pixels float
    between the surfaces as trails.  A neighbour that is invalid is no reason.  What remains of
    surfaces with fewer than 20 connected pixels is left out as well.
    """
    shifted = np.where(np.isfinite(disparity), disparity, np.nan).astype(np.float32) + np.float32(
        doffs
    )
    kept = np.isfinite(shifted)
    for axis in (0, 1):
        first = shifted[:-1] if axis == 0 else shifted[:, :-1]
        second = shifted[1:] if axis == 0 else shifted[:, 1:]
        allowed = np.minimum(_LARGEST_STEP, _LARGEST_SHARE * np.minimum(first, second))
        jump = np.abs(first - second) > allowed  # False beside an invalid one, which is NaN
        for part in (slice(None, -1), slice(1, None)):
            index = (part, slice(None)) if axis == 0 else (slice(None), part)
            kept[index] &= ~jump
    _, surface, figures, _ = cv2.connectedComponentsWithStats(kept.astype(np.uint8), connectivity=4)
    large = figures[:, cv2.CC_STAT_AREA] >= _SMALLEST_SURFACE
    large[0] = False  # what is left out already
    result: NDArray[np.bool_] = large[surface]
    return result


def point_cloud(
    disparity: NDArray[np.floating],
    rig: StereoRig,
    image: NDArray[np.floating],
    max_depth: float | None = None,
) -> PointCloud:
    """The points of a disparity map, in the colours of the image.

    Pixels without a depth, and those where it jumps (`on_surfaces`), have no point.

    Parameters
    ----------
    disparity, rig
        As for `depth_map`.
    image
        The left image, (H, W, 3) RGB in [0, 1].
    max_depth
        Points that are farther away, in metres, are left out.

    Raises
    ------
    InputError
        If the rig or the image has another size, or ``max_depth`` is no distance.
    """
    height, width = disparity.shape
    if image.shape != (height, width, 3):
        raise InputError(
            f"The image has the shape {image.shape} but the map {disparity.shape}",
            "Give the left image of the pair, with three channels",
        )
    fitted = rig.for_size(width, height)
    depth = depth_map(disparity, fitted)
    kept = np.isfinite(depth) & on_surfaces(disparity, fitted.doffs)
    if max_depth is not None:
        DEPTH.check(max_depth, "`max_depth` is")
        kept &= depth <= max_depth
    y, x = np.nonzero(kept)
    z = depth[kept].astype(np.float64)
    centre_x, centre_y = fitted.centre or (0.0, 0.0)
    focal_y = fitted.focal if fitted.focal_y is None else fitted.focal_y
    positions = np.empty((z.size, 3), np.float32)
    positions[:, 0] = (x - centre_x) * z / fitted.focal
    positions[:, 1] = (y - centre_y) * z / focal_y
    positions[:, 2] = z
    colors = np.clip(np.rint(image[kept] * 255), 0, 255).astype(np.uint8)
    return PointCloud(positions, colors)
