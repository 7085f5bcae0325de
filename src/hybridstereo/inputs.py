"""What a caller gives: images as paths or arrays, labels, a scale; checked before any work."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .errors import InputError
from .io.images import read_image, read_pair
from .io.pixels import ChannelOrder, as_image, check_channels, check_same_size
from .labels import LabelRange
from .pyramid import half_size

ImageLike = np.ndarray | str | os.PathLike[str]
"""An array, or the path of an image file (``-`` for standard input)."""

SCALES = (1, 2, 4)
"""By how much views may be reduced before they are matched."""

_PATH = (str, os.PathLike)


def given_image(
    image: ImageLike, name: str, channels: ChannelOrder, max_pixels: int | None = None
) -> np.ndarray:
    """One image (H, W, 3), float32 in [0, 1].

    Parameters
    ----------
    image
        What the caller gave.
    name
        What to call an array in a message: ``left``.
    channels
        Order of an array's colours.
    max_pixels
        A file whose header states more is refused.

    Raises
    ------
    InputError
        If it cannot be used.
    """
    check_channels(channels)
    if isinstance(image, _PATH):
        return read_image(os.fspath(image), max_pixels)
    return as_image(image, name, channels)


def given_pair(
    left: ImageLike,
    right: ImageLike,
    channels: ChannelOrder,
    dtype: np.dtype[Any],
    max_pixels: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Two images (H, W, 3) of one size, of type ``dtype``; the rest as for `given_image`."""
    check_channels(channels)
    if isinstance(left, _PATH) and isinstance(right, _PATH):
        images = read_pair(os.fspath(left), os.fspath(right), max_pixels)
    else:
        images = (
            given_image(left, "left", channels, max_pixels),
            given_image(right, "right", channels, max_pixels),
        )
        check_same_size(*images)
    return images[0].astype(dtype, copy=False), images[1].astype(dtype, copy=False)


def checked_labels(labels: Any) -> LabelRange:
    """The labels, if that is what they are.

    Raises
    ------
    InputError
        If they are something else.
    """
    if not isinstance(labels, LabelRange):
        raise InputError(
            f"The labels are a {type(labels).__name__}",
            "Give a LabelRange, or their number as `disparities`",
        )
    return labels


def check_scale(scale: Any, volumes: bool) -> None:
    """Refuse a scale that is none of `SCALES`, or with volumes, which would be of another size.

    Raises
    ------
    InputError
        Then.
    """
    if scale not in SCALES:
        raise InputError(f"The scale is {scale}", "Give 1, 2 (half size) or 4 (quarter size)")
    if scale > 1 and volumes:
        raise InputError(
            "There are no volumes of reduced views", "Leave out `scale` or the volumes"
        )


def reduced(image: np.ndarray, scale: int) -> np.ndarray:
    """An image at 1/``scale`` of its size, by means over squares."""
    while scale > 1:
        image, scale = half_size(image), scale // 2
    return image
