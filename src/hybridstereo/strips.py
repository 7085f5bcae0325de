"""Images that do not fit: strips of rows, computed one after the other (docs/model.md 14).

A strip is as wide as the image and has further rows above and below it, which are computed and
thrown away.  The networks see some rows around a pixel, so with that many further rows the
matching costs and edge weights of a strip are those of the whole image.  The CRF couples all rows;
its influence fades with the distance from the cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .features import Statistics, Window, padding_of
from .model import StereoModel

CRF_ROWS = 48
"""Further rows for the CRF, beyond those that the networks see (docs/model.md 14 has figures)."""

# Images are halved at most twice, so strips begin at multiples of four: the same pixels are
# averaged as in the whole image.
_ALIGNMENT = 4
_SMOOTHING = 4  # rows that the contrast weights see around a pixel, or fewer
FEWEST_ROWS = 16
"""Of a strip, without those around it: fewer are not worth the work."""


@dataclass(frozen=True)
class Strip:
    """Rows ``first`` to below ``last`` of an image, from rows ``top`` to below ``bottom``."""

    top: int
    first: int
    last: int
    bottom: int


@dataclass(frozen=True)
class CompleteViews:
    """What a strip has to know of the two views that it is a part of, at a level of the pyramid.

    Attributes
    ----------
    window
        Where it lies.
    levels
        The statistics of the left and of the right view, at this level and at the coarser ones.
    """

    window: Window
    levels: Sequence[tuple[Statistics, Statistics]]

    @property
    def statistics(self) -> tuple[Statistics, Statistics]:
        """Those of both views."""
        return self.levels[0]

    def at_level(self, level: int) -> CompleteViews:
        """The same at a coarser level, each half the size of the one before."""
        return CompleteViews(self.window.at_level(level), self.levels[level:])


def overlap_of(model: StereoModel) -> int:
    """How many further rows a strip needs on each side."""
    seen = max(padding_of(model.unary).before[0], padding_of(model.unary).after[0])
    levels = len(model.config.pyramid)
    # A pixel of a coarser level is 2**level rows high, and two of them make a finer one.
    network = (seen + (1 if levels else 0)) << levels
    edges = max(padding_of(model.pairwise).after[0] if model.pairwise else 0, _SMOOTHING)
    return _aligned(max(network, edges) + CRF_ROWS)


def plan_strips(height: int, rows: int, overlap: int) -> list[Strip]:
    """Divide an image into strips that are computed from at most ``rows`` rows each.

    The strips are about equally high.
    """
    if rows >= height:
        return [Strip(0, 0, height, height)]
    inner = max(rows - 2 * overlap, FEWEST_ROWS)
    count = -(-height // inner)
    kept = _aligned(-(-height // count))
    return [
        Strip(
            max(first - overlap, 0),
            first,
            min(first + kept, height),
            min(first + kept + overlap, height),
        )
        for first in range(0, height, kept)
    ]


def _aligned(rows: int) -> int:
    return -(-rows // _ALIGNMENT) * _ALIGNMENT
