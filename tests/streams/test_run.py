"""A stream from source to sinks: every frame or the newest one, and each way to end."""

from __future__ import annotations

import threading
import time
from itertools import islice

import numpy as np
import pytest

from hybridstereo.errors import InputError, OutputError
from hybridstereo.labels import LabelRange
from hybridstereo.result import StereoResult
from hybridstereo.streams.run import run_stream
from hybridstereo.streams.sinks import StopStreamError


class Frames:
    """A source whose frames hold their number."""

    rate, live, damaged = None, True, False

    def __init__(self, count, fails_at=None):
        self.notes = []
        self._numbers = iter(range(count))
        self._fails_at = fails_at

    def read(self):
        number = next(self._numbers, None)
        if number is not None and number == self._fails_at:
            raise InputError("a frame is bad")
        return None if number is None else (np.full((2, 3, 3), number), np.zeros((2, 3, 3)))


class Matcher:
    """Says the number of a frame; may wait for permission, or fail."""

    def __init__(self, before=lambda number: None):
        self._before = before

    def match_all(self, frames, *, at_once):
        self.at_once = at_once
        for left, _ in frames:
            number = int(left[0, 0, 0])
            self._before(number)
            disparity = np.full(left.shape[:2], number, np.float32)
            labels = LabelRange(0.0, 8 if number < 2 else 16)
            yield StereoResult(disparity, disparity, labels, None, None, {})


class AheadMatcher(Matcher):
    """Takes frames before it gives results, as one does that matches several at a time."""

    def match_all(self, frames, *, at_once):
        rest = iter(frames)
        for first in rest:
            yield from super().match_all([first, *islice(rest, at_once - 1)], at_once=at_once)


class Sink:
    def __init__(self, fails_at=None, error=None):
        self.numbers = []
        self.finished = 0
        self._fails_at, self._error = fails_at, error

    def write(self, number, disparity):
        if number == self._fails_at:
            raise self._error or OutputError("full")
        assert (disparity == number).all()
        self.numbers.append(number)

    def finish(self):
        self.finished += 1


def test_every_frame_is_matched_in_order():
    sink, reports = Sink(), []
    summary = run_stream(Frames(6), Matcher(), [sink], on_frame=reports.append)
    assert sink.numbers == list(range(6))
    assert sink.finished == 1
    assert (summary.frames, summary.dropped, summary.ending) == (6, 0, "end")
    assert [x.count for x in summary.label_ranges] == [8, 16]
    assert [x.done for x in reports] == [1, 2, 3, 4, 5, 6]
    assert 0 <= summary.latency(0.5) <= summary.latency(1.0) <= summary.seconds
    assert summary.rate == pytest.approx(6 / summary.seconds)


def test_frames_that_are_matched_together_keep_their_numbers():
    sink, reports, matcher = Sink(), [], AheadMatcher()
    summary = run_stream(Frames(7), matcher, [sink], at_once=3, on_frame=reports.append)
    assert matcher.at_once == 3
    assert sink.numbers == [x.number for x in reports] == list(range(7))
    assert summary.frames == 7


def test_only_the_newest_frame_counts_with_drop():
    """While the first frame is matched, all others arrive: only the last is still of interest."""
    arrived = threading.Event()

    class Watched(Frames):
        def read(self):
            pair = super().read()
            if pair is None:
                arrived.set()
            return pair

    def wait(number):
        if number == 0:
            assert arrived.wait(20)

    class FirstSeen(Watched):
        """Gives the matcher time to take the first frame."""

        started = threading.Event()

        def read(self):
            pair = super().read()
            if pair is not None and pair[0][0, 0, 0] == 1:
                assert self.started.wait(20)
            return pair

    def begin(number):
        FirstSeen.started.set()
        wait(number)

    sink = Sink()
    summary = run_stream(FirstSeen(6), Matcher(begin), [sink], drop=True)
    assert sink.numbers == [0, 5]
    assert (summary.frames, summary.dropped) == (2, 4)


def test_files_are_played_at_their_own_pace_with_drop():
    source = Frames(4)
    source.live, source.rate = False, 50.0
    begun = time.monotonic()
    run_stream(source, Matcher(), [], drop=True)
    assert time.monotonic() - begun >= 3 / 50


def test_a_number_of_frames():
    sink = Sink()
    summary = run_stream(Frames(100), Matcher(), [sink], limit=3)
    assert sink.numbers == [0, 1, 2]
    assert summary.ending == "limit"


@pytest.mark.parametrize(
    ("error", "ending"), [(KeyboardInterrupt, "interrupted"), (StopStreamError, "closed")]
)
def test_an_interrupted_stream_is_complete_until_then(error, ending):
    sinks = Sink(), Sink(2, error())
    summary = run_stream(Frames(6), Matcher(), sinks)
    assert summary.ending == ending
    assert summary.frames == 2
    assert [x.finished for x in sinks] == [1, 1]


def test_a_sink_that_fails_does_not_take_others_with_it():
    sinks = Sink(), Sink(2)
    with pytest.raises(OutputError, match="full"):
        run_stream(Frames(6), Matcher(), sinks)
    assert [x.finished for x in sinks] == [1, 1]


def test_what_goes_wrong_in_the_reader_is_raised_here():
    sink = Sink()
    with pytest.raises(InputError, match="a frame is bad"):
        run_stream(Frames(6, fails_at=3), Matcher(), [sink])
    assert sink.numbers == [0, 1, 2]
    assert sink.finished == 1
    assert not [x for x in threading.enumerate() if x.name == "hstereo-frames"]
