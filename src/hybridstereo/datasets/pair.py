"""A stereo pair with its truth, and which of its pixels both views see."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError
from hybridstereo.features import Statistics, Window
from hybridstereo.rectification import Camera, Rectification
from hybridstereo.validity import view_difference

FloatImage = NDArray[np.float32]
Disparity = NDArray[np.float32]
Mask = NDArray[np.bool_]

# How far the truths of the two views may differ for one point. They are quantised (1/8 to 1/3 px)
# and compared at whole pixels, between which the disparity of a slanted surface changes.
_CONSISTENT = 1.0

NO_IMAGE: FloatImage = np.empty((0, 0, 3), np.float32)
"""Stands for an image that is not there."""


@dataclass(frozen=True, eq=False)
class StereoPair:
    """A rectified pair with its truth.

    Parameters
    ----------
    left, right
        (H, W, 3) float32 RGB in [0, 1]; `NO_IMAGE` where only maps are compared.
    disparity
        (H, W) float32, the truth for the left view, +inf where unknown: left pixel x shows the
        same point as right pixel ``x - disparity``.
    valid
        (H, W) bool, where the truth is known and the right view sees the point: what is trained
        on, and the region "non-occluded" of the benchmarks. Without `knows_occlusion`, simply
        where the truth is known.
    right_disparity, right_valid
        The same for the right view, whose pixel x matches left pixel ``x + right_disparity``; None
        if unknown.
    ndisp
        How many disparities from 0 to search by the data set's convention; None if it has none.
    isint
        Whether the truth is whole numbers, as Middlebury's ``calib.txt`` states.
    covers_occluded
        Whether the truth also covers points that the right view does not see. If not (KITTI's
        ``disp_noc``), there are no figures for "all" pixels.
    knows_occlusion
        Whether `valid` excludes occluded pixels.
    left_statistics, right_statistics
        Of the complete views at all sizes (`hybridstereo.pyramid.level_statistics`), if these are
        crops of them: the networks are to see a crop as they would see it within its view. None:
        those of the views themselves.
    window
        Where in the complete views these crops lie, for networks that are given coordinates. None:
        they are complete.
    right_camera
        As the data set states it; None if unknown.
    rectification
        How the right view was corrected; None: it is as it was read.

    """

    left: FloatImage
    right: FloatImage
    disparity: Disparity
    valid: Mask
    right_disparity: Disparity | None = None
    right_valid: Mask | None = None
    ndisp: int | None = None
    isint: bool = False
    covers_occluded: bool = True
    left_statistics: tuple[Statistics, ...] | None = None
    right_statistics: tuple[Statistics, ...] | None = None
    knows_occlusion: bool = True
    window: Window | None = None
    right_camera: Camera | None = None
    rectification: Rectification | None = None

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.disparity.shape[0]

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.disparity.shape[1]

    @property
    def has_left(self) -> bool:
        """Whether there is a left image."""
        return self.left.size > 0

    @property
    def has_images(self) -> bool:
        """Whether there are both images."""
        return self.has_left and self.right.size > 0

    def images(self) -> tuple[FloatImage, FloatImage]:
        """Left and right image, for methods that match them.

        Raises
        ------
        InputError
            If one is missing.

        """
        if not self.has_images:
            raise InputError("there are no images to match", "Evaluate a data set instead")
        return self.left, self.right

    @property
    def dmax(self) -> float:
        """The largest known disparity; 0 if none is known."""
        known = self.disparity[np.isfinite(self.disparity)]
        return float(known.max()) if known.size else 0.0

    @property
    def search_range(self) -> int:
        """How many disparities from 0 to search: `ndisp`, else enough for all known truth."""
        return self.ndisp if self.ndisp is not None else max(math.floor(self.dmax) + 1, 1)


def build_pair(
    name: str,
    left: FloatImage,
    right: FloatImage,
    disparity: Disparity,
    *,
    visible: Mask | None = None,
    right_disparity: Disparity | None = None,
    ndisp: int | None = None,
    isint: bool = False,
    covers_occluded: bool = True,
    right_camera: Camera | None = None,
) -> StereoPair:
    """Build a pair: check the sizes and find the pixels that both views see.

    Parameters
    ----------
    name
        What to call the pair in an error message.
    left, right, disparity, right_disparity, ndisp, isint, covers_occluded, right_camera
        As for `StereoPair`.
    visible
        (H, W) bool, where the right view sees the left pixel's point. None: where the truths of
        both views agree; without truth for the right view, where no nearer point of the left view
        hides it.

    Raises
    ------
    InputError
        If sizes differ.

    """
    size = left.shape[:2]
    parts = {"right image": right, "truth": disparity, "mask": visible}
    parts["right view's truth"] = right_disparity
    for part, values in parts.items():
        if values is not None and values.shape[:2] != size:
            raise InputError(
                f"{name}: the left image is {size[1]}x{size[0]} but the {part} is "
                f"{values.shape[1]}x{values.shape[0]}",
                hint="All files of a pair must have the same size",
            )
    right_valid = None
    if right_disparity is not None:
        right_valid = agree(right_disparity, disparity, direction=1)
    if visible is None:
        if right_disparity is None:
            visible = in_front(disparity)
        else:
            visible = agree(disparity, right_disparity, direction=-1)
    return StereoPair(
        left,
        right,
        disparity,
        np.isfinite(disparity) & visible,
        right_disparity,
        right_valid,
        ndisp,
        isint,
        covers_occluded,
        right_camera=right_camera,
    )


def truth_pair(
    disparity: Disparity,
    visible: Mask | None = None,
    *,
    left: FloatImage = NO_IMAGE,
    right: FloatImage = NO_IMAGE,
    ndisp: int | None = None,
    isint: bool = False,
    covers_occluded: bool = True,
) -> StereoPair:
    """Build a pair around a truth map; only a mask tells which pixels are occluded.

    Parameters
    ----------
    disparity, left, right, ndisp, isint, covers_occluded
        As for `StereoPair`.
    visible
        (H, W) bool, where the right view sees the left pixel's point; None if unknown.

    """
    known = np.isfinite(disparity)
    return StereoPair(
        left,
        right,
        disparity,
        known if visible is None else known & visible,
        ndisp=ndisp,
        isint=isint,
        covers_occluded=covers_occluded,
        knows_occlusion=visible is not None,
    )


def agree(disparity: Disparity, other: Disparity, direction: int) -> Mask:
    """Where the truths of both views describe the same point (left-right check).

    Parameters
    ----------
    disparity
        (H, W), of the view to check; not finite where unknown.
    other
        (H, W), of the other view.
    direction
        -1 if `disparity` belongs to the left view, whose pixel x matches ``x - d``; 1 if to the
        right view.

    """
    return np.abs(view_difference(disparity, other, direction)) <= _CONSISTENT


def in_front(disparity: Disparity) -> Mask:
    """Where no nearer point of the left view projects to the same place in the right view.

    For when only the left view has truth. Misses occlusion by points whose truth is unknown.

    Parameters
    ----------
    disparity
        (H, W), of the left view; not finite where unknown.

    """
    known = np.isfinite(disparity)
    finite = np.where(known, disparity, 0.0)
    column, inside = _inside(np.rint(np.arange(disparity.shape[1]) - finite), known)
    rows = np.broadcast_to(np.arange(disparity.shape[0])[:, np.newaxis], disparity.shape)
    nearest = np.full(disparity.shape, -np.inf)
    np.maximum.at(nearest, (rows[inside], column[inside]), disparity[inside])
    return inside & (np.take_along_axis(nearest, column, axis=1) - finite <= _CONSISTENT)


def _inside(columns: NDArray[np.floating], known: Mask) -> tuple[NDArray[np.intp], Mask]:
    """Columns as indices, and where they are known and lie in the image; 0 elsewhere."""
    inside = known & (columns >= 0) & (columns < columns.shape[1])
    return np.where(inside, columns, 0).astype(np.intp), inside
