"""Several pairs matched at a time, each on its share of the CPU's threads or in a GPU's own queue.

Threads that share one pair wait for each other between its steps, the longer the smaller the pair.
Threads that each have a pair of their own do not.  On a GPU the images of a pair go up, and its map
comes down, while another is computed.  A map has the same bits either way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from . import kernels
from .labels import LabelRange
from .memory import memory_need, usable_memory
from .opencv import opencv_threads
from .options import MatchOptions
from .stereo import Stereo

MOST_AT_ONCE = 8
"""Pairs that are matched at a time, on however many cores: each has volumes of its own."""

Need = Callable[[Stereo, bool, "int | None"], int]
"""Bytes that a pair takes at its peak: with a model, on a GPU or not, with so many threads."""

_EVERY = 1 << 20  # threads, more than any machine has
# Of the memory that may be used: the estimate is right to a tenth, and images are read meanwhile.
_SHARE = 0.75


def map_memory(
    stereo: Stereo,
    on_device: bool,
    threads: int | None,
    options: MatchOptions,
    size: tuple[int, int],
    labels: LabelRange,
    scale: int,
) -> int:
    """Bytes that a map of images of ``size``, rows and columns, takes at its peak.

    The options are resolved (`MatchOptions.resolved`); labels are in pixels of the images, which
    are reduced by ``scale``.
    """
    need = memory_need(
        stereo.model, on_device, str(options.method), threads, len(options.views), options.precision
    )
    rows, columns = (-(-length // scale) for length in size)
    return need(rows, columns, labels.reduced(scale).count if scale > 1 else labels.count)


class StoppedError(Exception):
    """Nobody waits for the result any more."""


class Crew:
    """Threads that match pairs at the same time; to be used in a ``with`` statement.

    Parameters
    ----------
    stereo
        The model.
    max_memory
        Bytes that the process, or the GPU, may use in all; by default what is free counts.
    most
        Pairs at a time; by default as many as there are cores, or queues of a GPU, and no more than
        `MOST_AT_ONCE`.

    Attributes
    ----------
    size
        How many threads may enter `place` at a time.
    """

    def __init__(
        self, stereo: Stereo, max_memory: int | None = None, most: int | None = None
    ) -> None:
        self._stereo, self._max_memory = stereo, max_memory
        # CPU threads of one alone, and of each of several.
        self._threads = self._share = stereo.threads
        self.size = min(stereo.backend.queues, most or MOST_AT_ONCE)
        if stereo.backend.queues == 1:  # not a GPU, which leaves little to do for the CPU
            usable = stereo.backend.calls_at_once(_EVERY)
            threads = min(usable, stereo.threads or usable)
            share = -(-threads // (most or MOST_AT_ONCE))
            self._threads, self._share, self.size = threads, share, threads // share
        self._own = threading.local()
        self._room = Room()
        self._limit: int | None = None  # of the memory for all pairs, if it is known
        self._on_device = False
        self._stopped = False
        self._limits = ExitStack()

    def __enter__(self) -> Crew:
        if self.size > 1:
            limit, self._on_device = usable_memory(self._stereo.backend, self._max_memory)
            self._limit = None if limit is None else int(_SHARE * limit)
            # These hold for the whole process: the first thread that is done must not undo them.
            self._limits.enter_context(kernels.limited_threads(None))
            self._limits.enter_context(opencv_threads(self._share))
        return self

    def __exit__(self, *exception: object) -> None:
        self._limits.close()

    def stop(self) -> None:
        """End what happens in `place` at the next stage."""
        self._stopped = True
        self._room.close()

    @contextmanager
    def place(self, need: Need | None) -> Iterator[Stereo]:
        """The model for the calling thread, once there is room for its pair.

        A pair that is too large for its share of the memory, or whose ``need`` nobody knows, is
        matched alone, with all threads.  Callers give `go_on` to the model, so that it ends after
        `stop`.

        Raises
        ------
        StoppedError
            After `stop`.
        """
        if self.size == 1:
            yield self._stereo
            return
        if not hasattr(self._own, "stereo"):
            self._own.stereo = self._stereo.beside(self._share)
        stereo: Stereo = self._own.stereo
        with stereo.backend.own_queue():
            alone = need is None or self._too_large(stereo, need)
            if alone:
                stereo = stereo.with_threads(self._threads)
            with self._room.entered(alone):
                yield stereo

    def go_on(self, stage: str) -> None:
        """What ``on_stage`` of `Stereo.match` is to be: raises `StoppedError` after `stop`."""
        if self._stopped:
            raise StoppedError(stage)

    def _too_large(self, stereo: Stereo, need: Need) -> bool:
        """Whether not all could match such a pair at the same time."""
        if self._limit is None:
            return False
        return self.size * need(stereo, self._on_device, self._share) > self._limit


class Room:
    """Several pairs at a time, or one alone; those that come first go first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._inside = 0
        self._taken = False  # by one alone
        self._closed = False

    def close(self) -> None:
        """Let nobody in any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @contextmanager
    def entered(self, alone: bool) -> Iterator[None]:
        """Wait until the others let one in, and stay inside the block.

        Raises
        ------
        StoppedError
            If the room is closed before.
        """
        ticket = object()

        def may_enter() -> bool:
            first = self._waiting[0] is ticket  # or one that wants to be alone would wait for ever
            return self._closed or (first and not self._taken and not (alone and self._inside))

        with self._changed:
            self._waiting.append(ticket)
            self._changed.wait_for(may_enter)
            self._waiting.remove(ticket)
            if self._closed:
                raise StoppedError
            self._inside, self._taken = self._inside + 1, alone
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._inside, self._taken = self._inside - 1, False
                self._changed.notify_all()
