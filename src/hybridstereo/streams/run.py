"""A stream from its source to its sinks: reading ahead, dropping, timing, ending cleanly.

A thread reads and decodes while the frame before is matched.  Frames are queued, and then none is
lost; or the newest one counts, and what comes while a frame is matched is dropped, as a robot wants
it.  However a stream ends, its sinks are completed with what was done.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from ..errors import StereoError
from ..labels import LabelRange
from ..result import StereoResult
from .sinks import DEFAULT_RATE, MapSink, StopStreamError

Ending = Literal["end", "limit", "closed", "interrupted", "damaged"]
"""Why a stream ended: its last frame, the number of frames asked for, a closed window, Ctrl-C, or a
frame that could not be read."""

_READ_AHEAD = 1  # frames that wait while one is matched
_RECENT = 20  # frames over which the rate that is shown is taken


class Pairs(Protocol):
    """Where frames come from; see `sources.FramePairs`."""

    rate: float | None
    live: bool
    notes: list[str]
    damaged: bool

    def read(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The next frame of both views, or None at the end."""


class Matcher(Protocol):
    """What turns frames into maps; see `hybridstereo.sequence`."""

    def match_all(
        self, frames: Iterable[tuple[np.ndarray, np.ndarray]], *, at_once: int | None
    ) -> Generator[StereoResult, None, None]:
        """The maps of frames in their order; frames are taken as they are needed."""


@dataclass(frozen=True)
class FrameReport:
    """What is known after a frame, for those who follow a stream.

    Attributes
    ----------
    number
        Of the frame in the stream, from 0.
    done, dropped
        Frames so far.
    latency
        Seconds from the moment that the frame was read until its map was written.
    rate
        Maps per second over the last frames.
    result
        The map.
    """

    number: int
    done: int
    dropped: int
    latency: float
    rate: float
    result: StereoResult


@dataclass
class StreamSummary:
    """How a stream went.

    Attributes
    ----------
    frames, dropped
        Maps that were written, and frames that were read but not matched.
    seconds
        From the first frame to the last map.
    latencies
        Of every frame, in seconds.
    ending
        Why it ended.
    notes
        What is to be said about the streams.
    label_ranges
        Every range that was searched, in order, without repetitions.
    """

    frames: int = 0
    dropped: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    ending: Ending = "end"
    notes: list[str] = field(default_factory=list)
    label_ranges: list[LabelRange] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Maps per second, over all."""
        return self.frames / self.seconds if self.seconds > 0 else 0.0

    def latency(self, share: float) -> float:
        """The latency that this share of the frames does not exceed; 0 without frames."""
        return float(np.quantile(self.latencies, share)) if self.latencies else 0.0


@dataclass(frozen=True)
class _Frame:
    number: int
    left: np.ndarray
    right: np.ndarray
    read_at: float


class _FrameReader(threading.Thread):
    """Reads frames ahead, or keeps only the newest one."""

    def __init__(self, source: Pairs, drop: bool) -> None:
        super().__init__(daemon=True, name="hstereo-frames")
        self._source = source
        self._drop = drop
        self._waiting: deque[_Frame] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._error: BaseException | None = None
        self.dropped = 0

    def run(self) -> None:
        """Read until the source or the stream ends; what goes wrong is raised by `next`."""
        try:
            self._read_all()
        except BaseException as error:
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_all(self) -> None:
        # Files would be read at once: with dropping they are played at the pace that they state.
        pace = (
            1 / (self._source.rate or DEFAULT_RATE) if self._drop and not self._source.live else 0
        )
        begun = time.monotonic()
        number = 0
        while not self._ended and (pair := self._source.read()) is not None:
            delay = begun + number * pace - time.monotonic()
            if pace and delay > 0:
                time.sleep(delay)
            self._put(_Frame(number, *pair, time.monotonic()))
            number += 1

    def _put(self, frame: _Frame) -> None:
        with self._changed:
            if self._drop:
                self.dropped += len(self._waiting)
                self._waiting.clear()
            while len(self._waiting) >= _READ_AHEAD and not self._ended:
                self._changed.wait()
            self._waiting.append(frame)
            self._changed.notify_all()

    def next(self) -> _Frame | None:
        """The next frame, once there is one; None at the end."""
        with self._changed:
            while not self._waiting and not self._ended:
                self._changed.wait(0.1)  # not for ever, so that Ctrl-C is heard everywhere
            if self._waiting:
                frame = self._waiting.popleft()
                self._changed.notify_all()
                return frame
        if self._error is not None:
            raise self._error
        return None

    def stop(self) -> None:
        """Let the thread end; a source that waits for a camera ends with the process."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self.join(timeout=2.0)


def run_stream(
    source: Pairs,
    matcher: Matcher,
    sinks: Sequence[MapSink],
    *,
    drop: bool = False,
    at_once: int | None = 1,
    limit: int | None = None,
    on_frame: Callable[[FrameReport], None] | None = None,
) -> StreamSummary:
    """Match a stream frame by frame until it ends, is interrupted, or is damaged.

    Parameters
    ----------
    source
        Where frames come from; closing it is the caller's.
    matcher
        Makes the maps.
    sinks
        Where they go; completed here, whatever happens.
    drop
        Match the newest frame and drop those that came meanwhile; files are then played at their
        own pace.  Otherwise every frame is matched.
    at_once
        How many frames are matched at a time, as ``matcher`` takes it.
    limit
        End after so many maps.
    on_frame
        Called after every map.

    Raises
    ------
    StereoError
        If the first frame cannot be read, or a frame cannot be matched or written.
    """
    summary = StreamSummary()
    reader = _FrameReader(source, drop)
    reader.start()
    try:
        _match_all(reader, matcher, sinks, summary, at_once, limit, on_frame)
    except KeyboardInterrupt:
        summary.ending = "interrupted"
    except StopStreamError:
        summary.ending = "closed"
    finally:
        reader.stop()
        _finish(sinks)
    if source.damaged:
        summary.ending = "damaged"
    summary.notes = list(source.notes)
    return summary


def _match_all(
    reader: _FrameReader,
    matcher: Matcher,
    sinks: Sequence[MapSink],
    summary: StreamSummary,
    at_once: int | None,
    limit: int | None,
    on_frame: Callable[[FrameReport], None] | None,
) -> None:
    taken: deque[_Frame] = deque()  # of which there is no map yet

    def views() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        while (frame := reader.next()) is not None:
            taken.append(frame)
            yield frame.left, frame.right

    begun: float | None = None
    recent: deque[float] = deque(maxlen=_RECENT + 1)
    with closing(matcher.match_all(views(), at_once=at_once)) as results:
        for result in results:
            frame = taken.popleft()
            if begun is None:
                begun = frame.read_at
                recent.append(begun)
            for sink in sinks:
                sink.write(frame.number, result.disparity)
            now = time.monotonic()
            recent.append(now)
            summary.frames += 1
            summary.dropped = reader.dropped
            summary.seconds = now - begun
            summary.latencies.append(now - frame.read_at)
            if not summary.label_ranges or summary.label_ranges[-1] != result.label_range:
                summary.label_ranges.append(result.label_range)
            if on_frame is not None:
                rate = (len(recent) - 1) / max(recent[-1] - recent[0], 1e-9)
                on_frame(
                    FrameReport(
                        frame.number,
                        summary.frames,
                        reader.dropped,
                        summary.latencies[-1],
                        rate,
                        result,
                    )
                )
            if limit is not None and summary.frames >= limit:
                summary.ending = "limit"
                return


def _finish(sinks: Sequence[MapSink]) -> None:
    """Complete all sinks, also if one of them fails; the first failure is raised."""
    failure: StereoError | None = None
    for sink in sinks:
        try:
            sink.finish()
        except StereoError as error:
            failure = failure or error
    if failure is not None:
        raise failure
