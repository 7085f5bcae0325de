"""Large arrays whose memory is reused.

The pages of a new array cost time when they are first touched: for the volumes of a KITTI pair
that takes longer than computing their contents.  `empty` therefore returns memory of earlier arrays
that are no longer referenced.  Memory in use plus memory kept never exceeds the peak of memory in
use by more than a sixteenth.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

_SMALLEST = 1 << 20  # bytes; smaller arrays are left to NumPy
_WASTE = 4  # an array may take a block up to this many times its size
_SLACK = 1.0625  # so that a small new array does not evict a large block
_LINE = 64  # bytes of a cache line


def _aligned_bytes(size: int) -> np.ndarray:
    """New memory that begins with a cache line, so that few vectors lie in two of them."""
    memory = np.empty(size + _LINE, np.uint8)
    first = -memory.ctypes.data % _LINE
    return memory[first : first + size]


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that begin with a cache line, for what a worker multiplies again and again."""
    memory = _aligned_bytes(math.prod(shape) * dtype.itemsize)
    memory[...] = 0
    return memory.view(dtype).reshape(shape)


class _Lease:
    """A block of memory on loan, returned when the last array that uses it is gone."""

    def __init__(self, block: np.ndarray, returned: deque[np.ndarray]) -> None:
        self._block = block
        self._returned = returned
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        # Only an append, which is atomic: the garbage collector may call this at any moment.
        self._returned.append(self._block)


class Pool:
    """Blocks of memory in use and blocks kept for reuse."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._returned: deque[np.ndarray] = deque()
        self._free: list[np.ndarray] = []
        self._lent = 0
        self._most_lent = 0

    @property
    def kept(self) -> int:
        """Bytes kept for reuse."""
        with self._lock:
            self._collect()
            return sum(block.nbytes for block in self._free)

    def release(self) -> None:
        """Give back what is kept."""
        with self._lock:
            self._collect()
            self._free.clear()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Like ``np.empty``, and begins with a cache line."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size < _SMALLEST:
            return _aligned_bytes(size).view(dtype).reshape(shape)
        with self._lock:
            block = self._take(size)
        memory = np.asarray(_Lease(block, self._returned))
        return memory[:size].view(dtype).reshape(shape)

    def empty_together(self, shapes: Sequence[tuple[int, ...]], dtype: Any) -> list[np.ndarray]:
        """Arrays in one block: larger, it serves more of the arrays that come later."""
        line = _LINE // np.dtype(dtype).itemsize
        sizes = [math.prod(shape) for shape in shapes]
        ends = list(accumulate(-(-size // line) * line for size in sizes))
        block = self.empty((ends[-1],), dtype)
        begins = [0, *ends[:-1]]
        return [
            block[begin : begin + size].reshape(shape)
            for begin, size, shape in zip(begins, sizes, shapes, strict=True)
        ]

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
            # Free the oldest blocks first.
            in_use = self._lent + size
            room = _SLACK * max(self._most_lent, in_use) - in_use
            while sum(b.nbytes for b in self._free) > room:
                self._free.pop(0)
            try:
                block = _aligned_bytes(size)
            except MemoryError:
                self._free.clear()
                block = _aligned_bytes(size)
        self._lent += block.nbytes
        self._most_lent = max(self._most_lent, self._lent)
        return block


_POOL = Pool()
empty = _POOL.empty
empty_together = _POOL.empty_together
release = _POOL.release


def kept() -> int:
    """Bytes kept for reuse."""
    return _POOL.kept
