"""The softmax of both views against the naive one, and its gradient, on every device."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from support.gradcheck import assert_gradients

from hybridstereo import kernels

RANGES = {
    "plain": np.arange(8.0),
    "one label": np.array([2.0]),
    "negative": np.arange(-6.0, 5.0),
    "wider than the image": np.arange(60.0),
    "all outside left": np.arange(100.0, 104.0),
    "all outside right": np.arange(-104.0, -100.0),
    "half steps": np.arange(9) * 0.5 - 1.0,
    "two pixel steps": np.arange(5) * 2.0,
}


def costs_of(backend, left, right, disparities):
    """The costs, and what the backward pass needs beside them."""
    log_sums = backend.empty(left.shape[:2], left.dtype)
    f = backend.correlation_forward(left, right, disparities, log_sums=log_sums)
    right_log_sums = backend.mutual_forward(f, log_sums, right.shape[1], disparities)
    return f, log_sums, right_log_sums


@pytest.mark.parametrize("disparities", RANGES.values(), ids=RANGES.keys())
@pytest.mark.parametrize(("width", "other"), [(1, 1), (37, 37), (5, 41), (41, 6), (7, 9)])
def test_costs_equal_naive(backend, rng, disparities, width, other):
    left = rng.standard_normal((2, width, 6)).astype(np.float32)
    right = rng.standard_normal((2, other, 6)).astype(np.float32)
    f, log_sums, _ = costs_of(backend, left, right, disparities)
    scores = naive.scores(left, right, disparities)
    np.testing.assert_allclose(f, naive.mutual_cost(scores, disparities, other), atol=2e-6)
    np.testing.assert_allclose(log_sums, np.log(np.exp(scores).sum(axis=2)), atol=1e-5)


def test_a_match_counts_if_both_pixels_choose_each_other(backend):
    """Left pixels 1 and 2 both look like right pixel 1, which looks like left pixel 1 only."""
    left, right = np.zeros((2, 1, 4, 3), np.float32)
    left[0, 1], left[0, 2], right[0, 1] = (6, 0, 0), (3, 0, 0), (3, 0, 0)
    f = costs_of(backend, left, right, np.arange(2.0))[0]
    assert f[0, 1, 0] < -0.99  # chosen by both
    assert -0.05 < f[0, 2, 1] < -0.001  # chosen by the left pixel only


def test_scores_far_apart_stay_finite(backend):
    """100 saturated channels, of which neighbours score -100 and 100."""
    left = np.ones((1, 6, 100), np.float32)
    right = np.ones((1, 6, 100), np.float32)
    left[0, 3:] = -1
    f = np.asarray(costs_of(backend, left, right, np.arange(3.0))[0])
    assert np.isfinite(f).all()
    assert (f <= 0).all()
    assert (f >= -1 - 1e-6).all()


@pytest.mark.parametrize("disparities", RANGES.values(), ids=RANGES.keys())
def test_gradient(rng, disparities):
    backend = kernels.select("cpu")
    left = rng.standard_normal((2, 9, 4))
    right = rng.standard_normal((2, 9, 4))
    df = rng.standard_normal((2, 9, disparities.size))
    f, log_sums, right_log_sums = costs_of(backend, left, right, disparities)
    ds = backend.mutual_backward(f, df, log_sums, right_log_sums, disparities)
    dleft, dright = backend.scores_backward(ds, left, right, disparities)
    assert_gradients(
        lambda: float((df * costs_of(backend, left, right, disparities)[0]).sum()),
        {"left": left, "right": right},
        {"left": dleft, "right": dright},
        rng,
    )


@pytest.mark.parametrize("disparities", [np.arange(8.0), np.arange(9) * 0.5])
@pytest.mark.parametrize("shape", [(3, 40, 6), (1, 14, 6)], ids=str)
def test_gradient_is_the_same_everywhere(backend, rng, shape, disparities):
    left, right = rng.standard_normal((2, *shape)).astype(np.float32)
    df = rng.standard_normal((*shape[:2], disparities.size)).astype(np.float32)
    kept = costs_of(backend, left, right, disparities)
    ds = backend.mutual_backward(kept[0], df, *kept[1:], disparities)
    exact = [x.astype(np.float64) for x in (left, right, df)]
    expected = costs_of(kernels.select("cpu"), *exact[:2], disparities)
    expected = kernels.select("cpu").mutual_backward(
        expected[0], exact[2], *expected[1:], disparities
    )
    np.testing.assert_allclose(ds, expected, atol=5e-6)
