"""The runner: order, failures, sinks."""

from __future__ import annotations

import numpy as np

from hybridstereo.datasets.pair import truth_pair
from hybridstereo.errors import InputError
from hybridstereo.evaluation.methods import Outcome
from hybridstereo.evaluation.protocol import RULES
from hybridstereo.evaluation.results import CURVE_ERRORS, MethodInfo
from hybridstereo.evaluation.runner import run
from hybridstereo.evaluation.scenes import Scene

TRUTH = np.full((4, 4), 5.0, np.float32)


class Constant:
    """Answers with one disparity, or raises."""

    def __init__(self, name, value, fails_on=(), error=None):
        self.info = MethodInfo(name, "constant", "folder")
        self._value, self._fails_on = value, fails_on
        self._error = error or InputError("it does not work")

    def compute(self, scene, pair):
        if scene.name in self._fails_on:
            raise self._error
        return Outcome(np.full(pair.disparity.shape, self._value, np.float32), 0.5)


class Collector:
    def __init__(self):
        self.events, self.evaluation = [], None

    def scene(self, name, pair, maps, curves):
        self.events.append((name, pair, dict(maps), dict(curves)))

    def finish(self, evaluation):
        self.evaluation = evaluation


def scenes(*names):
    return [Scene(name, (name,), lambda: truth_pair(TRUTH)) for name in names]


def broken(name):
    def load():
        raise InputError("the file is damaged")

    return Scene(name, (name,), load)


def test_every_method_on_every_scene():
    seen = []
    evaluation = run(
        "d", RULES["plain"], scenes("a", "b"), [Constant("good", 5), Constant("off", 6.5)],
        on_run=lambda *event: seen.append(event),
    )  # fmt: skip
    assert [(r.scene, r.method) for r in evaluation.results] == [
        ("a", "good"), ("a", "off"), ("b", "good"), ("b", "off"),
    ]  # fmt: skip
    assert evaluation.means["good"]["bad1"] == 0
    assert evaluation.means["off"]["bad1"] == 100
    assert evaluation.primary == "bad1"
    assert evaluation.failures == []
    assert seen[-1] == (3, 4, "b", "off")


def test_one_failure_costs_one_cell():
    evaluation = run(
        "d", RULES["plain"], scenes("a", "b"), [Constant("x", 5, ["a"]), Constant("y", 5)]
    )
    assert [(r.scene, r.method) for r in evaluation.failures] == [("a", "x")]
    assert "does not work" in evaluation.failures[0].error
    assert evaluation.means["x"]["bad1"] == 0
    assert len(evaluation.results) == 4


def test_no_memory_for_one():
    methods = [Constant("x", 5, ["a"], MemoryError())]
    evaluation = run("d", RULES["plain"], scenes("a", "b"), methods)
    assert [r.error for r in evaluation.results] == ["Not enough memory.", None]


def test_a_damaged_scene_costs_one_row():
    all_scenes = [broken("a"), *scenes("b")]
    evaluation = run("d", RULES["plain"], all_scenes, [Constant("x", 5), Constant("y", 5)])
    assert [r.error is None for r in evaluation.results] == [False, False, True, True]


def test_a_map_of_another_size_is_a_failure():
    class Small(Constant):
        def compute(self, scene, pair):
            return Outcome(np.zeros((3, 4), np.float32), None)

    evaluation = run("d", RULES["middlebury"], scenes("a"), [Small("x", 0)])
    assert "4x3" in evaluation.failures[0].error


def test_all_failed():
    evaluation = run("d", RULES["kitti"], [broken("a")], [Constant("x", 5)])
    assert evaluation.means == {"x": {}}
    assert evaluation.primary == "d1_noc"


def test_sinks_get_what_worked():
    sink = Collector()
    methods = [Constant("x", 5, ["b"]), Constant("y", 7)]
    evaluation = run("d", RULES["plain"], [*scenes("a", "b"), broken("c")], methods, [sink])
    assert sink.evaluation is evaluation
    assert [name for name, *_ in sink.events] == ["a", "b"]
    _, pair, maps, curves = sink.events[0]
    assert not pair.has_left
    assert pair.dmax == 5
    assert set(maps) == set(curves) == {"x", "y"}
    assert curves["x"].shape == CURVE_ERRORS.shape
    assert curves["x"][0] == 100
    assert curves["y"][0] == 0
    assert set(sink.events[1][2]) == {"y"}


def test_sinks_get_maps_of_the_truths_size():
    class Small(Constant):
        def compute(self, scene, pair):
            return Outcome(np.full((2, 2), 2.5, np.float32), None)

    sink = Collector()
    run("d", RULES["middlebury"], scenes("a"), [Small("x", 0)], [sink])
    np.testing.assert_array_equal(sink.events[0][2]["x"], TRUTH)
