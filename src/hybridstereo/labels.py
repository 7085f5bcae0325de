"""The labels of the CRF and the disparities they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# The published program's limit; only `paper_rounding` keeps it.
_PAPER_MAX_LABELS = 256


@dataclass(frozen=True)
class LabelRange:
    """Label ``k`` of ``count`` stands for the disparity ``minimum + k * step``, in pixels."""

    minimum: float
    count: int
    step: float = 1.0

    @property
    def maximum(self) -> float:
        """The disparity of the last label."""
        return self.minimum + (self.count - 1) * self.step

    @property
    def disparities(self) -> np.ndarray:
        """The disparity of every label, float64 (count,)."""
        return self.minimum + self.step * np.arange(self.count)

    def to_disparity(self, labels: np.ndarray) -> np.ndarray:
        """Labels -> disparities in pixels, float32."""
        return (self.minimum + self.step * labels).astype(np.float32)

    def paper_rounding(self) -> LabelRange:
        """The count rounded up to a power of two, at most 256, as the published program does.

        The number of labels changes the softmax slightly and thus the result (SPEC 4): this is
        for comparisons with published figures.
        """
        rounded = 1 << (self.count - 1).bit_length()
        return LabelRange(self.minimum, min(_PAPER_MAX_LABELS, rounded), self.step)
