"""Many pairs: files are read and written while the pairs between are matched, several at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

from ..stereo import Stereo
from .crew import Crew
from .pairs import Pair
from .work import PairOutcome, PairWork, load_pair, write_pair

AHEAD = 2
"""Pairs that are read before they are needed, and pairs that wait for being written."""

Source = TypeVar("Source")
Written = TypeVar("Written")


def run_pairs(
    stereo: Stereo, pairs: Iterable[Pair], work: PairWork, ahead: int = AHEAD
) -> Iterator[PairOutcome]:
    """Match pairs and write their results.

    On a CPU several pairs are matched at a time, each on its share of the threads, as far as the
    memory allows (`hybridstereo.batch.crew`).  The maps are the same bit for bit.

    Parameters
    ----------
    stereo
        The model, which is used for all of them.
    pairs
        Taken as they are needed.
    work
        What to do with each.
    ahead
        How many pairs to read before they are needed: each keeps two images in memory.

    Yields
    ------
    PairOutcome
        Of each pair, in the order of the pairs; a pair that fails does not stop the others.

    Raises
    ------
    StereoError
        If ``pairs`` does, when all pairs before are done.

    Examples
    --------
    >>> from hybridstereo.batch.folders import pairs_below
    >>> from hybridstereo.batch.outputs import DisparityFile
    >>> work = PairWork("maps", (DisparityFile("{name}.pfm"),))
    >>> for outcome in run_pairs(stereo, pairs_below("scenes"), work):  # doctest: +SKIP
    ...     print(outcome.pair.name, outcome.status, outcome.error)
    """
    with Crew(stereo, work) as crew:
        yield from overlapped(
            pairs,
            partial(load_pair, work),
            crew.match,
            partial(write_pair, work),
            ahead,
            crew.size,
            crew.stop,
        )


def overlapped(
    items: Iterable[Source],
    read: Callable[[Source], Any],
    compute: Callable[[Any], Any],
    write: Callable[[Any], Written],
    ahead: int = AHEAD,
    at_once: int = 1,
    on_stop: Callable[[], None] | None = None,
) -> Iterator[Written]:
    """``write(compute(read(item)))`` of each item, with all three at work at the same time.

    Items are taken and read by one thread, computed by ``at_once`` others (by the caller's own if
    that is one) and written by others again: OpenCV, the kernels and files let other threads run.
    Results come in the order of the items, as soon as they are written.  At most ``ahead`` items
    are read, as many results wait for one before them, and as many are unwritten, beside those
    that are computed.

    An exception of ``items``, or of one of the functions, is raised after the results before it.
    When the caller stops, or is interrupted, ``on_stop`` may end what is being computed; what is
    computed already is still written.
    """
    rest = iter(items)

    def read_next() -> Any:
        try:
            item = next(rest)
        except StopIteration:
            return _END
        return read(item)

    reader = ThreadPoolExecutor(1, "read")
    computer = ThreadPoolExecutor(at_once, "compute") if at_once > 1 else _CallersThread()
    writer = ThreadPoolExecutor(ahead, "write")
    reading: deque[Future[Any]] = deque(reader.submit(read_next) for _ in range(ahead))
    computing: deque[Future[Any]] = deque()
    writing: deque[Future[Written]] = deque()
    failure: Exception | None = None
    try:
        while reading or computing or writing:
            # A step takes something on only if the next one has room for it.
            can_compute = reading and len(computing) < at_once + (ahead if at_once > 1 else 0)
            can_write = computing and len(writing) <= ahead
            awaited = [writing[0]] if writing else []
            awaited += [computing[0]] if can_write else []
            awaited += [reading[0]] if can_compute else []
            wait(awaited, return_when=FIRST_COMPLETED)
            if writing and writing[0].done():
                yield writing.popleft().result()
            elif can_write and computing[0].done():
                try:
                    writing.append(writer.submit(write, computing.popleft().result()))
                except Exception as error:
                    failure = error
                    reading.clear()
                    computing.clear()
            elif can_compute and reading[0].done():
                try:
                    loaded = reading.popleft().result()
                except Exception as error:
                    loaded, failure = _END, error
                if loaded is _END:
                    reading.clear()
                else:
                    reading.append(reader.submit(read_next))
                    computing.append(computer.submit(compute, loaded))
        if failure is not None:
            raise failure
    finally:
        if on_stop is not None:
            on_stop()
        reader.shutdown(wait=False, cancel_futures=True)
        computer.shutdown(wait=True, cancel_futures=True)
        for future in computing:
            if not future.cancelled() and future.exception() is None:
                writer.submit(write, future.result())
        writer.shutdown(wait=True)


class _CallersThread(Executor):
    """Computes when it is asked to, in the thread that asks."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """The result, which is there already."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


_END = object()
