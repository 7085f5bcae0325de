from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from hybridstereo.kernels.cpu import simd, vectors


@njit
def _exp(x, out):
    for i in range(x.size):
        out[i] = simd.exp(x[i])


@njit
def _tanh(x, out):
    for i in range(x.size):
        out[i] = simd.tanh(x[i])


@njit
def _exp_of_vectors(x, out):
    for i in range(0, x.size, vectors.vector_lanes(x)):
        vectors.store(out, i, simd.exp(vectors.load(x, i)))


@njit
def _tanh_of_vectors(x, out):
    for i in range(0, x.size, vectors.vector_lanes(x)):
        vectors.store(out, i, simd.tanh(vectors.load(x, i)))


@njit
def _smallest(x):
    lowest = x[0]
    for i in range(x.size):
        lowest = simd.minimum(lowest, x[i])
    return lowest


@pytest.mark.parametrize(
    ("function", "exact", "low", "high"),
    [(_exp, np.exp, -86.0, 86.0), (_tanh, np.tanh, -12.0, 12.0)],
)
def test_float32_is_accurate_everywhere(function, exact, low, high):
    x = np.concatenate([np.linspace(low, high, 2_000_001), [0.0]]).astype(np.float32)
    out = np.empty_like(x)
    function(x, out)
    truth = exact(x.astype(np.float64))
    error = np.abs(out - truth)
    assert (error <= 4e-7 * np.abs(truth) + 1e-37).all()
    assert out[-1] == exact(0.0)


def test_exp_below_the_range_is_negligible_not_negative():
    x = np.array([-100.0, -1e4, -np.inf], np.float32)
    out = np.empty_like(x)
    _exp(x, out)
    assert ((out >= 0) & (out < 1e-37)).all()


@pytest.mark.parametrize("function", [_exp, _tanh])
def test_nan_stays_nan(function):
    """In the vector loop and in the rest of it: a NaN must not leave a network as a feature."""
    x = np.linspace(-3, 3, 67).astype(np.float32)
    x[5::7] = np.nan
    out = np.empty_like(x)
    function(x, out)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(x))


@pytest.mark.parametrize(
    ("function", "of_vectors"), [(_exp, _exp_of_vectors), (_tanh, _tanh_of_vectors)]
)
def test_vectors_have_the_bits_of_numbers(function, of_vectors):
    x = np.linspace(-90, 90, 4096).astype(np.float32)
    x[7::97] = np.nan
    numbers, lanes = np.empty_like(x), np.empty_like(x)
    function(x, numbers)
    of_vectors(x, lanes)
    np.testing.assert_array_equal(lanes, numbers)


def test_tanh_saturates():
    x = np.array([30.0, -30.0, 1e30], np.float32)
    out = np.empty_like(x)
    _tanh(x, out)
    np.testing.assert_allclose(out, [1, -1, 1], atol=2e-7)


@pytest.mark.parametrize(("function", "exact"), [(_exp, np.exp), (_tanh, np.tanh)])
def test_float64_is_the_library_function(function, exact):
    x = np.linspace(-5, 5, 1001)
    out = np.empty_like(x)
    function(x, out)
    np.testing.assert_allclose(out, exact(x), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, 8, 33, 1000])
def test_minimum_as_a_reduction(dtype, size, rng):
    x = rng.standard_normal(size).astype(dtype)
    assert _smallest(x) == x.min()


def test_minimum_is_vectorised():
    """The reason why this module exists: `min` alone compiles to scalar vminss."""
    import platform

    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("looks for x86 instructions")
    _smallest(np.zeros(16, np.float32))
    code = "".join(_smallest.inspect_asm().values())
    assert "minps" in code
