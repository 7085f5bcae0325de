"""Disparity maps as files: PFM, KITTI's 16-bit PNG, NPY and TIFF.

In memory an invalid pixel is +inf. PFM, NPY and TIFF store it as such; the PNG stores 0.
"""

from __future__ import annotations

import io
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError, OutputError, StereoError
from hybridstereo.io.atomic import atomic_write, check_writable
from hybridstereo.io.files import is_standard_stream, read_bytes, source_name, unknown_suffix
from hybridstereo.io.images import byte_limit, check_pixel_count, decode_pixels, encode_pixels
from hybridstereo.io.npy import read_npy_header
from hybridstereo.io.pixels import Pixels

_KITTI_SCALE = 256
_MAPS = "disparity maps"
_ANY_VALUE = "Write .pfm, .npy or .tif, which hold any disparity"
_WRITE_AGAIN = "Copy or write the file again"
# Three lines by definition; some writers end them as Windows does.
_PFM_HEADER = re.compile(
    rb"(?P<kind>P[Ff])\s+(?P<width>\d{1,9})\s+(?P<height>\d{1,9})\s+"
    rb"(?P<scale>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[ \t]*\r?\n"
)


def supported_suffix(
    path: str | Path, error: type[StereoError] = OutputError, kind: str = _MAPS
) -> str:
    """Return the suffix that picks the file format.

    Parameters
    ----------
    path
        The name of a disparity map, or ``-`` for a PFM file on standard input or output.
    error
        What to raise.
    kind
        What is in the file, for that.

    Returns
    -------
    str
        ``.pfm``, ``.png``, ``.npy``, ``.tif`` or ``.tiff``.

    Raises
    ------
    StereoError
        If the suffix is missing or not one of these.

    """
    if is_standard_stream(path):
        return ".pfm"
    suffix = Path(path).suffix.lower()
    if suffix not in _ENCODERS:
        raise unknown_suffix(path, kind, MAP_SUFFIXES, error)
    return suffix


def check_output(path: str | Path, kind: str = _MAPS) -> None:
    """Check that `write_disparity` will be able to write to `path`, before the work starts.

    Parameters
    ----------
    path
        The name of the file, or ``-`` for standard output.
    kind
        What is written, for a message.

    Raises
    ------
    OutputError
        If the suffix is unknown, the folder is missing or not writable, or standard output is
        a terminal, which would show the binary data as garbage.

    """
    supported_suffix(path, kind=kind)
    if not is_standard_stream(path):
        check_writable(path)
    elif sys.stdout is None or sys.stdout.isatty():
        raise OutputError(
            "standard output is a terminal, which cannot show a disparity map",
            hint="Redirect it to a file or pipe it into another command",
        )


def write_disparity(path: str | Path, disparity: NDArray[np.floating]) -> None:
    """Write a disparity map; the suffix picks the format.

    ======================  ====================================================================
    ``.pfm``, ``-``         little-endian float32, rows bottom-up
    ``.png``                KITTI: 16-bit grey, 256 times the disparity, fraction cut off, 0 for
                            invalid. A valid disparity below 1/256 becomes 1/256, as KITTI's own
                            program writes it.
    ``.npy``                float32 (H, W)
    ``.tif``, ``.tiff``     float32, one channel
    ======================  ====================================================================

    Parameters
    ----------
    path
        The name of the file, or ``-`` for standard output.
    disparity
        (H, W); every value that is not finite counts as invalid.

    Raises
    ------
    OutputError
        If the suffix is unknown, the format cannot hold the values, or the file cannot be
        written.

    """
    check_output(path)
    encode = _ENCODERS[supported_suffix(path)]
    _write_bytes(path, encode(_normalised(disparity), str(path)))


def read_disparity(path: str | Path, max_pixels: int | None = None) -> NDArray[np.float32]:
    """Read a disparity map; the suffix tells the format.

    Parameters
    ----------
    path
        A PFM, 16-bit PNG (KITTI), NPY or floating-point TIFF file, or ``-`` for a PFM file on
        standard input.
    max_pixels
        A map whose header states more is refused, and not decoded; None: as for `decode_pixels`.

    Returns
    -------
    ndarray of float32, (H, W)
        +inf where invalid, that is NaN or infinite, or 0 in a PNG file.

    Raises
    ------
    InputError
        If the file cannot be read, is damaged or does not hold a disparity map.

    """
    decode = _DECODERS[supported_suffix(path, InputError)]
    data = read_bytes(path, byte_limit(max_pixels))
    return _normalised(decode(data, source_name(path), max_pixels))


def _normalised(values: Pixels) -> NDArray[np.float32]:
    """Copy to float32 with +inf for everything that is not finite."""
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"expected a disparity map of shape (H, W), got {values.shape}")
    with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite, hence invalid
        disparity = values.astype(np.float32)
    disparity[~np.isfinite(disparity)] = np.inf
    return disparity


def _write_bytes(path: str | Path, data: bytes) -> None:
    """Write to a file, whole or not at all, or to standard output."""
    if not is_standard_stream(path):
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)
        return
    try:
        write_all(sys.stdout.buffer, data)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        # The interpreter flushes once more when it exits and would complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError("the reader of standard output stopped before the end") from error
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror}") from error


def write_all(stream: BinaryIO, data: bytes) -> None:
    """Write everything: an unbuffered stream (PYTHONUNBUFFERED) may accept only a part at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def _encode_pfm(disparity: NDArray[np.float32], name: str) -> bytes:
    height, width = disparity.shape
    return b"Pf\n%d %d\n-1.0\n" % (width, height) + disparity[::-1].astype("<f4").tobytes()


def _decode_pfm(data: bytes, name: str, max_pixels: int | None) -> Pixels:
    header = _PFM_HEADER.match(data)
    if header is None:
        raise InputError(f"{name} has no valid PFM header", hint=_WRITE_AGAIN)
    if header["kind"] == b"PF":
        raise InputError(
            f"{name} is a PFM file with three channels, not a disparity map",
            hint="Give a file whose first line is Pf",
        )
    # The sign tells the byte order. The magnitude describes the brightness of pictures and is
    # not applied: disparities are stored in pixels. (OpenCV's reader would divide by it.)
    scale = float(header["scale"])
    if scale == 0:
        raise InputError(f"{name} states the PFM scale 0, so its byte order is unknown")
    shape = int(header["height"]), int(header["width"])
    dtype = np.dtype("<f4" if scale < 0 else ">f4")
    check_pixel_count(shape[1], shape[0], max_pixels, name)
    return _array_from(data[header.end() :], shape, dtype, name)[::-1]


def sixteen_bit(disparity: NDArray[np.float32], name: str) -> NDArray[np.uint16]:
    """KITTI's 16-bit numbers: 256 times the disparity, fraction cut off; 0 is invalid.

    Raises
    ------
    OutputError
        If a disparity is negative, or 256 and more; ``name`` is that of the output.

    """
    scaled = np.where(np.isfinite(disparity), disparity, np.float32(0)) * np.float64(_KITTI_SCALE)
    if scaled.min() < 0:
        raise OutputError(
            f"{name} cannot hold negative disparities (the lowest is "
            f"{scaled.min() / _KITTI_SCALE:g}): 16 bits have no sign",
            hint=_ANY_VALUE,
        )
    if scaled.max() >= np.iinfo(np.uint16).max + 1:
        raise OutputError(
            f"{name} cannot hold disparities of 256 and more (the highest is "
            f"{scaled.max() / _KITTI_SCALE:g}): 16 bits store 256 times the disparity",
            hint=_ANY_VALUE,
        )
    stored = np.where(np.isfinite(disparity), np.maximum(scaled, 1.0), 0.0)
    return stored.astype(np.uint16)


def _encode_png(disparity: NDArray[np.float32], name: str) -> bytes:
    return encode_pixels(sixteen_bit(disparity, name), ".png", name)


def _decode_png(data: bytes, name: str, max_pixels: int | None) -> Pixels:
    stored = decode_pixels(data, name, max_pixels)
    if stored.ndim != 2 or stored.dtype != np.uint16:
        raise InputError(
            f"{name} is not a disparity map as KITTI stores it",
            hint="A 16-bit PNG with one channel is needed; colour pictures hold no disparities",
        )
    return np.where(stored == 0, np.float32(np.inf), stored.astype(np.float32) / _KITTI_SCALE)


def _encode_npy(disparity: NDArray[np.float32], name: str) -> bytes:
    # Into memory first: np.save to a full disk raises an error that does not say so.
    stream = io.BytesIO()
    np.save(stream, disparity, allow_pickle=False)
    return stream.getvalue()


def _decode_npy(data: bytes, name: str, max_pixels: int | None) -> Pixels:
    stream = io.BytesIO(data)
    shape, columns_first, dtype = read_npy_header(stream, name)
    if len(shape) != 2 or dtype.kind not in "fiu":
        raise InputError(
            f"{name} holds {dtype} of shape {shape}, not a disparity map",
            hint="A two-dimensional array of real numbers is needed",
        )
    check_pixel_count(shape[1], shape[0], max_pixels, name)
    values = _array_from(
        data[stream.tell() :], shape[::-1] if columns_first else shape, dtype, name
    )
    return values.T if columns_first else values


def _encode_tiff(disparity: NDArray[np.float32], name: str) -> bytes:
    return encode_pixels(disparity, ".tiff", name)


def _decode_tiff(data: bytes, name: str, max_pixels: int | None) -> Pixels:
    stored = decode_pixels(data, name, max_pixels)
    if stored.ndim != 2 or not np.issubdtype(stored.dtype, np.floating):
        raise InputError(
            f"{name} holds {stored.dtype} of shape {stored.shape}, not a disparity map",
            hint="A floating-point TIFF with one channel is needed",
        )
    return stored


def _array_from(
    data: bytes, shape: tuple[int, ...], dtype: np.dtype[np.generic], name: str
) -> Pixels:
    """View raw data as an array; a header that does not match them allocates nothing."""
    expected = math.prod(shape) * dtype.itemsize
    if min(shape) < 1:
        raise InputError(f"{name} states an empty size ({shape[1]}x{shape[0]})", hint=_WRITE_AGAIN)
    if len(data) != expected:
        verb = "is cut short" if len(data) < expected else "has data after its end"
        raise InputError(
            f"{name} {verb}: {shape[1]}x{shape[0]} pixels need {expected} bytes, "
            f"but {len(data)} follow the header",
            hint=_WRITE_AGAIN,
        )
    return np.frombuffer(data, dtype).reshape(shape)


_ENCODERS: dict[str, Callable[[NDArray[np.float32], str], bytes]] = {
    ".pfm": _encode_pfm,
    ".png": _encode_png,
    ".npy": _encode_npy,
    ".tif": _encode_tiff,
    ".tiff": _encode_tiff,
}
MAP_SUFFIXES = tuple(_ENCODERS)
"""The suffixes of disparity maps, each of which names a format."""

_DECODERS: dict[str, Callable[[bytes, str, int | None], Pixels]] = {
    ".pfm": _decode_pfm,
    ".png": _decode_png,
    ".npy": _decode_npy,
    ".tif": _decode_tiff,
    ".tiff": _decode_tiff,
}
