"""A network on a few rows at a time: how many, and what a thread holds of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ROWS_AT_A_TIME = 12
"""Rows that go through a whole network at a time, a multiple of 3.

The activations between two layers, 1242 pixels of 100 channels wide, then take 6 MB of L3 cache.
"""

# What a stage may add to the rows of a step: two of a tile that was not complete, two of a tile
# that begins above the band, two that it keeps and does not yet use; and the rows of its kernel.
_HELD_ROWS = 6


def numbers_between(width: int, shapes: Sequence[tuple[int, ...]]) -> int:
    """Numbers between two layers that a thread holds at a time; shapes: of the kernels."""
    rows = ROWS_AT_A_TIME + _HELD_ROWS + max(kh for _, _, kh, _ in shapes)
    return rows * width * max(outputs for outputs, *_ in shapes)


def memory_per_thread(width: int, weights: Sequence[np.ndarray]) -> int:
    """Bytes that a thread of `conv_cpu.network_forward` needs for an image of this width.

    The scratch of the layers themselves, below a megabyte each, is left out.
    """
    return 2 * numbers_between(width, [x.shape for x in weights]) * weights[0].dtype.itemsize
