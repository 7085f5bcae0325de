from __future__ import annotations

import math

import numpy as np
import pytest

from hybridstereo.datasets import Sample, StereoPair
from hybridstereo.training.validation import CRITERIA, labels_for, mean_figures, score_prediction


def _pair(disparity: np.ndarray, valid: np.ndarray | None = None) -> StereoPair:
    image = np.zeros((*disparity.shape, 3), np.float32)
    seen = np.ones(disparity.shape, bool) if valid is None else valid
    return StereoPair(image, image, disparity, seen)


def _scores(error: np.ndarray):
    """Of a prediction with these errors at disparity 10, where D1 counts those over 3 px."""
    truth = np.full(error.shape, 10.0, np.float32)
    return score_prediction(truth + error.astype(np.float32), _pair(truth))


def _sample(source: str) -> Sample:
    return Sample("a", f"{source}/a", source, (), lambda: _pair(np.zeros((1, 1), np.float32)))


def test_labels_follow_the_pair_or_the_user():
    pair = _pair(np.full((2, 3), 13.4, np.float32))
    assert labels_for(pair, 21).count == 21
    count = labels_for(pair, None).count
    assert count % 8 == 0
    assert count >= 14


def test_each_data_set_is_judged_by_its_own_figure_and_counts_the_same():
    # 2 px: counted by bad1, not by D1.  4 px: counted by both.
    indoors = _scores(np.array([[0.0, 0.0, 0.0, 2.0]]))
    street = _scores(np.array([[2.0, 2.0, 4.0, 0.0]]))
    samples = [_sample("middlebury"), _sample("kitti"), _sample("kitti"), _sample("kitti")]
    figures = mean_figures(samples, [indoors, street, street, street])
    assert tuple(figures) == CRITERIA
    assert figures["benchmark"] == pytest.approx((25.0 + 25.0) / 2)
    assert figures["bad1"] == pytest.approx((25.0 + 3 * 75.0) / 4)
    assert mean_figures(samples[1:], 3 * [street])["benchmark"] == pytest.approx(25.0)
    assert mean_figures(samples[:1], [street])["benchmark"] == pytest.approx(75.0)


def test_pairs_without_truth_do_not_hide_the_others():
    truth = np.full((1, 2), 10.0, np.float32)
    nothing = score_prediction(truth, _pair(truth, np.zeros((1, 2), bool)))
    samples = [_sample("middlebury"), _sample("kitti")]
    figures = mean_figures(samples, [_scores(np.array([[0.0, 2.0]])), nothing])
    assert figures["benchmark"] == pytest.approx(50.0)
    assert math.isnan(mean_figures(samples[1:], [nothing])["benchmark"])
