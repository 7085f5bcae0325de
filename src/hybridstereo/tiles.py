"""Images that do not fit: tiles, computed one after the other (docs/model.md 14).

A tile has further rows and columns around it, which are computed and thrown away.  The networks see
some pixels around each one, so with that many further ones the matching costs and edge weights of a
tile are those of the whole image.  The CRF couples all pixels; its influence fades with the
distance from the cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .features import Statistics, Window, padding_of
from .labels import LabelRange
from .model import StereoModel

OnTile = Callable[[int, int], None]
"""Called before each tile with how many are done, and how many there are."""

CRF_PIXELS = 48
"""Further rows and columns for the CRF, beyond those that the networks see (docs/model.md 14)."""

# Images are halved at most twice, so tiles begin at multiples of four: the same pixels are averaged
# as in the whole image.
_ALIGNMENT = 4
_SMOOTHING = 4  # pixels that the contrast weights see around one, or fewer
# Of a tile, without those around it: smaller ones are not worth the work.
_FEWEST_ROWS, _FEWEST_COLUMNS = 16, 64


@dataclass(frozen=True)
class Extent:
    """Rows or columns ``first`` to below ``last``, computed from ``begin`` to below ``end``."""

    begin: int
    first: int
    last: int
    end: int

    @property
    def length(self) -> int:
        """How many are computed."""
        return self.end - self.begin

    @property
    def computed(self) -> slice:
        """What is computed, of the whole image."""
        return slice(self.begin, self.end)

    @property
    def kept(self) -> slice:
        """What is kept, of the whole image."""
        return slice(self.first, self.last)

    @property
    def kept_here(self) -> slice:
        """What is kept, of what is computed."""
        return slice(self.first - self.begin, self.last - self.begin)


@dataclass(frozen=True)
class ImageTile:
    """A part of an image, and the columns of the other view's that its labels look at.

    Attributes
    ----------
    rows, columns
        Of the image.
    other
        First column of the other image, and the one after the last.
    """

    rows: Extent
    columns: Extent
    other: tuple[int, int]

    @property
    def shift(self) -> int:
        """By how much disparities are smaller between the two parts."""
        return self.columns.begin - self.other[0]


@dataclass(frozen=True)
class CompleteViews:
    """What a tile has to know of the two views that it is a part of, at a level of the pyramid.

    Attributes
    ----------
    windows
        Where its parts lie in the left and in the right view.
    levels
        The statistics of the left and of the right view, at this level and at the coarser ones.
    """

    windows: tuple[Window, Window]
    levels: Sequence[tuple[Statistics, Statistics]]

    @property
    def statistics(self) -> tuple[Statistics, Statistics]:
        """Those of both views."""
        return self.levels[0]

    def at_level(self, level: int) -> CompleteViews:
        """The same at a coarser level, each half the size of the one before."""
        left, right = (window.at_level(level) for window in self.windows)
        return CompleteViews((left, right), self.levels[level:])


def network_reach(model: StereoModel) -> int:
    """How many pixels around one the networks see, on any side."""
    unary = padding_of(model.unary)
    seen = max(*unary.before, *unary.after)
    levels = len(model.config.pyramid)
    # A pixel of a coarser level is 2**level pixels high, and two of them make a finer one.
    network = (seen + (1 if levels else 0)) << levels
    edges = max(padding_of(model.pairwise).after) if model.pairwise else 0
    return _aligned(max(network, edges, _SMOOTHING))


def overlap_of(model: StereoModel) -> int:
    """How many further pixels a tile needs on each side."""
    return _aligned(network_reach(model) + CRF_PIXELS)


def whole(height: int, width: int) -> list[ImageTile]:
    """One tile, which is the image."""
    return [ImageTile(Extent(0, 0, height, height), Extent(0, 0, width, width), (0, width))]


def plan_tiles(
    height: int,
    width: int,
    most: tuple[int, int],
    label_range: LabelRange,
    model: StereoModel,
) -> list[ImageTile]:
    """Divide an image into tiles that are computed from ``most`` rows and columns at most.

    The tiles are about equally large.
    """
    overlap, reach = overlap_of(model), network_reach(model)
    return [
        ImageTile(rows, columns, _other_columns(columns, width, label_range, reach))
        for rows in _divide(height, most[0], overlap, _FEWEST_ROWS)
        for columns in _divide(width, most[1], overlap, _FEWEST_COLUMNS)
    ]


def looking_from(
    tiles: Sequence[ImageTile], width: int, label_range: LabelRange, model: StereoModel
) -> list[ImageTile]:
    """The same tiles of either view, given the labels with which it is matched to the other."""
    reach = network_reach(model)
    return [
        replace(tile, other=_other_columns(tile.columns, width, label_range, reach))
        for tile in tiles
    ]


def fewest_rows(model: StereoModel) -> int:
    """How many rows a tile is computed from at least."""
    return 2 * overlap_of(model) + _FEWEST_ROWS


def fewest_columns(model: StereoModel) -> int:
    """How many columns a tile is computed from at least."""
    return 2 * overlap_of(model) + _FEWEST_COLUMNS


def widest_other(width: int, most: int, label_range: LabelRange, model: StereoModel) -> int:
    """How many columns of the other view the tiles need that have ``most`` of their own."""
    parts = (
        _other_columns(columns, width, label_range, network_reach(model))
        for columns in _divide(width, most, overlap_of(model), _FEWEST_COLUMNS)
    )
    return max(last - first for first, last in parts)


def widths_to_try(width: int, model: StereoModel) -> Iterator[int]:
    """How many columns a tile may be computed from: all of them, or those of 2, 3, ... across."""
    yield width
    overlap = overlap_of(model)
    for across in range(2, width // _FEWEST_COLUMNS + 1):
        columns = _aligned(-(-width // across)) + 2 * overlap
        if columns < width:
            yield columns


def _divide(length: int, most: int, overlap: int, fewest: int) -> list[Extent]:
    """Rows or columns in about equal parts, each of ``most`` at most with those around it."""
    if most >= length:
        return [Extent(0, 0, length, length)]
    inner = max(most - 2 * overlap, fewest) // _ALIGNMENT * _ALIGNMENT
    kept = _aligned(-(-length // -(-length // inner)))
    return [
        Extent(
            max(first - overlap, 0),
            first,
            min(first + kept, length),
            min(first + kept + overlap, length),
        )
        for first in range(0, length, kept)
    ]


def _other_columns(
    columns: Extent, width: int, label_range: LabelRange, reach: int
) -> tuple[int, int]:
    """The columns of the other view that labels of these look at, and what the networks see.

    Labels that look outside the view do so in the part, too: it ends where the view does, or
    beyond what any label looks at.
    """
    first = columns.begin - math.ceil(label_range.maximum) - reach
    last = columns.end - math.floor(label_range.minimum) + reach + 1
    first = max(min(first, width - 1), 0) // _ALIGNMENT * _ALIGNMENT
    return first, min(max(_aligned(last), first + 1), width)


def _aligned(pixels: int) -> int:
    return -(-pixels // _ALIGNMENT) * _ALIGNMENT
