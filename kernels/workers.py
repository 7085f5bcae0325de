"""Worker threads for kernels that hand tiles to BLAS.

``prange`` cannot call BLAS through NumPy, so these kernels run Python threads: the tile loops
release the GIL inside ``np.matmul`` and inside ``@njit(nogil=True)`` functions.  BLAS itself is
limited to one thread meanwhile, otherwise every worker would start a team of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numba
from threadpoolctl import ThreadpoolController

Tile = TypeVar("Tile")
Item = TypeVar("Item")
Result = TypeVar("Result")


@cache
def _controller() -> ThreadpoolController:
    # Looking the loaded libraries up takes milliseconds, so it is done once.
    return ThreadpoolController()


def run_tiles(worker: Callable[[Iterator[Tile]], None], tiles: Iterable[Tile]) -> None:
    """Run ``worker(tiles)`` on every thread; each tile is handed to exactly one of them.

    Parameters
    ----------
    worker
        Allocates its scratch buffers once and then loops over the iterator it is given.
    tiles
        The units of work.  Tiles write disjoint results, so that their order, which depends on
        timing, cannot change a bit of the output.
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
    with _controller().limit(limits=1, user_api="blas"):
        if threads == 1:
            worker(take())
            return
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(worker, take()) for _ in range(threads)]:
                future.result()


def side_by_side(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``[function(item) for item in items]``, several at once, each on its share of the threads.

    Small arrays keep several threads badly busy; several small problems do so well.

    Parameters
    ----------
    function
        Calls CPU kernels, and writes nothing that another call reads.
    items
        Its arguments, one call each.
    """
    threads = numba.get_num_threads()
    at_once = min(threads, len(items))
    # Numba's own layer of threads, the last resort, must not be entered by two threads at once.
    if at_once < 2 or numba.threading_layer() == "workqueue":
        return [function(item) for item in items]

    def call(item: Item) -> Result:
        numba.set_num_threads(threads // at_once)  # of this thread only
        return function(item)

    with _controller().limit(limits=1, user_api="blas"), ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(call, items))
