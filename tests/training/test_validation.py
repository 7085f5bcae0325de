"""The figure that picks a model is the figure that `hstereo eval` prints."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from hybridstereo.datasets import Sample, StereoPair, open_dataset
from hybridstereo.datasets.loader import PairCache
from hybridstereo.evaluation.compare import EvalOptions, evaluate_dataset
from hybridstereo.models.census import census_model
from hybridstereo.models.zoo import save_model
from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize
from hybridstereo.training.validation import CRITERIA, validate, validation_figures


def _pair(disparity: np.ndarray, valid: np.ndarray | None = None) -> StereoPair:
    image = np.zeros((*disparity.shape, 3), np.float32)
    seen = np.ones(disparity.shape, bool) if valid is None else valid
    return StereoPair(image, image, disparity, seen)


def _map(error: list[float]) -> tuple[StereoPair, np.ndarray]:
    """A prediction with these errors at disparity 10, where D1 counts those over 3 px."""
    truth = np.full((1, len(error)), 10.0, np.float32)
    # The last pixel tells the range, to which Middlebury's rules clip, and is not counted.
    pair = _pair(np.append(truth, [[40.0]], axis=1), np.arange(len(error) + 1)[None] < len(error))
    return pair, np.append(truth + np.float32(error), [[40.0]], axis=1).astype(np.float32)


def _samples(*sources: str) -> list[Sample]:
    read = partial(_pair, np.zeros((1, 1), np.float32))
    return [Sample(str(i), f"{x}/{i}", x, (), read) for i, x in enumerate(sources)]


def test_each_data_set_is_judged_by_its_own_figure_and_counts_the_same():
    # 2 px: counted by bad1, not by D1.  4 px: counted by both.
    indoors, street = _map([0.0, 0.0, 0.0, 2.0]), _map([2.0, 2.0, 4.0, 0.0])
    samples = _samples("middlebury", "kitti", "kitti", "kitti")
    figures = validation_figures(samples, [indoors, street, street, street])
    assert tuple(figures) == CRITERIA
    assert figures["benchmark"] == pytest.approx((25.0 + 25.0) / 2)
    assert figures["bad1"] == pytest.approx((25.0 + 75.0) / 2)
    assert validation_figures(samples[1:], 3 * [street])["benchmark"] == pytest.approx(25.0)
    assert validation_figures(samples[:1], [street])["benchmark"] == pytest.approx(75.0)


def test_pairs_without_truth_do_not_hide_the_others():
    truth = np.full((1, 2), 10.0, np.float32)
    nothing = _pair(truth, np.zeros((1, 2), bool)), truth
    samples = _samples("middlebury", "kitti")
    figures = validation_figures(samples, [_map([0.0, 2.0]), nothing])
    assert figures["benchmark"] == pytest.approx(50.0)
    assert math.isnan(validation_figures(samples[1:], [nothing])["benchmark"])


def test_validation_gives_what_eval_prints(backend, tmp_path):
    """Range, rounding, rules and means are those of the evaluation, to the bit."""
    options = SceneOptions(height=36, width=60, max_disparity=12.3, objects=4)
    synthesize(tmp_path / "data", 3, 0, options)
    model = census_model()
    save_model(tmp_path / "m.h5", model)
    dataset = open_dataset("middlebury", str(tmp_path / "data"))
    for method in ("crf", "argmax"):
        found = validate(model, backend, PairCache(dataset), dataset.samples, method)
        chosen = EvalOptions(models=(f"m={tmp_path / 'm.h5'}",), device="cpu")
        if method == "argmax":
            chosen = EvalOptions(baselines=("argmax",), models=chosen.models, device="cpu")
        printed = evaluate_dataset("middlebury", str(tmp_path / "data"), chosen).evaluation
        means = printed.means["m" if method == "crf" else "m argmax"]
        for name in ("bad1", "bad2", "bad4"):
            assert found[name] == means[name]
        assert found["benchmark"] == means[printed.primary]
