"""Which pixels the labels of the correlation read: forward and backward, both engines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class LabelPositions(NamedTuple):
    """Label k of pixel x looks at ``x + offset`` and, with weight ``fraction``, one further.

    A tuple, which compiled functions can take as it is.
    """

    offsets: np.ndarray  # (K,) int32, descending
    fractions: np.ndarray  # (K,), 0 for disparities of whole pixels
    whole: bool  # each label is one pixel further than the previous one, without fractions
    lowest: int  # smallest offset that is read
    highest: int  # largest offset that is read

    @property
    def label_count(self) -> int:
        """The number of labels."""
        return int(self.offsets.size)

    @property
    def nearest(self) -> np.ndarray:
        """Offset of the nearest pixel (K,), int32, descending; of two the right one."""
        return self.offsets + (self.fractions >= 0.5).astype(np.int32)

    @property
    def reach(self) -> int:
        """1 if some label is interpolated between two pixels, else 0."""
        return self.highest - int(self.offsets[0])


def label_positions(disparities: np.ndarray, dtype: Any) -> LabelPositions:
    """Positions of ascending, equally spaced disparities (K,).

    ``x - d = (x + offset) + fraction``, the fraction in [0, 1).
    """
    towards_right = -np.asarray(disparities, np.float64)
    floors = np.floor(towards_right)
    if not np.all(np.abs(floors) < 2**30):
        raise ValueError("disparities beyond the range of 32-bit indices")
    offsets, fractions = floors.astype(np.int32), (towards_right - floors).astype(dtype)
    whole = not fractions.any() and bool(np.all(np.diff(offsets) == -1))
    highest = int(offsets[0]) + int(fractions.any())
    return LabelPositions(offsets, fractions, whole, int(offsets[-1]), highest)
