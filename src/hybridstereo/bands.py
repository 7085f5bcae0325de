"""Rows of an image or a map that are worked on one after the other."""

from __future__ import annotations

from collections.abc import Iterator

_AT_ONCE = 1 << 16  # pixels: what NumPy makes of them in between mostly stays in the cache


def rows_in_bands(shape: tuple[int, ...], pixels: int | None = None) -> Iterator[slice]:
    """The rows of an array (H, W, ...) in parts of so many pixels, where no row needs another.

    NumPy makes a temporary array in every step of a formula, in double precision where it computes
    positions or statistics take part: of all rows at once these would be many times as large as
    the map itself.
    """
    height, width = shape[:2]
    at_once = max((pixels or _AT_ONCE) // width, 1)
    for first in range(0, height, at_once):
        yield slice(first, min(first + at_once, height))
