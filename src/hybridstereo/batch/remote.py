"""Pairs matched by the workers of an engine, which read and write the files themselves.

So files are where all workers see them under the same name; only names and records travel.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from .. import kernels
from ..device import device_of_process
from ..engines.tasks import COMPUTING, Engine, Placement
from ..errors import InputError, StereoError
from ..stereo import Stereo
from .pairs import Pair
from .work import PairOutcome, PairWork, load_pair, match_pair, skipped, with_files, write_pair


@dataclass(frozen=True)
class PairJob:
    """Match a pair: a `hybridstereo.engines.tasks.Job`.

    Attributes
    ----------
    model, device
        As for `Stereo`; a model's file is read by each worker.
    work
        What to do with each pair.
    base
        The folder that all names of files are relative to.
    """

    model: str
    device: str
    work: PairWork
    base: str = field(default_factory=os.getcwd)

    def prepare(self, placement: Placement) -> tuple[Stereo, PairWork]:
        """The model, and the work with names that hold in any folder."""
        path = os.path.join(self.base, self.model)
        model = path if os.path.exists(path) else self.model
        device = device_of_process(self.device, placement.index, placement.processes)
        threads = min(placement.threads, kernels.max_threads())
        rig = None if self.work.rig is None else self.work.rig.renamed(self._absolute)
        folder = os.path.join(self.base, self.work.folder)
        return Stereo(model, device, threads), replace(self.work, folder=folder, rig=rig)

    def call(self, prepared: tuple[Stereo, PairWork], task: Pair) -> PairOutcome:
        """Match a pair and write its files; of several pairs one computes at a time."""
        stereo, work = prepared
        left, right = (os.path.join(self.base, path) for path in (task.left, task.right))
        loaded = load_pair(work, Pair(task.name, left, right))
        with COMPUTING:
            matched = match_pair(stereo, work, loaded)
        return write_pair(work, matched)

    def describe(self, task: Pair) -> str:
        """The name of the pair."""
        return task.name

    def known(self, task: Pair) -> PairOutcome | None:
        """That a pair is skipped, if all its files exist and such pairs are to be."""
        return skipped(self.work, task)

    def is_final(self, result: PairOutcome) -> bool:
        """A file that cannot be used will not become better; a full disk or memory may."""
        return result.error is None or isinstance(result.error, InputError)

    def failed(self, task: Pair, error: StereoError) -> PairOutcome:
        """A pair that nobody could match."""
        return PairOutcome(task, "failed", error=error)

    def _absolute(self, name: str) -> str:
        """A name that may begin with the folder of the left image, which is absolute already."""
        return name if name.startswith("{dir}") else os.path.join(self.base, name)


def run_pairs_on(engine: Engine, pairs: Iterable[Pair], job: PairJob) -> Iterator[PairOutcome]:
    """Match pairs on the workers of an engine, and write their results there.

    Yields
    ------
    PairOutcome
        Of each pair, as it is done; names of files are as the caller gave them.

    Raises
    ------
    StereoError
        If ``pairs`` does, when all pairs before are done, or if no worker can load the model.
    """
    for pair, outcome in engine.results(job, pairs):
        yield with_files(job.work, replace(outcome, pair=pair))
