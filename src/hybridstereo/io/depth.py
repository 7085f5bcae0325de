"""Depth maps as files: metres as floating point, or millimetres in 16 bits."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import OutputError
from hybridstereo.io.atomic import atomic_write, check_writable
from hybridstereo.io.files import unknown_suffix
from hybridstereo.io.images import encode_pixels

DEPTH_SUFFIXES = (".npy", ".tif", ".tiff", ".png")
_MILLIMETRES = 1000.0
FARTHEST = np.iinfo(np.uint16).max / _MILLIMETRES
"""Metres that 16 bits can hold."""


def check_depth_output(path: str | Path) -> None:
    """Check that `write_depth` will be able to write to ``path``, before the work starts.

    Raises
    ------
    OutputError
        If the suffix names no format, or the folder is missing or not writable.
    """
    if Path(path).suffix.lower() not in DEPTH_SUFFIXES:
        raise unknown_suffix(path, "depth maps", DEPTH_SUFFIXES, OutputError)
    check_writable(path)


def write_depth(path: str | Path, depth: NDArray[np.floating]) -> int:
    """Write a depth map; the suffix picks the format.

    ======================  ==================================================================
    ``.npy``                float32 (H, W), metres, NaN for invalid
    ``.tif``, ``.tiff``     float32, one channel, metres, NaN for invalid
    ``.png``                16-bit grey, millimetres, 0 for invalid, 65535 for 65.535 m and more
    ======================  ==================================================================

    Parameters
    ----------
    path
        The name of the file.
    depth
        (H, W) in metres; what is not finite or not above 0 is invalid.

    Returns
    -------
    int
        How many pixels are farther away than the file can say.

    Raises
    ------
    OutputError
        If the suffix is unknown or the file cannot be written.
    """
    if depth.ndim != 2 or depth.size == 0:
        raise ValueError(f"expected a depth map of shape (H, W), got {depth.shape}")
    check_depth_output(path)
    suffix = Path(path).suffix.lower()
    valid = np.isfinite(depth) & (depth > 0)
    metres = np.where(valid, depth, np.nan).astype(np.float32)
    beyond = 0
    if suffix == ".png":
        beyond = int(np.count_nonzero(metres > FARTHEST))
        # A valid depth below half a millimetre must not become invalid.
        millimetres = np.clip(np.rint(metres[valid] * _MILLIMETRES), 1, np.iinfo(np.uint16).max)
        pixels = np.zeros(depth.shape, np.uint16)
        pixels[valid] = millimetres.astype(np.uint16)
        data = encode_pixels(pixels, ".png", str(path))
    elif suffix == ".npy":
        stream = io.BytesIO()
        np.save(stream, metres, allow_pickle=False)
        data = stream.getvalue()
    else:
        data = encode_pixels(metres, ".tiff", str(path))
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)
    return beyond
