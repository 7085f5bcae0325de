"""How far a command is: a line that updates itself on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

import click

# Seconds between plain lines: a log file should not grow by a line per step.
_PLAIN_INTERVAL = 20.0
_BAR = 20
_CLEAR = "\r\x1b[K"


def format_duration(seconds: float) -> str:
    """3725 -> '1:02:05'."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """Tells the user how far the work is; leaving its context clears the line.

    Parameters
    ----------
    stream
        Where to write; standard error unless given.

    Examples
    --------
    >>> with Progress() as progress:  # doctest: +SKIP
    ...     for done, name in enumerate(names):
    ...         progress.advance(done / len(names), f"{done}/{len(names)} {name}")
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._part: str | None = None
        self._part_begun = 0.0
        self._part_start = 0.0
        self._last_line: float | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._terminal:
            self._write(_CLEAR)

    def stage(self, name: str) -> None:
        """Show what begins, when there is no telling how long it will take; on a terminal only."""
        if self._terminal:
            self._update(f"{name.replace('_', ' ')} ...")

    def advance(self, fraction: float, text: str, part: str = "") -> None:
        """Show that ``fraction`` of the work is done.

        Parameters
        ----------
        fraction
            In [0, 1].
        text
            What is done or begins, usually with a count.
        part
            A part of the work that takes a time of its own: the time left is that of the part, and
            ``fraction`` begins anew with each part.
        """
        now = time.monotonic()
        if part != self._part:
            self._part, self._part_begun, self._part_start = part, now, fraction
        done = fraction - self._part_start
        if done > 0:
            left = (now - self._part_begun) * (1 - fraction) / done
            text += f"  {format_duration(left)} left"
        if self._terminal:
            filled = round(_BAR * fraction)
            self._update(f"[{'#' * filled}{'-' * (_BAR - filled)}] {text}")
        elif self._last_line is None or now - self._last_line >= _PLAIN_INTERVAL or fraction >= 1:
            self._last_line = now
            self._write(f"{text}\n")

    def message(self, text: str) -> None:
        """Print a line that stays."""
        self._write(f"{_CLEAR}{text}\n" if self._terminal else f"{text}\n")

    def _update(self, text: str) -> None:
        """Replace the line; one that is too long would wrap and could not be cleared again."""
        self._write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        try:
            click.echo(text, file=self._stream, nl=False)
        except BrokenPipeError:
            raise  # as for all programs in a pipe: nobody listens any more
        except OSError:
            pass  # a log on a full disk is no reason to stop hours of work
