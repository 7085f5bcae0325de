"""Runs methods on scenes; a failure costs one cell of the table, not the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..datasets import StereoPair
from ..errors import StereoError
from ..rectification import Rectification
from .methods import Method, Outcome
from .protocol import (
    Rules,
    SceneScores,
    enlarged,
    error_curve,
    mean_figures,
    mean_name,
    mean_sparsification,
    score_scene,
)
from .results import Evaluation, SceneResult, Sink
from .scenes import Scene

OnRun = Callable[[int, int, str, str], None]
"""Called with the number of runs done, of all runs, the scene and the method that begins."""


def run(
    dataset: str,
    rules: Rules,
    scenes: Sequence[Scene],
    methods: Sequence[Method],
    sinks: Sequence[Sink] = (),
    on_run: OnRun | None = None,
) -> Evaluation:
    """Compare methods on scenes.

    Parameters
    ----------
    dataset
        What to call the scenes together.
    rules
        For figures and means.
    scenes, methods
        Every method runs on every scene.
    sinks
        Receive the maps of each scene, and all figures at the end.
    on_run
        Called before each run.
    """
    results: list[SceneResult] = []
    rectifications: dict[str, Rectification] = {}
    scores: dict[str, dict[str, SceneScores]] = {method.info.name: {} for method in methods}
    for number, scene in enumerate(scenes):
        maps: dict[str, np.ndarray] = {}
        pair: StereoPair | None = None
        problem = ""
        try:
            pair = scene.load()
        except StereoError as error:
            problem = str(error)
        if pair is not None and pair.rectification is not None:
            rectifications[scene.name] = pair.rectification
        for index, method in enumerate(methods):
            name = method.info.name
            if on_run is not None:
                done = number * len(methods) + index
                on_run(done, len(scenes) * len(methods), scene.name, name)
            if pair is None:
                results.append(SceneResult(scene.name, name, {}, None, problem))
                continue
            try:
                outcome, scored = _run_one(rules, scene, pair, method)
            except StereoError as error:
                results.append(SceneResult(scene.name, name, {}, None, str(error)))
                continue
            except MemoryError:
                results.append(SceneResult(scene.name, name, {}, None, "Not enough memory."))
                continue
            scores[name][scene.name] = scored
            results.append(SceneResult(scene.name, name, scored.figures(), outcome.seconds, None))
            if sinks:
                maps[name] = enlarged(outcome.disparity, pair)
        if pair is not None and sinks:
            curves = {name: error_curve(rules, values, pair) for name, values in maps.items()}
            for sink in sinks:
                sink.scene(scene.name, pair, maps, curves)
    means = {name: mean_figures(rules, by_scene) for name, by_scene in scores.items()}
    measured = next((result.figures for result in results if result.figures), {})
    evaluation = Evaluation(
        dataset,
        [method.info for method in methods],
        [scene.name for scene in scenes],
        results,
        means,
        rules.primary_of(measured),
        mean_name(rules, [scene.name for scene in scenes]),
        rectifications,
        {
            name: curve
            for name, by_scene in scores.items()
            if (curve := mean_sparsification(by_scene.values())) is not None
        },
    )
    for sink in sinks:
        sink.finish(evaluation)
    return evaluation


def _run_one(
    rules: Rules, scene: Scene, pair: StereoPair, method: Method
) -> tuple[Outcome, SceneScores]:
    outcome = method.compute(scene, pair)
    scored = score_scene(rules, outcome.disparity, pair, outcome.unfilled, outcome.confidence)
    return outcome, scored
