"""Worker threads of the kernels.

They are threads of Python: loops over tiles release the GIL inside ``np.matmul`` and inside
``@compiled(nogil=True)`` functions.  Numba's own, ``prange``, cannot call BLAS through NumPy, and
a kernel that has one takes three times as long to compile.  BLAS is limited to one thread
meanwhile; otherwise every worker would start threads of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from typing import Any, TypeVar

import numba
from threadpoolctl import ThreadpoolController

from ..backend import Item, Result

Tile = TypeVar("Tile")

_BANDS = 4  # of rows for each thread, so that others can take over from a slow one


@cache
def _controller() -> ThreadpoolController:
    # Finding the loaded libraries takes milliseconds, so it is done once.
    return ThreadpoolController()


class _OneBlasThread:
    """Limits BLAS from when the first block is entered, by whatever thread, until all are left.

    Asking and telling the libraries takes 0.1 ms, which inner blocks need not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._limits = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._blocks == 0:
                self._limits.enter_context(_controller().limit(limits=1, user_api="blas"))
            self._blocks += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                self._limits.close()


_ONE_BLAS_THREAD = _OneBlasThread()


def one_blas_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread inside the block: its sums then have the same order everywhere."""
    return _ONE_BLAS_THREAD


def run_tiles(worker: Callable[[Iterator[Tile]], None], tiles: Iterable[Tile]) -> None:
    """Run ``worker(tiles)`` on every thread; each tile is handed to exactly one of them.

    Parameters
    ----------
    worker
        Allocates its scratch buffers once and then loops over the iterator it is given.
    tiles
        The units of work.  Tiles write disjoint results, so that their order, which depends on
        timing, cannot change the output.
    """
    lock = threading.Lock()
    source = iter(tiles)

    def take() -> Iterator[Tile]:
        while True:
            with lock:
                try:
                    tile = next(source)
                except StopIteration:
                    return
            yield tile

    threads = numba.get_num_threads()
    with one_blas_thread():
        if threads == 1:
            worker(take())
            return
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(worker, take()) for _ in range(threads)]:
                future.result()


def run_rows(
    kernel: Callable[..., None], rows: int, *arguments: Any, at_once: int | None = None
) -> None:
    """Call ``kernel(first, last, *arguments)`` for all rows, in bands, on every thread.

    Parameters
    ----------
    kernel
        Computes rows ``first`` to ``last`` - 1 of its results, which do not depend on the others: a
        compiled function, ``nogil``, or one that calls NumPy.
    rows
        How many there are.
    at_once
        Rows of a band; by default a few bands for each thread.
    """
    height = at_once or -(-rows // (_BANDS * numba.get_num_threads()))

    def worker(bands: Iterator[int]) -> None:
        for first in bands:
            kernel(first, min(first + height, rows), *arguments)

    if rows:
        run_tiles(worker, range(0, rows, height))


def calls_at_once(item_count: int) -> int:
    """How many of ``item_count`` independent calls `side_by_side` makes concurrently."""
    threads = numba.get_num_threads()  # starts them: before that the threading layer is unknown
    # Numba's fallback, "workqueue", must not be entered by two threads at once.
    return 1 if numba.threading_layer() == "workqueue" else min(threads, item_count)


def side_by_side(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``[function(item) for item in items]``, several at once, each on its share of the threads.

    A small array does not have enough work for all threads; several of them together do.

    Parameters
    ----------
    function
        Calls CPU kernels, and writes nothing that another call reads.
    items
        Its arguments, one call each.
    """
    at_once = calls_at_once(len(items))
    if at_once < 2:
        return [function(item) for item in items]
    share = numba.get_num_threads() // at_once

    def call(item: Item) -> Result:
        numba.set_num_threads(share)  # of this thread only
        return function(item)

    with one_blas_thread(), ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(call, items))
