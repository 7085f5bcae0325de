"""Signals that ask a run to end: it finishes its step, saves, and only then ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Ctrl-C, a polite `kill` or the end of a job's time, and the end of the terminal session.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class TerminatedError(KeyboardInterrupt):
    """A run was ended by another signal than Ctrl-C, which raises KeyboardInterrupt itself.

    Attributes
    ----------
    signal
        Which one.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


@contextmanager
def deferred_signals() -> Iterator[threading.Event]:
    """Turn the first signal to end into a request that is met between two steps.

    An update must not stop half-way: the checkpoint would be neither before nor after it.  A second
    signal of any kind does at once what it would do without us.

    Yields
    ------
    threading.Event
        Set once a signal came.

    Raises
    ------
    TerminatedError
        In the place of the KeyboardInterrupt with which the body met the request, if the signal was
        not Ctrl-C.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return
    came: list[int] = []
    previous = {number: _handler(number) for number in _present() if _is_heard(number)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def request(number: int, frame: FrameType | None) -> None:
        came.append(number)
        requested.set()
        restore()

    for number in previous:
        signal.signal(number, request)
    try:
        yield requested
    except KeyboardInterrupt:
        if came and came[0] != signal.SIGINT:
            raise TerminatedError(came[0]) from None
        raise
    finally:
        restore()


def _present() -> list[int]:
    """The numbers of the signals that this platform has."""
    return [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


def _is_heard(number: int) -> bool:
    """Whether to listen: `nohup` has a program ignore the end of the session, and means it."""
    return number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN


def _handler(number: int) -> Any:
    """What a signal does without us; Ctrl-C always interrupts."""
    handler = signal.getsignal(number)
    if number == signal.SIGINT and not callable(handler):
        return signal.default_int_handler
    return signal.SIG_DFL if handler is None else handler
