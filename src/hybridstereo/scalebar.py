"""A bar beside a picture of disparities that says which colour stands for which number."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .charts import INK, Canvas, text_width
from .io.color import FARTHEST, NEAREST, palette

# Heights of capitals, in pixels: a thirtieth of the picture, but legible on small and large ones.
_SMALLEST, _LARGEST, _OF_HEIGHT = 9, 96, 30
_MOST_MARKS = 8


def with_scale_bar(
    picture: NDArray[np.uint8], low: float, high: float, colormap: str = "turbo"
) -> NDArray[np.uint8]:
    """A picture of `io.color.colorize` with its scale to the right of it.

    Parameters
    ----------
    picture
        (H, W, 3), R, G, B.
    low, high
        The disparities of the first and of the last colour.
    colormap
        That of the picture.

    Returns
    -------
    ndarray of uint8, (H, W + the bar's width, 3)
        At least as high as two numbers.
    """
    size = min(max(picture.shape[0] // _OF_HEIGHT, _SMALLEST), _LARGEST)
    height = max(picture.shape[0], 8 * size)
    marks = marks_between(low, high, min(_MOST_MARKS, height // (4 * size)))
    words = [f"{mark:g}" for mark in marks]
    gap, bar = size, 2 * size
    width = math.ceil(3.5 * gap + bar + max((text_width(x, size) for x in words), default=0.0))
    canvas = Canvas(width, height)
    top, bottom = 1.5 * size, height - 1.5 * size
    colors = palette(colormap)[FARTHEST : NEAREST + 1]
    for level, color in enumerate(colors):
        ends = [bottom - (bottom - top) * x / len(colors) for x in (level + 1, level)]
        red, green, blue = map(int, color)
        canvas.box(gap, ends[0], gap + bar, ends[1], (red, green, blue))
    for mark, word in zip(marks, words, strict=True):
        y = bottom - (bottom - top) * (mark - low) / (high - low) if high > low else bottom
        canvas.box(gap + bar, y - size / 16, 1.5 * gap + bar, y + size / 16, INK)
        canvas.text(2 * gap + bar, y + size / 2, word, size)
    panel = canvas.finished()
    padded = np.full((height, picture.shape[1], 3), 255, np.uint8)
    padded[: picture.shape[0]] = picture
    return np.hstack([padded, panel])


def marks_between(low: float, high: float, most: int) -> list[float]:
    """Round numbers from ``low`` to ``high``, at most so many; the ends themselves are not marked.

    Examples
    --------
    >>> marks_between(3.2, 61.0, 8)
    [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    >>> marks_between(-0.5, 0.5, 4)
    [-0.5, 0.0, 0.5]
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / max(most, 1)))
    steps = (x * power for x in (1, 2, 5, 10, 20, 50))
    tolerance = 1e-9 * (high - low)
    for step in steps:
        first, last = math.ceil((low - tolerance) / step), math.floor((high + tolerance) / step)
        if last - first + 1 <= max(most, 1):
            return [step * k + 0.0 for k in range(first, last + 1)]
    return [low]
