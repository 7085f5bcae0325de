"""Frames of one pair of cameras, matched one after the other: `StereoSequence`.

A frame resembles the one before.  The range that was found there need not be looked for again, and
Dual_MM can start from the dual variables that it left (docs/streams.md says what that is worth).
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np

from .crf import WarmStart
from .errors import InputError
from .io.pixels import ChannelOrder, as_image
from .labels import LabelRange
from .result import RangeOrigin, StereoResult
from .stereo import Stereo

RangeMode = Literal["fixed", "tracked"]
RANGE_MODES: tuple[RangeMode, ...] = get_args(RangeMode)

# The mean change of the left view, of 1, from which on the dual variables of the frame before are
# of no use; set on generated sequences (tools/stream_figures.py).
_UNRELATED = 0.03
_SAMPLED = 4  # every so many rows and columns are compared
# What a map shows: its outermost disparities but for this share, and room for motion around them.
_STRAY_SHARE = 0.002
_MARGIN, _RELATIVE_MARGIN = 4.0, 0.1
# Ends of a tracked range lie on multiples of this, so that it does not change with every frame.
_GRID = 8
# Share of the pixels on an end of the range that shows that the scene goes on beyond it.
_AT_ENDS = 0.01


class StereoSequence:
    """Matches the frames of a sequence one after the other.

    Parameters
    ----------
    stereo
        The model.
    range_mode
        ``fixed``: the labels of the first frame hold for all.  ``tracked``: every frame has its
        own, found in it; with a warm start, taken from the map of the frame before.
    warm_start
        Start the CRF with the dual variables of the frame before, as far as the views resemble each
        other.
    options
        What else `Stereo.match` takes: ``disparities``, ``iterations``, ``scale`` and so on.

    Raises
    ------
    InputError
        If the labels are given and are to be tracked as well.

    Examples
    --------
    >>> import numpy as np
    >>> import hybridstereo as hs
    >>> rng = np.random.default_rng(0)
    >>> left = rng.integers(0, 256, (40, 60, 3), np.uint8)
    >>> sequence = hs.StereoSequence(hs.Stereo("census", device="cpu"), disparities=16)
    >>> frames = [sequence.match(left, np.roll(left, -shift, axis=1)) for shift in (5, 6)]
    >>> [float(np.median(frame.disparity.round())) for frame in frames]
    [5.0, 6.0]
    """

    def __init__(
        self,
        stereo: Stereo,
        *,
        range_mode: RangeMode = "fixed",
        warm_start: bool = False,
        **options: Any,
    ) -> None:
        if range_mode not in RANGE_MODES:
            raise InputError(f"There is no range '{range_mode}'", "Use fixed or tracked")
        if range_mode == "tracked" and options.get("disparities") not in (None, "auto"):
            raise InputError(
                "The range cannot be given and tracked", "Leave out `disparities` or `range_mode`"
            )
        self.stereo = stereo
        self.range_mode = range_mode
        self.options = options
        self._warm = WarmStart() if warm_start else None
        self._labels: LabelRange | None = None
        self._origin: RangeOrigin = "caller"
        self._before: np.ndarray | None = None  # samples of the left view

    def match(
        self, left: np.ndarray, right: np.ndarray, *, channels: ChannelOrder = "rgb"
    ) -> StereoResult:
        """The map of the next frame; arguments and errors as for `Stereo.match`."""
        if self._warm is not None:
            self._warm.share = self._resemblance(left, channels)
        given = dict(self.options)
        if self._labels is not None:
            for name in ("disparities", "min_disparity", "step", "paper_labels"):
                given.pop(name, None)
            given["labels"] = self._labels
        result = self.stereo.match(left, right, **given, channels=channels, warm=self._warm)
        if self._labels is None:
            self._origin = result.range_from
        self._labels = self._labels_after(result, left, right, channels)
        return result

    @property
    def range_from(self) -> RangeOrigin:
        """Who chose the labels of the first frame, as in `StereoResult`."""
        return self._origin

    def _labels_after(
        self, result: StereoResult, left: np.ndarray, right: np.ndarray, channels: ChannelOrder
    ) -> LabelRange | None:
        """The labels of the next frame; None: to be found in it."""
        if self.range_mode == "fixed":
            return result.label_range
        if self._warm is None:
            return None
        labels = result.label_range
        shown = shown_range(result.disparity, labels)
        if result.at_range_ends > _AT_ENDS:
            found = self.stereo.find_range(left, right, channels=channels)
            if found is not None:
                shown = _on_grid(
                    min(shown.minimum, found.minimum),
                    max(shown.maximum, found.maximum),
                    labels.step,
                    min(labels.minimum, found.minimum),
                )
        return labels if _nearly(labels, shown) else shown

    def _resemblance(self, left: np.ndarray, channels: ChannelOrder) -> float:
        """1 if the left view is that of the frame before, 0 if it has little to do with it."""
        samples = as_image(np.asarray(left)[::_SAMPLED, ::_SAMPLED], "left", channels)
        before, self._before = self._before, samples
        if before is None or before.shape != samples.shape:
            return 0.0
        change = float(np.mean(np.abs(samples - before)))
        return max(0.0, 1.0 - change / _UNRELATED)


def shown_range(disparity: np.ndarray, labels: LabelRange) -> LabelRange:
    """The labels that a map shows, with room for motion.

    Parameters
    ----------
    disparity
        (H, W), in pixels.
    labels
        Among which they were searched; a range from 0 on stays so.
    """
    low, high = np.quantile(disparity, (_STRAY_SHARE, 1 - _STRAY_SHARE))
    room = max(_MARGIN, _RELATIVE_MARGIN * float(high - low))
    return _on_grid(float(low) - room, float(high) + room, labels.step, labels.minimum)


def _on_grid(low: float, high: float, step: float, floor: float) -> LabelRange:
    """Labels from ``low`` to ``high``, widened to the grid; from 0 on unless the floor is lower."""
    first = math.floor(low / _GRID) * _GRID
    if floor >= 0:
        first = max(first, 0)
    last = math.ceil(high / _GRID) * _GRID
    return LabelRange(float(first), max(math.ceil((last - first) / step), 1), step)


def _nearly(labels: LabelRange, shown: LabelRange) -> bool:
    """Whether labels cover what is shown, and not much more: then they need not change."""
    slack = 2 * _GRID
    below, above = shown.minimum - labels.minimum, labels.maximum - shown.maximum
    return 0 <= below <= slack and 0 <= above <= slack


__all__ = ["RANGE_MODES", "RangeMode", "StereoSequence", "shown_range"]
