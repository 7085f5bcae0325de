"""Tasks on their way to workers and back: which are tried again, which take long, in which order.

Nothing here knows how a task travels, so that all of it holds for any engine.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import StereoError
from .tasks import MOST_TRIES

# A straggler takes so many times what is usual, of the last tasks, and at least so many seconds.
_SLOW, _SLOW_SECONDS, _USUAL_OF, _FEWEST = 5.0, 10.0, 64, 8


@dataclass(eq=False)
class Flight:
    """A task on its way.

    Attributes
    ----------
    number
        Counts the tasks.
    future
        What the engine knows it by.
    since
        When it began, on the monotonic clock.
    failures, deaths
        How often it came back without a result, and how often its worker died.
    alone
        Nothing else runs beside it: if the worker dies now, it is this task's fault.
    told
        Whether the user has heard that it takes long.
    """

    number: int
    task: Any
    future: Any = None
    since: float = 0.0
    failures: int = 0
    deaths: int = 0
    alone: bool = False
    told: bool = False


@dataclass(eq=False)
class Flights:
    """All tasks that were taken and have no result yet.

    Attributes
    ----------
    job
        What is done with them, a `hybridstereo.engines.tasks.Job`.
    tell
        Called with sentences for the user.
    deaths
        How many workers a task has lost when we hear of it for the first time.
    flying
        Those that workers have, by number.
    again
        Those to be tried again.
    suspects
        Those to be tried again alone, when nothing else flies.
    """

    job: Any
    tell: Callable[[str], None]
    deaths: int = 1
    flying: dict[int, Flight] = field(default_factory=dict)
    again: deque[Flight] = field(default_factory=deque)
    suspects: deque[Flight] = field(default_factory=deque)
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=_USUAL_OF))

    def begin(self, flight: Flight) -> None:
        """A worker gets a task."""
        flight.since, flight.told = time.monotonic(), False
        self.flying[flight.number] = flight

    def oldest(self, otherwise: int) -> int:
        """The smallest number of a task without a result."""
        unfinished = (*self.flying.values(), *self.again, *self.suspects)
        return min((flight.number for flight in unfinished), default=otherwise)

    def came_back(self, flight: Flight, result: Any) -> tuple[bool, Any]:
        """Whether a task is done with, and its result; one that is not will be tried again."""
        if self.job.is_final(result) or flight.failures + 1 >= MOST_TRIES:
            self._usual.append(time.monotonic() - flight.since)
            return True, result
        return self.failed(flight, "failed")

    def failed(self, flight: Flight, problem: str) -> tuple[bool, Any]:
        """As `came_back`, of a task without a result; it is tried three times."""
        flight.failures += 1
        if flight.failures >= MOST_TRIES:
            return True, self._given_up(flight, problem, flight.failures)
        self._tell_again(flight, problem)
        self.again.append(flight)
        return False, None

    def killed(self, flight: Flight) -> tuple[bool, Any]:
        """As `came_back`, of a task whose worker died; the last time it is tried alone.

        Which of its tasks killed a worker, nobody knows; none must fail for what another one did.
        """
        problem = "lost its worker"
        flight.deaths += self.deaths
        if flight.alone:
            return True, self._given_up(flight, problem, flight.deaths)
        self._tell_again(flight, problem)
        flight.alone = flight.deaths >= MOST_TRIES - 1
        (self.suspects if flight.alone else self.again).append(flight)
        return False, None

    def _tell_again(self, flight: Flight, problem: str) -> None:
        self.tell(f"{self.job.describe(flight.task)} {problem}; it is tried again")

    def _given_up(self, flight: Flight, problem: str, times: int) -> Any:
        return self.job.failed(flight.task, StereoError(f"It {problem} in each of {times} tries"))

    def tell_stragglers(self, place_of: Callable[[Flight], str]) -> None:
        """Name, once, each task that takes much longer than usual, and the worker that has it."""
        if len(self._usual) < _FEWEST:
            return
        now, usual = time.monotonic(), statistics.median(self._usual)
        for flight in self.flying.values():
            seconds = now - flight.since
            if not flight.told and seconds > max(_SLOW * usual, _SLOW_SECONDS):
                flight.told = True
                place = place_of(flight)
                where = f" on {place}" if place else ""
                self.tell(
                    f"{self.job.describe(flight.task)} takes long: {seconds:.0f} s{where}, where"
                    f" {usual:.1f} s are usual"
                )


def ordered(found: Iterable[tuple[int, Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Tasks and results in the order of their numbers."""
    waiting: dict[int, tuple[Any, Any]] = {}
    following = 0
    for number, task, result in found:
        waiting[number] = task, result
        while following in waiting:
            yield waiting.pop(following)
            following += 1
