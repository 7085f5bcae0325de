"""A disparity map as a picture with a scale, as notebooks show it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .io.color import FARTHEST, NEAREST, colorize, palette, robust_range
from .io.images import encode_pixels
from .opencv import cv2

# Pixels of the picture: at most so wide, and what the scale beside the map takes.
_WIDEST = 960
_NARROWEST = 240  # smaller maps are enlarged, so that the scale can be read
_GAP, _BAR, _MARGIN = 10, 14, 6
_FONT, _FONT_SCALE = cv2.FONT_HERSHEY_SIMPLEX, 0.42
_INK, _PAPER = (60, 60, 60), 255
_LABELS = 5


def picture_with_scale(
    disparity: NDArray[np.floating],
    lo: float | None = None,
    hi: float | None = None,
    colormap: str = "turbo",
) -> NDArray[np.uint8]:
    """The map in colours, with a bar beside it that says which disparity each colour stands for.

    Parameters
    ----------
    disparity, lo, hi, colormap
        As for `hybridstereo.io.color.colorize`.

    Returns
    -------
    ndarray of uint8, (H', W', 3)
        RGB; a map wider than 960 pixels is reduced, one narrower than 240 enlarged.
    """
    valid = disparity[np.isfinite(disparity)]
    low, high = robust_range(valid) if valid.size else (0.0, 1.0)
    low, high = low if lo is None else lo, high if hi is None else hi
    if low >= high:
        high = low + 1.0
    picture = _fitted(colorize(disparity, low, high, colormap))
    height = max(picture.shape[0], 60)
    if picture.shape[0] < height:
        below = ((0, height - picture.shape[0]), (0, 0), (0, 0))
        picture = np.pad(picture, below, constant_values=_PAPER)
    return np.hstack([picture, _scale(height, low, high, colormap)])


def png_with_scale(disparity: NDArray[np.floating]) -> bytes:
    """`picture_with_scale` as a PNG file."""
    picture = picture_with_scale(disparity)
    return encode_pixels(np.ascontiguousarray(picture[..., ::-1]), ".png", "the picture")


def _fitted(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width, _ = picture.shape
    factor = min(_WIDEST / width, 1.0) if width > _NARROWEST else math.ceil(_NARROWEST / width)
    if factor == 1:
        return picture
    size = max(round(width * factor), 1), max(round(height * factor), 1)
    way = cv2.INTER_AREA if factor < 1 else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(picture, size, interpolation=way), np.uint8)


def _scale(height: int, low: float, high: float, colormap: str) -> NDArray[np.uint8]:
    """The bar and its numbers, the highest on top: near is up."""
    texts = [_text(x, high - low) for x in np.linspace(high, low, _LABELS)]
    sizes = [cv2.getTextSize(x, _FONT, _FONT_SCALE, 1)[0] for x in [*texts, "px"]]
    wide = max(x for x, _ in sizes)
    tall = max(y for _, y in sizes)
    canvas = np.full((height, _GAP + _BAR + 2 * _MARGIN + wide, 3), _PAPER, np.uint8)
    top, bottom = tall + 2 * _MARGIN, height - _MARGIN - tall // 2
    levels = np.linspace(NEAREST, FARTHEST, bottom - top).round().astype(int)
    canvas[top:bottom, _GAP : _GAP + _BAR] = palette(colormap)[levels][:, np.newaxis]
    left = _GAP + _BAR + _MARGIN
    cv2.putText(canvas, "px", (left, tall + 2), _FONT, _FONT_SCALE, _INK, 1, cv2.LINE_AA)
    room = max((bottom - top) // (_LABELS - 1), 1)
    every = 1 if room > tall + 3 else _LABELS - 1  # a low picture has the ends only
    for number, text in list(enumerate(texts))[::every]:
        y = top + round((bottom - top - 1) * number / (_LABELS - 1))
        cv2.line(canvas, (_GAP + _BAR, y), (_GAP + _BAR + 3, y), _INK, 1)
        place = (left, y + tall // 2)
        cv2.putText(canvas, text, place, _FONT, _FONT_SCALE, _INK, 1, cv2.LINE_AA)
    return canvas


def _text(value: float, span: float) -> str:
    """A number with as many digits as the span needs."""
    digits = 0 if span >= 20 else 1 if span >= 2 else 2
    return f"{value:.{digits}f}"
