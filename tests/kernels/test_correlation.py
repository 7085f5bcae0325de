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
@pytest.mark.parametrize("channels", [1, 6, 19])
def test_volume_equals_naive(backend, rng, disparities, width, channels):
    left, right = rng.standard_normal((2, 3, width, channels)).astype(np.float32)
    volume = backend.correlation_forward(left, right, disparities)
    expected = naive.unary_cost(naive.scores(left, right, disparities))
    assert volume.shape == (3, width, disparities.size)
    # Scores of 19 normal products reach 20, which float32 knows to 1e-6.
    np.testing.assert_allclose(volume, expected, atol=4e-6)


@pytest.mark.parametrize("disparities", RANGES.values(), ids=RANGES.keys())
@pytest.mark.parametrize(("width", "other"), [(5, 70), (70, 41), (33, 1)])
def test_views_of_different_width(backend, rng, disparities, width, other):
    """As those of a tile: the right view has what all labels of the left one look at."""
    left = rng.standard_normal((2, width, 4)).astype(np.float32)
    right = rng.standard_normal((2, other, 4)).astype(np.float32)
    volume = backend.correlation_forward(left, right, disparities)
    expected = naive.unary_cost(naive.scores(left, right, disparities))
    np.testing.assert_allclose(volume, expected, atol=2e-6)


def test_costs_can_be_rows_of_a_larger_volume(backend, rng):
    left, right = rng.standard_normal((2, 5, 12, 8)).astype(np.float32)
    whole = backend.to_host(backend.correlation_forward(left, right, np.arange(4.0)))
    volume = backend.empty((5, 12, 4), np.float32)
    for rows in (slice(0, 2), slice(2, 5)):
        found = backend.correlation_forward(
            left[rows], right[rows], np.arange(4.0), costs=volume[rows]
        )
        np.testing.assert_array_equal(backend.to_host(found), whole[rows])
    np.testing.assert_array_equal(backend.to_host(volume), whole)


def test_large_scores_do_not_overflow(backend):
    """100 saturated channels score 100; the difference of 200 is beyond exp in float32."""
    left = np.ones((1, 4, 100), np.float32)
    right = np.ones((1, 4, 100), np.float32)
    right[0, 0] = -1
    volume = backend.correlation_forward(left, right, np.arange(2.0))
    assert np.isfinite(volume).all()
    np.testing.assert_allclose(volume.sum(axis=2), -1, rtol=1e-6)
    np.testing.assert_allclose(volume[0, 1], [-1, 0], atol=1e-6)


@pytest.mark.parametrize("labels", [1, 5, 1024])
def test_scores_of_ten_thousand(backend, rng, labels):
    """The softmax of such scores is 0 and 1, ties aside; whole numbers have no rounding error."""
    left = rng.choice([-100, -50, 50, 100], (1, 9, 1)).astype(np.float32)
    right = rng.choice([-100, -50, 50, 100], (1, 9, 1)).astype(np.float32)
    disparities = np.arange(float(labels)) - labels // 2
    volume = backend.correlation_forward(left, right, disparities)
    expected = naive.unary_cost(naive.scores(left, right, disparities))
    np.testing.assert_allclose(volume, expected, atol=2e-6)


def test_nan_is_passed_on_to_all_costs_of_its_pixels(backend, rng):
    """A stage that made one is found by what comes out at the end (`faults.py`)."""
    left, right = rng.standard_normal((2, 3, 30, 5)).astype(np.float32)
    left[1, 20, 2] = np.nan
    right[2, 7, 0] = np.nan
    volume = backend.correlation_forward(left, right, np.arange(6.0))
    spoilt = np.zeros((3, 30), bool)
    spoilt[1, 20] = spoilt[2, 7:13] = True
    np.testing.assert_array_equal(np.isnan(volume), np.broadcast_to(spoilt[..., None], (3, 30, 6)))


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


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("labels", [1, 2, 31, 128])
def test_softmax_backward_equals_naive(backend, rng, labels, dtype, tolerance):
    f = naive.unary_cost(3 * rng.standard_normal((4, 5, labels))).astype(dtype)
    df = rng.standard_normal(f.shape).astype(dtype)
    before = f.tobytes(), df.tobytes()
    ds = backend.softmax_backward(f, df)
    # f is the negated probability: the gradient towards it changes sign as well.
    np.testing.assert_allclose(ds, naive.softmax_backward(-f, -df), atol=tolerance)
    assert ds.dtype == dtype
    assert (f.tobytes(), df.tobytes()) == before


@pytest.mark.parametrize("disparities", RANGES.values(), ids=RANGES.keys())
@pytest.mark.parametrize("width", [1, 5, 150])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-13)])
def test_scores_backward_equals_naive(backend, rng, disparities, width, dtype, tolerance):
    left, right = rng.standard_normal((2, 3, width, 6)).astype(dtype)
    ds = rng.standard_normal((3, width, disparities.size)).astype(dtype)
    before = ds.tobytes()
    gradients = backend.scores_backward(ds, left, right, disparities)
    expected = naive.scores_backward(left, right, disparities, ds)
    for found, wanted in zip(gradients, expected, strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, atol=tolerance)
    assert ds.tobytes() == before


@pytest.mark.parametrize("disparities", RANGES.values(), ids=RANGES.keys())
def test_gradient_equals_central_differences(backend, rng, disparities):
    """In float64 through correlation and softmax, along random directions."""
    left, right = rng.standard_normal((2, 2, 75, 3))
    df = rng.standard_normal((2, 75, disparities.size))
    f = backend.correlation_forward(left, right, disparities)
    dleft, dright = backend.scores_backward(
        backend.softmax_backward(f, df), left, right, disparities
    )
    step = 1e-5
    for _ in range(4):
        towards_left, towards_right = rng.standard_normal((2, *left.shape))
        after, before = (
            backend.correlation_forward(
                left + sign * towards_left, right + sign * towards_right, disparities
            )
            for sign in (step, -step)
        )
        measured = (df * (after - before)).sum() / (2 * step)
        computed = (dleft * towards_left).sum() + (dright * towards_right).sum()
        assert computed == pytest.approx(measured, rel=1e-6, abs=1e-7)


def test_gradients_have_the_same_bits_every_time(backend, rng):
    left, right = rng.standard_normal((2, 40, 200, 8)).astype(np.float32)
    ds = rng.standard_normal((40, 200, 20)).astype(np.float32)
    first, second = (backend.scores_backward(ds, left, right, np.arange(20.0)) for _ in range(2))
    assert [x.tobytes() for x in first] == [x.tobytes() for x in second]
