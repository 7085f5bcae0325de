from __future__ import annotations

import naive
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from hybridstereo import kernels

LR, MOMENTUM, DECAY = 0.1, 0.9, 0.01

# Kernels (O, I, kh, kw): more inputs than filters, the other way round, one of either.
SHAPES = [(3, 4, 2, 2), (9, 1, 2, 1), (2, 9, 1, 1), (1, 5, 1, 1), (5, 1, 1, 1)]


def three(rng, *shape):
    """A parameter, its velocity and its gradient."""
    return [x.copy() for x in rng.standard_normal((3, *shape)).astype(np.float32)]


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_update_equals_naive(backend, rng, nesterov):
    parameter, velocity, gradient = three(rng, 3, 5)
    expected = naive.sgd_update(parameter, velocity, gradient, LR, MOMENTUM, nesterov, DECAY)
    backend.sgd_update(parameter, velocity, gradient, LR, MOMENTUM, nesterov, DECAY)
    np.testing.assert_allclose(parameter, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(velocity, expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_muon_update_equals_naive(backend, rng, shape, nesterov):
    parameter, velocity, gradient = three(rng, *shape)
    expected = naive.muon_update(parameter, velocity, gradient, LR, MOMENTUM, nesterov, DECAY)
    kept = gradient.copy()
    backend.muon_update(parameter, velocity, gradient, LR, MOMENTUM, nesterov, DECAY)
    np.testing.assert_allclose(parameter, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(velocity, expected[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(gradient, kept)


@pytest.mark.parametrize("nesterov", [False, True])
def test_normalised_update_equals_naive(backend, rng, nesterov):
    parameter, velocity, gradient = three(rng, 7)
    expected = naive.normalised_update(parameter, velocity, gradient, LR, MOMENTUM, nesterov)
    backend.normalised_update(parameter, velocity, gradient, LR, MOMENTUM, nesterov)
    np.testing.assert_allclose(parameter, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(velocity, expected[1], rtol=1e-5, atol=1e-6)


def test_a_direction_of_zeros_changes_nothing(backend):
    """That of a pair without a valid pixel, for example."""
    for shape in ((2, 3, 1, 1), (4,)):
        parameter, velocity, gradient = np.ones((3, *shape), np.float32)
        if len(shape) == 4:
            backend.muon_update(parameter, velocity * 0, gradient * 0, LR, MOMENTUM, True, 0.0)
        else:
            backend.normalised_update(parameter, velocity * 0, gradient * 0, LR, MOMENTUM, True)
        np.testing.assert_array_equal(parameter, 1)


def test_muon_update_of_a_whole_layer(rng):
    """A layer of the Unary-CNN: the step's singular values are close to 1."""
    cpu = kernels.select("cpu")
    parameter, velocity, gradient = three(rng, 100, 100, 2, 2)
    before = parameter.copy()
    cpu.muon_update(parameter, velocity, gradient, 1.0, MOMENTUM, True, 0.0)
    values = np.linalg.svd((parameter - before).reshape(100, 400), compute_uv=False)
    assert values.min() > 0.6
    assert values.max() < 1.25


def test_muon_update_has_the_same_bits_with_any_number_of_threads(rng):
    cpu = kernels.select("cpu")
    start = three(rng, 100, 100, 2, 2)
    most = kernels.max_threads()
    results = set()
    for threads in (1, 2, None):
        parameter, velocity, gradient = (x.copy() for x in start)
        with threadpool_limits(threads), kernels.limited_threads(min(threads or 1, most)):
            for _ in range(3):
                cpu.muon_update(parameter, velocity, gradient, LR, MOMENTUM, True, 0.0)
        results.add(parameter.tobytes() + velocity.tobytes())
    assert len(results) == 1
