"""Which disparities a pair shows, found from the pair itself (docs/model.md 13; not in the paper).

A small model matches both views at a fraction of their size, over all disparities that make
sense.  Where the right view chooses the same match, its disparity is believed; the range ends
where too few believed pixels are left to be more than chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .labels import LabelRange
from .pyramid import half_size

# Views are halved until they are this narrow, and at least twice unless they are small: a pass
# over 1/16 of the pixels costs some 5 % of the real one.
_WIDEST, _HALVINGS, _NARROWEST = 400, 2, 100
# Of the small width: disparities searched above and below zero.
_ABOVE, _BELOW = 1 / 2, 1 / 8
# What follows was set on 141 pairs with truth (docs/evaluation.md); all lengths in coarse labels.
# The ends of the range are the outermost disparities that so many of the believed pixels share,
# within three labels.  Far things are many pixels, so the lower end can ask for more of them.
_SHARE_ABOVE, _SHARE_BELOW, _NEIGHBOURHOOD = 0.002, 0.005, 3.0
_FEWEST = 3
# Beyond the ends: a coarse label, 2 % of the largest disparity and a pixel.
_MARGIN, _RELATIVE_MARGIN, _PIXEL_MARGIN = 1.0, 1.02, 1.0
# Chance gives up to 5 % of the believed pixels a negative disparity, in pairs that have none.
_SHARE_NEGATIVE, _NEGATIVE = 0.05, -0.75
# Views that do not belong together agree by chance at 12 to 28 % of the pixels; real pairs, under
# different light too, at 52 to 99 %.
_SHARE_BELIEVED = 0.4


@dataclass(frozen=True)
class CoarseViews:
    """A pair at a fraction of its size, and the labels to search there.

    Attributes
    ----------
    left, right
        Images (H, W, 3).
    factor
        Pixels of the original per pixel.
    label_range
        In pixels of the coarse views; negative disparities included.
    """

    left: np.ndarray
    right: np.ndarray
    factor: int
    label_range: LabelRange


@dataclass(frozen=True)
class CoarseMatch:
    """What matching coarse views shows.

    Attributes
    ----------
    disparity
        (h, w), in coarse pixels.
    mask
        Where both views agree on it, bool (h, w).
    factor
        Pixels per coarse pixel.
    """

    disparity: np.ndarray
    mask: np.ndarray
    factor: int


def coarse_views(left: np.ndarray, right: np.ndarray, halvings: int = 0) -> CoarseViews:
    """Halve two images (H, W, 3) until matching them costs next to nothing.

    They are halved so many times more if ``halvings`` are asked for.
    """
    factor = 1
    while left.shape[1] > _WIDEST or (factor < 1 << _HALVINGS and left.shape[1] >= _NARROWEST):
        left, right, factor = half_size(left), half_size(right), 2 * factor
    for _ in range(halvings):
        left, right, factor = half_size(left), half_size(right), 2 * factor
    return CoarseViews(left, right, factor, widest_range(left.shape[1]))


def widest_range(width: int) -> LabelRange:
    """All disparities that are looked for in views of this width."""
    below, above = int(_BELOW * width), int(_ABOVE * width)
    return LabelRange(float(-below), below + above + 1)


def believed(costs: np.ndarray, labels: np.ndarray, label_range: LabelRange) -> np.ndarray:
    """Where the right view, by its cheapest label alone, confirms the left one's; bool (H, W).

    Parameters
    ----------
    costs
        Of the left view, (H, W, K).
    labels
        Of the left view, int (H, W).
    label_range
        What they stand for, in whole pixels.
    """
    height, width, count = costs.shape
    minimum = round(label_range.minimum)
    highest = minimum + count - 1
    # Right pixel x sees label k at left pixel x + d_k: a diagonal of the costs, read in place.
    before, after = max(-minimum, 0), max(highest, 0)
    padded = np.pad(costs, ((0, 0), (before, after), (0, 0)), constant_values=np.inf)
    rows, columns, depth = padded.strides
    diagonal = np.lib.stride_tricks.as_strided(
        padded[:, before + minimum :],
        (height, width, count),
        (rows, columns, columns + depth),
        writeable=False,
    )
    right_labels = diagonal.argmin(axis=2)
    place = np.arange(width) - (labels + minimum)
    seen = (place >= 0) & (place < width)
    answer = np.take_along_axis(right_labels, np.clip(place, 0, width - 1), axis=1)
    return seen & (np.abs(answer - labels) <= 1)


def belong_together(mask: np.ndarray) -> bool:
    """Whether so many pixels are `believed` that the views must belong together."""
    return bool(np.count_nonzero(mask) >= max(_FEWEST, _SHARE_BELIEVED * mask.size))


def covering_range(seen: CoarseMatch) -> LabelRange | None:
    """The whole disparities that cover what a coarse match shows; None if it shows too little."""
    if not belong_together(seen.mask):
        return None
    factor = seen.factor
    values = np.sort(seen.disparity[seen.mask].astype(np.float64))
    if np.mean(values < _NEGATIVE) < _SHARE_NEGATIVE:
        values = values[values >= _NEGATIVE]
    lowest = _outermost(values, _SHARE_BELOW)
    highest = _outermost(-values[::-1], _SHARE_ABOVE)
    if lowest is None or highest is None:
        return None
    first = math.floor((lowest - _MARGIN) * factor - _PIXEL_MARGIN)
    last = math.ceil((-highest + _MARGIN) * factor * _RELATIVE_MARGIN + _PIXEL_MARGIN)
    if lowest > _NEGATIVE:
        first = max(first, 0)
    return LabelRange(float(first), max(last - first, 0) + 1)


def _outermost(ascending: np.ndarray, share: float) -> float | None:
    """The first value that starts a neighbourhood with at least this share of all values."""
    needed = max(math.ceil(share * ascending.size), _FEWEST)
    if needed > ascending.size:
        return None
    reach = ascending[needed - 1 :] - ascending[: ascending.size - needed + 1]
    crowded = np.flatnonzero(reach <= _NEIGHBOURHOOD)
    return float(ascending[crowded[0]]) if crowded.size else None
