"""The CRF's labelling, its bounds, and the true minimum where that can be had."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from hybridstereo.crf import Penalties, energy, solve
from hybridstereo.edges import EdgeWeights
from hybridstereo.kernels import select


def problem(rng, height, width, labels):
    """Costs in [-1, 0] and edge weights, all in float64, so that rounding hides nothing."""
    costs = -(rng.random((height, width, labels)) ** 3)
    return costs, EdgeWeights(*rng.random((2, height, width)))


@pytest.mark.parametrize("seed", range(4))
def test_bounds_rise_towards_the_energy_of_the_labelling(backend, seed):
    costs, edges = problem(np.random.default_rng(seed), 6, 8, 7)
    penalties = Penalties(0.15, 0.6)
    solution = solve(backend, costs, edges, penalties, iterations=4)
    assert solution.bounds.shape == (8,)
    assert np.diff(solution.bounds).min() >= -1e-12
    assert solution.bounds[-1] > solution.bounds[0]
    found = energy(backend, costs, edges, penalties, solution.label_map)
    assert found >= solution.bounds[-1] - 1e-12
    expected = naive.energy(costs, edges.wx, edges.wy, 0.15, 0.6, solution.label_map)
    assert found == pytest.approx(expected, rel=1e-12)


def test_labelling_of_the_rows_on_request(backend, rng):
    costs, edges = problem(rng, 4, 5, 6)
    penalties = Penalties(0.3, 1.2)
    plain, asked = (
        solve(backend, costs, edges, penalties, iterations=2, with_rows=x) for x in (False, True)
    )
    on_rows, _ = naive.dual_mm(costs, edges.wx, edges.wy, 0.3, 1.2, 1.5)
    np.testing.assert_array_equal(asked.row_label_map, naive.read_out(on_rows))
    assert (asked.row_label_map != asked.label_map).any()  # or it could be any of the two
    assert plain.row_label_map is None
    np.testing.assert_array_equal(plain.label_map, asked.label_map)


@pytest.mark.parametrize("shape", [(2, 3, 3), (3, 3, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_labelling_is_the_minimum_where_the_relaxation_is_tight(backend, shape, seed):
    """As it is with penalties in proportion to the jump: they are convex."""
    costs, edges = problem(np.random.default_rng(seed), *shape)
    expected, minimum = naive.brute_force_map(costs, edges.wx, edges.wy, 0.5, 1.0)
    solution = solve(backend, costs, edges, Penalties(0.5, 1.0), iterations=40)
    np.testing.assert_array_equal(solution.label_map, expected)
    assert solution.bounds[-1] == pytest.approx(minimum, rel=1e-12)
    assert (expected != costs.argmin(axis=2)).any()  # the CRF is needed


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 4), (4, 1), (3, 4)])
@pytest.mark.parametrize("labels", [1, 5, 40])
def test_costs_that_are_no_numbers_give_labels_all_the_same(height, width, labels):
    """NaN, as of a loss weighted by NaN, must not lead a search out of its row."""
    costs = np.full((height, width, labels), np.nan, np.float32)
    weights = np.ones((height, width), np.float32)
    edges = EdgeWeights(weights, weights)
    solution = solve(select("cpu"), costs, edges, Penalties(0.1, 0.5), 2, with_rows=True)
    for label_map in (solution.label_map, solution.row_label_map):
        assert ((label_map >= 0) & (label_map < labels)).all()
