"""A network on a few rows at a time: how many, and what a thread holds of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numba import get_num_threads

from . import direct, winograd

BAND_ROWS = 24
"""Rows of a network's output, at least, per band: bands recompute their overlap."""

# Rows of a network's output, about, that exist at a time where not all of it has to.
_PASS_ROWS = 200

_FEW_ROWS = 10
"""Rows that go through a whole network at a time, at least.

The activations between two layers, 1242 pixels of 100 channels wide, then take 5 MB of L3 cache.
"""

# What a stage may hold besides the rows of a step and those of its kernel: the rows of a tile that
# begins above the band.
_HELD_ROWS = 4


def algorithm_of(weight: np.ndarray) -> ModuleType:
    """The module that convolves with kernels (O, I, kh, kw)."""
    return winograd if winograd.suits(weight) else direct


def whole_tiles(weights: Sequence[np.ndarray]) -> int:
    """The least number of rows that are whole tiles in every layer."""
    sides = (algorithm_of(x).tile_side((*x.shape[2:], *x.shape[1::-1])) for x in weights)
    return math.lcm(*sides)


def passes(height: int, threads: int) -> int:
    """In how many parts to compute ``height`` rows, each with bands enough for the threads."""
    return max(round(height / max(_PASS_ROWS, BAND_ROWS * threads)), 1)


def row_bands(rows: int, at_least: int, side: int, begin: int = 0) -> list[tuple[int, int]]:
    """Cut into bands (first, last + 1) that begin at a multiple of a tile's side from ``begin``."""
    height = side * -(-at_least // side)
    return [(first, min(first + height, rows)) for first in range(begin, rows, height)]


def network_bands(height: int, weights: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Rows (first, last + 1) of a network's results that `network_forward` can compute one by one.

    That takes no longer than all at once, and less memory if each is used before the next one.
    """
    at_least = -(-height // passes(height, get_num_threads()))
    return row_bands(height, at_least, whole_tiles(weights))


def rows_at_a_time(weights: Sequence[np.ndarray]) -> int:
    """Rows that go through a network at a time: whole tiles in every layer."""
    tiles = whole_tiles(weights)
    return -(-_FEW_ROWS // tiles) * tiles


def numbers_between(width: int, weights: Sequence[np.ndarray]) -> int:
    """Numbers between two layers that a thread holds at a time."""
    shapes = [x.shape for x in weights]
    rows = rows_at_a_time(weights) + _HELD_ROWS + max(kh for _, _, kh, _ in shapes)
    return rows * width * max(outputs for outputs, *_ in shapes)


def memory_per_thread(width: int, weights: Sequence[np.ndarray]) -> int:
    """Bytes that a thread of `conv_cpu.network_forward` needs for an image of this width.

    The scratch of the layers themselves, two megabytes, is left out.
    """
    return 2 * numbers_between(width, weights) * weights[0].dtype.itemsize
