"""The header of NumPy's files, read without trusting it."""

from __future__ import annotations

import warnings
from typing import BinaryIO

import numpy as np

from hybridstereo.errors import InputError


def read_npy_header(stream: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether columns come first, and type; ``stream`` is then at the first element.

    Raises
    ------
    InputError
        If there is no valid header; ``name`` is the file's.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers that Python 2 wrote
            if np.lib.format.read_magic(stream) == (1, 0):
                shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
            else:
                shape, columns_first, dtype = np.lib.format.read_array_header_2_0(stream)
    except Exception as error:
        # The header is a Python literal; a damaged one can fail in almost any way.
        raise InputError(f"{name} has no valid NPY header", hint="Write it again") from error
    # NumPy takes True for a size, and sizes below zero.
    if not all(type(size) is int and size >= 0 for size in shape):
        raise InputError(f"{name} states the shape {shape}", hint="Write it again")
    return shape, columns_first, dtype
