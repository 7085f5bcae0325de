"""Worker threads for kernels that hand tiles to BLAS.

``prange`` cannot call BLAS through NumPy, so these kernels run Python threads: the tile loops
release the GIL inside ``np.matmul`` and inside ``@njit(nogil=True)`` functions.  BLAS itself is
limited to one thread meanwhile, otherwise every worker would start a team of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numba
from threadpoolctl import ThreadpoolController

Tile = TypeVar("Tile")


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
