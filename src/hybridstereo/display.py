"""A disparity map as a picture, with a scale that says which colour is which disparity."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .io.color import colorize, robust_range
from .io.images import encode_pixels
from .opencv import cv2
from .scalebar import with_scale_bar

# Pixels of the picture in a notebook: at most so wide.
_WIDEST = 960
_NARROWEST = 240  # smaller maps are enlarged, so that the scale can be read


def map_picture(
    disparity: NDArray[np.floating],
    color_range: tuple[float, float] | None = None,
    scale_bar: bool = False,
    colormap: str = "turbo",
    fit: bool = False,
) -> NDArray[np.uint8]:
    """The map in colours, with or without a bar that says which disparity each of them stands for.

    Parameters
    ----------
    disparity, colormap
        As for `hybridstereo.io.color.colorize`.
    color_range
        The disparities of the first and the last colour; None: those of the map, outliers left out.
    scale_bar
        Whether to draw the bar.
    fit
        Bring the map to a size that suits a notebook: one wider than 960 pixels is reduced, one
        narrower than 240 enlarged.

    Returns
    -------
    ndarray of uint8, (H', W', 3)
        R, G, B.
    """
    valid = disparity[np.isfinite(disparity)]
    low, high = color_range or (robust_range(valid) if valid.size else (0.0, 1.0))
    if not low < high:  # a map of one value
        low, high = low - 0.5, high + 0.5
    picture = colorize(disparity, lo=low, hi=high, colormap=colormap)
    if fit:
        picture = _fitted(picture)
    return with_scale_bar(picture, low, high, colormap) if scale_bar else picture


def png_with_scale(disparity: NDArray[np.floating]) -> bytes:
    """The picture with its bar as a PNG file, for a notebook."""
    picture = map_picture(disparity, scale_bar=True, fit=True)
    return encode_pixels(np.ascontiguousarray(picture[..., ::-1]), ".png", "the picture")


def _fitted(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width, _ = picture.shape
    factor = min(_WIDEST / width, 1.0) if width > _NARROWEST else math.ceil(_NARROWEST / width)
    if factor == 1:
        return picture
    size = max(round(width * factor), 1), max(round(height * factor), 1)
    way = cv2.INTER_AREA if factor < 1 else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(picture, size, interpolation=way), np.uint8)
