"""Dask: the only import of ``distributed``; tasks for workers, on this machine or elsewhere."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from .. import __version__
from ..errors import InstallError, StereoError
from ..limits import allow_pixels, pixel_limit
from .flights import Flight, Flights, ordered
from .tasks import MOST_TRIES, Job, Placement, Result, Task

try:
    import dask
    from distributed import Client, Future, KilledWorker, LocalCluster, get_worker
except ImportError as error:
    raise InstallError(
        f"Dask cannot be imported ({str(error).splitlines()[0]})",
        "Install it with `pip install 'hybridstereo[dask]'`",
    ) from error

PER_WORKER = 2
"""Tasks of each worker process that are in flight: one computes, another reads or writes."""

_POLL = 1.0  # seconds between two looks at what takes long
_COUNT_WORKERS = 2.0  # seconds between two counts of the workers
_PATIENCE = 10.0  # seconds without a worker until the user hears of it
_CONNECT = "30s"
_COME_BACK = "5 minutes"
_FETCH = 60.0  # seconds for a result to come
_WINDOW = 4  # results in order: tasks in flight or waiting for one before them, per task in flight


@dataclass(frozen=True)
class _Sent:
    """A job as workers get it."""

    key: str
    job: Any
    threads: int | None
    processes: int
    max_pixels: int


@dataclass(frozen=True)
class _Unprepared:
    """In the place of a result: the job cannot be done by this worker."""

    error: StereoError


class DaskWorkers:
    """An `Engine`: the workers of a Dask scheduler.

    Parameters
    ----------
    scheduler
        Address of a scheduler that runs already; None: processes on this machine.
    workers
        How many of these.
    threads
        CPU threads of each task; None: an equal share of the cores for each local process, or as
        many as a worker elsewhere was given.
    tell
        Called with sentences about what the user may want to know: stragglers, lost workers.

    Raises
    ------
    StereoError
        If the scheduler cannot be reached, or its workers lack this version of hybridstereo.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        workers: int | None = None,
        threads: int | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._tell = tell or (lambda text: None)
        self._threads = threads
        self._processes = 1
        self._cluster: Any = None
        self.most_in_flight = 0
        """The largest number of tasks that were with the scheduler at the same time."""
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters, we tell
        if scheduler is None:
            self._processes = workers or 1
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
            share = (cores or os.cpu_count() or 1) // self._processes
            self._threads = threads or max(share, 1)
            # On a busy machine a process takes longer to come back than Dask would wait for it.
            dask.config.set({"distributed.deploy.lost-worker-timeout": _COME_BACK})
            self._cluster = LocalCluster(
                n_workers=self._processes,
                threads_per_worker=PER_WORKER,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # a port that is free, and nobody else sees
                silence_logs=logging.CRITICAL,
                preload=__name__,  # calls `dask_setup`
                # We count the deaths of a task ourselves.
                scheduler_kwargs={"allowed_failures": 0},
            )
        try:
            where = self._cluster or scheduler
            self._client = Client(where, timeout=_CONNECT, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise StereoError(
                f"No Dask scheduler answers at {scheduler} ({str(error).splitlines()[0]})",
                "Give its address as it prints it, such as tcp://10.0.0.1:8786, as `scheduler`",
            ) from error
        self._counted, self._workers = 0.0, 0
        try:
            self._wait_for_workers()
            self._deaths = self._deaths_per_failure()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> DaskWorkers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the scheduler; processes of our own end."""
        with suppress(Exception):
            self._client.close(timeout=5)
        if self._cluster is not None:
            with suppress(Exception):
                self._cluster.close(timeout=10)

    @property
    def workers(self) -> int:
        """How many worker processes there are at the moment."""
        now = time.monotonic()
        if now - self._counted >= _COUNT_WORKERS:
            self._counted = now
            with suppress(OSError, TimeoutError):  # a busy scheduler: what it said before holds
                self._workers = len(self._client.nthreads())
                if self._cluster is not None and len(self._cluster.workers) < self._processes:
                    self._cluster.scale(self._processes)  # Dask has given one up
        return self._workers

    def results(
        self, job: Job[Task, Result], tasks: Iterable[Task], in_order: bool = False
    ) -> Iterator[tuple[Task, Result]]:
        """Every task with its result; see `hybridstereo.engines.tasks.Engine`."""
        found = self._results(job, tasks, _WINDOW if in_order else None)
        if not in_order:
            return ((task, result) for _, task, result in found)
        return ordered(found)

    def _results(
        self, job: Job[Task, Result], tasks: Iterable[Task], window: int | None
    ) -> Iterator[tuple[int, Task, Result]]:
        """Number, task and result, as they come.

        With a ``window``, no task is taken that is so many times the tasks in flight ahead of the
        oldest one without a result.
        """
        sent = _Sent(uuid.uuid4().hex, job, self._threads, self._processes, pixel_limit())
        holder = self._hold(sent)
        flights = Flights(job, self._tell, self._deaths)
        events: SimpleQueue = SimpleQueue()
        source, taken, ended = iter(tasks), 0, False
        failure: Exception | None = None
        reader = ThreadPoolExecutor(1, "tasks")  # the source may be a pipe, and slow
        reading: ThreadFuture | None = None

        def take() -> Any:
            task: Any = next(source, _END)
            return task, None if task is _END else job.known(task)

        try:
            while True:
                limit = PER_WORKER * max(self.workers, 1)
                while flights.again and len(flights.flying) < limit:
                    self._submit(flights, flights.again.popleft(), holder, events)
                room = window is None or taken - flights.oldest(taken) < window * limit
                if reading is None and not ended and len(flights.flying) < limit and room:
                    reading = reader.submit(take)
                    reading.add_done_callback(events.put)
                if reading is None and not flights.flying:
                    if not flights.suspects:
                        break
                    self._submit(flights, flights.suspects.popleft(), holder, events)
                try:
                    event = events.get(timeout=_POLL)
                except Empty:
                    flights.tell_stragglers(self._place_of)
                    if holder.status == "error":
                        holder = self._hold(sent)
                    continue
                if isinstance(event, ThreadFuture):
                    reading = None
                    try:
                        task, known = event.result()
                    except Exception as error:
                        failure, ended = error, True
                        continue
                    if task is _END:
                        ended = True
                    elif known is not None:
                        yield taken, task, known
                        taken += 1
                    else:
                        self._submit(flights, Flight(taken, task), holder, events)
                        taken += 1
                    continue
                flight = flights.flying.pop(event, None)
                if flight is None:
                    continue
                if holder.status in ("error", "lost", "cancelled"):
                    holder = self._hold(sent)
                done, result = self._outcome(flights, flight)
                if done:
                    yield flight.number, flight.task, result
            if failure is not None:
                raise failure
        finally:
            reader.shutdown(wait=False, cancel_futures=True)
            futures = [flight.future for flight in flights.flying.values()]
            with suppress(Exception):
                self._client.cancel([*futures, holder], force=True)

    def _hold(self, sent: _Sent) -> Future:
        """The job as a task of its own: it travels to each worker once, and not with every task."""
        return self._client.submit(_same, sent, key=f"hstereo-job-{uuid.uuid4().hex}", pure=False)

    def _submit(
        self, flights: Flights, flight: Flight, holder: Future, events: SimpleQueue
    ) -> None:
        key = f"hstereo-{uuid.uuid4().hex}"
        flight.future = self._client.submit(
            _call, holder, flight.task, key=key, pure=False, retries=0
        )
        flights.begin(flight)
        self.most_in_flight = max(self.most_in_flight, len(flights.flying))
        number = flight.number
        flight.future.add_done_callback(lambda future: events.put(number))

    def _outcome(self, flights: Flights, flight: Flight) -> tuple[bool, Any]:
        """Whether a task is done with, and its result; one that is not will be tried again."""
        try:
            result = flight.future.result(timeout=_FETCH)
        except StereoError:
            raise  # no other worker would do better
        except KilledWorker:
            return flights.killed(flight)
        except Exception as error:  # whatever a task may raise, or a result lost on its way
            text = str(error).splitlines()
            problem = f"failed with {type(error).__name__}" + (f": {text[0]}" if text else "")
            return flights.failed(flight, problem)
        finally:
            flight.future.release()
        if isinstance(result, _Unprepared):
            raise result.error
        return flights.came_back(flight, result)

    def _place_of(self, flight: Flight) -> str:
        """The address of the worker that has a task; empty if nobody says."""
        with suppress(Exception):
            for worker, keys in self._client.processing().items():
                if flight.future.key in keys:
                    return str(worker)
        return ""

    def _wait_for_workers(self) -> None:
        """Wait for the first worker, which a queue of jobs may start in hours."""
        begun, told = time.monotonic(), False
        while not self._client.nthreads():
            if not told and time.monotonic() - begun > _PATIENCE:
                told = True
                self._tell("The scheduler has no worker yet; waiting for the first one")
            time.sleep(0.1)
        if self._cluster is not None:
            return
        try:
            versions = self._client.run(_version)
        except Exception as error:
            raise StereoError(
                f"The workers of the scheduler cannot run hybridstereo ({str(error)[:200]})",
                f"Install hybridstereo {__version__} on all workers and on the scheduler",
            ) from error
        for worker, version in versions.items():
            if version != __version__:
                raise StereoError(
                    f"The worker {worker} has hybridstereo {version}, and you have {__version__}",
                    "Install the same version everywhere",
                )

    def _deaths_per_failure(self) -> int:
        """After how many deaths the scheduler gives a task up, which is when we hear of it."""
        if self._cluster is not None:
            return 1
        with suppress(Exception):
            return int(self._client.run_on_scheduler(_allowed_failures)) + 1
        return MOST_TRIES


_END = object()


# --- what runs on the workers and the scheduler -------------------------------------------------


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C, which all processes of a terminal get, to the client; Dask calls this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


_preparing = threading.Lock()
_prepared: dict[str, Any] = {}


def _call(sent: _Sent, task: Any) -> Any:
    """Do one task in the process of a worker."""
    worker = get_worker()
    with allow_pixels(sent.max_pixels):
        with _preparing:
            if sent.key not in _prepared:
                _prepared.clear()  # of an earlier job
                index = worker.name if isinstance(worker.name, int) else 0
                threads = sent.threads or worker.state.nthreads
                try:
                    _prepared[sent.key] = sent.job.prepare(
                        Placement(threads, index, sent.processes)
                    )
                except StereoError as error:
                    return _Unprepared(error)
            prepared = _prepared[sent.key]
        return sent.job.call(prepared, task)


def _same(sent: _Sent) -> _Sent:
    return sent


def _version() -> str:
    return __version__


def _allowed_failures(dask_scheduler: Any) -> int:
    return int(dask_scheduler.allowed_failures)
