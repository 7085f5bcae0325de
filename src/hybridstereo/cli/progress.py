"""What a long job shows: a line that updates itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from ..training.stages import Reporter

# Seconds between plain lines: a log file should not grow by a line per step.
_PLAIN_INTERVAL = 20.0
_BAR = 20


def format_duration(seconds: float) -> str:
    """3725 -> '1:02:05'."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class TextReporter(Reporter):
    """Reports on a text stream.

    Parameters
    ----------
    stream
        Where to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._stage = ""
        self._begun = 0.0
        self._first_progress = 0.0
        self._last_line = 0.0
        self._validated = ""

    def step(self, stage: str, step: int, steps: int | None, progress: float, entry: dict) -> None:
        """Show loss, bad-x and the time left."""
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._begun, self._first_progress = stage, now, progress
            self._validated = ""
        done = progress - self._first_progress
        left = (now - self._begun) * (1 - progress) / done if done > 0 else 0.0
        loss = next(
            f"{name.replace('_', ' ')} {entry[name]:.4f}"
            for name in ("cross_entropy", "hinge")
            if name in entry
        )
        counted = f"{step}/{steps}" if steps is not None else f"{step}"
        text = f"{stage} {counted}  {loss}{self._validated}  {format_duration(left)} left"
        if self._terminal:
            filled = round(_BAR * progress)
            bar = "#" * filled + "-" * (_BAR - filled)
            columns = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[K[{bar}] {text}"[: columns + len("\r\x1b[K")])
        elif now - self._last_line >= _PLAIN_INTERVAL or progress >= 1.0:
            self._last_line = now
            self._write(text + "\n")

    def validation(self, stage: str, step: int, figures: dict[str, float], best: bool) -> None:
        """Show the validation figures on a line of their own."""
        self._validated = f"  bad1 {figures['bad1']:.2f} %"
        shown = "  ".join(f"{name} {value:.2f}" for name, value in figures.items())
        self.message(f"{stage} {step}  validation: {shown} %{'  (best)' if best else ''}")

    def message(self, text: str) -> None:
        """Show a line."""
        self._write(f"\r\x1b[K{text}\n" if self._terminal else f"{text}\n")

    def clear(self) -> None:
        """Leave a clean line behind."""
        if self._terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@contextmanager
def reporter_for(stream: TextIO) -> Iterator[TextReporter]:
    """A reporter that tidies up after itself."""
    reporter = TextReporter(stream)
    try:
        yield reporter
    finally:
        reporter.clear()
