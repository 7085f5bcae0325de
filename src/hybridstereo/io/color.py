"""Disparity maps as pictures."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError
from hybridstereo.opencv import cv2

_OPENCV = {
    "turbo": cv2.COLORMAP_TURBO,
    "jet": cv2.COLORMAP_JET,
    "viridis": cv2.COLORMAP_VIRIDIS,
    "magma": cv2.COLORMAP_MAGMA,
    "inferno": cv2.COLORMAP_INFERNO,
    "plasma": cv2.COLORMAP_PLASMA,
}
COLORMAPS = ("kitti", "grey", *_OPENCV)
"""The names of the colour maps, each from far to near; "kitti" is that of its development kit."""

# The colours of KITTI's `disp_to_color.m` and their places, in thousandths of the range.
_KITTI_PLACES = (0, 114, 299, 413, 587, 701, 886, 1000)
_KITTI_COLORS = (
    (0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 1), (1, 1, 0), (1, 1, 1),
)  # fmt: skip
# The range leaves out this share of the pixels at either end: otherwise a single wrong match would
# squeeze the whole scene into a few colours.
_OUTLIER_PERCENT = 1.0
INVALID = 0
"""The level of invalid pixels."""
FARTHEST = 24
"""The level of the farthest pixels: lower ones look like invalid pixels, almost black."""
NEAREST = 255
"""The level of the nearest pixels."""
_DARKEST_GREY = 48


def colorize(
    disparity: NDArray[np.floating],
    lo: float | None = None,
    hi: float | None = None,
    colormap: str = "turbo",
) -> NDArray[np.uint8]:
    """Show a disparity map in colours, far to near; invalid pixels are black.

    Parameters
    ----------
    disparity
        (H, W); every value that is not finite counts as invalid.
    lo, hi
        The disparities that get the first and the last colour, as do those beyond. Default: the
        1st and the 99th percentile of the valid ones. Give both to compare several pictures.
    colormap
        One of `COLORMAPS`.

    Returns
    -------
    ndarray of uint8, (H, W, 3)
        R, G, B.

    Raises
    ------
    InputError
        If the colour map is unknown, or the range is empty or not finite.

    """
    return palette(colormap)[disparity_levels(disparity, lo, hi)]


def disparity_levels(
    disparity: NDArray[np.floating], lo: float | None = None, hi: float | None = None
) -> NDArray[np.uint8]:
    """Map each pixel to an entry of a `palette`.

    Parameters
    ----------
    disparity, lo, hi
        As for `colorize`.

    Returns
    -------
    ndarray of uint8, (H, W)
        `FARTHEST` to `NEAREST`, or `INVALID`.

    Raises
    ------
    InputError
        If the range is empty or not finite.

    """
    for end in (lo, hi):
        if end is not None and not math.isfinite(end):
            raise InputError(f"a colour range cannot end at {end}", hint="Give a finite number")
    if lo is not None and hi is not None and lo >= hi:
        raise InputError(
            f"the colour range from {lo:g} to {hi:g} is empty", hint="Give a larger upper end"
        )
    valid = np.isfinite(disparity)
    levels = np.full(disparity.shape, INVALID, np.uint8)
    if valid.any():
        # float64: the difference of two float32 disparities may exceed float32.
        values = disparity[valid].astype(np.float64)
        low, high = robust_range(values)
        low = low if lo is None else lo
        high = high if hi is None else hi
        if low < high:
            position = np.clip((values - low) / (high - low), 0, 1)
        else:  # all disparities equal, or all beyond the one end that was given
            position = 0.5 + 0.5 * np.sign(values - low)
        levels[valid] = FARTHEST + np.rint(position * (NEAREST - FARTHEST)).astype(np.uint8)
    return levels


def robust_range(disparity: NDArray[np.floating]) -> tuple[float, float]:
    """The 1st and the 99th percentile of disparities, all finite and at least one."""
    low, high = np.percentile(disparity, (_OUTLIER_PERCENT, 100 - _OUTLIER_PERCENT))
    return float(low), float(high)


def palette(colormap: str) -> NDArray[np.uint8]:
    """The colours of the 256 levels of a map; that of `INVALID` is black.

    Parameters
    ----------
    colormap
        One of `COLORMAPS`.

    Returns
    -------
    ndarray of uint8, (256, 3)
        R, G, B.

    Raises
    ------
    InputError
        If the colour map is unknown.

    """
    if colormap not in COLORMAPS:
        raise InputError(
            f"there is no colour map {colormap!r}", hint=f"Use one of {', '.join(COLORMAPS)}"
        )
    ramp = np.arange(256, dtype=np.uint8)
    if colormap == "kitti":
        places, colors = np.divide(_KITTI_PLACES, 1000), np.transpose(_KITTI_COLORS)
        channels = [np.interp(ramp / 255, places, channel) for channel in colors]
        rgb = np.rint(255 * np.stack(channels, axis=1)).astype(np.uint8)
    elif colormap == "grey":
        grey = np.rint(np.interp(ramp, (FARTHEST, NEAREST), (_DARKEST_GREY, 255)))
        rgb = np.repeat(grey[:, np.newaxis], 3, axis=1).astype(np.uint8)
    else:
        bgr = cv2.applyColorMap(ramp[:, np.newaxis], _OPENCV[colormap])
        rgb = np.asarray(bgr, np.uint8)[:, 0, ::-1].copy()
    rgb[INVALID] = 0
    return rgb
