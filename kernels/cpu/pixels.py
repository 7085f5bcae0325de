"""Read-out (docs/model.md 6.3) and energy of the costs of pixels, floats or fixed point, CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..constants import TIE_BLOCK, TIE_TOLERANCE
from ..penalty import rho
from .jit import compiled, part
from .simd import minimum

__all__ = ["lowest_of", "read_out_rows", "row_energies"]


@part()
def lowest_of(row: Any) -> Any:
    """The smallest number of a row (K,)."""
    lowest = row[0]
    for k in range(1, row.size):
        lowest = minimum(lowest, row[k])
    return lowest


@compiled(nogil=True)
def read_out_rows(first: int, last: int, minorant: Any, label_map: Any) -> None:
    """label_map[i] = the label that `read_out` chooses for pixel i; minorant: (N, K)."""
    tolerance = minorant.dtype.type(TIE_TOLERANCE)
    label_count = minorant.shape[1]
    for i in range(first, last):
        row = minorant[i]
        lowest = lowest_of(row)
        limit = lowest + tolerance * abs(lowest)
        # Neither loop has a branch: vectors over all labels take less time than a search whose end
        # the processor cannot foresee.  NaN is no larger than the limit.
        place = np.float32(label_count - 1)
        for k in range(label_count):
            place = minimum(place, np.float32(label_count if row[k] > limit else k))
        best = int(place)
        begin = best // TIE_BLOCK * TIE_BLOCK
        if begin + TIE_BLOCK <= label_count:
            for k in range(TIE_BLOCK):
                best = begin + k if row[begin + k] <= limit else best
        else:
            for k in range(begin, label_count):
                best = k if row[k] <= limit else best
        label_map[i] = best


@compiled(nogil=True)
def row_energies(
    first: int, last: int, costs: Any, quantum: float,
    wx: Any, wy: Any, p1: float, p2: float, label_map: Any, rows: Any,
) -> None:  # fmt: skip
    """rows[y] = the terms of E(label_map) that row y owns.

    costs: (H, W, K), in units of ``quantum``: 1 of floats; wx, wy, label_map: (H, W).
    """
    height, width = label_map.shape
    for y in range(first, last):
        total = 0.0
        for x in range(width):
            label = label_map[y, x]
            total += quantum * costs[y, x, label]
            if x + 1 < width:
                jump = abs(label - label_map[y, x + 1])
                total += wx[y, x] * rho(jump, p1, p2)
            if y + 1 < height:
                jump = abs(label - label_map[y + 1, x])
                total += wy[y, x] * rho(jump, p1, p2)
        rows[y] = total
