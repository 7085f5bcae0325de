"""The spread over scenes, and the scenes on which a baseline is better."""

from __future__ import annotations

import math

import pytest

from hybridstereo.evaluation.results import Evaluation, MethodInfo, SceneResult
from hybridstereo.evaluation.spread import Defeat, defeats, spread_of, standard_error


def evaluated(**figures: list[float | None]) -> Evaluation:
    """bad1 by method and scene; None where the method failed."""
    kinds = {"sgbm": "baseline", "theirs": "folder"}
    methods = [MethodInfo(name, "", kinds.get(name, "model")) for name in figures]
    scenes = [f"scene{i}" for i in range(len(next(iter(figures.values()))))]
    results = [
        SceneResult(scene, name, {} if value is None else {"bad1": value}, None, None)
        for i, scene in enumerate(scenes)
        for name, values in figures.items()
        for value in [values[i]]
    ]
    return Evaluation("x", methods, scenes, results, {name: {} for name in figures}, "bad1")


def test_spread():
    spread = spread_of(evaluated(ours=[1.0, 9.0, 2.0, None, math.nan]), "ours")
    assert (spread.scenes, spread.mean, spread.median) == (3, 4.0, 2.0)
    assert (spread.worst, spread.worst_scene) == (9.0, "scene1")
    assert spread.standard_error == pytest.approx(math.sqrt(19 / 3))  # variance 19 of 3 values


def test_no_value_has_no_spread():
    assert spread_of(evaluated(ours=[None, math.nan]), "ours") is None
    assert spread_of(evaluated(ours=[1.0]), "ours", "d1") is None


def test_one_scene_has_no_error():
    assert math.isnan(standard_error([3.0]))
    assert math.isnan(spread_of(evaluated(ours=[1.0]), "ours").standard_error)


def test_where_a_baseline_is_better():
    evaluation = evaluated(
        ours=[1.0, 5.0, 3.0, None, 2.0],
        fast=[0.0, 0.0, 0.0, 0.0, 0.0],
        sgbm=[2.0, 4.0, 3.0, 1.0, 1.0],
        theirs=[0.0, 0.0, 0.0, 0.0, 0.0],
    )
    ours, fast = defeats(evaluation)
    assert ours == Defeat("ours", "sgbm", ("scene1", "scene4"), 4)
    assert fast == Defeat("fast", "sgbm", (), 5)
    assert ours.describe() == "sgbm is better than ours on 2 of 4 scenes: scene1, scene4"
    assert fast.describe() == "sgbm is better than fast on 0 of 5 scenes"
