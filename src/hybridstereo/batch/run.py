"""Many pairs one after the other: files are read and written while the pair between is matched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

from ..stereo import Stereo
from .pairs import Pair
from .work import PairOutcome, PairWork, load_pair, match_pair, write_pair

AHEAD = 2
"""Pairs that are read before they are needed, and pairs that wait for being written."""

Source = TypeVar("Source")
Written = TypeVar("Written")


def run_pairs(
    stereo: Stereo, pairs: Iterable[Pair], work: PairWork, ahead: int = AHEAD
) -> Iterator[PairOutcome]:
    """Match pairs and write their results.

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
    return overlapped(
        pairs,
        partial(load_pair, work),
        partial(match_pair, stereo, work),
        partial(write_pair, work),
        ahead,
    )


def overlapped(
    items: Iterable[Source],
    read: Callable[[Source], Any],
    compute: Callable[[Any], Any],
    write: Callable[[Any], Written],
    ahead: int = AHEAD,
) -> Iterator[Written]:
    """``write(compute(read(item)))`` of each item, with all three at work at the same time.

    Items are taken and read by one thread and results written by others, while the caller's thread
    computes: OpenCV, the kernels and files let other threads run.  Results come in the order of the
    items, as soon as they are written.  At most ``ahead`` items are read, and as many results
    unwritten, beside the one that is computed.

    An exception of ``items``, or of one of the functions, is raised after the results before it.
    When the caller stops, or is interrupted, what is computed already is still written.
    """
    rest = iter(items)

    def read_next() -> Any:
        try:
            item = next(rest)
        except StopIteration:
            return _END
        return read(item)

    reader = ThreadPoolExecutor(1, "read")
    writer = ThreadPoolExecutor(ahead, "write")
    reading: deque[Future[Any]] = deque(reader.submit(read_next) for _ in range(ahead))
    writing: deque[Future[Written]] = deque()
    try:
        failure: BaseException | None = None
        while reading:
            if writing:  # what is written is told while we wait for a slow source of items
                wait({reading[0], writing[0]}, return_when=FIRST_COMPLETED)
            while writing and (writing[0].done() or len(writing) > ahead):
                yield writing.popleft().result()
            if writing and not reading[0].done():
                continue
            try:
                loaded = reading.popleft().result()
                if loaded is _END:
                    break
                reading.append(reader.submit(read_next))
                computed = compute(loaded)
            except Exception as error:
                failure = error
                break
            writing.append(writer.submit(write, computed))
        while writing:
            yield writing.popleft().result()
        if failure is not None:
            raise failure
    finally:
        reader.shutdown(wait=False, cancel_futures=True)
        writer.shutdown(wait=True)


_END = object()
