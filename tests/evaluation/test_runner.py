"""The runner: order, failures, sinks."""

from __future__ import annotations

import numpy as np

from hybridstereo.errors import InputError
from hybridstereo.evaluation.methods import Outcome
from hybridstereo.evaluation.protocol import PROTOCOLS
from hybridstereo.evaluation.results import CURVE_ERRORS, MethodInfo
from hybridstereo.evaluation.runner import run
from hybridstereo.evaluation.scenes import Scene, Target

TRUTH = np.full((4, 4), 5.0, np.float32)


class Constant:
    """Answers with one disparity, or raises."""

    def __init__(self, name, value, fails_on=(), error=None):
        self.info = MethodInfo(name, "constant", "folder")
        self._value, self._fails_on = value, fails_on
        self._error = error or InputError("it does not work")

    def compute(self, scene, target):
        if scene.name in self._fails_on:
            raise self._error
        return Outcome(np.full(target.disparity.shape, self._value, np.float32), 0.5)


class Collector:
    def __init__(self):
        self.events, self.evaluation = [], None

    def scene(self, truth, maps, curves):
        self.events.append((truth, dict(maps), dict(curves)))

    def finish(self, evaluation):
        self.evaluation = evaluation


def scenes(*names):
    return [Scene(name, (name,), lambda: Target(TRUTH)) for name in names]


def broken(name):
    def load():
        raise InputError("the file is damaged")

    return Scene(name, (name,), load)


def test_every_method_on_every_scene():
    seen = []
    evaluation = run(
        "d", PROTOCOLS["plain"], scenes("a", "b"), [Constant("good", 5), Constant("off", 6.5)],
        on_progress=lambda *event: seen.append(event),
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
        "d", PROTOCOLS["plain"], scenes("a", "b"), [Constant("x", 5, ["a"]), Constant("y", 5)]
    )
    assert [(r.scene, r.method) for r in evaluation.failures] == [("a", "x")]
    assert "does not work" in evaluation.failures[0].error
    assert evaluation.means["x"]["bad1"] == 0
    assert len(evaluation.results) == 4


def test_no_memory_for_one():
    methods = [Constant("x", 5, ["a"], MemoryError())]
    evaluation = run("d", PROTOCOLS["plain"], scenes("a", "b"), methods)
    assert [r.error for r in evaluation.results] == ["Not enough memory.", None]


def test_a_damaged_scene_costs_one_row():
    all_scenes = [broken("a"), *scenes("b")]
    evaluation = run("d", PROTOCOLS["plain"], all_scenes, [Constant("x", 5), Constant("y", 5)])
    assert [r.error is None for r in evaluation.results] == [False, False, True, True]


def test_a_map_of_another_size_is_a_failure():
    class Small(Constant):
        def compute(self, scene, target):
            return Outcome(np.zeros((3, 4), np.float32), None)

    evaluation = run("d", PROTOCOLS["middlebury"], scenes("a"), [Small("x", 0)])
    assert "4x3" in evaluation.failures[0].error


def test_all_failed():
    evaluation = run("d", PROTOCOLS["kitti"], [broken("a")], [Constant("x", 5)])
    assert evaluation.means == {"x": {}}
    assert evaluation.primary == "d1_noc"


def test_sinks_get_what_worked():
    sink = Collector()
    methods = [Constant("x", 5, ["b"]), Constant("y", 7)]
    evaluation = run("d", PROTOCOLS["plain"], [*scenes("a", "b"), broken("c")], methods, [sink])
    assert sink.evaluation is evaluation
    assert [truth.name for truth, _, _ in sink.events] == ["a", "b"]
    truth, maps, curves = sink.events[0]
    assert truth.left.shape == (4, 4, 3)  # grey where there is no image
    assert truth.dmax == 5
    assert set(maps) == set(curves) == {"x", "y"}
    assert curves["x"].shape == CURVE_ERRORS.shape
    assert curves["x"][0] == 100
    assert curves["y"][0] == 0
    assert set(sink.events[1][1]) == {"y"}


def test_sinks_get_maps_of_the_truths_size():
    class Small(Constant):
        def compute(self, scene, target):
            return Outcome(np.full((2, 2), 2.5, np.float32), None)

    sink = Collector()
    run("d", PROTOCOLS["middlebury"], scenes("a"), [Small("x", 0)], [sink])
    np.testing.assert_array_equal(sink.events[0][1]["x"], TRUTH)
