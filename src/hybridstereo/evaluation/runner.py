"""Runs methods on scenes; a failure costs one cell of the table, not the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..errors import StereoError
from .methods import Method, Outcome
from .protocol import (
    Protocol,
    SceneScores,
    enlarged,
    error_curve,
    mean_figures,
    mean_name,
    score_scene,
)
from .results import Evaluation, SceneResult, SceneTruth, Sink
from .scenes import Scene, Target

Progress = Callable[[int, int, str, str], None]
"""Called with the number of runs done, of all runs, the scene and the method that begins."""

_NO_IMAGE = 0.5  # grey where a report wants the left image and there is none


def run(
    dataset: str,
    protocol: Protocol,
    scenes: Sequence[Scene],
    methods: Sequence[Method],
    sinks: Sequence[Sink] = (),
    on_progress: Progress | None = None,
) -> Evaluation:
    """Compare methods on scenes.

    Parameters
    ----------
    dataset
        What to call the scenes together.
    protocol
        The rules for figures and means.
    scenes, methods
        Every method runs on every scene.
    sinks
        Take the maps of each scene, and everything at the end.
    on_progress
        Hears about each run before it begins.
    """
    results: list[SceneResult] = []
    scores: dict[str, dict[str, SceneScores]] = {method.info.name: {} for method in methods}
    for number, scene in enumerate(scenes):
        maps: dict[str, np.ndarray] = {}
        target: Target | None = None
        problem = ""
        try:
            target = scene.load()
        except StereoError as error:
            problem = str(error)
        for index, method in enumerate(methods):
            name = method.info.name
            if on_progress is not None:
                done = number * len(methods) + index
                on_progress(done, len(scenes) * len(methods), scene.name, name)
            if target is None:
                results.append(SceneResult(scene.name, name, {}, None, problem))
                continue
            try:
                outcome, scored = _run_one(protocol, scene, target, method)
            except StereoError as error:
                results.append(SceneResult(scene.name, name, {}, None, str(error)))
                continue
            except MemoryError:
                results.append(SceneResult(scene.name, name, {}, None, "Not enough memory."))
                continue
            scores[name][scene.name] = scored
            results.append(SceneResult(scene.name, name, scored.figures(), outcome.seconds, None))
            if sinks:
                maps[name] = enlarged(outcome.disparity, target)
        if target is not None and sinks:
            _show(protocol, scene, target, maps, sinks)
    means = {name: mean_figures(protocol, by_scene) for name, by_scene in scores.items()}
    measured = next((result.figures for result in results if result.figures), {})
    evaluation = Evaluation(
        dataset,
        [method.info for method in methods],
        [scene.name for scene in scenes],
        results,
        means,
        protocol.primary_of(measured),
        mean_name(protocol, [scene.name for scene in scenes]),
    )
    for sink in sinks:
        sink.finish(evaluation)
    return evaluation


def _run_one(
    protocol: Protocol, scene: Scene, target: Target, method: Method
) -> tuple[Outcome, SceneScores]:
    outcome = method.compute(scene, target)
    return outcome, score_scene(protocol, outcome.disparity, target)


def _show(
    protocol: Protocol,
    scene: Scene,
    target: Target,
    maps: dict[str, np.ndarray],
    sinks: Sequence[Sink],
) -> None:
    left = target.left
    if left is None:
        left = np.full((*target.disparity.shape, 3), _NO_IMAGE, np.float32)
    truth = SceneTruth(scene.name, left, target.disparity, target.mask, target.dmax)
    curves = {name: error_curve(protocol, values, target) for name, values in maps.items()}
    for sink in sinks:
        sink.scene(truth, maps, curves)
