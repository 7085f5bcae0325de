"""Standard streams that cannot be written: a full disk, a reader that has gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


class _Tolerant:
    """A text stream that drops what cannot be written, unless its reader has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            raise  # as for all programs in a pipe: nobody listens any more
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError:
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def messages_may_fail() -> Iterator[None]:
    """Messages that cannot be written (a log on a full disk) are no reason to stop hours of work.

    Results on standard output are: what cannot be written there is a failure of the command.
    """
    before = sys.stderr
    if before is not None:
        sys.stderr = cast(TextIO, _Tolerant(before))
    try:
        yield
    finally:
        sys.stderr = before


def settle(stream: TextIO | None) -> None:
    """Let go of what a stream cannot write: Python would try again, and complain, at exit."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
