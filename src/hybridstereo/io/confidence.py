"""Confidence and validity maps as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import OutputError
from hybridstereo.io.atomic import atomic_write, check_writable
from hybridstereo.io.disparity import check_output, write_disparity
from hybridstereo.io.files import is_standard_stream
from hybridstereo.io.images import encode_pixels

_PNG_SCALE = 65535


def check_confidence_output(path: str | Path) -> None:
    """Check that `write_confidence` will be able to write to ``path``, before the work starts.

    Raises
    ------
    OutputError
        If the suffix is unknown or the folder is missing or not writable.

    """
    _refuse_standard_output(path, "a confidence map")
    check_output(path, "confidence maps")


def write_confidence(path: str | Path, confidence: NDArray[np.floating]) -> None:
    """Write a confidence map; the suffix picks the format.

    ``.pfm``, ``.npy`` and ``.tif`` hold float32, as they do of disparities; ``.png`` is 16-bit
    grey, 65535 times the confidence.

    Parameters
    ----------
    path
        The name of the file.
    confidence
        (H, W) in [0, 1].

    Raises
    ------
    OutputError
        If the suffix is unknown or the file cannot be written.

    """
    check_confidence_output(path)
    if Path(path).suffix.lower() != ".png":
        write_disparity(path, confidence)
        return
    _write_png(path, np.rint(_PNG_SCALE * confidence.astype(np.float64)).astype(np.uint16))


def check_validity_output(path: str | Path) -> None:
    """Check that `write_validity` will be able to write to ``path``, before the work starts.

    Raises
    ------
    OutputError
        If the suffix is not ``.png`` or the folder is missing or not writable.

    """
    _refuse_standard_output(path, "a validity map")
    if Path(path).suffix.lower() != ".png":
        raise OutputError(
            f"{path} does not end in .png, the format of validity maps",
            hint="Use a name such as valid.png",
        )
    check_writable(path)


def write_validity(path: str | Path, validity: NDArray[np.uint8]) -> None:
    """Write a validity map as an 8-bit grey PNG file, which `read_mask` reads.

    Parameters
    ----------
    path
        A name that ends in ``.png``.
    validity
        uint8 (H, W), 0 invalid, 128 occluded, 255 good.

    Raises
    ------
    OutputError
        If the name has another suffix or the file cannot be written.

    """
    check_validity_output(path)
    _write_png(path, validity)


def _refuse_standard_output(path: str | Path, what: str) -> None:
    if is_standard_stream(path):
        raise OutputError(f"{what} cannot go to standard output", hint="Name a file")


def _write_png(path: str | Path, pixels: NDArray[np.uint8] | NDArray[np.uint16]) -> None:
    encoded = encode_pixels(pixels, ".png", str(path))
    with atomic_write(path) as temporary:
        temporary.write_bytes(encoded)
