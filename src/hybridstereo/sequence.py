"""Frames of one pair of cameras, matched one after the other: `StereoSequence`.

A frame resembles the one before.  The range that was found there need not be looked for again, and
Dual_MM can start from the dual variables that it left (docs/streams.md says what that is worth).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from dataclasses import fields
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from .clock import OnStage
from .crew import Crew, map_memory
from .crf import WarmStart
from .errors import InputError
from .io.pixels import ChannelOrder, as_image
from .labels import LabelRange
from .options import MatchOptions
from .overlap import overlapped
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
        return self._match(self.stereo, left, right, channels)

    def match_all(
        self,
        frames: Iterable[tuple[np.ndarray, np.ndarray]],
        *,
        at_once: int | None = 1,
        channels: ChannelOrder = "rgb",
    ) -> Generator[StereoResult, None, None]:
        """The maps of frames, in their order.

        Parameters
        ----------
        frames
            Left and right views, taken as they are needed.
        at_once
            How many frames are matched at a time, as far as the memory allows; None: as many as
            there are cores, or queues of a GPU.  Each has its share of the threads, so that more
            frames are matched in a second and each takes longer; the maps are the same.  More than
            one needs frames that are `independent`.
        channels
            As for `Stereo.match`.

        Raises
        ------
        InputError
            If ``at_once`` does not suit the sequence.
        StereoError
            As for `Stereo.match`, after the maps before.
        """
        if at_once != 1 and not self.independent:
            raise InputError(
                "Frames that start from the one before are matched one after the other",
                "Leave out `at_once`, or match with a fixed range and a cold start",
            )
        rest = iter(frames)
        for left, right in rest:
            yield self.match(left, right, channels=channels)
            if at_once != 1:
                break  # the labels of all others are known now
        else:
            return
        with Crew(self.stereo, self.options.get("max_memory"), at_once) as crew:

            def match(frame: tuple[np.ndarray, np.ndarray]) -> StereoResult:
                with crew.place(partial(self._need, frame[0])) as stereo:
                    return self._match(stereo, *frame, channels, crew.go_on)

            yield from overlapped(rest, _same, match, _same, 1, crew.size, crew.stop)

    def _need(self, left: np.ndarray, stereo: Stereo, on_device: bool, threads: int | None) -> int:
        """Bytes that a frame takes at its peak, once the labels are known."""
        assert self._labels is not None
        known = {field.name for field in fields(MatchOptions)} & self.options.keys()
        options = MatchOptions(**{name: self.options[name] for name in known})
        return map_memory(
            stereo,
            on_device,
            threads,
            options.resolved(stereo.model.config),
            (left.shape[0], left.shape[1]),
            self._labels,
            self.options.get("scale", 1),
        )

    @property
    def independent(self) -> bool:
        """Whether no frame depends on the one before, but for the labels of the first."""
        return self.range_mode == "fixed" and self._warm is None

    def _match(
        self,
        stereo: Stereo,
        left: np.ndarray,
        right: np.ndarray,
        channels: ChannelOrder,
        on_stage: OnStage | None = None,
    ) -> StereoResult:
        if self._warm is not None:
            self._warm.share = self._resemblance(left, channels)
        given = dict(self.options)
        if self._labels is not None:
            for name in ("disparities", "min_disparity", "step", "paper_labels"):
                given.pop(name, None)
            given["labels"] = self._labels
        result = stereo.match(
            left, right, **given, channels=channels, warm=self._warm, on_stage=on_stage
        )
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


def _same(item: Any) -> Any:
    return item


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
