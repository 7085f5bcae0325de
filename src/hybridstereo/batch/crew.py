"""Several pairs matched at a time, each on its share of the CPU's threads or in a GPU's own queue.

Threads that share one pair wait for each other between its steps, the longer the smaller the pair.
Threads that each have a pair of their own do not.  On a GPU the images of a pair go up, and its map
comes down, while another is computed.  A map has the same bits either way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from .. import kernels
from ..errors import StereoError
from ..labels import LabelRange
from ..memory import memory_need, usable_memory
from ..opencv import opencv_threads
from ..search_range import widest_range
from ..stereo import Stereo
from .work import LoadedPair, MatchResult, PairOutcome, PairWork, labelled, match_pair

MOST_AT_ONCE = 8
"""Pairs that are matched at a time, on however many cores: each has volumes of its own."""

_EVERY = 1 << 20  # threads, more than any machine has
# Of the memory that may be used: the estimate is right to a tenth, and images are read meanwhile.
_SHARE = 0.75


class StoppedError(Exception):
    """Nobody waits for the result any more."""


class Crew:
    """Matches pairs in several threads; to be used in a ``with`` statement.

    Parameters
    ----------
    stereo
        The model.
    work
        What is done with every pair.

    Attributes
    ----------
    size
        How many threads may call `match` at a time.
    """

    def __init__(self, stereo: Stereo, work: PairWork) -> None:
        self._stereo, self._work = stereo, work
        # CPU threads of one alone, and of each of several.
        self._threads = self._share = stereo.threads
        self.size = stereo.backend.queues
        if self.size == 1:  # not a GPU, which leaves little to do for the CPU
            usable = stereo.backend.calls_at_once(_EVERY)
            threads = min(usable, stereo.threads or usable)
            share = -(-threads // MOST_AT_ONCE)
            self._threads, self._share, self.size = threads, share, threads // share
        self._own = threading.local()
        self._room = Room()
        self._limit: int | None = None  # of the memory for all pairs, if it is known
        self._on_device = False
        self._stopped = False
        self._limits = ExitStack()

    def __enter__(self) -> Crew:
        if self.size > 1:
            limit, self._on_device = usable_memory(self._stereo.backend, self._work.max_memory)
            self._limit = None if limit is None else int(_SHARE * limit)
            # These hold for the whole process: the first thread that is done must not undo them.
            self._limits.enter_context(kernels.limited_threads(None))
            self._limits.enter_context(opencv_threads(self._share))
        return self

    def __exit__(self, *exception: object) -> None:
        self._limits.close()

    def stop(self) -> None:
        """End the calls of `match` at their next stage."""
        self._stopped = True
        self._room.close()

    def match(self, loaded: LoadedPair | PairOutcome) -> MatchResult | PairOutcome:
        """As `match_pair`; a pair that is too large for its share of the memory is matched alone.

        Raises
        ------
        StoppedError
            After `stop`.
        """
        if self.size == 1 or isinstance(loaded, PairOutcome):
            return match_pair(self._stereo, self._work, loaded)
        if not hasattr(self._own, "stereo"):
            self._own.stereo = self._stereo.beside(self._share)
        stereo: Stereo = self._own.stereo
        with stereo.backend.own_queue():
            # How many labels costs in a file have is not known before they are read.
            alone = loaded.right is None or self._too_large(stereo, loaded)
            if alone:
                stereo = stereo.with_threads(self._threads)
            with self._room.entered(alone):
                return match_pair(stereo, self._work, loaded, self._continue)

    def _continue(self, stage: str) -> None:
        if self._stopped:
            raise StoppedError(stage)

    def _too_large(self, stereo: Stereo, loaded: LoadedPair) -> bool:
        """Whether not all could match such a pair at the same time."""
        return self._limit is not None and self.size * self._need(stereo, loaded) > self._limit

    def _need(self, stereo: Stereo, loaded: LoadedPair) -> int:
        """Bytes that matching a pair takes at its peak."""
        work, scale = self._work, self._work.scale
        height, width, _ = loaded.left.shape
        try:
            options = work.options.resolved(stereo.model.config)
            labels = labelled(stereo, options, loaded.stated).get("labels")
            if labels is None:
                labels = stereo.label_range(width, options, found=self._range(stereo, loaded))
        except StereoError:
            return 0  # which matching the pair will tell
        need = memory_need(
            stereo.model, self._on_device, str(options.method), self._share, len(options.views)
        )
        return need(
            -(-height // scale),
            -(-width // scale),
            labels.reduced(scale).count if scale > 1 else labels.count,
        )

    def _range(self, stereo: Stereo, loaded: LoadedPair) -> LabelRange | None:
        """The range that will be searched, or a longer one; None if the options say it."""
        if self._work.options.disparities not in (None, "auto"):
            return None
        if self._work.rectify:  # it is found in the corrected views, which do not exist yet
            return widest_range(loaded.left.shape[1])
        assert loaded.right is not None  # such pairs are matched alone
        return stereo.find_range(loaded.left, loaded.right)  # which is remembered


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
