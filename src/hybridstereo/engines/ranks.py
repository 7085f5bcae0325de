"""Processes that work on one thing together, as ``mpirun`` starts them; usually there is one.

Every rank runs the same program.  What it does with the others goes through `Ranks`, which a
single process has, too (`Alone`), so that nothing else needs to know how many there are.  The
calls are collective: all ranks make the same ones in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from ..errors import InstallError
from ..kernels.backend import Item

Value = TypeVar("Value")

# How launchers tell a process how many there are, and which one it is: Open MPI, MPICH and Intel
# MPI, MVAPICH.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
)
# With PMIx only the rank is told; SLURM, which may be the launcher, knows the rest.
_PMIX_RANK, _SLURM_SIZE = "PMIX_RANK", "SLURM_STEP_NUM_TASKS"


class Ranks(Protocol):
    """A group of processes.

    Attributes
    ----------
    rank, size
        Which of them this one is, counted from 0, and how many there are.
    local_rank
        Which of those on this machine.
    cores
        CPU threads that are this rank's share of the machine; None: whatever Numba takes.
    """

    rank: int
    size: int
    local_rank: int
    cores: int | None

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums of the ranks' arrays, added in the order of the ranks; the same bits on all."""

    def gathered(self, value: Value) -> list[Value]:
        """The values of all ranks, in their order."""

    def first(self, compute: Callable[[], Value]) -> Value:
        """What the first rank computes; the others wait for it."""

    def most(self, number: float) -> float:
        """The largest of the ranks' numbers."""

    def abort(self, code: int) -> NoReturn:
        """End all ranks at once, wherever they are."""


class Alone:
    """The one rank of a program that nobody started with others."""

    rank = 0
    size = 1
    local_rank = 0
    cores: int | None = None

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays themselves."""
        return list(arrays)

    def gathered(self, value: Value) -> list[Value]:
        """The value alone."""
        return [value]

    def first(self, compute: Callable[[], Value]) -> Value:
        """What this rank computes."""
        return compute()

    def most(self, number: float) -> float:
        """The number itself."""
        return number

    def abort(self, code: int) -> NoReturn:
        """End the program."""
        raise SystemExit(code)


def launched(environment: dict[str, str] | None = None) -> tuple[int, int]:
    """The rank of this process and their number, as its launcher says; 0 and 1 without one.

    Examples
    --------
    >>> launched({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"})
    (2, 4)
    >>> launched({})
    (0, 1)
    """
    told = dict(os.environ) if environment is None else environment
    for size, rank in (*_LAUNCHERS, (_SLURM_SIZE, _PMIX_RANK)):
        numbers = told.get(size, ""), told.get(rank, "")
        if all(number.isascii() and number.isdigit() for number in numbers):
            return int(numbers[1]), int(numbers[0])
    return 0, 1


def join() -> Ranks:
    """The ranks that this process belongs to; MPI is loaded only where a launcher started several.

    Raises
    ------
    InstallError
        If it belongs to several, and mpi4py is not installed or belongs to another MPI than the
        launcher.
    """
    _, size = launched()
    if size <= 1:
        return Alone()
    from .mpi import MpiRanks

    ranks = MpiRanks()
    if ranks.size != size:
        raise InstallError(
            f"{size} processes were started together, but MPI sees {ranks.size}",
            "mpi4py uses another MPI than the mpirun that you called: give the one of the same"
            " installation, for example that in the bin folder of the environment",
        )
    return ranks


def shared_out(ranks: Ranks, function: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    """``[function(item) for item in items]`` on every rank, each item computed by one of them."""
    return interleaved(ranks.gathered([function(item) for item in own_part(ranks, items)]))


def own_part(ranks: Ranks, items: Sequence[Item]) -> Sequence[Item]:
    """The items that `shared_out` has this rank compute."""
    return items[ranks.rank :: ranks.size]


def interleaved(parts: Sequence[Sequence[Value]]) -> list[Value]:
    """The items of all ranks in one list, from the part of each, as `own_part` divides them.

    Examples
    --------
    >>> interleaved([["a", "d"], ["b"], ["c"]])
    ['a', 'b', 'c', 'd']
    """
    count = sum(map(len, parts))
    return [parts[index % len(parts)][index // len(parts)] for index in range(count)]
