"""Many tasks of one kind for workers elsewhere: what a task is, and what an engine does with it.

An `Engine` takes tasks one by one as its workers become free, so that a million of them need no
more memory than a few, and gives each result as it comes.  A `Job` says what is to be done; it is
sent to the workers, and so are the tasks: both can be pickled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..errors import StereoError
from ..kernels.backend import Result

Task = TypeVar("Task")
_Taken = TypeVar("_Taken", contravariant=True)  # as a protocol wants it

MOST_TRIES = 3
"""How often a task is begun that its worker does not survive, or that fails unexpectedly."""

COMPUTING = threading.Lock()
"""Held by the task of a worker that computes, while others may read and write: Numba's threads
must not be entered by two, and one pair keeps all of them busy."""


@dataclass(frozen=True)
class Placement:
    """Where a worker is.

    Attributes
    ----------
    threads
        CPU threads that it may use.
    index, processes
        Which of the processes on its machine it is, and how many there are, as far as we know.
    """

    threads: int
    index: int = 0
    processes: int = 1


class Job(Protocol[_Taken, Result]):
    """What workers do with each task."""

    def prepare(self, placement: Placement) -> Any:
        """What all tasks of a worker share, such as a model; called once in each process.

        Raises
        ------
        StereoError
            If no task can be done, which ends the work.
        """

    def call(self, prepared: Any, task: _Taken) -> Result:
        """Do one task."""

    def describe(self, task: _Taken) -> str:
        """What to call a task in a message."""

    def known(self, task: _Taken) -> Result | None:
        """A result that needs no worker; None: there is none.  Called by the client."""

    def is_final(self, result: Result) -> bool:
        """Whether another try would give the same."""

    def failed(self, task: _Taken, error: StereoError) -> Result:
        """What stands for the result of a task that was tried in vain."""


class Engine(Protocol):
    """Workers that do tasks."""

    def results(
        self, job: Job[Task, Result], tasks: Iterable[Task], in_order: bool = False
    ) -> Iterator[tuple[Task, Result]]:
        """Every task with its result, as it comes, or in the order of the tasks.

        A bounded number of tasks is taken before their results are there.  An exception of
        ``tasks`` is raised after all results before it; when the caller stops, tasks that have
        not begun are taken back.
        """
