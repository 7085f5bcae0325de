"""Masks as image files: which pixels of a pair count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError
from hybridstereo.io.images import read_pixels


def read_mask(path: Path, max_pixels: int | None = None) -> NDArray[np.bool_]:
    """Read a mask; True where it is white.

    White is the largest value of the pixel type (255, so not the 128 that marks occluded pixels in
    Middlebury's masks), or 1 in a file that holds nothing larger.

    Parameters
    ----------
    path
        An image; of a colour image the first stored channel is used.
    max_pixels
        A mask whose header states more is refused; None: as for `decode_pixels`.

    Raises
    ------
    InputError
        If the file is not an image of whole numbers.

    """
    pixels = read_pixels(path, max_pixels)
    if not np.issubdtype(pixels.dtype, np.integer):
        raise InputError(
            f"{path} holds {pixels.dtype} pixels, not a mask",
            hint="Use an 8-bit image with 255 where the pair is valid",
        )
    values = pixels if pixels.ndim == 2 else pixels[..., 0]
    white = 1 if values.max() == 1 else np.iinfo(values.dtype.str).max
    return np.asarray(values == white)
