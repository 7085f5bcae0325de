"""Items that are read and written while others between them are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

AHEAD = 2
"""Items that are read before they are needed, and items that wait for being written."""

Source = TypeVar("Source")
Written = TypeVar("Written")


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
