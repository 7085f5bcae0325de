"""Camera images: any common file format to float32 RGB in [0, 1], and uint8 RGB to a file."""

from __future__ import annotations

import os
import re
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError, OutputError
from hybridstereo.io.atomic import atomic_write, check_writable
from hybridstereo.io.pixels import Pixels, check_same_size, size_text, to_rgb, to_unit

_PNG_START = b"\x89PNG\r\n\x1a\n"
_JPEG_START = b"\xff\xd8\xff"
# The formats we decode. OpenCV knows more, but not the same ones in every version, and for some
# (PFM, HDR) it leaves a temporary file behind when the data are damaged.
_FORMATS = (
    (re.compile(re.escape(_PNG_START)), "PNG"),
    (re.compile(re.escape(_JPEG_START)), "JPEG"),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), "TIFF"),
    (re.compile(rb"BM"), "BMP"),
    (re.compile(rb"P[1-6]\s"), "PPM or PGM"),
)
# A JPEG marker that is neither stuffing (FF00), nor filling (FFFF), nor one without a length field.
_JPEG_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
_JPEG_END = 0xD9
_PNM_HEADER = re.compile(rb"P(?P<kind>[2356])" + rb"(?:\s|#[^\n]*\n)+(\d{1,9})" * 3)

_COPY_AGAIN = "Copy, download or export the file again"


def read_bytes(source: str | Path) -> bytes:
    """Read a whole file, or standard input if `source` is ``-``.

    Parameters
    ----------
    source
        A path or ``-``.

    Returns
    -------
    bytes
        The contents, at least one byte.

    Raises
    ------
    InputError
        If there is nothing to read: no such file, a folder, no permission, an empty file.

    """
    name = source_name(source)
    try:
        data = _read_standard_input() if is_standard_stream(source) else Path(source).read_bytes()
    except FileNotFoundError as error:
        raise InputError(
            f"{name} does not exist", hint="Check the spelling and the folder"
        ) from error
    except (OSError, ValueError) as error:
        if Path(source).is_dir():
            raise InputError(
                f"{name} is a folder, not a file", hint="Give a file in that folder"
            ) from error
        if isinstance(error, PermissionError):
            raise InputError(
                f"{name} cannot be read: permission denied", hint="Check the file's permissions"
            ) from error
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{name} cannot be read: {reason}") from error
    if not data:
        raise InputError(f"{name} is empty", hint=_COPY_AGAIN)
    return data


def is_standard_stream(source: str | Path) -> bool:
    """Whether `source` is ``-``, which stands for standard input or output."""
    return str(source) == "-"


def source_name(source: str | Path) -> str:
    """Name an input in an error message."""
    return "standard input" if is_standard_stream(source) else str(source)


def decode_pixels(data: bytes, name: str) -> Pixels:
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

    Returns
    -------
    Pixels
        With the stored type.

    Raises
    ------
    InputError
        If the data are not an image, or one that is damaged or cut short.

    """
    if not data:
        raise InputError(f"{name} is empty", hint=_COPY_AGAIN)
    file_format = next((known for start, known in _FORMATS if start.match(data)), None)
    if file_format is None:
        raise InputError(
            f"{name} is not an image that can be read",
            hint="Use PNG, JPEG, TIFF, BMP, PPM or PGM",
        )
    pixels: Pixels | None = None
    if _is_complete(data):
        try:
            with _quiet_native_stderr():
                pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        except cv2.error as error:
            raise InputError(
                f"{name} is damaged or larger than OpenCV can decode", hint=_COPY_AGAIN
            ) from error
    if pixels is None:
        raise InputError(
            f"{name} is a {file_format} file that is damaged or cut short", hint=_COPY_AGAIN
        )
    return pixels


def decode_image(data: bytes, name: str) -> NDArray[np.float32]:
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

    Returns
    -------
    ndarray of float32, (H, W, 3)
        R, G, B in [0, 1].

    Raises
    ------
    InputError
        If the data are not an image with one to four channels, or its values are unusable.

    """
    pixels = to_rgb(decode_pixels(data, name), name)
    white = white_level(data, pixels.itemsize) if pixels.dtype.kind == "u" else None
    return to_unit(pixels, white, name)


def read_image(source: str | Path) -> NDArray[np.float32]:
    """Read an image file, or standard input if `source` is ``-``.

    Parameters
    ----------
    source
        A path or ``-``; PNG, JPEG, TIFF, BMP, PPM or PGM. See `decode_image` for how 16-bit, grey,
        alpha and floating-point pixels are treated.

    Returns
    -------
    ndarray of float32, (H, W, 3)
        R, G, B in [0, 1].

    Raises
    ------
    InputError
        If the file cannot be read or is not a usable image.

    """
    return decode_image(read_bytes(source), source_name(source))


def read_pair(
    left: str | Path, right: str | Path
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Read the two images of a stereo pair.

    Parameters
    ----------
    left, right
        Paths; one of them may be ``-`` for standard input.

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
    left_image, right_image = read_image(left), read_image(right)
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


def _read_standard_input() -> bytes:
    """Read standard input to its end, unless it is a keyboard."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            "standard input is a terminal, not a file", hint="Pipe a file into the command"
        )
    return sys.stdin.buffer.read()


def white_level(data: bytes, bytes_per_value: int) -> int:
    """Return the integer that stands for full brightness.

    OpenCV ignores the maximum that a PPM or PGM header states, except in 8-bit text files, which
    it scales to 255. 10- and 12-bit cameras write such headers.
    """
    largest = 256**bytes_per_value - 1
    header = _PNM_HEADER.match(data)
    if header is None:
        return largest
    stated = int(header[4])
    scaled_by_opencv = header["kind"] in b"23" and stated <= 255
    return largest if scaled_by_opencv or not 0 < stated <= largest else stated


def _is_complete(data: bytes) -> bool:
    """Whether a PNG or JPEG file reaches its end marker; True for every other format.

    Some versions of OpenCV fill the missing rest of these two with grey and report success.
    """
    if data.startswith(_PNG_START):
        return _png_reaches_end(data)
    if data.startswith(_JPEG_START):
        return _jpeg_reaches_end(data)
    return True


def _png_reaches_end(data: bytes) -> bool:
    """Walk the chunks (length, kind, contents, checksum) up to IEND."""
    position = len(_PNG_START)
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        position += 12 + length
        if kind == b"IEND":
            return position <= len(data)
    return False


def _jpeg_reaches_end(data: bytes) -> bool:
    """Walk the segments up to the end marker.

    Searching for the marker alone would find the one of the thumbnail in the EXIF segment.
    """
    marker = _JPEG_MARKER.search(data, len(_JPEG_START) - 1)
    while marker is not None and data[marker.end() - 1] != _JPEG_END:
        length = int.from_bytes(data[marker.end() : marker.end() + 2], "big")
        marker = _JPEG_MARKER.search(data, marker.end() + length)
    return marker is not None


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
