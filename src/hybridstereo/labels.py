"""The labels of the CRF, the disparities they stand for, and which labels a pair gets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .limits import COUNT, DISPARITY, LABELS, STEP

# The published program's limit; only `paper_rounding` keeps it.
_PAPER_MAX_LABELS = 256


@dataclass(frozen=True)
class LabelRange:
    """Label ``k`` of ``count`` stands for the disparity ``minimum + k * step``, in pixels.

    Examples
    --------
    >>> labels = LabelRange(-2.0, 5, step=0.5)
    >>> labels.maximum
    0.0
    >>> labels.disparities.tolist()
    [-2.0, -1.5, -1.0, -0.5, 0.0]
    """

    minimum: float
    count: int
    step: float = 1.0

    def __post_init__(self) -> None:
        DISPARITY.check(self.minimum, "The smallest disparity is")
        LABELS.check(self.count, "The number of labels is")
        STEP.check(self.step, "The step between labels is")
        DISPARITY.check(self.maximum, "The largest disparity is")

    @property
    def maximum(self) -> float:
        """The disparity of the last label."""
        return self.minimum + (self.count - 1) * self.step

    @property
    def disparities(self) -> np.ndarray:
        """The disparity of every label, float64 (count,)."""
        return self.minimum + self.step * np.arange(self.count)

    def to_disparity(self, label_map: np.ndarray) -> np.ndarray:
        """Labels -> disparities in pixels, float32."""
        return (self.minimum + self.step * label_map).astype(np.float32)

    def reduced(self, factor: int) -> LabelRange:
        """The labels of views at 1/``factor`` of their size: the same range, in larger pixels.

        Examples
        --------
        >>> LabelRange(-8.0, 72).reduced(4)
        LabelRange(minimum=-2.0, count=19, step=1.0)
        """
        span = (self.maximum - self.minimum) / factor
        return LabelRange(self.minimum / factor, math.ceil(span / self.step) + 1, self.step)

    def mirrored(self) -> LabelRange:
        """The same disparities, negated: the labels with which a right view is matched to a left.

        Right pixel x matches left pixel ``x + d``, that is ``x - (-d)``, so a right view is matched
        as a left one is, with the other view in its place and these labels.

        Examples
        --------
        >>> LabelRange(-2.0, 12).mirrored()
        LabelRange(minimum=-9.0, count=12, step=1.0)
        """
        return LabelRange(-self.maximum, self.count, self.step)

    def paper_rounding(self) -> LabelRange:
        """The count rounded up to a power of two, at most 256, as the published program does.

        The number of labels changes the softmax slightly and thus the result (docs/model.md 4):
        this is for comparisons with published figures.
        """
        rounded = 1 << (self.count - 1).bit_length()
        return LabelRange(self.minimum, min(_PAPER_MAX_LABELS, rounded), self.step)


def labels_for(
    default: LabelRange,
    *,
    disparities: int | None = None,
    min_disparity: float | None = None,
    step: float | None = None,
    paper_labels: bool = False,
    search_range: int | None = None,
    found: LabelRange | None = None,
    width: int | None = None,
) -> LabelRange:
    """The labels of a pair: the one policy of inference, evaluation and training.

    The number asked for is taken exactly.  Otherwise the labels cover what the pair's data set
    says to search, whatever the size of the image.  Where no data set says anything, they cover
    what was found in the pair itself.  Where nothing was found either, they cover the span of the
    model's default, at most the width of the image: no pixel could have a larger disparity, and
    the labels would only cost time.

    Parameters
    ----------
    default
        The model's labels; its minimum and step hold unless others are given.
    disparities, min_disparity, step
        Number of labels, smallest disparity and pixels between labels, as asked for.
    paper_labels
        Round the number of labels as the published program does.
    search_range
        How many whole disparities from 0 the data set says to search; None if it says nothing.
    found
        The disparities that the pair shows; None if they were not looked for, or not found.
    width
        Of the image, in pixels; None if unknown.

    Examples
    --------
    >>> labels_for(LabelRange(0.0, 128), disparities=48).count
    48
    >>> labels_for(LabelRange(0.0, 128), width=100).count
    100
    >>> labels_for(LabelRange(0.0, 128), search_range=70, width=100).count
    70
    >>> labels_for(LabelRange(0.0, 128), found=LabelRange(-8.0, 41), step=0.5).count
    81
    """
    if disparities is not None or search_range is not None:
        found = None
    minimum = (found or default).minimum if min_disparity is None else min_disparity
    pitch = default.step if step is None else step
    LabelRange(minimum, 1, pitch)  # refuses a minimum or a step that means nothing
    if disparities is not None:
        count = disparities
    elif search_range is not None:
        COUNT.check(search_range, "The range to search is")
        count = max(math.ceil((search_range - min(minimum, 0.0)) / pitch), 1)
    elif found is not None:
        count = max(math.floor((found.maximum - minimum) / pitch) + 1, 1)
    else:
        span = (default.count - 1) * default.step
        if width is not None:
            span = min(span, max(width - 1, 0))
        count = int(span / pitch) + 1
    label_range = LabelRange(float(minimum), count, float(pitch))
    return label_range.paper_rounding() if paper_labels else label_range
