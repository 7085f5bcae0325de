from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.errors import InputError
from hybridstereo.labels import LabelRange, labels_for


def test_disparities():
    labels = LabelRange(-2.0, 4, 0.5)
    np.testing.assert_array_equal(labels.disparities, [-2, -1.5, -1, -0.5])
    assert labels.maximum == -0.5
    np.testing.assert_array_equal(labels.to_disparity(np.array([[0, 3]])), [[-2, -0.5]])
    assert labels.to_disparity(np.array([[0, 3]])).dtype == np.float32


@pytest.mark.parametrize(
    ("count", "rounded"),
    [(1, 1), (2, 2), (3, 4), (60, 64), (64, 64), (65, 128), (190, 256), (500, 256)],
)
def test_paper_rounding(count, rounded):
    assert LabelRange(1.0, count, 0.5).paper_rounding() == LabelRange(1.0, rounded, 0.5)


MODEL = LabelRange(0.0, 128)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"width": 1000}, LabelRange(0, 128)),
        ({"width": 50}, LabelRange(0, 50)),
        ({"width": 1}, LabelRange(0, 1)),
        ({"width": 1000, "step": 0.5}, LabelRange(0, 255, 0.5)),
        ({"width": 50, "disparities": 300}, LabelRange(0, 300)),
        ({"width": 50, "min_disparity": -7.5, "disparities": 3}, LabelRange(-7.5, 3)),
        ({"width": 50, "disparities": 60, "paper_labels": True}, LabelRange(0, 64)),
        # A data set's convention beats the model's default, a number that was asked for both.
        ({"search_range": 60}, LabelRange(0, 60)),
        ({"search_range": 200, "width": 50}, LabelRange(0, 200)),
        ({"search_range": 60, "paper_labels": True}, LabelRange(0, 64)),
        ({"search_range": 60, "disparities": 10}, LabelRange(0, 10)),
        ({"search_range": 60, "min_disparity": -4.0}, LabelRange(-4, 64)),
        ({"search_range": 60, "min_disparity": 1.0}, LabelRange(1, 60)),
        ({"search_range": 60, "step": 0.5}, LabelRange(0, 120, 0.5)),
    ],
)
def test_one_policy_for_inference_evaluation_and_training(asked, expected):
    assert labels_for(MODEL, **asked) == expected


@pytest.mark.parametrize(
    ("minimum", "count", "step", "words"),
    [
        (np.nan, 4, 1.0, "smallest disparity"),
        (0.0, 0, 1.0, "number of labels"),
        (0.0, 4, 0.0, "step between labels"),
        (0.0, 4, np.inf, "step between labels"),
    ],
)
def test_labels_that_mean_nothing_are_refused(minimum, count, step, words):
    with pytest.raises(InputError, match=words):
        LabelRange(minimum, count, step)
