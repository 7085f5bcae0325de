"""Dual_MM in 16-bit fixed point against floats and the guarantees of docs/model.md 6.9."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from hybridstereo import kernels
from hybridstereo.kernels import fixed_point_problem, limited_threads

P1, P2 = 0.15, 0.6
SHAPES = [(1, 1, 1), (1, 2, 3), (2, 1, 3), (6, 9, 2), (17, 33, 31), (5, 40, 32), (34, 18, 45)]


def problem(rng, height, width, labels):
    f = -(rng.random((height, width, labels)) ** 3)
    weights = 0.5 * rng.random((2, height, width))
    return tuple(np.ascontiguousarray(x, np.float32) for x in (f, *weights))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("iterations", [1, 3])
def test_bounds_and_minorant_are_those_of_floats_but_for_rounding(rng, shape, iterations):
    f, wx, wy = problem(rng, *shape)
    minorant, bounds = naive.dual_mm(f, wx, wy, P1, P2, iterations)
    half = fixed_point_problem(f.copy(), wx, wy, P1, P2)
    quantum = half.costs.quantum
    assert quantum < 1e-4
    lowest = f.min(axis=2, keepdims=True)
    np.testing.assert_allclose(np.asarray(half.costs), f - lowest, atol=0.51 * quantum)
    # Rounding moves each cost by half a quantum, and each penalty by one or two.
    found = half.solve(iterations)
    np.testing.assert_allclose(found, bounds, atol=6 * quantum * shape[0] * shape[1])
    above = minorant - minorant.min(axis=2, keepdims=True)
    difference = np.abs(np.asarray(half.minorant) - above)
    assert np.asarray(half.minorant).min(axis=2).max() == 0
    assert np.median(difference) < 10 * quantum


@pytest.mark.parametrize("seed", range(4))
def test_bound_is_below_the_optimum_of_the_rounded_costs_and_never_falls(seed):
    f, wx, wy = problem(np.random.default_rng(seed), 2, 4, 3)
    half = fixed_point_problem(f.copy(), wx, wy, P1, P2)
    rounded = np.asarray(half.costs).astype(np.float64)
    _, optimum = naive.brute_force_map(rounded, wx, wy, P1, P2)
    bounds = half.solve(20)
    assert bounds.max() <= optimum + half.row_minima.sum() + 1e-9
    assert np.diff(bounds).min() >= -1e-9
    labels = half.read_out()
    energy = naive.energy(rounded, wx, wy, P1, P2, labels) + half.row_minima.sum()
    assert half.energy(labels) == pytest.approx(energy, rel=1e-6)  # of float32
    assert bounds[-1] <= energy


def test_labels_rows_and_refinement_are_nearly_those_of_floats(rng):
    f, wx, wy = problem(rng, 30, 41, 13)
    backend = kernels.select("cpu")
    rows, half_rows = (np.full((30, 41), -1, np.int32) for _ in range(2))
    minorant, _ = backend.dual_mm(f, wx, wy, P1, P2, 4, rows)
    labels = backend.read_out(minorant)
    half = fixed_point_problem(f.copy(), wx, wy, P1, P2)
    half.solve(4, half_rows)
    assert (half.read_out() == labels).mean() > 0.99
    assert (half_rows == rows).mean() > 0.99
    offsets = backend.refine(minorant, labels, step=0.5)
    np.testing.assert_allclose(half.refine(labels, 0.5), offsets, atol=0.01)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_costs_of_any_size_have_room(rng, factor):
    f, wx, wy = problem(rng, 12, 20, 9)
    half = fixed_point_problem(f.copy(), wx, wy, P1, P2)
    scaled = fixed_point_problem(f * np.float32(factor), wx, wy, P1 * factor, P2 * factor)
    bounds = half.solve(2)
    np.testing.assert_allclose(scaled.solve(2), bounds * factor, rtol=1e-4)
    np.testing.assert_array_equal(scaled.read_out(), half.read_out())


@pytest.mark.parametrize("penalty", [0.0, 1e6])
def test_no_penalty_and_one_that_forbids_every_jump(rng, penalty):
    f, wx, wy = problem(rng, 12, 20, 9)
    half = fixed_point_problem(f.copy(), wx + 1, wy + 1, penalty, penalty)
    bounds = half.solve(3)
    if penalty == 0:
        np.testing.assert_array_equal(half.read_out(), f.argmin(axis=2))
        assert bounds[-1] == pytest.approx(f.min(axis=2).sum(), rel=1e-5)
    else:
        assert (half.read_out() == f.sum(axis=(0, 1)).argmin()).all()


def test_same_bits_for_any_number_of_threads(rng):
    f, wx, wy = problem(rng, 50, 37, 33)
    found = []
    for threads in (1, 2):
        half = fixed_point_problem(f.copy(), wx, wy, P1, P2)
        with limited_threads(min(threads, kernels.max_threads())):
            found.append((half.solve(2).tobytes(), np.asarray(half.minorant).tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 3])
def test_costs_that_are_not_finite_are_told(rng, number, row):
    f, wx, wy = problem(rng, 6, 5, 4)
    f[row, 2, 1] = number
    half = fixed_point_problem(f, wx, wy, P1, P2)
    bounds = half.solve(1)
    assert not np.isfinite(half.row_minima).all()
    assert not np.isfinite(bounds[-1] + half.energy(half.read_out()))


def test_weights_that_are_not_finite_are_told(rng):
    f, wx, wy = problem(rng, 6, 5, 4)
    wx[1, 1] = np.nan
    half = fixed_point_problem(f, wx, wy, P1, P2)
    assert np.isfinite(half.row_minima).all()
    assert np.isnan(half.solve(1)).all()
