"""Full rectification of a calibrated pair: lenses undistorted, cameras turned until rows agree.

`hybridstereo.rectification` corrects pairs that are rectified already, but not well; here images
come as the cameras took them.  docs/model.md 15 says what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .io.calib import Calibration
from .io.cameras import CameraPair, Floats, LensCamera, RectifiedViews, Size
from .limits import SHARE
from .opencv import cv2

# cv2.remap counts rows and columns of both images with 16 bits.
_LARGEST_SIDE = 32766
# Shares of the baseline by which a stated rectification may miss the direction of the rows: points
# then lie that share of their disparity too high or too low.  KITTI's cameras 2 and 3: 0.5 %.
_MOST_SLANTED = 0.02
_MOST_APART = 0.01  # pixels, of the rows of both projections
# Rectified images that are so much wider or higher than those taken are a mistake of the file, and
# could need any amount of memory.
_MOST_ENLARGED = 2
_MILLIMETRE = 1.0


@dataclass(frozen=True, eq=False)
class Remapping:
    """Where the pixels of a rectified pair come from, and the cameras that seem to have taken it.

    Parameters
    ----------
    maps
        Of the left and of the right view: columns and rows (H, W) of the image taken.
    calibration
        Of the rectified pair; the baseline in millimetres.
    unit_known
        Whether the unit of the baseline is known; if not, it was taken for millimetres.
    stated
        Whether the calibration itself states the rectification; if not, it was computed.

    """

    maps: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    calibration: Calibration
    unit_known: bool
    stated: bool

    def shown(self, size: Size) -> tuple[float, float]:
        """The share of pixels of each view that show something, of images of this size."""
        width, height = size
        left, right = (
            float(np.mean((x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)))
            for x, y in self.maps
        )
        return left, right

    def apply(self, side: int, image: NDArray[Any]) -> NDArray[Any]:
        """An image of the left (0) or the right (1) camera, rectified; black where it ends.

        It keeps its type and its channels; floating-point images stay in [0, 1].
        """
        x, y = self.maps[side]
        remapped = cv2.remap(
            image, x, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_CONSTANT, borderValue=0
        )
        # A cubic interpolation swings beyond the values of an edge; integers are clipped by OpenCV.
        return np.clip(remapped, 0, 1) if image.dtype.kind == "f" else remapped


def plan_remapping(
    cameras: CameraPair,
    size: Size,
    alpha: float | None = None,
    millimetres: float | None = None,
) -> Remapping:
    """Find out where the pixels of the rectified images come from.

    Parameters
    ----------
    cameras
        How the cameras were calibrated.
    size
        Width and height of the images; those of the calibration times any number.
    alpha
        0: the rectified images show only what both cameras saw of their whole area, without black
        margins; 1: every pixel taken is kept; or between.  None: the rectification that the
        calibration states, and 0 if it states none.
    millimetres
        In one unit of the calibration's translations; None: what the calibration says, else 1.

    Raises
    ------
    InputError
        If the calibration is not of images of this shape, or not of cameras side by side.

    """
    if alpha is not None:
        SHARE.check(alpha, "`alpha` is")
    if max(size) > _LARGEST_SIDE:
        raise InputError(
            f"The images have {size[0]}x{size[1]} pixels",
            f"At most {_LARGEST_SIDE} rows and columns can be rectified",
        )
    _check_standing(cameras)
    cameras = _resized(cameras, size)
    stated = cameras.rectified if alpha is None else None
    views = stated or _rectified(cameras, size, alpha or 0.0)
    offset = checked_offset(views)
    target = views.size or size
    if target[0] > _MOST_ENLARGED * size[0] or target[1] > _MOST_ENLARGED * size[1]:
        raise InputError(
            f"The calibration states rectified images of {target[0]}x{target[1]} pixels, for "
            f"images of {size[0]}x{size[1]}",
            "Check that the calibration is that of these cameras",
        )
    maps = tuple(
        _maps(camera, rotation, projection[:, :3], target)
        for camera, rotation, projection in zip(
            (cameras.left, cameras.right), views.rotations, views.projections, strict=True
        )
    )
    unit = millimetres or cameras.millimetres
    cam0, cam1 = (
        tuple((float(a), float(b), float(c)) for a, b, c in P[:, :3]) for P in views.projections
    )
    remapping = Remapping(
        maps,
        Calibration(
            cam0=cam0,
            cam1=cam1,
            doffs=cam1[0][2] - cam0[0][2],
            baseline=float(-offset[0] * (unit or _MILLIMETRE)),
            width=target[0],
            height=target[1],
        ),
        unit is not None,
        stated is not None,
    )
    if min(remapping.shown(size)) == 0:
        raise InputError(
            "The rectified images would show nothing of what the cameras took",
            "Check that the calibration is that of these cameras",
        )
    return remapping


def _check_standing(cameras: CameraPair) -> None:
    """Refuse cameras that do not stand side by side, left and right."""
    x, y, z = np.abs(cameras.translation)
    if max(x, y, z) == 0:
        raise InputError(
            "The calibration has no baseline: both cameras are at one place",
            "Calibrate the cameras as a pair, not each alone",
        )
    if z > max(x, y):
        raise InputError(
            "One camera stands behind the other", "Only cameras side by side can be rectified"
        )
    if y > x:
        raise InputError(
            "The cameras stand one above the other",
            "Turn images and calibration by 90 degrees, so that they stand side by side",
        )
    if cameras.translation[0] > 0:
        raise _exchanged()


def _exchanged() -> InputError:
    return InputError(
        "The camera of the right image stands left of the other one",
        "Exchange the images, or the cameras: their files, or the two numbers of `cameras`",
    )


def _resized(cameras: CameraPair, size: Size) -> CameraPair:
    """The cameras for images of another size than those that were calibrated."""
    if cameras.size is None or cameras.size == size:
        _check_centres(cameras, size)
        return replace(cameras, size=size)
    (width, height), (old_width, old_height) = size, cameras.size
    if width * old_height != height * old_width:
        raise InputError(
            f"The images have {width}x{height} pixels, but the calibration is for "
            f"{old_width}x{old_height}",
            "Use images as they were calibrated, or reduced by the same factor in both directions",
        )
    factor = float(Fraction(width, old_width))
    rectified = cameras.rectified
    if rectified is not None:
        P1, P2 = (_resized_matrix(P, factor) for P in rectified.projections)
        old = rectified.size
        rectified = replace(
            rectified,
            projections=(P1, P2),
            size=old and (max(round(old[0] * factor), 1), max(round(old[1] * factor), 1)),
        )
    left, right = (
        replace(camera, matrix=_resized_matrix(camera.matrix, factor))
        for camera in (cameras.left, cameras.right)
    )
    return replace(cameras, left=left, right=right, size=size, rectified=rectified)


def _check_centres(cameras: CameraPair, size: Size) -> None:
    """Refuse a calibration whose centres lie outside the images: it is of larger ones."""
    for camera in (cameras.left, cameras.right):
        centre = camera.matrix[:2, 2]
        if not ((centre >= 0) & (centre < size)).all():
            raise InputError(
                f"The images have {size[0]}x{size[1]} pixels, but the calibration has a centre at "
                f"{centre[0]:.0f}, {centre[1]:.0f}",
                "Use images of the size that was calibrated",
            )


def _resized_matrix(matrix: Floats, factor: float) -> Floats:
    """A camera matrix or a projection; pixel centres are whole numbers."""
    scaling = np.diag([factor, factor, 1.0])
    scaling[:2, 2] = (factor - 1) / 2
    return scaling @ matrix


def _rectified(cameras: CameraPair, size: Size, alpha: float) -> RectifiedViews:
    """Rotations and projections by OpenCV's ``stereoRectify``."""
    if cameras.left.fisheye or cameras.right.fisheye:
        raise InputError(
            "For fish-eye lenses the calibration has to state the rectification",
            "Leave out `alpha`, and give files with rectification and projection matrices",
        )
    unfit = InputError(
        "No rectification fits the calibration",
        "Check that its distortion coefficients are those of the lenses",
    )
    try:
        R1, R2, P1, P2, *_ = cv2.stereoRectify(
            cameras.left.matrix,
            cameras.left.distortion,
            cameras.right.matrix,
            cameras.right.distortion,
            size,
            cameras.rotation,
            cameras.translation.reshape(3, 1),
            flags=cv2.CALIB_ZERO_DISPARITY,
            alpha=alpha,
        )
    except cv2.error as error:
        raise unfit from error
    if not np.isfinite([P1, P2]).all() or P1[0, 0] <= 0:
        raise unfit
    return RectifiedViews(
        (np.asarray(R1, np.float64), np.asarray(R2, np.float64)),
        (np.asarray(P1, np.float64), np.asarray(P2, np.float64)),
    )


def checked_offset(views: RectifiedViews) -> Floats:
    """From the left to the right rectified camera, unless rows would not agree."""
    first, second = views.projections
    if np.abs(first[1, 1:3] - second[1, 1:3]).max() > _MOST_APART or (
        abs(first[0, 0] - second[0, 0]) > _MOST_APART
    ):
        raise InputError(
            "The projections that the calibration states differ in focal length or rows",
            "Rectify the cameras as a pair, or take the projections out of the file",
        )
    offset = views.offset
    slanted = np.abs(offset[1:]).max() > _MOST_SLANTED * abs(offset[0])
    if offset[0] > 0 and not slanted:
        raise _exchanged()
    if offset[0] == 0 or slanted:
        raise InputError(
            "The projections that the calibration states are not those of cameras side by side",
            "Rectify the cameras as a pair, or take the projections out of the file",
        )
    return offset


def _maps(
    camera: LensCamera, rotation: Floats, matrix: Floats, size: Size
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    undistort = cv2.fisheye if camera.fisheye else cv2
    x, y = undistort.initUndistortRectifyMap(
        camera.matrix, camera.distortion, rotation, matrix, size, cv2.CV_32FC1
    )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError(
            "The calibration sends pixels to infinity",
            "Check that its distortion coefficients are those of the lenses",
        )
    return x, y
