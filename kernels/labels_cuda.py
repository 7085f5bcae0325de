"""Where the labels of the correlation look, for the kernels of both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LabelPositions:
    """Label k of pixel x looks at ``x + offset`` and, with weight ``fraction``, one further."""

    offsets: np.ndarray  # (K,) int32, descending
    fractions: np.ndarray  # (K,), 0 for disparities of whole pixels
    whole: bool  # every label one pixel further than the label before it, no fractions

    @property
    def count(self) -> int:
        """The number of labels."""
        return int(self.offsets.size)

    @property
    def reach(self) -> int:
        """1 if there are labels that need two pixels, else 0."""
        return int(self.fractions.any())

    @property
    def lowest(self) -> int:
        """The smallest offset that is read."""
        return int(self.offsets[-1])

    @property
    def highest(self) -> int:
        """The largest offset that is read."""
        return int(self.offsets[0]) + self.reach


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
    return LabelPositions(offsets, fractions, whole)
