"""An evaluation by the workers of an engine: all methods on one scene are a task."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from .. import kernels
from ..datasets.registry import Roots, absolute_roots
from ..device import device_of_process
from ..engines.tasks import COMPUTING, Engine, Placement
from ..errors import StereoError
from .compare import EvalOptions, build_methods, named, open_for
from .methods import Method
from .protocol import Rules, dataset_rules
from .results import Evaluation, MethodInfo, SceneResult, Sink
from .runner import OnRun, SceneOutcome, run_scene, summarised
from .scenes import Scene, dataset_scenes

_Prepared = tuple[dict[str, Scene], Sequence[Method]]


@dataclass(frozen=True)
class SceneJob:
    """Run all methods on a scene, given by its name: a `hybridstereo.engines.tasks.Job`.

    Attributes
    ----------
    dataset, roots, options
        As for `evaluate_dataset`.
    methods
        What the methods are called, that ``options`` ask for.
    keep_maps
        Whether maps and pairs come back with the figures.
    base
        The folder that all names of files are relative to.
    """

    dataset: str
    roots: Roots
    options: EvalOptions
    methods: tuple[MethodInfo, ...]
    keep_maps: bool
    base: str = field(default_factory=os.getcwd)

    def prepare(self, placement: Placement) -> _Prepared:
        """The scenes by name, and the methods with their models."""
        options = self.options
        options = replace(
            options,
            models=tuple(map(self._absolute, options.models)),
            maps=tuple(map(self._absolute, options.maps)),
            volumes=tuple(map(self._absolute, options.volumes)),
            device=device_of_process(options.device, placement.index, placement.processes),
            threads=min(placement.threads, kernels.max_threads()),
        )
        roots = absolute_roots(self.roots, self.base)
        scenes = dataset_scenes(open_for(self.dataset, roots, options))
        return {scene.name: scene for scene in scenes}, build_methods(options, self.dataset)

    def call(self, prepared: _Prepared, task: str) -> SceneOutcome:
        """All methods on a scene."""
        scenes, methods = prepared
        with COMPUTING:
            return run_scene(dataset_rules(self.dataset), scenes[task], methods, self.keep_maps)

    def describe(self, task: str) -> str:
        """The name of the scene."""
        return task

    def known(self, task: str) -> SceneOutcome | None:
        """Nothing is."""
        return None

    def is_final(self, result: SceneOutcome) -> bool:
        """What failed would fail again."""
        return True

    def failed(self, task: str, error: StereoError) -> SceneOutcome:
        """A scene that no worker survived: no method has figures."""
        results = [SceneResult(task, x.name, {}, None, str(error)) for x in self.methods]
        return SceneOutcome(task, results, {})

    def _absolute(self, value: str) -> str:
        """``LABEL=FILE`` with a name that holds in any folder; names of models stay."""
        label, file = named(value)
        path = os.path.join(self.base, file)
        return f"{label}={path}" if os.path.exists(path) else value


def run_on(
    engine: Engine,
    job: SceneJob,
    rules: Rules,
    scenes: Sequence[Scene],
    sinks: Sequence[Sink] = (),
    on_run: OnRun | None = None,
) -> Evaluation:
    """What `hybridstereo.evaluation.runner.run` does, by the workers of an engine.

    Results come in the order of the scenes; ``on_run`` is called when all methods have run on one.
    """
    names = [scene.name for scene in scenes]
    methods = job.methods

    def outcomes() -> Iterator[SceneOutcome]:
        for number, (name, outcome) in enumerate(engine.results(job, names, in_order=True), 1):
            if on_run is not None:
                on_run(number * len(methods), len(names) * len(methods), name, methods[-1].name)
            yield outcome

    return summarised(job.dataset, rules, names, methods, outcomes(), sinks)
