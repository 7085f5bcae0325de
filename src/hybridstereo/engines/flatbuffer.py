"""Arrays of several types as one buffer, of which each rank adds up a part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

_ROW = 8  # bytes; a multiple of the size of every type that is summed


class FlatBuffer:
    """Arrays as one buffer of bytes in ``count`` equal parts, each with a share of every type.

    Parameters
    ----------
    arrays
        Whose shapes and types the buffer has.
    count
        Of parts.
    """

    def __init__(self, arrays: Sequence[np.ndarray], count: int) -> None:
        self._count = count
        self._shapes = [(array.shape, array.dtype) for array in arrays]
        # By type, in a fixed order; each type takes a multiple of _ROW bytes of every part.
        order = sorted(range(len(arrays)), key=lambda i: arrays[i].dtype.str)
        self._groups: list[tuple[np.dtype, list[int], int, slice]] = []
        start = 0
        for _, members in groupby(order, key=lambda i: arrays[i].dtype.str):
            indices = list(members)
            dtype = arrays[indices[0]].dtype
            elements = sum(arrays[i].size for i in indices)
            share = -(-elements // count)
            stop = start + -(-share * dtype.itemsize // _ROW) * _ROW
            self._groups.append((dtype, indices, share, slice(start, stop)))
            start = stop
        self._bytes = start

    def packed(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The buffer, (count, bytes)."""
        parts = np.zeros((self._count, self._bytes), np.uint8)
        for dtype, indices, share, place in self._groups:
            flat = np.zeros(self._count * share, dtype)
            joined = np.concatenate([np.ravel(arrays[i]) for i in indices])
            flat[: joined.size] = joined
            parts[:, place][:, : share * dtype.itemsize] = flat.view(np.uint8).reshape(
                self._count, -1
            )
        return parts

    def summed_part(self, received: np.ndarray) -> np.ndarray:
        """One part, (bytes,): the sums of the rows of ``received``, from the first to the last."""
        sums = np.zeros(self._bytes, np.uint8)
        for dtype, _, share, place in self._groups:
            size = share * dtype.itemsize
            rows = np.ascontiguousarray(received[:, place][:, :size]).view(dtype)
            total = rows[0].copy()
            for row in rows[1:]:
                total += row
            sums[place][:size] = total.view(np.uint8)
        return sums

    def unpacked(self, parts: np.ndarray) -> list[np.ndarray]:
        """The arrays of a buffer."""
        found: list[np.ndarray] = [np.empty(0)] * len(self._shapes)
        for dtype, indices, share, place in self._groups:
            size = share * dtype.itemsize
            flat = np.ascontiguousarray(parts[:, place][:, :size]).view(dtype).ravel()
            start = 0
            for i in indices:
                shape, _ = self._shapes[i]
                count = int(np.prod(shape, dtype=np.int64))
                found[i] = flat[start : start + count].reshape(shape).copy()
                start += count
        return found
