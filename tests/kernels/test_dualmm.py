"""Dual_MM against the naive recursion, brute force and the guarantees of docs/model.md 6."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from hybridstereo import kernels

P1, P2 = 0.15, 0.6
SHAPES = [(1, 1, 1), (1, 1, 5), (1, 2, 3), (2, 1, 3), (1, 17, 8), (23, 1, 4), (5, 7, 1), (6, 9, 2)]
SHAPES += [(7, 12, 9), (4, 33, 16), (13, 3, 31), (10, 10, 33)]


def problem(rng, height, width, labels, dtype=np.float32):
    f = -(rng.random((height, width, labels)) ** 3)
    return tuple(
        np.ascontiguousarray(x, dtype)
        for x in (f, 0.5 * rng.random((height, width)), 0.5 * rng.random((height, width)))
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("iterations", [1, 3])
def test_minorant_equals_naive_recursion(backend, rng, shape, iterations):
    f, wx, wy = problem(rng, *shape)
    minorant, bounds = backend.dual_mm(f, wx, wy, P1, P2, iterations)
    expected, expected_bounds = naive.dual_mm(f, wx, wy, P1, P2, iterations)
    np.testing.assert_allclose(minorant, expected, atol=2e-5)
    np.testing.assert_allclose(bounds, expected_bounds, rtol=1e-6, atol=1e-5)


def test_float64_equals_naive_to_rounding(backend, rng):
    f, wx, wy = problem(rng, 6, 11, 7, np.float64)
    minorant, bounds = backend.dual_mm(f, wx, wy, P1, P2, 4)
    expected, expected_bounds = naive.dual_mm(f, wx, wy, P1, P2, 4)
    np.testing.assert_allclose(minorant, expected, atol=1e-13)
    np.testing.assert_allclose(bounds, expected_bounds, rtol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 17, 8), (23, 1, 4), (7, 12, 9)])
def test_row_labels_are_the_argmin_of_the_last_row_sweep(backend, rng, shape):
    f, wx, wy = problem(rng, *shape, np.float64)
    row_labels = np.full(shape[:2], -1, np.int32)
    minorant, bounds = backend.dual_mm(f, wx, wy, P1, P2, 3, row_labels)
    on_rows, _ = naive.dual_mm(f, wx, wy, P1, P2, 2.5)
    np.testing.assert_array_equal(row_labels, naive.read_out(on_rows))
    without, bounds_without = backend.dual_mm(f, wx, wy, P1, P2, 3)
    assert minorant.tobytes() == without.tobytes()
    assert bounds.tobytes() == bounds_without.tobytes()


def test_row_labels_take_the_lowest_label_on_ties(backend):
    f = np.zeros((3, 6, 4), np.float32)
    f[:, :, 0] = 1
    weights = np.ones((3, 6), np.float32)
    row_labels = np.full((3, 6), -1, np.int32)
    backend.dual_mm(f, weights, weights, P1, P2, 1, row_labels)
    np.testing.assert_array_equal(row_labels, 1)


@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 17, 8), (23, 1, 4), (7, 12, 9)])
@pytest.mark.parametrize("iterations", [1, 2])
def test_given_costs_are_the_start_and_then_those_of_the_last_column_sweep(
    backend, rng, shape, iterations
):
    f, wx, wy = problem(rng, *shape, np.float64)
    start = f + 0.3 * rng.standard_normal(shape)
    costs = start.copy()
    minorant, bounds = backend.dual_mm(f, wx, wy, P1, P2, iterations, costs=costs)
    expected, expected_bounds = naive.dual_mm(f, wx, wy, P1, P2, iterations, start)
    np.testing.assert_allclose(minorant, expected, atol=1e-13)
    assert bounds[0] == -np.inf
    np.testing.assert_allclose(bounds[1:], expected_bounds[1:], rtol=1e-12)
    # What the columns hand to the rows of a next iteration is f - costs + minorant.
    more, _ = naive.dual_mm(f, wx, wy, P1, P2, 1, f - costs + minorant)
    longer, _ = naive.dual_mm(f, wx, wy, P1, P2, iterations + 1, start)
    np.testing.assert_allclose(more, longer, atol=1e-12)


def test_starting_with_f_is_no_start_at_all(backend, rng):
    f, wx, wy = problem(rng, 3, 5, 4)
    costs = np.full_like(f, np.nan)
    backend.carry_into(costs, f, costs.copy(), 0.0)
    np.testing.assert_array_equal(costs, f)
    warm, bounds = backend.dual_mm(f, wx, wy, P1, P2, 2, costs=costs)
    cold, cold_bounds = backend.dual_mm(f, wx, wy, P1, P2, 2)
    np.testing.assert_allclose(warm, cold, atol=1e-6)
    np.testing.assert_allclose(bounds[1:], cold_bounds[1:], rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_any_start_is_below_the_optimum(backend, seed):
    """Also where edge weights have changed since, so that the columns owe the rows something."""
    rng = np.random.default_rng(seed)
    f, wx, wy = problem(rng, 2, 4, 3, np.float64)
    costs = 3 * rng.standard_normal(f.shape)
    _, optimum = naive.brute_force_map(f, wx, wy, P1, P2)
    _, bounds = backend.dual_mm(f, wx, wy, P1, P2, 20, costs=costs)
    assert bounds.max() <= optimum + 1e-12
    assert np.diff(bounds[1:]).min() >= -1e-12


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_costs_carried_over_go_on_where_the_last_run_ended(backend, rng, share):
    f, wx, wy = problem(rng, 3, 5, 3)
    costs = f.copy()
    minorant, bounds = backend.dual_mm(f, wx, wy, P1, P2, 3, costs=costs)
    expected = f + share * (minorant - costs)
    backend.carry_into(costs, f, minorant, share)
    np.testing.assert_allclose(costs, expected, atol=1e-6)
    if share == 1.0:
        _, further = backend.dual_mm(f, wx, wy, P1, P2, 1, costs=costs)
        _, at_once = backend.dual_mm(f, wx, wy, P1, P2, 4)
        assert further[-1] == pytest.approx(at_once[-1], rel=1e-6)
        assert further[-1] >= bounds[-1] - 1e-6


def test_input_volume_is_left_alone(backend, rng):
    f, wx, wy = problem(rng, 4, 5, 6)
    before = f.copy()
    backend.dual_mm(f, wx, wy, P1, P2, 2)
    np.testing.assert_array_equal(f, before)


@pytest.mark.parametrize("seed", range(5))
def test_bound_is_monotone_and_below_every_energy(backend, seed):
    rng = np.random.default_rng(seed)
    f, wx, wy = problem(rng, 30, 41, 13)
    minorant, bounds = backend.dual_mm(f, wx, wy, P1, P2, 12)
    # Float32: a bound is a sum of 1230 minima that are each rounded.
    tolerance = 1e-6 * abs(bounds[-1])
    assert np.diff(bounds).min() >= -tolerance
    for labels in (
        backend.read_out(minorant),
        backend.argmin(f),
        rng.integers(0, 13, (30, 41)).astype(np.int32),
        np.zeros((30, 41), np.int32),
    ):
        assert bounds[-1] <= backend.energy(f, wx, wy, P1, P2, labels) + tolerance


@pytest.mark.parametrize("shape", [(2, 2, 3), (3, 3, 2), (2, 4, 3), (3, 2, 4)])
@pytest.mark.parametrize("seed", range(4))
def test_bound_below_brute_force_optimum(backend, shape, seed):
    f, wx, wy = problem(np.random.default_rng(seed), *shape)
    _, optimum = naive.brute_force_map(f, wx, wy, P1, P2)
    minorant, bounds = backend.dual_mm(f, wx, wy, P1, P2, 30)
    assert bounds.max() <= optimum + 1e-5
    assert backend.energy(f, wx, wy, P1, P2, backend.read_out(minorant)) >= optimum - 1e-5


@pytest.mark.parametrize("shape", [(1, 40, 6), (40, 1, 6), (1, 2, 2), (1, 1, 4)])
def test_single_row_or_column_is_solved_exactly(backend, rng, shape):
    f, wx, wy = problem(rng, *shape)
    minorant, bounds = backend.dual_mm(f, wx, wy, P1, P2, 1)
    chain, weights = f.reshape(-1, shape[2]), (wx if shape[0] == 1 else wy).reshape(-1)[:-1]
    _, optimum = naive.viterbi_chain(chain, weights, P1, P2)
    assert bounds[-1] == pytest.approx(optimum, abs=1e-5)
    found = backend.energy(f, wx, wy, P1, P2, backend.read_out(minorant))
    assert found == pytest.approx(optimum, abs=1e-5)


def test_energy_equals_naive(backend, rng):
    f, wx, wy = problem(rng, 6, 9, 5)
    labels = rng.integers(0, 5, (6, 9)).astype(np.int32)
    assert backend.energy(f, wx, wy, P1, P2, labels) == pytest.approx(
        naive.energy(f, wx, wy, P1, P2, labels), rel=1e-6
    )


def test_zero_weights_give_the_argmin(backend, rng):
    f, wx, wy = problem(rng, 5, 6, 7)
    minorant, bounds = backend.dual_mm(f, 0 * wx, 0 * wy, P1, P2, 2)
    np.testing.assert_array_equal(backend.argmin(minorant), f.argmin(axis=2))
    assert bounds[-1] == pytest.approx(f.min(axis=2).sum(), rel=1e-5)


def test_read_out_breaks_ties_as_the_published_program(backend, rng):
    volume = -np.round(rng.random((9, 11, 21)), 1).astype(np.float32)
    np.testing.assert_array_equal(backend.read_out(volume), naive.read_out_ties(volume))
    assert (backend.read_out(volume) != naive.read_out(volume)).any()


def test_costs_that_are_not_numbers_give_labels_that_exist(backend):
    """They are looked up again: training that diverges shall end with a message, not a crash."""
    volume = np.full((2, 3, 33), np.nan, np.float32)
    for labels in (backend.argmin(volume), backend.read_out(volume)):
        np.testing.assert_array_equal(labels, 0)


def test_argmin_takes_the_lowest_label_on_ties(backend, rng):
    volume = -np.round(rng.random((9, 11, 21)), 1).astype(np.float32)
    np.testing.assert_array_equal(backend.argmin(volume), naive.read_out(volume))


@pytest.mark.parametrize("step", [1.0, 0.5, 0.75])
@pytest.mark.parametrize("labels", [1, 2, 3, 9])
def test_refinement_equals_naive(backend, rng, step, labels):
    volume = -rng.random((6, 7, labels)).astype(np.float32)
    volume[0] = 0  # flat costs: the curvature floor
    chosen = backend.argmin(volume)
    refined = chosen * step - 3 + backend.refine(volume, chosen, step)
    np.testing.assert_allclose(refined, naive.refine(volume, chosen, -3, step), atol=1e-4)
    assert np.abs(refined - (chosen * step - 3)).max() <= step / 2 + 1e-6


@pytest.mark.parametrize("offset", [1e4, -1e4, 1e6])
@pytest.mark.parametrize("step", [1.0, 0.5])
def test_refinement_stays_within_the_labels(backend, rng, offset, step):
    """A tie is relative: of large costs the read-out may take a label beside the minimum."""
    volume = (offset + rng.random((6, 7, 21)) * abs(offset) * 1e-6).astype(np.float32)
    chosen = backend.read_out(volume)
    assert (chosen != backend.argmin(volume)).any()
    offsets = backend.refine(volume, chosen, step)
    assert np.abs(offsets).max() <= step
    expected = naive.refine(volume, chosen, 0, step) - step * chosen
    np.testing.assert_allclose(offsets, expected, atol=1e-4)


# ---------------------------------------------------------------- gradients

BACKWARD_SHAPES = [(1, 1, 1), (1, 1, 33), (1, 2, 3), (2, 1, 3), (1, 13, 5), (9, 1, 4), (3, 4, 1)]
BACKWARD_SHAPES += [(4, 5, 2), (3, 3, 17), (5, 4, 16), (2, 3, 40)]


def assert_derivatives(backend, rng, shape, penalties, iterations, directions):
    """Along random directions of the arrays and given ones of the penalties."""
    arrays = problem(rng, *shape, np.float64)
    dminorant = rng.standard_normal(shape)

    def loss(arrays, penalties):
        return float((dminorant * naive.dual_mm(*arrays, *penalties, iterations)[0]).sum())

    def derivative(changes, slopes, step=1e-7):
        ends = [
            loss(
                [x + sign * step * d for x, d in zip(arrays, changes, strict=True)],
                [p + sign * step * d for p, d in zip(penalties, slopes, strict=True)],
            )
            for sign in (1, -1)
        ]
        return (ends[0] - ends[1]) / (2 * step)

    df, dwx, dwy, dp1, dp2 = backend.dual_mm_backward(*arrays, *penalties, iterations, dminorant)
    assert not dwx[:, -1].any()
    assert not dwy[-1].any()
    for i, gradient in enumerate((df, dwx, dwy)):
        for _ in range(2):
            changes = [np.zeros(x.shape) for x in arrays]
            changes[i] = rng.standard_normal(gradient.shape)
            expected = derivative(changes, (0, 0))
            assert (gradient * changes[i]).sum() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    still = [np.zeros(x.shape) for x in arrays]
    for slopes in directions:
        expected = derivative(still, slopes)
        assert np.dot((dp1, dp2), slopes) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("shape", BACKWARD_SHAPES)
@pytest.mark.parametrize("iterations", [1, 3])
def test_backward_is_the_derivative(backend, rng, shape, iterations):
    assert_derivatives(backend, rng, shape, (P1, P2), iterations, [(1, 0), (0, 1)])


@pytest.mark.parametrize(
    ("penalties", "directions"),
    [
        # No derivative where P1 cannot fall, or could exceed P2, on its own.
        ((0.0, 0.6), [(0, 1)]),
        ((0.4, 0.4), [(1, 1)]),
        ((0.1, 50.0), [(1, 0), (0, 1)]),
    ],
    ids=["P1 = 0", "P1 = P2", "P2 is large"],
)
@pytest.mark.parametrize("shape", [(1, 6, 4), (3, 4, 5)])
def test_backward_at_the_ends_of_the_penalties(backend, rng, shape, penalties, directions):
    assert_derivatives(backend, rng, shape, penalties, 2, directions)


@pytest.mark.parametrize("shape", [(1, 9, 6), (5, 6, 7), (4, 3, 33)])
def test_backward_in_single_precision_equals_that_in_double(backend, rng, shape):
    arrays, dminorant = problem(rng, *shape), rng.standard_normal(shape).astype(np.float32)
    found = backend.dual_mm_backward(*arrays, P1, P2, 2, dminorant)
    wide = [x.astype(np.float64) for x in (*arrays, dminorant)]
    expected = backend.dual_mm_backward(*wide[:3], P1, P2, 2, wide[3])
    assert {x.dtype for x in found[:3]} == {np.dtype(np.float32)}
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_backward_leaves_its_arguments_alone_and_gives_the_same_bits(backend, rng):
    arrays, dminorant = problem(rng, 4, 5, 6), rng.standard_normal((4, 5, 6)).astype(np.float32)
    before = [x.copy() for x in (*arrays, dminorant)]
    results = [backend.dual_mm_backward(*arrays, P1, P2, 2, dminorant) for _ in range(2)]
    for now, then in zip((*arrays, dminorant), before, strict=True):
        np.testing.assert_array_equal(now, then)
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_label_that_stays_comes_before_a_free_jump(backend):
    """All costs are equal and no jump costs anything: a tie everywhere."""
    f, weights = np.zeros((1, 4, 5)), np.ones((1, 4))
    dminorant = np.arange(20.0).reshape(f.shape)
    df, dwx, _, dp1, dp2 = backend.dual_mm_backward(f, weights, weights, 0, 0, 1, dminorant)
    assert (dp1, dp2) == (0, 0)
    assert not dwx.any()
    # So every label has a problem of its own, and all of them are the same.
    each = [
        backend.dual_mm_backward(
            f[..., :1], weights, weights, 0, 0, 1, np.ascontiguousarray(dminorant[..., k : k + 1])
        ).df[..., 0]
        for k in range(5)
    ]
    np.testing.assert_allclose(df, np.stack(each, axis=2), atol=1e-12)


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("weight", [0.0, 1e6])
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 9, 1), (9, 1, 4), (5, 6, 7)])
def test_extreme_weights_and_costs(backend, rng, shape, scale, weight):
    f, _, _ = problem(rng, *shape)
    f = (scale * (2 * f + 1)).astype(np.float32)
    weights = np.full(shape[:2], weight, np.float32)
    minorant, bounds = backend.dual_mm(f, weights, weights, P1, P2, 3)
    expected, expected_bounds = naive.dual_mm(f, weights, weights, P1, P2, 3)
    np.testing.assert_allclose(minorant, expected, atol=3e-5 * scale)
    np.testing.assert_allclose(bounds, expected_bounds, atol=1e-5 * scale * f[..., 0].size)
    found = backend.energy(f, weights, weights, P1, P2, backend.argmin(minorant))
    assert np.isfinite(found)
    assert bounds[-1] <= found + 1e-5 * scale * f[..., 0].size


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_bound_does_not_drift_over_200_iterations(scale):
    """Every sweep rounds the costs anew; the float32 bound still only rises, up to 1e-7 of it."""
    backend = kernels.select("cpu")  # too many launches for a simulated GPU
    f, wx, wy = problem(np.random.default_rng(4), 24, 31, 9)
    f, penalties = f * np.float32(scale), (P1 * scale, P2 * scale)
    minorant, bounds = backend.dual_mm(f, wx, wy, *penalties, 200)
    tolerance = 1e-7 * abs(bounds[-1])
    assert np.diff(bounds).min() >= -tolerance
    labels = backend.read_out(minorant)
    assert bounds[-1] <= backend.energy(f, wx, wy, *penalties, labels) + tolerance
    exact = f.astype(np.float64), wx.astype(np.float64), wy.astype(np.float64)
    _, precise = backend.dual_mm(*exact, *penalties, 200)
    np.testing.assert_allclose(bounds, precise, rtol=1e-7)


def test_same_bits_every_time(backend, rng):
    f, wx, wy = problem(rng, 37, 53, 20)
    first, second = (backend.dual_mm(f, wx, wy, P1, P2, 2) for _ in range(2))
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1].tobytes() == second[1].tobytes()
