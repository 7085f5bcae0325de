"""Figures, means and curves by the rules of each benchmark."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridstereo.datasets.pair import truth_pair
from hybridstereo.evaluation.protocol import (
    RULES,
    enlarged,
    error_curve,
    mean_figures,
    mean_name,
    mean_sparsification,
    score_scene,
)
from hybridstereo.evaluation.results import CURVE_ERRORS

INF = np.inf
TRUTH = np.array([[2.0, 4.0, 8.0, INF], [2.0, 4.0, 8.0, 16.0]], np.float32)
MASK = np.array([[True, True, True, True], [True, True, False, False]])


def figures(name, disparity, **changes):
    pair = truth_pair(TRUTH, **{"visible": MASK, "ndisp": 20, **changes})
    return score_scene(RULES[name], np.asarray(disparity, np.float32), pair).figures()


@pytest.mark.parametrize("name", list(RULES))
def test_the_truth_itself_has_no_errors(name):
    result = figures(name, np.where(np.isfinite(TRUTH), TRUTH, 3))
    assert all(value == 0 for value in result.values())
    assert {"bad1", "bad1_all", "d1_noc", "d1_all", "avgerr", "rms", "a99", "invalid"} <= set(
        result
    )


def test_shifted_map_gives_the_known_percentage():
    shifted = TRUTH.copy()
    shifted[0, 0] += 1.5  # one of five visible pixels, one of seven known ones
    shifted[~np.isfinite(shifted)] = 0
    result = figures("plain", shifted)
    assert result["bad1"] == pytest.approx(100 / 5)
    assert result["bad1_all"] == pytest.approx(100 / 7)
    assert result["bad2"] == 0
    assert result["avgerr"] == pytest.approx(1.5 / 5)


def test_without_a_mask_there_is_one_region():
    result = figures("plain", TRUTH, visible=None)
    assert "d1" in result
    assert not any(name.endswith(("_all", "_noc")) for name in result)


def test_without_truth_for_occluded_pixels_there_is_no_all():
    result = figures("kitti", TRUTH, covers_occluded=False)
    assert "d1_noc" in result
    assert not any(name.endswith("_all") for name in result)


def test_holes_are_bad_but_kitti_fills_them():
    holed = np.where(np.isfinite(TRUTH), TRUTH, 3)
    holed[0, 1] = np.nan
    assert figures("plain", holed)["bad4"] == pytest.approx(20)
    kitti = figures("kitti", holed)
    assert kitti["bad4"] == 0  # 2 px from the left neighbour, the background
    assert kitti["bad1"] == pytest.approx(20)
    assert kitti["invalid"] == pytest.approx(20)


def test_middlebury_clips():
    high = np.where(np.isfinite(TRUTH), TRUTH, 3)
    high[0, 2] = 1000
    assert figures("middlebury", high, ndisp=9)["bad0.5"] == pytest.approx(20)
    assert figures("middlebury", high, ndisp=8)["bad0.5"] == 0


def test_middlebury_replicates_smaller_maps():
    truth = np.full((4, 4), 6.0, np.float32)
    pair = truth_pair(truth, ndisp=8)
    small = np.full((2, 2), 3.0, np.float32)
    assert score_scene(RULES["middlebury"], small, pair).figures()["bad0.5"] == 0
    np.testing.assert_array_equal(enlarged(small, pair), truth)


def test_empty_mask_has_no_answer():
    result = figures("middlebury", TRUTH, visible=np.zeros_like(MASK))
    assert math.isnan(result["bad1"])
    assert not math.isnan(result["bad1_all"])


def scored(name, wrong, pixels=4):
    truth = np.full((1, pixels), 10.0, np.float32)
    guess = truth.copy()
    guess[0, :wrong] = 20
    mask = np.ones((1, pixels), bool)
    return score_scene(RULES[name], guess, truth_pair(truth, mask, ndisp=64))


def test_per_image_mean_and_pooled():
    scores = {"a": scored("kitti", 1, 2), "b": scored("kitti", 0, 8)}
    means = mean_figures(RULES["kitti"], scores)
    assert means["d1_noc"] == pytest.approx(25)
    assert means["d1_noc_pooled"] == pytest.approx(10)
    assert means["d1_all_pooled"] == pytest.approx(10)
    assert "a90_pooled" not in means


def test_middleburys_weights():
    scores = {"trainingQ/Teddy": scored("middlebury", 0), "Vintage": scored("middlebury", 4)}
    assert mean_name(RULES["middlebury"], list(scores)) == "weighted mean"
    means = mean_figures(RULES["middlebury"], scores)
    assert means["bad1"] == pytest.approx(100 * 0.5 / 1.5)
    scores = {"Teddy": scored("middlebury", 0), "cones": scored("middlebury", 4)}
    assert mean_name(RULES["middlebury"], list(scores)) == "mean"
    assert mean_figures(RULES["middlebury"], scores)["bad1"] == pytest.approx(50)


def test_scenes_without_a_value_are_left_out():
    nothing = score_scene(RULES["plain"], TRUTH, truth_pair(np.full_like(TRUTH, INF)))
    one = score_scene(RULES["plain"], TRUTH, truth_pair(TRUTH))
    means = mean_figures(RULES["plain"], {"a": nothing, "b": one})
    assert means["bad1"] == one.figures()["bad1"]
    assert math.isnan(mean_figures(RULES["plain"], {"a": nothing})["bad1"])
    assert mean_figures(RULES["plain"], {}) == {}


def test_primary_figure():
    assert RULES["kitti"].primary_of({"d1_noc": 1.0}) == "d1_noc"
    assert RULES["kitti"].primary_of({"d1": 1.0}) == "d1"
    assert RULES["middlebury"].primary_of({}) == "bad1"


@pytest.mark.parametrize("name", list(RULES))
def test_curve_agrees_with_bad_x(name, rng):
    truth = rng.uniform(2, 60, (20, 30)).astype(np.float32)
    guess = truth + rng.normal(0, 2, truth.shape).astype(np.float32)
    guess[3:5, 4:9] = np.inf
    pair = truth_pair(truth, ndisp=64)
    curve = error_curve(RULES[name], guess, pair)
    result = score_scene(RULES[name], guess, pair).figures()
    for threshold in (0.5, 1, 2, 4):
        place = int(np.argmin(np.abs(CURVE_ERRORS - threshold)))
        assert 100 - curve[place] == pytest.approx(result[f"bad{threshold:g}"], abs=1e-9)
    assert (np.diff(curve) >= 0).all()


def test_curve_over_nothing():
    pair = truth_pair(np.full((2, 2), INF, np.float32))
    curve = error_curve(RULES["plain"], np.zeros((2, 2)), pair)
    assert np.isnan(curve).all()


@pytest.mark.parametrize("name", list(RULES))
def test_figures_before_filling_stand_beside_those_after(name):
    pair = truth_pair(TRUTH, MASK, ndisp=20)
    known = np.where(np.isfinite(TRUTH), TRUTH, 3)
    before = known.copy()
    before[1, 2:] += 5  # occluded pixels that filling gets right
    result = score_scene(RULES[name], known, pair, before).figures()
    assert result["bad1_all"] == 0
    assert result["bad1_unfilled"] == 0
    assert result["bad1_all_unfilled"] == pytest.approx(100 * 2 / 7)
    assert "ausc" not in result
    assert "a99_unfilled" not in result


@pytest.mark.parametrize("name", list(RULES))
def test_confidence_is_about_the_map_before_filling(name):
    pair = truth_pair(TRUTH, MASK, ndisp=20)
    known = np.where(np.isfinite(TRUTH), TRUTH, 3)
    before = known.copy()
    before[1, 3] += 4  # bad by all rules
    confidence = np.full(TRUTH.shape, 0.9, np.float32)
    confidence[1, 3] = 0.1
    result = score_scene(RULES[name], known, pair, before, confidence).figures()
    assert result["density1"] == pytest.approx(86)  # 6 of 7 pixels, in whole per cent
    assert result["ausc"] == result["ausc_best"] < 100 / 7
    blind = score_scene(RULES[name], known, pair, before, np.ones_like(confidence))
    assert blind.figures()["ausc"] == pytest.approx(100 / 7)
    curve = mean_sparsification([blind, score_scene(RULES[name], known, pair)])
    np.testing.assert_allclose(curve, 100 / 7)
    assert mean_sparsification([score_scene(RULES[name], known, pair)]) is None
