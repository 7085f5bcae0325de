"""Tiles of a convolution: cut them out of an image, apply tanh.

Shared by the direct (``direct.py``) and the Winograd convolution (``winograd.py``); what happens in
between is a product of matrices, ``products.py``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import simd
from .jit import part, part_or_python

__all__ = ["Plan", "add_pixels", "cut_strip", "finish"]


class Plan(NamedTuple):
    """The parameters of a convolution, brought into the order of the loops."""

    taps: tuple[int, int, int, int]  # kh, kw, I, O
    panels: np.ndarray
    bias: np.ndarray
    activate: bool


# ---------------------------------------------------------------- strips of an image


@part(fastmath={"contract"})
def cut_strip(
    image: Any, y: Any, derivative: bool, top: int, left: int, rows: int, columns: int, strip: Any
) -> None:
    """strip[r, c] = image[top + r, left + c], 0 outside the image.

    Parameters
    ----------
    image, y
        (H, W, C).  With ``derivative``, the image is a gradient with respect to y = tanh(z),
        and the strip becomes the gradient with respect to z; otherwise y is not read.
    strip
        Flat, with room for ``rows * columns * C``.
    """
    height, width, channels = image.shape
    one = strip.dtype.type(1)  # a plain 1 would make the arithmetic double precision
    first = min(max(0, -left), columns) * channels
    last = max(min(columns, width - left) * channels, first)
    for r in range(rows):
        target = strip[r * columns * channels : (r + 1) * columns * channels]
        if top + r < 0 or top + r >= height or first == last:
            target[:] = 0
            continue
        target[:first] = 0
        target[last:] = 0
        inside = target[first:last]
        begin = left * channels + first
        source = image[top + r].reshape(-1)[begin : begin + inside.size]
        if derivative:
            value = y[top + r].reshape(-1)[begin : begin + inside.size]
            for j in range(inside.size):
                inside[j] = source[j] * (one - value[j] * value[j])
        else:
            for j in range(inside.size):  # compiles thirty times faster than inside[:] = source
                inside[j] = source[j]


@part_or_python
def add_pixels(strip: Any, rows: int, columns: int, line: int, totals: Any, dbias: Any) -> None:
    """dbias (C,) += the sum of the first ``columns`` pixels of the rows of a strip.

    Rows are ``line`` numbers apart.  ``totals``, C numbers or more, is overwritten: the sum of a
    tile has the precision of the strip, which is faster, and that of all tiles double precision.
    """
    channels = dbias.size
    for o in range(channels):
        totals[o] = 0
    for r in range(rows):
        for p in range(columns):
            pixel = strip[r * line + p * channels : r * line + (p + 1) * channels]
            for o in range(channels):
                totals[o] += pixel[o]
    for o in range(channels):
        dbias[o] += totals[o]


# Without error_model="numpy" the division in tanh could raise, which rules out vector instructions.
@part(fastmath={"contract"})
def finish(source: Any, activate: bool, target: Any) -> None:
    """``target[: source.size]`` = tanh(source) or source; two flat arrays that do not overlap."""
    if activate:
        for j in range(source.size):
            target[j] = simd.tanh(source[j])
    else:
        for j in range(source.size):
            target[j] = source[j]
