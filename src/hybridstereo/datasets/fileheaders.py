"""Whether the files of a data set are there and begin like what they should be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hybridstereo.datasets.samples import Sample
from hybridstereo.errors import InputError
from hybridstereo.io.files import COPY_AGAIN, checked_size, explained

# An image is read by what it is, whatever its suffix.
_IMAGE = rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|II[*+]\0|MM\0[*+]|BM|P[1-6]\s"
_STARTS = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".ppm", ".pgm"), _IMAGE),
    ".pfm": rb"P[Ff]\s",
    ".npy": rb"\x93NUMPY",
}
_LONGEST_START = 8
_MOST_BYTES = 1 << 40  # what the readers of the formats accept is far less


def check_files(samples: Sequence[Sample]) -> None:
    """Look at the first bytes of every file, which takes a moment where decoding takes hours.

    Raises
    ------
    InputError
        Names the first file that is missing, empty, no file, or does not begin like an image or a
        map, as its suffix says.

    """
    for sample in samples:
        conditions = sample.conditions
        views = () if conditions is None else (*conditions.left, *conditions.right)
        for path in dict.fromkeys((*sample.files, *views)):
            _check(path)


def _check(path: Path) -> None:
    checked_size(path, _MOST_BYTES)
    start = _STARTS.get(path.suffix.lower())
    if start is None:  # calibration, for one
        return
    try:
        with path.open("rb") as file:
            found = file.read(_LONGEST_START)
    except OSError as error:
        raise explained(path, error, InputError) from error
    if not re.match(start, found):
        raise InputError(f"{path} does not begin like a {path.suffix} file", hint=COPY_AGAIN)
