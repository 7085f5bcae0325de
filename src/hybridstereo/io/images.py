"""Camera images: any common file format to float32 RGB in [0, 1], and uint8 RGB to a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError, OutputError
from hybridstereo.io.atomic import atomic_write, check_writable
from hybridstereo.io.files import COPY_AGAIN, is_standard_stream, read_bytes, source_name
from hybridstereo.io.headers import image_format, image_header, pnm_maximum
from hybridstereo.io.pixels import Pixels, check_same_size, size_text, to_rgb, to_unit
from hybridstereo.limits import pixel_limit
from hybridstereo.opencv import cv2

# Four channels of float64, or three numbers of a PPM file as text: no pixel takes more.
_MOST_BYTES_PER_PIXEL = 32
_MOST_HEADER_BYTES = 1 << 24  # colour profiles, thumbnails, comments


def byte_limit(max_pixels: int | None) -> int:
    """The size of the largest file that can hold so many pixels; None: as many as are allowed."""
    return _MOST_BYTES_PER_PIXEL * pixel_limit(max_pixels) + _MOST_HEADER_BYTES


def check_pixel_count(width: int, height: int, max_pixels: int | None, name: str) -> None:
    """Refuse a size that a header states, before there is an array of that size."""
    limit = pixel_limit(max_pixels)
    if width * height > limit:
        raise InputError(
            f"{name} states {width}x{height} pixels, more than the {limit} that are read",
            hint="Use a smaller one, or allow more with `max_pixels`",
        )


def decode_pixels(data: bytes, name: str, max_pixels: int | None = None) -> Pixels:
    """Decode an image file to the numbers that are stored in it.

    Orientation tags (EXIF) are deliberately not followed. Rectification and calibration refer to
    the rows of the sensor; turning an image by its tag would make the epipolar lines vertical, and
    the two images of a pair need not even carry the same tag.

    Parameters
    ----------
    data
        The contents of the file.
    name
        What to call the file in an error message.
    max_pixels
        An image whose header states more is refused, and not decoded; None: what
        `hybridstereo.limits.allow_pixels` says, 100 million by default.

    Returns
    -------
    Pixels
        With the stored type.

    Raises
    ------
    InputError
        If the data are not an image, or one that is too large, damaged or cut short.

    """
    if not data:
        raise InputError(f"{name} is empty", hint=COPY_AGAIN)
    file_format = image_format(data)
    if file_format is None:
        raise InputError(
            f"{name} is not an image that can be read",
            hint="Use PNG, JPEG, WebP, TIFF, BMP, PPM or PGM",
        )
    limit = pixel_limit(max_pixels)
    damaged = InputError(
        f"{name} is a {file_format} file that is damaged or cut short", hint=COPY_AGAIN
    )
    header = image_header(data)
    if header is None:
        raise damaged
    check_pixel_count(header.width, header.height, limit, name)
    if header.pixels > limit:
        raise InputError(f"{name} states tiles of {header.pixels} pixels, larger than any image")
    try:
        with _quiet_native_stderr():
            pixels: Pixels | None = cv2.imdecode(
                np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED
            )
    except cv2.error as error:
        raise InputError(
            f"{name} is damaged or larger than OpenCV can decode", hint=COPY_AGAIN
        ) from error
    # OpenCV and we must have read the same header, or the limit would mean nothing.
    if pixels is None or pixels.shape[:2] != (header.height, header.width):
        raise damaged
    return pixels


def read_pixels(path: str | Path, max_pixels: int | None = None) -> Pixels:
    """Read the numbers that an image file stores; see `decode_pixels`."""
    return decode_pixels(read_bytes(path, byte_limit(max_pixels)), source_name(path), max_pixels)


def decode_image(data: bytes, name: str, max_pixels: int | None = None) -> NDArray[np.float32]:
    """Decode an image file to RGB in [0, 1].

    Integers are divided by the largest value of their type (255 or 65535; the maximum that the
    header states for PPM and PGM). Floating-point images must already lie in [0, 1]: a maximum of
    200 could mean 200 of 255 or of 4095, and we do not guess. Grey becomes three equal channels; an
    alpha channel is dropped, not blended.

    Parameters
    ----------
    data
        The contents of the file.
    name
        What to call the file in an error message.
    max_pixels
        As for `decode_pixels`.

    Returns
    -------
    ndarray of float32, (H, W, 3)
        R, G, B in [0, 1].

    Raises
    ------
    InputError
        If the data are not an image with one to four channels, or its values are unusable.

    """
    pixels = to_rgb(decode_pixels(data, name, max_pixels), name)
    white = white_level(data, pixels.itemsize) if pixels.dtype.kind == "u" else None
    return to_unit(pixels, white, name)


def read_image(source: str | Path, max_pixels: int | None = None) -> NDArray[np.float32]:
    """Read an image file, or standard input if `source` is ``-``.

    Parameters
    ----------
    source
        A path or ``-``; PNG, JPEG, WebP, TIFF, BMP, PPM or PGM. See `decode_image` for how 16-bit,
        grey, alpha and floating-point pixels are treated.
    max_pixels
        As for `decode_pixels`.

    Returns
    -------
    ndarray of float32, (H, W, 3)
        R, G, B in [0, 1].

    Raises
    ------
    InputError
        If the file cannot be read or is not a usable image.

    """
    data = read_bytes(source, byte_limit(max_pixels))
    return decode_image(data, source_name(source), max_pixels)


def read_pair(
    left: str | Path, right: str | Path, max_pixels: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Read the two images of a stereo pair.

    Parameters
    ----------
    left, right
        Paths; one of them may be ``-`` for standard input.
    max_pixels
        Of each image; as for `decode_pixels`.

    Returns
    -------
    left, right : ndarray of float32, (H, W, 3)
        R, G, B in [0, 1], both of the same size.

    Raises
    ------
    InputError
        If an image is unusable or their sizes differ.

    """
    if is_standard_stream(left) and is_standard_stream(right):
        raise InputError(
            "only one of the two images can come from standard input",
            hint="Give the other one as a file",
        )
    left_image, right_image = read_image(left, max_pixels), read_image(right, max_pixels)
    check_same_size(left_image, right_image, (source_name(left), source_name(right)))
    return left_image, right_image


def encode_pixels(pixels: Pixels, suffix: str, name: str) -> bytes:
    """Encode an array as an image file.

    Parameters
    ----------
    pixels
        Of a type that the format can hold.
    suffix
        The format, for example ``.png``.
    name
        What to call the file in an error message.

    Returns
    -------
    bytes
        The contents of the file.

    Raises
    ------
    OutputError
        If the format cannot hold the array, for example a JPEG of more than 65500 columns.

    """
    try:
        with _quiet_native_stderr():
            done, encoded = cv2.imencode(suffix, pixels)
    except cv2.error:
        done = False
    if not done:
        raise OutputError(
            f"{name} cannot be written: "
            f"a {suffix} file cannot hold an image of {size_text(pixels)}",
            hint="Choose another format",
        )
    return bytes(encoded)


def check_image_output(path: str | Path) -> None:
    """Check that `write_image` will be able to write to `path`, before the work starts.

    Raises
    ------
    OutputError
        If the suffix is unknown, or the folder is missing or not writable.

    """
    if Path(path).suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise OutputError(
            f"{path} has no suffix that names an image format", hint="Use .png or .jpg"
        )
    check_writable(path)


def write_image(path: str | Path, rgb: NDArray[np.uint8]) -> None:
    """Write an image; the suffix picks the format.

    Parameters
    ----------
    path
        A name that ends in ``.png``, ``.jpg`` or ``.jpeg``.
    rgb
        (H, W, 3) of uint8.

    Raises
    ------
    OutputError
        If the suffix is unknown or the file cannot be written.

    """
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3:
        raise ValueError(f"expected uint8 of shape (H, W, 3), got {rgb.dtype} {rgb.shape}")
    check_image_output(path)
    suffix = Path(path).suffix.lower()
    encoded = encode_pixels(np.ascontiguousarray(rgb[..., ::-1]), suffix, str(path))
    with atomic_write(path) as temporary:
        temporary.write_bytes(encoded)


def white_level(data: bytes, bytes_per_value: int) -> int:
    """Return the integer that stands for full brightness.

    OpenCV ignores the maximum that a PPM or PGM header states, except in 8-bit text files, which
    it scales to 255. 10- and 12-bit cameras write such headers.
    """
    largest = 256**bytes_per_value - 1
    header = pnm_maximum(data)
    if header is None:
        return largest
    kind, stated = header
    scaled_by_opencv = kind in b"23" and stated <= 255
    return largest if scaled_by_opencv or not 0 < stated <= largest else stated


@contextmanager
def _quiet_native_stderr() -> Iterator[None]:
    """Keep C libraries from printing to standard error; our own error says it better.

    libpng ignores OpenCV's log level, so the file descriptor itself is redirected. That would also
    swallow what other Python threads print meanwhile, so nothing is done while there are any.
    """
    saved = None
    if threading.active_count() == 1:
        with suppress(OSError):  # the process may have no standard error
            saved = os.dup(2)
    if saved is None:
        yield
        return
    try:
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, 2)
        os.close(null_device)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
