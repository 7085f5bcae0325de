from __future__ import annotations

import naive
import numpy as np
import pytest
from support.gradcheck import assert_gradients

SHAPES = [
    (1, 1, 1), (2, 2, 2), (1, 5, 3), (6, 1, 8), (5, 7, 9), (8, 10, 70), (2, 3, 128), (3, 2, 257),
    (2, 2, 260),
]  # fmt: skip


def coarse_shape(shape):
    return -(-shape[0] // 2), -(-shape[1] // 2), shape[2] // 2 + 1


@pytest.mark.parametrize("shape", SHAPES)
def test_sum_equals_naive(backend, rng, shape):
    fine = rng.standard_normal(shape).astype(np.float32)
    coarse = rng.standard_normal(coarse_shape(shape)).astype(np.float32)
    before = fine.copy()
    expected = fine + 0.3 * naive.upsampled(coarse.astype(np.float64), shape)
    total = backend.upsample_forward(fine, coarse, weight=0.3, in_place=False)
    np.testing.assert_allclose(total, expected, atol=2e-6)
    np.testing.assert_array_equal(fine, before)
    backend.upsample_forward(fine, coarse, weight=0.3)
    np.testing.assert_array_equal(fine, total)


def test_constant_costs_stay_constant(backend):
    fine = np.zeros((5, 6, 7), np.float32)
    backend.upsample_forward(fine, np.ones(coarse_shape(fine.shape), np.float32), weight=0.5)
    np.testing.assert_allclose(fine, 0.5, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_backward_is_the_transpose(backend, rng, shape):
    """<df, up(c)> = <up^T df, c>, which is the gradient of the weight too."""
    dfine = rng.standard_normal(shape).astype(np.float32)
    coarse = rng.standard_normal(coarse_shape(shape)).astype(np.float32)
    dcoarse, dweight = backend.upsample_backward(dfine, coarse, weight=0.5)
    up = naive.upsampled(coarse.astype(np.float64), shape)
    expected = float((dfine * up).sum())
    assert dweight == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert float((dcoarse * coarse).sum()) == pytest.approx(0.5 * expected, rel=1e-4, abs=1e-4)


def test_gradients(rng):
    from hybridstereo import kernels

    backend = kernels.select("cpu")
    shape = (5, 7, 6)
    fine, dfine = rng.standard_normal(shape), rng.standard_normal(shape)
    coarse, weight = rng.standard_normal(coarse_shape(shape)), np.array([0.4])

    def loss():
        total = fine.copy()
        backend.upsample_forward(total, coarse, weight=float(weight[0]))
        return float((dfine * total).sum())

    dcoarse, dweight = backend.upsample_backward(dfine, coarse, weight=float(weight[0]))
    gradients = {"coarse": dcoarse, "weight": np.array([dweight])}
    assert_gradients(loss, {"coarse": coarse, "weight": weight}, gradients, rng)
