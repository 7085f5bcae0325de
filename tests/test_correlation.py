"""Correlation + softmax against the naive scores, with every awkward range of disparities."""

from __future__ import annotations

import naive
import numpy as np
import pytest

RANGES = {
    "plain": np.arange(8.0),
    "one label": np.array([2.0]),
    "from one": np.arange(1.0, 9.0),
    "negative": np.arange(-6.0, 5.0),
    "wider than the image": np.arange(40.0),
    "all outside left": np.arange(100.0, 104.0),
    "all outside right": np.arange(-104.0, -100.0),
    "half steps": np.arange(9) * 0.5 - 1.0,
    "three quarter steps": np.arange(12) * 0.75 - 2.0,
    "two pixel steps": np.arange(5) * 2.0,
    "fractional start": np.arange(6) + 0.25,
}


@pytest.mark.parametrize("disparities", RANGES.values(), ids=RANGES.keys())
@pytest.mark.parametrize("width", [1, 5, 70, 150])
@pytest.mark.parametrize("channels", [1, 6])
def test_volume_equals_naive(backend, rng, disparities, width, channels):
    left, right = rng.standard_normal((2, 3, width, channels)).astype(np.float32)
    volume = backend.correlation_forward(left, right, disparities)
    expected = naive.unary_cost(naive.scores(left, right, disparities))
    assert volume.shape == (3, width, disparities.size)
    np.testing.assert_allclose(volume, expected, atol=2e-6)


def test_large_scores_do_not_overflow(backend):
    """100 saturated channels score 100; the difference of 200 is beyond exp in float32."""
    left = np.ones((1, 4, 100), np.float32)
    right = np.ones((1, 4, 100), np.float32)
    right[0, 0] = -1
    volume = backend.correlation_forward(left, right, np.arange(2.0))
    assert np.isfinite(volume).all()
    np.testing.assert_allclose(volume.sum(axis=2), -1, rtol=1e-6)
    np.testing.assert_allclose(volume[0, 1], [-1, 0], atol=1e-6)


def test_costs_are_negated_probabilities(backend, rng):
    left, right = rng.standard_normal((2, 4, 30, 5)).astype(np.float32)
    volume = backend.correlation_forward(left, right, np.arange(6.0))
    assert volume.max() <= 0
    np.testing.assert_allclose(volume.sum(axis=2), -1, rtol=1e-5)


def test_float64_is_exact(backend, rng):
    left, right = rng.standard_normal((2, 2, 20, 4))
    for disparities in (np.arange(-2.0, 5.0), np.arange(7) * 0.5):
        volume = backend.correlation_forward(left, right, disparities)
        expected = naive.unary_cost(naive.scores(left, right, disparities))
        np.testing.assert_allclose(volume, expected, atol=1e-14)
