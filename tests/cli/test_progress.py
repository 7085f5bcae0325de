from __future__ import annotations

import io
import os

import click
import pytest

from hybridstereo.cli import progress as progress_module
from hybridstereo.cli.progress import MapProgress, Progress, format_duration
from hybridstereo.cli.training_progress import TrainingProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unwritable(io.StringIO):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


ENTRY = {"loss": "cross_entropy", "cross_entropy": 2.5}
FIGURES = {"bad1": 12.0, "bad2": 8.0}
TRAIN = click.Command("train", params=[click.Option(["--lr"])])


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told to."""
    now = [1000.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65.4, "1:05"), (3725, "1:02:05")])
def test_durations(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_results_have_lines_of_their_own(kind, monkeypatch):
    """Also where standard output and standard error are one terminal."""
    screen = kind()
    monkeypatch.setattr("sys.stdout", screen)
    with Progress(screen) as progress:
        progress.advance(0.5, "1/2")
        progress.result("map.pfm")
        progress.advance(1.0, "2/2")
    shown = [line.rpartition("\x1b[K")[2] for line in screen.getvalue().split("\n")]
    assert "map.pfm" in shown


def test_plain_lines_are_few():
    stream = io.StringIO()
    with Progress(stream) as progress:
        reporter = TrainingProgress(progress, TRAIN)
        for step in range(1, 101):
            reporter.step("unary", step, 100, step / 100, ENTRY)
        reporter.validation("unary", 100, FIGURES, True)
    lines = stream.getvalue().splitlines()
    assert len(lines) <= 4
    assert "unary 100/100" in lines[-2]
    assert "cross entropy 2.5000" in lines[-2]
    assert lines[-1] == "unary 100  validation: bad1 12.00  bad2 8.00 %  (best)"
    assert "\x1b" not in stream.getvalue()


def test_a_log_that_cannot_be_written_stops_no_work():
    with Progress(Unwritable(OSError(28, "No space left on device"))) as progress:
        progress.message("stage unary")
        progress.advance(0.5, "1/2")


def test_a_reader_that_goes_away_stops_the_work():
    with pytest.raises(BrokenPipeError), Progress(Unwritable(BrokenPipeError())) as progress:
        progress.message("stage unary")


def test_plain_lines_come_at_intervals(clock):
    stream = io.StringIO()
    with Progress(stream) as progress:
        for done in range(8):
            progress.advance(done / 8, f"{done}/8 scene")
            clock[0] += 7
    assert stream.getvalue().splitlines() == [
        "0/8 scene",
        "3/8 scene  0:35 left",
        "6/8 scene  0:14 left",
    ]


def test_time_left_is_that_of_the_part(clock):
    stream = Terminal()
    with Progress(stream) as progress:
        for part in ("first", "second"):
            progress.advance(0.2, part, part)
            clock[0] += 10
            progress.advance(0.6, part, part)
            clock[0] += 1000
    shown = stream.getvalue().split("\r\x1b[K")
    assert shown[1].endswith("] first")
    assert shown[2].endswith("] first  0:10 left")
    assert shown[4].endswith("] second  0:10 left")


def test_terminal_shows_one_line_that_updates():
    stream = Terminal()
    with Progress(stream) as progress:
        reporter = TrainingProgress(progress, TRAIN)
        for step in (1, 2):
            reporter.step("joint", step, None, step / 4, {"loss": "hinge", "hinge": 1.0})
        shown = stream.getvalue()
        assert "\n" not in shown
        assert shown.count("\r\x1b[K[") == 2
        assert "[##########----------] joint 2  hinge 1.0000" in shown
        reporter.message("hello")
    assert stream.getvalue().endswith("\r\x1b[Khello\n\r\x1b[K")


def test_long_lines_are_cut_to_the_terminal(monkeypatch):
    monkeypatch.setattr(
        progress_module.shutil, "get_terminal_size", lambda: os.terminal_size((40, 24))
    )
    stream = Terminal()
    with Progress(stream) as progress:
        progress.advance(0.5, "x" * 100)
    assert len(stream.getvalue().split("\r\x1b[K")[1]) == 39


def test_stages_are_shown_on_a_terminal_only():
    for stream, expected in ((io.StringIO(), ""), (Terminal(), "\r\x1b[Kunary cnn ...\r\x1b[K")):
        with Progress(stream) as progress:
            progress.stage("unary_cnn")
        assert stream.getvalue() == expected


def test_line_is_cleared_after_a_failure():
    stream = Terminal()
    progress = Progress(stream)
    progress.stage("crf")
    with pytest.raises(KeyboardInterrupt), progress:
        raise KeyboardInterrupt
    assert stream.getvalue().endswith("\r\x1b[K")


def test_validation_error_stays_beside_the_steps_of_its_stage():
    stream = Terminal()
    with Progress(stream) as progress:
        reporter = TrainingProgress(progress, TRAIN)
        reporter.validation("unary", 1, FIGURES, False)
        reporter.step("unary", 2, 4, 0.5, ENTRY)
        reporter.step("joint", 1, 4, 0.25, {"loss": "hinge", "hinge": 1.0})
    shown = stream.getvalue().split("\r\x1b[K")
    assert "bad1 12.00 %" in shown[2]
    assert "bad1" not in shown[3]


def test_messages_of_a_run_name_the_options_of_the_command():
    stream = io.StringIO()
    with Progress(stream) as progress:
        TrainingProgress(progress, TRAIN).message("Use a smaller `lr`")
    assert stream.getvalue() == "Use a smaller --lr\n"


# --- a single map ----------------------------------------------------------------------------


def shown(stream: io.StringIO) -> str:
    """The line that a terminal shows now."""
    return stream.getvalue().rpartition("\x1b[K")[2]


def test_a_map_that_takes_long_gets_a_bar_with_percent_and_time_left(clock):
    stream = Terminal()
    progress = MapProgress(stream)
    progress.stage("input")
    progress.share(0.0, 0.1)
    assert shown(stream) == "input ..."
    clock[0] += 1
    progress.share(0.1, 0.6)  # a tenth in a second: nine more to go
    progress.stage("unary_cnn")
    assert shown(stream) == "[##------------------]  10 %  0:09 left  unary cnn"
    clock[0] += 2.5  # in the middle of the stage nothing but the clock tells
    assert progress.estimate() == (pytest.approx(0.35), pytest.approx(6.5))
    clock[0] += 60  # it is slower than the one before, and still not at its end
    share, left = progress.estimate()
    assert 0.5 < share < 0.6
    assert left > 0


def test_tiles_are_counted(clock):
    stream = Terminal()
    progress = MapProgress(stream)
    progress.share(0.0, 0.5)
    clock[0] += 10
    progress.tile(1, 2)
    progress.share(0.5, 0.7)
    progress.stage("crf")
    assert shown(stream).endswith("50 %  0:10 left  tile 2 of 2 crf")


def test_short_work_gets_no_bar(clock):
    stream = Terminal()
    progress = MapProgress(stream)
    progress.share(0.0, 0.5)
    clock[0] += 1
    progress.share(0.5, 1.0)
    progress.stage("crf")
    assert "[" not in stream.getvalue().replace("\x1b[K", "")


def test_a_log_hears_of_a_map_every_20_seconds(clock):
    stream = io.StringIO()
    with MapProgress(stream) as progress:
        for second in range(50):
            progress.share(second / 100, (second + 1) / 100)
            progress.stage("crf")
            clock[0] += 1
    assert stream.getvalue().splitlines() == [
        "hstereo: 20 %, 1:20 left, crf",
        "hstereo: 40 %, 1:00 left, crf",
    ]


def test_quiet_says_nothing(clock):
    stream = Terminal()
    with MapProgress(stream, quiet=True) as progress:
        progress.share(0.0, 0.5)
        clock[0] += 10
        progress.share(0.5, 1.0)
        progress.stage("crf")
        progress.message("hstereo: 1 % is wrong")
    assert stream.getvalue() == ""
