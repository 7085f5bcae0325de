"""Training by several ranks: which pairs of a step each takes, and how their steps become one.

Every rank holds the whole model.  A step's pairs are divided among the ranks, their gradients are
added up, and all ranks make the same update; so the models stay equal to the bit.  The first rank
writes the run folder, the others have a `SilentFolder`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engines.ranks import Ranks
from ..errors import InputError, StereoError
from ..kernels import Array, Backend
from ..model import StereoModel
from .runfolder import Checkpoint, RunFolder
from .runlog import RunLog
from .steps import Step


@dataclass(frozen=True)
class BatchShare:
    """The pairs of every step that one rank takes: neighbours, so that the order of all is kept.

    Attributes
    ----------
    batch
        Pairs of a step, of all ranks together.
    first, count
        Those of this rank.
    """

    batch: int
    first: int
    count: int

    @classmethod
    def of(cls, ranks: Ranks, batch: int) -> BatchShare:
        """The share of a rank.

        Raises
        ------
        InputError
            If a rank would have nothing to do.
        """
        if batch < ranks.size:
            pairs = f"{batch} pair{'' if batch == 1 else 's'}"
            raise InputError(
                f"A step of this run has {pairs}, too few for {ranks.size} processes",
                f"Start at most {batch}, or begin a run with `batch={ranks.size}`",
            )
        first, end = (batch * x // ranks.size for x in (ranks.rank, ranks.rank + 1))
        return cls(batch, first, end - first)

    def place(self, index: int) -> int:
        """Where in the schedule of all pairs the ``index``-th pair of this rank stands."""
        step, pair = divmod(index, self.count)
        return step * self.batch + self.first + pair


def mean_step(backend: Backend, ranks: Ranks, steps: Sequence[Step], batch: int) -> Step:
    """Mean of the losses, figures and gradients of a batch, of which ``steps`` is this rank's part.

    The pairs are added up one after the other, first those of each rank, then the ranks: with one
    pair for each rank, in exactly the order of a single process.
    """
    total = _sum(backend, steps)
    if ranks.size > 1:
        total = _sum_of_ranks(backend, ranks, total)
    if batch > 1:
        for gradient in total.gradients.values():
            backend.divide_by(gradient, batch)
    means = {name: value / batch for name, value in total.figures.items()}
    return Step(total.loss_name, total.loss / batch, total.gradients, means)


def _sum(backend: Backend, steps: Sequence[Step]) -> Step:
    loss = sum(step.loss for step in steps)
    gradients, figures = steps[0].gradients, dict(steps[0].figures)
    for step in steps[1:]:
        for name, gradient in step.gradients.items():
            backend.add_to(gradients[name], gradient)
        for name, value in step.figures.items():
            figures[name] += value
    return Step(steps[0].loss_name, loss, gradients, figures)


def _sum_of_ranks(backend: Backend, ranks: Ranks, own: Step) -> Step:
    numbers = np.array([own.loss, *own.figures.values()])
    arrays = [_on_host(backend, gradient) for gradient in own.gradients.values()]
    *sums, numbers = ranks.summed([*arrays, numbers])
    gradients = {
        name: total if isinstance(gradient, np.ndarray) else backend.to_device(total)
        for (name, gradient), total in zip(own.gradients.items(), sums, strict=True)
    }
    loss, *figures = numbers.tolist()
    return Step(own.loss_name, loss, gradients, dict(zip(own.figures, figures, strict=True)))


def _on_host(backend: Backend, array: Array) -> np.ndarray:
    """The array in main memory, where penalties are even if a GPU computes."""
    return array if isinstance(array, np.ndarray) else backend.to_host(array)


def check_same_model(ranks: Ranks, backend: Backend, parameters: Mapping[str, Array]) -> None:
    """Refuse to go on with models that differ between the ranks, which make the same updates.

    Another kind of CPU rounds them in another way; what the gradients then belong to is no model.
    """
    if ranks.size == 1:
        return
    mark = 0
    for parameter in parameters.values():
        mark = zlib.crc32(np.ascontiguousarray(_on_host(backend, parameter)).tobytes(), mark)
    marks = ranks.gathered(mark)
    if odd := [rank for rank, other in enumerate(marks) if other != marks[0]]:
        raise StereoError(
            f"The model of rank {odd[0]} differs from that of rank 0 after the same updates",
            "Run all ranks on one kind of CPU or GPU with the same versions of all packages",
        )


class _SilentLog(RunLog):
    """The log as the other ranks see it: it takes everything, and keeps nothing."""

    def clear(self) -> None:
        """Leave the log to the first rank."""

    def append(self, entry: Mapping[str, Any]) -> None:
        """Leave the line to the first rank."""

    def cut_back(self, stage: str, step: int) -> list[str]:
        """Leave the log to the first rank."""
        return []


class SilentFolder(RunFolder):
    """The run folder as the other ranks see it: they write nothing, and ask the first what it read.

    What they need is read by ``ranks.first(folder.load)``.
    """

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder.path)
        self.log = _SilentLog(folder.log.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The first rank keeps other runs out."""
        yield

    def check_unused(self) -> None:
        """The first rank looks."""

    def begin(self, config: Mapping[str, Any]) -> None:
        """The first rank starts the run."""

    def write_json(self, name: str, value: Any) -> None:
        """The first rank writes."""

    def save(self, checkpoint: Checkpoint) -> None:
        """The first rank writes."""

    def save_best(self, model: StereoModel) -> None:
        """The first rank writes."""

    def save_stage(self, stage: str, model: StereoModel) -> None:
        """The first rank writes."""
