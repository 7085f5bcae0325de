"""Grid searches by the workers of an engine: the points of a plane on one pair are a task.

So a worker runs the network once for a validation pair, and then the CRF for every point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .. import kernels
from ..datasets import Sample, open_dataset, rectified
from ..datasets.loader import PairCache
from ..datasets.registry import absolute_roots
from ..device import device_of_process, open_backend
from ..engines.tasks import COMPUTING, Engine, Placement
from ..errors import StereoError
from ..evaluation.protocol import SceneScores
from ..features import ConvLayer
from ..kernels import Backend
from ..model import ModelConfig, StereoModel
from .gridsearch import Problem
from .options import TrainOptions
from .stages import MakeJudge
from .validation import figures_of

_Key = tuple[str, str]  # source and name of a sample
_Crf = tuple[tuple[ConvLayer, ...], ModelConfig]  # Pairwise-CNN, penalties and all else
_Task = tuple[_Key, list[_Crf]]


@dataclass(frozen=True)
class _Prepared:
    samples: dict[_Key, Sample]
    cache: PairCache
    backend: Backend
    threads: int


@dataclass(frozen=True, eq=False)
class JudgeJob:
    """Score several CRFs on a sample: a `hybridstereo.engines.tasks.Job`.

    Attributes
    ----------
    model
        Its Unary-CNN gives the costs.
    options
        Of the training, which say where the samples are.
    device
        Where to compute.
    base
        The folder that names of files are relative to.
    """

    model: StereoModel
    options: TrainOptions
    device: str
    base: str = field(default_factory=os.getcwd)

    def prepare(self, placement: Placement) -> _Prepared:
        """Find the samples, and open the device."""
        dataset = open_dataset(self.options.dataset, absolute_roots(self.options.roots, self.base))
        if self.options.rectify:
            dataset = rectified(dataset)
        device = device_of_process(self.device, placement.index, placement.processes)
        return _Prepared(
            {(sample.source, sample.name): sample for sample in dataset.samples},
            PairCache(dataset, int(self.options.cache_gigabytes * (1 << 30))),
            open_backend(device),
            min(placement.threads, kernels.max_threads()),
        )

    def call(self, prepared: _Prepared, task: _Task) -> list[SceneScores]:
        """The scores of each CRF."""
        key, crfs = task
        backend = prepared.backend
        with COMPUTING, kernels.limited_threads(prepared.threads):
            problem = Problem.of(self.model, backend, prepared.cache, prepared.samples[key])
            models = [StereoModel(self.model.unary, *crf) for crf in crfs]
            return [problem.scores(model, backend) for model in models]

    def describe(self, task: _Task) -> str:
        """The name of the sample."""
        return task[0][1]

    def known(self, task: _Task) -> list[SceneScores] | None:
        """Nothing is."""
        return None

    def is_final(self, result: list[SceneScores]) -> bool:
        """Scores are."""
        return True

    def failed(self, task: _Task, error: StereoError) -> list[SceneScores]:
        """Points cannot be compared without all samples: the search ends."""
        raise StereoError(f"{task[0][1]} could not be evaluated: {error.message}")


class RemoteJudge:
    """A `hybridstereo.training.gridsearch.Judge` whose samples are shared out to workers."""

    def __init__(self, engine: Engine, job: JudgeJob, samples: Sequence[Sample]) -> None:
        self._engine, self._job, self._samples = engine, job, samples

    def figures(self, models: Iterable[StereoModel]) -> Iterator[dict[str, float]]:
        """Those of `validation.CRITERIA` for each model, when all of them are evaluated."""
        crfs = [(model.pairwise, model.config) for model in models]
        if not crfs:
            return
        tasks = [((sample.source, sample.name), crfs) for sample in self._samples]
        found = [scores for _, scores in self._engine.results(self._job, tasks, in_order=True)]
        for index in range(len(crfs)):
            yield figures_of(self._samples, [scores[index] for scores in found])


def remote_judge(engine: Engine, device: str) -> Callable[[TrainOptions], MakeJudge]:
    """What `hybridstereo.training.run.train` takes as ``judge``."""

    def with_options(options: TrainOptions) -> MakeJudge:
        def judge(model: StereoModel, samples: Sequence[Sample]) -> RemoteJudge:
            return RemoteJudge(engine, JudgeJob(model, options, device), samples)

        return judge

    return with_options
