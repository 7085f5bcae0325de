from __future__ import annotations

import io

import pytest

from hybridstereo.cli.progress import TextReporter, format_duration, reporter_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ENTRY = {"cross_entropy": 2.5}
FIGURES = {"bad1": 12.0, "bad2": 8.0}


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65.4, "1:05"), (3725, "1:02:05")])
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_plain_lines_are_few(monkeypatch):
    stream = io.StringIO()
    with reporter_for(stream) as reporter:
        for step in range(1, 101):
            reporter.step("unary", step, 100, step / 100, ENTRY)
        reporter.validation("unary", 100, FIGURES, True)
    lines = stream.getvalue().splitlines()
    assert len(lines) <= 4
    assert "unary 100/100" in lines[-2]
    assert "cross entropy 2.5000" in lines[-2]
    assert lines[-1] == "unary 100  validation: bad1 12.00  bad2 8.00 %  (best)"
    assert "\x1b" not in stream.getvalue()


def test_terminal_shows_one_line_that_updates():
    stream = Terminal()
    reporter = TextReporter(stream)
    for step in (1, 2):
        reporter.step("joint", step, None, step / 4, {"hinge": 1.0})
    shown = stream.getvalue()
    assert "\n" not in shown
    assert shown.count("\r\x1b[K[") == 2
    assert "[##########----------] joint 2  hinge 1.0000" in shown
    reporter.message("hello")
    reporter.clear()
    assert stream.getvalue().endswith("\r\x1b[Khello\n\r\x1b[K")
