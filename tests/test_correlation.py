"""The stage from features to matching costs, and its way back, in the labels of a `LabelRange`."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from support.gradcheck import assert_gradients

from hybridstereo.correlation import correlation_backward, correlation_forward, softmax_backward
from hybridstereo.labels import LabelRange

RANGES = [LabelRange(-3.0, 7), LabelRange(0.25, 5), LabelRange(-1.5, 8, 0.5), LabelRange(2.0, 3, 2)]


@pytest.mark.parametrize("labels", RANGES, ids=str)
def test_costs_equal_naive(backend, rng, labels):
    left, right = rng.standard_normal((2, 2, 9, 4)).astype(np.float32)
    scores = naive.scores(left, right, labels.disparities)
    expected = {
        "left": naive.unary_cost(scores),
        "mutual": naive.mutual_cost(scores, labels.disparities, 9),
    }
    for softmax, costs in expected.items():
        found = correlation_forward(backend, left, right, labels, None, softmax)
        np.testing.assert_allclose(found, costs, atol=2e-6)


@pytest.mark.parametrize("softmax", ["left", "mutual"])
@pytest.mark.parametrize("labels", RANGES, ids=str)
def test_the_way_back_is_the_derivative(backend, rng, labels, softmax):
    left, right = rng.standard_normal((2, 2, 9, 4))
    dcosts = rng.standard_normal((2, 9, labels.count))

    def loss() -> float:
        return float(
            (dcosts * correlation_forward(backend, left, right, labels, None, softmax)).sum()
        )

    kept = []
    costs = correlation_forward(backend, left, right, labels, None, softmax, kept)
    dscores = softmax_backward(backend, costs, dcosts, labels, kept)
    dleft, dright = correlation_backward(backend, dscores, left, right, labels)
    views, gradients = {"left": left, "right": right}, {"left": dleft, "right": dright}
    assert_gradients(loss, views, gradients, rng)
