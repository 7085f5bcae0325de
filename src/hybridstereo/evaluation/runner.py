"""Runs methods on scenes; a failure costs one cell of the table, not the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

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
from .results import Evaluation, MethodInfo, SceneResult, Sink
from .scenes import Scene

OnRun = Callable[[int, int, str, str], None]
"""Called with the number of runs done, of all runs, the scene and the method that begins."""


@dataclass(frozen=True, eq=False)
class SceneOutcome:
    """What all methods gave for a scene.

    Attributes
    ----------
    scene
        Its name.
    results, scores
        One result for each method; the scores, by method, of those that did not fail.
    rectification
        How its right view was corrected, if that was asked for.
    pair, maps, curves
        For sinks, as `Sink.scene` receives them; None and empty if there are none.
    """

    scene: str
    results: list[SceneResult]
    scores: dict[str, SceneScores]
    rectification: Rectification | None = None
    pair: StereoPair | None = None
    maps: dict[str, np.ndarray] = field(default_factory=dict)
    curves: dict[str, np.ndarray] = field(default_factory=dict)


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

    def outcomes() -> Iterator[SceneOutcome]:
        for number, scene in enumerate(scenes):

            def begins(index: int, number: int = number, scene: Scene = scene) -> None:
                if on_run is not None:
                    done, total = number * len(methods) + index, len(scenes) * len(methods)
                    on_run(done, total, scene.name, methods[index].info.name)

            yield run_scene(rules, scene, methods, bool(sinks), begins)

    infos = [method.info for method in methods]
    return summarised(dataset, rules, [x.name for x in scenes], infos, outcomes(), sinks)


def run_scene(
    rules: Rules,
    scene: Scene,
    methods: Sequence[Method],
    keep_maps: bool = False,
    begins: Callable[[int], None] = lambda index: None,
) -> SceneOutcome:
    """All methods on one scene; ``begins`` hears of each method before it runs."""
    maps: dict[str, np.ndarray] = {}
    scores: dict[str, SceneScores] = {}
    results: list[SceneResult] = []
    pair: StereoPair | None = None
    problem = ""
    try:
        pair = scene.load()
    except StereoError as error:
        problem = str(error)
    for index, method in enumerate(methods):
        name = method.info.name
        begins(index)
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
        scores[name] = scored
        results.append(SceneResult(scene.name, name, scored.figures(), outcome.seconds, None))
        if keep_maps:
            maps[name] = enlarged(outcome.disparity, pair)
    rectification = None if pair is None else pair.rectification
    if pair is None or not keep_maps:
        return SceneOutcome(scene.name, results, scores, rectification)
    curves = {name: error_curve(rules, values, pair) for name, values in maps.items()}
    return SceneOutcome(scene.name, results, scores, rectification, pair, maps, curves)


def summarised(
    dataset: str,
    rules: Rules,
    scenes: Sequence[str],
    methods: Sequence[MethodInfo],
    outcomes: Iterable[SceneOutcome],
    sinks: Sequence[Sink] = (),
) -> Evaluation:
    """The evaluation that the outcomes of all scenes, in their order, make; sinks hear of each."""
    results: list[SceneResult] = []
    rectifications: dict[str, Rectification] = {}
    scores: dict[str, dict[str, SceneScores]] = {method.name: {} for method in methods}
    for outcome in outcomes:
        results += outcome.results
        if outcome.rectification is not None:
            rectifications[outcome.scene] = outcome.rectification
        for name, scored in outcome.scores.items():
            scores[name][outcome.scene] = scored
        if outcome.pair is not None:
            for sink in sinks:
                sink.scene(outcome.scene, outcome.pair, outcome.maps, outcome.curves)
    measured = next((result.figures for result in results if result.figures), {})
    evaluation = Evaluation(
        dataset,
        list(methods),
        list(scenes),
        results,
        {name: mean_figures(rules, by_scene) for name, by_scene in scores.items()},
        rules.primary_of(measured),
        mean_name(rules, list(scenes)),
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
