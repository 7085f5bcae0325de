"""How far a command is: a line that updates itself on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TextIO

import click

# Seconds between plain lines: a log file should not grow by a line per step.
_PLAIN_INTERVAL = 20.0
_BAR = 20
_CLEAR = "\r\x1b[K"
# Of a map: work that takes less needs no bar; and how often the bar moves.
_WORTH_A_BAR, _FRAME = 3.0, 0.25


def format_duration(seconds: float) -> str:
    """3725 -> '1:02:05'."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def bar(fraction: float) -> str:
    """0.5 -> '[##########----------]'."""
    filled = round(_BAR * fraction)
    return f"[{'#' * filled}{'-' * (_BAR - filled)}]"


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
        self._lock = threading.RLock()  # a line is written as a whole, from whatever thread
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
            self._update(f"{bar(fraction)} {text}")
        elif self._last_line is None or now - self._last_line >= _PLAIN_INTERVAL or fraction >= 1:
            self._last_line = now
            self._write(f"{text}\n")

    def message(self, text: str) -> None:
        """Print a line that stays."""
        self._write(f"{_CLEAR}{text}\n" if self._terminal else f"{text}\n")

    def result(self, text: str) -> None:
        """Print a line on standard output; on a terminal, what shows the progress makes way."""
        if self._terminal:
            self._write(_CLEAR)
        click.echo(text)

    def _update(self, text: str) -> None:
        """Replace the line; one that is too long would wrap and could not be cleared again."""
        self._write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        try:
            with self._lock:
                click.echo(text, file=self._stream, nl=False)
        except BrokenPipeError:
            raise  # as for all programs in a pipe: nobody listens any more
        except OSError:
            pass  # a log on a full disk is no reason to stop hours of work


class MapProgress(Progress):
    """How far a single map is: percent and time left, between the stages, too.

    On a terminal a bar appears as soon as the work turns out to take more than three seconds, and
    moves on by the clock while a stage runs.  Elsewhere there is a line every 20 seconds.

    Parameters
    ----------
    stream
        Where to write; standard error unless given.
    quiet
        Show nothing at all.
    """

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        super().__init__(stream)
        self._quiet = quiet
        self._begun: float | None = None  # when the work of the map itself did
        self._name = ""
        self._tile = ""
        # Of the stage that runs: its shares of the work, and when it began.
        self._share, self._share_after, self._since = 0.0, 0.0, 0.0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> MapProgress:
        if not self._quiet:
            self._last_line = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if not self._quiet:
            super().__exit__(*exception)

    def stage(self, name: str) -> None:
        """A stage begins."""
        self._name = name.replace("_", " ")
        self._show()

    def tile(self, done: int, count: int) -> None:
        """A tile begins."""
        self._tile = f"tile {done + 1} of {count}"

    def share(self, done: float, after: float) -> None:
        """The stage that begins takes the work from ``done`` of all to ``after``."""
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        self._share, self._share_after, self._since = done, after, now

    def message(self, text: str) -> None:
        """Print a line that stays, unless nothing is to be said."""
        if not self._quiet:
            super().message(text)

    def estimate(self) -> tuple[float, float | None]:
        """The share of the work that is done, and seconds left; None while nothing tells that."""
        if self._begun is None:
            return 0.0, None
        now = time.monotonic()
        share, until_stage = self._share, self._since - self._begun
        if share <= 0 or until_stage <= 0:
            return 0.0, None
        # The stage goes on as fast as those before it; it is not at its end before it says so.
        expected = until_stage / share
        share = min(share + (now - self._since) / expected, 0.02 * share + 0.98 * self._share_after)
        return share, max(expected * (1 - share), 0.0)

    def _run(self) -> None:
        while not self._stopped.wait(_FRAME):
            self._show()

    def _show(self) -> None:
        if self._quiet:
            return
        share, left = self.estimate()
        work = " ".join(part for part in (self._tile, self._name) if part)
        now = time.monotonic()
        long = left is not None and now - (self._begun or now) + left > _WORTH_A_BAR
        if self._terminal:
            if left is not None and long:
                percent = f"{bar(share)} {100 * share:3.0f} %  {format_duration(left)} left"
                self._update(f"{percent}  {work}")
            elif work:
                self._update(f"{work} ...")
        elif left is not None and now - (self._last_line or now) >= _PLAIN_INTERVAL:
            self._last_line = now
            self._write(f"hstereo: {100 * share:.0f} %, {format_duration(left)} left, {work}\n")
