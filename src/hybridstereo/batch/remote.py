"""Pairs matched by the workers of an engine, which read the images and write the results.

So files are where all workers see them under the same name, or URL; only names and records travel.
Workers that cannot write where the results belong return them, and the client writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from .. import kernels
from ..device import device_of_process
from ..engines.tasks import COMPUTING, Engine, Placement
from ..errors import InputError, StereoError
from ..io.atomic import atomic_write
from ..io.urls import joined
from ..stereo import Stereo
from .pairs import Pair
from .places import folder_of_results
from .work import (
    MatchResult,
    PairOutcome,
    PairWork,
    failed_pair,
    load_pair,
    match_pair,
    skipped,
    with_files,
    write_pair,
)


@dataclass(frozen=True)
class Done:
    """What a worker says of a pair.

    Attributes
    ----------
    outcome
        How it went.
    contents
        The files of the pair, in the order of its outputs; none if the worker has written them.
    """

    outcome: PairOutcome
    contents: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class PairJob:
    """Match a pair: a `hybridstereo.engines.tasks.Job`.

    Attributes
    ----------
    model, device
        As for `Stereo`; a model's file is read by each worker.
    work
        What to do with each pair.
    return_results
        Workers do not write the results but return them, for `run_pairs_on` to write.
    base
        The folder that all names of files are relative to.
    """

    model: str
    device: str
    work: PairWork
    return_results: bool = False
    base: str = field(default_factory=os.getcwd)

    def prepare(self, placement: Placement) -> tuple[Stereo, PairWork]:
        """The model, and the work with names that hold in any folder."""
        path = os.path.join(self.base, self.model)
        model = path if os.path.exists(path) else self.model
        device = device_of_process(self.device, placement.index, placement.processes)
        threads = min(placement.threads, kernels.max_threads())
        rig = None if self.work.rig is None else self.work.rig.renamed(self._absolute)
        folder = joined(self.base, self.work.folder)
        work = replace(self.work, folder=folder, rig=rig)
        if self.return_results:  # what is there already, only the client can see
            work = replace(work, skip_existing=False)
        return Stereo(model, device, threads), work

    def call(self, prepared: tuple[Stereo, PairWork], task: Pair) -> Done:
        """Match a pair and write its files; of several pairs one computes at a time."""
        stereo, work = prepared
        left, right = (joined(self.base, path) for path in (task.left, task.right))
        loaded = load_pair(work, Pair(task.name, left, right))
        with COMPUTING:
            matched = match_pair(stereo, work, loaded)
        return _encoded(work, matched) if self.return_results else Done(write_pair(work, matched))

    def describe(self, task: Pair) -> str:
        """The name of the pair."""
        return task.name

    def known(self, task: Pair) -> Done | None:
        """That a pair is skipped, if all its files exist and such pairs are to be."""
        there = skipped(self.work, task)
        return None if there is None else Done(there)

    def is_final(self, result: Done) -> bool:
        """A file that cannot be used will not become better; a full disk or memory may."""
        error = result.outcome.error
        return error is None or isinstance(error, InputError)

    def failed(self, task: Pair, error: StereoError) -> Done:
        """A pair that nobody could match."""
        return Done(failed_pair(task, error))

    def _absolute(self, name: str) -> str:
        """A name that may begin with the folder of the left image, which is absolute already."""
        return name if name.startswith("{dir}") else joined(self.base, name)


def run_pairs_on(engine: Engine, pairs: Iterable[Pair], job: PairJob) -> Iterator[PairOutcome]:
    """Match pairs on the workers of an engine, and write their results there, or here.

    Yields
    ------
    PairOutcome
        Of each pair, as it is done; names of files are as the caller gave them.

    Raises
    ------
    StereoError
        If ``pairs`` does, when all pairs before are done, or if no worker can load the model.
    """
    for pair, done in engine.results(job, pairs):
        outcome = with_files(job.work, replace(done.outcome, pair=pair))
        yield _written(job.work, outcome, done.contents) if done.contents else outcome


def _encoded(work: PairWork, matched: MatchResult | PairOutcome) -> Done:
    """The files of a pair as bytes."""
    with TemporaryDirectory(prefix="hstereo-") as folder:
        here = replace(work, folder=folder)
        outcome = write_pair(here, matched)
        if outcome.status != "done":
            return Done(outcome)
        paths = here.paths(outcome.pair)
        return Done(outcome, tuple(Path(path).read_bytes() for path in paths))


def _written(work: PairWork, outcome: PairOutcome, contents: tuple[bytes, ...]) -> PairOutcome:
    """Write the files of a pair that a worker has returned, each complete or not at all."""
    try:
        paths = work.paths(outcome.pair)
        replaced = sum(map(os.path.exists, paths))
        for path, data in zip(paths, contents, strict=True):
            folder_of_results(os.path.dirname(path))
            with atomic_write(path) as temporary:
                temporary.write_bytes(data)
    except (StereoError, OSError) as error:
        return failed_pair(outcome.pair, error, outcome.findings)
    return replace(outcome, replaced=replaced)
