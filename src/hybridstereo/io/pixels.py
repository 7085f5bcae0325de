"""Pixels as arrays: any layout that a file or a caller holds to float32 RGB in [0, 1]."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError

Pixels = NDArray[np.integer[Any] | np.floating[Any]]
"""What an image file stores: (H, W) or (H, W, C), in OpenCV's channel order (BGR or BGRA)."""

ChannelOrder = Literal["rgb", "bgr"]


def check_channels(channels: str) -> None:
    """Refuse an order of colours that does not exist."""
    if channels not in ("rgb", "bgr"):
        raise InputError(f"There is no channel order '{channels}'", hint="Use rgb or bgr")


def as_image(array: object, name: str, channels: ChannelOrder = "rgb") -> NDArray[np.float32]:
    """Bring an array that a caller holds to what `read_image` gives.

    Parameters
    ----------
    array
        uint8, uint16 or floats in [0, 1]; grey (H, W) or (H, W, 1), colour (H, W, 3), or with an
        alpha channel, which is dropped, (H, W, 4).
    name
        What to call the image in an error message.
    channels
        The order of colours: ``rgb``, or ``bgr`` as OpenCV has it.

    Returns
    -------
    ndarray of float32, (H, W, 3)
        R, G, B in [0, 1]; the array itself if it is that already.

    Raises
    ------
    InputError
        If the array is not an image; the message says what it is instead.

    Examples
    --------
    >>> as_image(np.full((2, 3), 255, np.uint8), "left").shape
    (2, 3, 3)
    """
    check_channels(channels)
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"The {name} image is a {type(array).__name__}",
            hint="Give a NumPy array or the path of a file",
        )
    what = f"The {name} image"
    shape = array.shape
    if array.ndim == 3 and shape[2] not in (1, 3, 4) and shape[0] in (1, 3, 4):
        raise InputError(
            f"{what} has the shape {shape}, with the channels first",
            hint="Give (height, width, channels), for example image.transpose(1, 2, 0)",
        )
    if array.ndim not in (2, 3) or (array.ndim == 3 and shape[2] not in (1, 3, 4)):
        raise InputError(
            f"{what} has the shape {shape}",
            hint="Give (height, width), or (height, width, channels) with 1, 3 or 4 channels",
        )
    if array.size == 0:
        raise InputError(f"{what} is empty, its shape is {shape}")
    if array.dtype == np.float32 and array.ndim == 3 and shape[2] == 3 and channels == "rgb":
        return to_unit(np.ascontiguousarray(array), None, what)
    # `to_rgb` takes OpenCV's order, as files are decoded.
    stored = array
    if channels == "rgb" and array.ndim == 3 and shape[2] >= 3:
        stored = array[..., 2::-1]
    return to_unit(to_rgb(stored, what), None, what)


def check_same_size(
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    names: tuple[str, str] | None = None,
) -> None:
    """Refuse a pair of images (H, W, 3) that differ in size; ``names`` are their files."""
    if left.shape == right.shape:
        return
    sizes = [size_text(image) for image in (left, right)]
    if names is not None:
        sizes = [f"{size} ({name})" for size, name in zip(sizes, names, strict=True)]
    raise InputError(
        f"the images differ in size: left is {sizes[0]} but right is {sizes[1]}",
        hint="Both must be rectified views with the same resolution",
    )


def to_rgb(pixels: Pixels, name: str) -> Pixels:
    """Bring grey, grey + alpha, BGR or BGRA pixels to a contiguous (H, W, 3) RGB array."""
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if channels > 4:
        raise InputError(f"{name} has {channels} channels", hint="Convert it to grey or RGB first")
    if channels <= 2:
        grey = pixels if pixels.ndim == 2 else pixels[..., 0]
        return np.repeat(grey[..., np.newaxis], 3, axis=2)
    return np.ascontiguousarray(pixels[..., 2::-1])


def to_unit(pixels: Pixels, white: int | None, name: str) -> NDArray[np.float32]:
    """Bring (H, W, 3) pixels to [0, 1]; ``white`` is the integer of full brightness, if stated."""
    if pixels.dtype.kind == "u" and pixels.itemsize <= 2:  # in either byte order
        level = 256**pixels.itemsize - 1 if white is None else white
        # A PGM file may hold values above the maximum that it states.
        return np.minimum(pixels.astype(np.float32) / np.float32(level), np.float32(1))
    if not np.issubdtype(pixels.dtype, np.floating):
        raise InputError(
            f"{name} has {pixels.dtype} pixels, which have no defined white level",
            hint="Convert it to 8 or 16 bit unsigned integers",
        )
    if not np.isfinite(pixels).all():
        raise InputError(
            f"{name} contains NaN or infinite values", hint="Replace them before matching"
        )
    low, high = pixels.min(), pixels.max()
    if low < 0 or high > 1:
        raise InputError(
            f"{name} is a floating-point image with values from {low:g} to {high:g}, not 0 to 1",
            hint="Divide it by its white level or convert it to 8 or 16 bit",
        )
    return pixels.astype(np.float32, copy=False)


def size_text(pixels: Pixels) -> str:
    """The size of an image as text, width first."""
    return f"{pixels.shape[1]}x{pixels.shape[0]}"
