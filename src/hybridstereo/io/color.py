"""Disparity maps as pictures."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError

COLORMAPS = {
    "turbo": cv2.COLORMAP_TURBO,
    "viridis": cv2.COLORMAP_VIRIDIS,
    "magma": cv2.COLORMAP_MAGMA,
    "inferno": cv2.COLORMAP_INFERNO,
    "plasma": cv2.COLORMAP_PLASMA,
    "jet": cv2.COLORMAP_JET,
}
"""The colour maps by name, each from far to near."""

# The range leaves out this share of the pixels at either end, or one wrong match would squeeze
# the whole scene into a few colours.
_OUTLIER_PERCENT = 1.0
# Most maps begin almost black, the colour of invalid pixels; start where they have some light.
_DARKEST_COLOR = 24


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
        A key of `COLORMAPS`.

    Returns
    -------
    ndarray of uint8, (H, W, 3)
        R, G, B.

    Raises
    ------
    InputError
        If the colour map is unknown, or the range is empty or not finite.

    """
    if colormap not in COLORMAPS:
        raise InputError(
            f"there is no colour map {colormap!r}", hint=f"Use one of {', '.join(COLORMAPS)}"
        )
    for end in (lo, hi):
        if end is not None and not math.isfinite(end):
            raise InputError(f"a colour range cannot end at {end}", hint="Give a finite number")
    if lo is not None and hi is not None and lo >= hi:
        raise InputError(
            f"the colour range from {lo:g} to {hi:g} is empty", hint="Give a larger upper end"
        )
    valid = np.isfinite(disparity)
    picture = np.zeros((*disparity.shape, 3), np.uint8)
    if valid.any():
        # float64: the difference of two float32 disparities may exceed float32.
        values = disparity[valid].astype(np.float64)
        low, high = np.percentile(values, (_OUTLIER_PERCENT, 100 - _OUTLIER_PERCENT))
        low = low if lo is None else lo
        high = high if hi is None else hi
        if low < high:
            position = np.clip((values - low) / (high - low), 0, 1)
        else:  # all disparities equal, or all beyond the one end that was given
            position = 0.5 + 0.5 * np.sign(values - low)
        index = _DARKEST_COLOR + np.rint(position * (255 - _DARKEST_COLOR)).astype(np.uint8)
        picture[valid] = _palette(colormap)[index]
    return picture


def _palette(colormap: str) -> NDArray[np.uint8]:
    """Return the 256 RGB colours of a map."""
    ramp = np.arange(256, dtype=np.uint8)[:, np.newaxis]
    bgr = np.asarray(cv2.applyColorMap(ramp, COLORMAPS[colormap]), np.uint8)
    return bgr[:, 0, ::-1]
