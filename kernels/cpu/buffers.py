"""Large arrays whose memory is used again.

The pages of a fresh array cost time when they are touched first: for the volumes of a KITTI pair
that takes longer than computing what goes into them.  `empty` therefore hands out the memory of
earlier arrays that nobody refers to any more.  The memory in use and the memory kept together
never exceed what was in use at once at some time by more than an eighth.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Any

import numpy as np

_SMALLEST = 1 << 20  # bytes; smaller arrays are left to NumPy
_WASTE = 4  # an array may take a block up to this many times its size
_SLACK = 1.125  # so that a small new array does not push out a large block


class _Lease:
    """A block of memory on loan; it goes back when the last array that uses it is gone."""

    def __init__(self, block: np.ndarray, returned: deque[np.ndarray]) -> None:
        self._block = block
        self._returned = returned
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        # Only an append, which is atomic: the garbage collector may call this at any moment.
        self._returned.append(self._block)


class Pool:
    """Blocks of memory in use and blocks that wait to be used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._returned: deque[np.ndarray] = deque()
        self._free: list[np.ndarray] = []
        self._lent = 0
        self._most_lent = 0

    @property
    def kept(self) -> int:
        """Bytes that wait to be used again."""
        with self._lock:
            self._collect()
            return sum(block.nbytes for block in self._free)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Like ``np.empty``."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size < _SMALLEST:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._take(size)
        memory = np.asarray(_Lease(block, self._returned))
        return memory[:size].view(dtype).reshape(shape)

    def _collect(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._lent -= block.nbytes
            self._free.append(block)

    def _take(self, size: int) -> np.ndarray:
        self._collect()
        fitting = [b for b in self._free if size <= b.nbytes <= _WASTE * size]
        if fitting:
            block = min(fitting, key=lambda b: b.nbytes)
            self._free = [b for b in self._free if b is not block]
        else:
            # The oldest blocks make room first.
            in_use = self._lent + size
            room = _SLACK * max(self._most_lent, in_use) - in_use
            while sum(b.nbytes for b in self._free) > room:
                self._free.pop(0)
            try:
                block = np.empty(size, np.uint8)
            except MemoryError:
                self._free.clear()
                block = np.empty(size, np.uint8)
        self._lent += block.nbytes
        self._most_lent = max(self._most_lent, self._lent)
        return block


_POOL = Pool()
empty = _POOL.empty


def kept() -> int:
    """Bytes that wait to be used again."""
    return _POOL.kept
