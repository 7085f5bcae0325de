"""The models that ship, on the scenes of ../shared that none of them was trained on."""

from __future__ import annotations

import re

import pytest
from kept_scenes import FIGURES, frames
from publish_models import BASELINE

from hybridstereo.evaluation.compare import EvalOptions, evaluate_dataset
from hybridstereo.evaluation.spread import values_of
from hybridstereo.models.zoo import DEFAULT_MODEL, load_model

pytestmark = [pytest.mark.shared, pytest.mark.slow]

# What all models that ship were not trained on, and state; some were published before there were
# scenes that only test (tools/kept_scenes.py).
FOLDERS = {"middlebury": "MiddEval3", "kitti": "kitti2015"}
KEPT = {
    "middlebury": ("Adirondack", "Jadeplant", "Pipes", "Teddy"),
    "kitti": frames(1, 5, 9, 13, 17, 25),
}
AT_MOST = {"middlebury": 11.0, "kitti": 6.0}  # percent, of the model of that name
BEHIND_SPECIALIST = 1.5  # points, of the default model
BETTER_THAN_SGBM = 1.5  # times
# Rounding differs between processors and moves a few pixels.
POINTS = 0.05


@pytest.fixture(scope="module", params=FIGURES)
def measured(request, shared) -> tuple[str, dict[str, dict[str, float]]]:
    """A data set, and the figures of the default model, the specialist and SGBM by scene."""
    dataset = request.param
    options = EvalOptions(
        models=(DEFAULT_MODEL, dataset), baselines=(BASELINE,), scenes=KEPT[dataset]
    )
    root = str(shared / "data" / FOLDERS[dataset])
    evaluation = evaluate_dataset(dataset, root, options).evaluation
    figure = FIGURES[dataset]
    return dataset, {
        name: values_of(evaluation, name, figure) | {"mean": means[figure]}
        for name, means in evaluation.means.items()
    }


def test_specialists_are_far_better_than_semi_global_matching(measured):
    dataset, found = measured
    assert found[dataset]["mean"] <= AT_MOST[dataset]
    assert BETTER_THAN_SGBM * found[dataset]["mean"] <= found[BASELINE]["mean"]


def test_the_default_model_is_close_to_the_specialists(measured):
    dataset, found = measured
    assert found[DEFAULT_MODEL]["mean"] <= found[dataset]["mean"] + BEHIND_SPECIALIST


def test_the_default_model_is_better_than_semi_global_matching(measured):
    """On the mean, and on all scenes but one: frame 17 of KITTI 2015."""
    _, found = measured
    worse = [scene for scene, bad in found[BASELINE].items() if found[DEFAULT_MODEL][scene] >= bad]
    assert len(worse) <= 1
    assert "mean" not in worse


def test_models_reach_what_they_say(measured):
    dataset, found = measured
    wording = {"middlebury": r"bad1 ([\d.]+) % on Middlebury", "kitti": r"D1 ([\d.]+) % on KITTI"}
    for name in (DEFAULT_MODEL, dataset):
        stated = re.search(wording[dataset], load_model(name).config.validation)
        assert stated is not None
        assert found[name]["mean"] == pytest.approx(float(stated[1]), abs=POINTS)
