"""Cross-entropy and structured hinge against the oracle, finite differences and exact solutions."""

from __future__ import annotations

import itertools

import naive
import numpy as np
import pytest
from support.gradcheck import numeric_gradient, some_indices

from hybridstereo.crf import EdgeWeights, Penalties
from hybridstereo.labels import LabelRange
from hybridstereo.training.losses import (
    augment_costs,
    cross_entropy,
    make_target,
    minorant_error_rate,
    structured_hinge,
    task_loss,
)

GAMMA, TAU = 0.3, 2.0
PENALTIES = Penalties(0.2, 0.7)


def truth(rng, height, width, labels, invalid=0.3):
    disparity = rng.uniform(0, labels - 1, (height, width)).astype(np.float32)
    valid = rng.random((height, width)) > invalid
    disparity[~valid & (rng.random((height, width)) > 0.5)] = np.inf
    return disparity, valid


def crf_problem(rng, height, width, labels, invalid=0.3):
    f = -(rng.random((height, width, labels)) ** 2)
    edges = EdgeWeights(rng.random((height, width)), rng.random((height, width)))
    target = make_target(*truth(rng, height, width, labels, invalid), LabelRange(0, labels))
    return f, edges, target


def test_target_excludes_what_lies_outside_the_labels():
    disparity = np.array([[2.0, 1.9, 5.0, 5.1, np.inf, 3.2]], np.float32)
    target = make_target(disparity, np.ones((1, 6), bool), LabelRange(2.0, 7, 0.5))
    np.testing.assert_array_equal(target.valid, [[True, False, True, False, False, True]])
    np.testing.assert_allclose(target.position[0, [0, 2, 5]], [0, 6, 2.4], atol=1e-6)
    np.testing.assert_array_equal(target.nearest[0, [0, 2, 5]], [0, 6, 2])
    assert target.count == 3


@pytest.mark.parametrize("soft", [False, True])
def test_cross_entropy_equals_naive(backend, rng, soft):
    scores = rng.standard_normal((5, 7, 6))
    target = make_target(*truth(rng, 5, 7, 6), LabelRange(0, 6))
    loss, ds = cross_entropy(backend, naive.unary_cost(scores), target, soft)
    expected, expected_ds = naive.cross_entropy(scores, target.position, target.valid, soft)
    assert loss == pytest.approx(expected / target.count, rel=1e-12)
    np.testing.assert_allclose(ds, expected_ds / target.count, atol=1e-15)


@pytest.mark.parametrize("soft", [False, True])
def test_cross_entropy_gradient_is_the_derivative(backend, rng, soft):
    scores = rng.standard_normal((3, 5, 4))
    target = make_target(*truth(rng, 3, 5, 4), LabelRange(0, 4))
    _, ds = cross_entropy(backend, naive.unary_cost(scores), target, soft)
    indices = some_indices(rng, scores, 30)
    numeric = numeric_gradient(
        lambda: cross_entropy(backend, naive.unary_cost(scores), target, soft)[0], scores, indices
    )
    np.testing.assert_allclose([ds[i] for i in indices], numeric, atol=1e-9)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("exponent", [1.0, 0.2])
def test_error_rate_equals_naive(backend, rng, tolerance, exponent):
    minorant = rng.standard_normal((5, 7, 6))
    target = make_target(*truth(rng, 5, 7, 6), LabelRange(0, 6))
    # A pixel whose truth is a label, and which is certainly wrong.
    target.position[0, 0], target.valid[0, 0] = 2, True
    minorant[0, 0] = [0, 0, 0, 0, 0, -20]
    loss, gradient = minorant_error_rate(backend, minorant, target, 3.0, tolerance, exponent)
    expected, ds = naive.error_rate(
        -3 * minorant, target.position, target.valid, tolerance, exponent
    )
    count = target.valid.sum()
    assert loss * target.count == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient * target.count, -3 * ds, rtol=1e-9, atol=1e-14)
    assert 0 < loss <= count / target.count / exponent


@pytest.mark.parametrize("exponent", [1.0, 0.3])
def test_error_rate_gradient_is_the_derivative(backend, rng, exponent):
    minorant = rng.standard_normal((3, 4, 5))
    target = make_target(*truth(rng, 3, 4, 5), LabelRange(0, 5))

    def loss():
        return minorant_error_rate(backend, minorant, target, 4.0, 1.0, exponent)[0]

    _, gradient = minorant_error_rate(backend, minorant, target, 4.0, 1.0, exponent)
    indices = some_indices(rng, minorant, 20)
    np.testing.assert_allclose(
        [gradient[i] for i in indices], numeric_gradient(loss, minorant, indices), atol=1e-8
    )


def test_error_rate_of_a_sharp_minorant_is_the_share_of_wrong_labels(backend, rng):
    minorant = rng.random((6, 7, 5)).astype(np.float32)
    target = make_target(*truth(rng, 6, 7, 5), LabelRange(0, 5))
    loss, gradient = minorant_error_rate(backend, minorant, target, 1e5, 1.0, 1.0)
    wrong = np.abs(minorant.argmin(axis=2) - target.position) > 1.0
    assert loss == pytest.approx((wrong & target.valid).sum() / target.count, abs=1e-6)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("exponent", [1.0, 0.01])
def test_error_rate_of_large_costs_is_finite(backend, exponent):
    """The right label has a probability of 0 in single precision."""
    minorant = np.array([[[0, 1e4, 1e4], [1e4, 0, 0]]], np.float32)
    target = make_target(np.full((1, 2), 2, np.float32), np.ones((1, 2), bool), LabelRange(0, 3))
    loss, gradient = minorant_error_rate(backend, minorant, target, 10.0, 0.0, exponent)
    assert 0.4 < loss <= 0.75 / exponent
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 31), (1, 2, 33)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_negated_softmax_equals_naive(backend, rng, shape, dtype):
    volume = (100 * rng.standard_normal(shape)).astype(dtype)
    found = backend.negated_softmax(volume, -0.3)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, naive.unary_cost(-0.3 * volume.astype(np.float64)), rtol=1e-4, atol=1e-6
    )


def test_no_valid_pixel_gives_no_gradient(backend, rng):
    f, edges, _ = crf_problem(rng, 4, 5, 3)
    target = make_target(
        np.full((4, 5), np.inf, np.float32), np.zeros((4, 5), bool), LabelRange(0, 3)
    )
    loss, ds = cross_entropy(backend, f, target, True)
    assert loss == 0
    assert not ds.any()
    loss, gradient = minorant_error_rate(backend, f, target, 20.0, 1.0, 0.5)
    assert loss == 0
    assert not gradient.any()
    for infer in (False, True):
        hinge = structured_hinge(backend, f, edges, PENALTIES, target, GAMMA, TAU, 3, infer)
        assert not hinge.gradients.df.any()
        assert not hinge.gradients.dwx.any()
        assert (hinge.gradients.dp1, hinge.gradients.dp2) == (0, 0)


def test_inferred_truth_pulls_unknown_pixels_along(backend):
    """The middle of a row is unknown, flat in cost, between equal truths: it has to follow them."""
    f = np.zeros((1, 5, 4))
    f[..., 0] = -0.1  # what the network prefers
    weights = np.ones((1, 5))
    disparity = np.full((1, 5), 3.0, np.float32)
    valid = np.array([[True, False, False, False, True]])
    target = make_target(disparity, valid, LabelRange(0, 4))
    hinge = structured_hinge(
        backend, f, EdgeWeights(weights, weights), PENALTIES, target, GAMMA, TAU, 3, True
    )
    # Descending lowers the cost of the truth everywhere.
    assert (hinge.gradients.df[0, :, 3] > 0).all()
    ignored = structured_hinge(
        backend, f, EdgeWeights(weights, weights), PENALTIES, target, GAMMA, TAU, 3
    )
    assert not ignored.gradients.df[0, 1:4].any()


def test_augmentation_equals_naive(backend, rng):
    f, _, target = crf_problem(rng, 4, 5, 6)
    augmented = augment_costs(backend, f, target, GAMMA, TAU)
    np.testing.assert_allclose(
        augmented, naive.loss_augment(f, target.nearest, target.valid, GAMMA, TAU), atol=1e-15
    )


@pytest.mark.parametrize("infer", [False, True])
@pytest.mark.parametrize("shape", [(1, 6, 4), (5, 1, 3), (4, 5, 6), (7, 3, 2)])
def test_hinge_equals_naive(backend, rng, shape, infer):
    f, edges, target = crf_problem(rng, *shape)
    hinge = structured_hinge(backend, f, edges, PENALTIES, target, GAMMA, TAU, 4, infer)
    expected = naive.hinge(
        f, edges.wx, edges.wy, PENALTIES.p1, PENALTIES.p2,
        target.nearest, target.valid, GAMMA, TAU, 4, infer,
    )  # fmt: skip
    count = target.count
    assert hinge.loss == pytest.approx(expected.loss / count, rel=1e-9)
    gradients = expected.gradients
    np.testing.assert_allclose(hinge.gradients.df * count, gradients.df, atol=1e-12)
    np.testing.assert_allclose(hinge.gradients.dwx * count, gradients.dwx, atol=1e-12)
    np.testing.assert_allclose(hinge.gradients.dwy * count, gradients.dwy, atol=1e-12)
    assert hinge.gradients.dp1 * count == pytest.approx(gradients.dp1, abs=1e-9)
    assert hinge.gradients.dp2 * count == pytest.approx(gradients.dp2, abs=1e-9)
    assert hinge.task_loss * count == pytest.approx(
        naive.task_loss(expected.xbar, target.nearest, target.valid, TAU)
    )
    assert 0 <= hinge.disagreement <= 1


@pytest.mark.parametrize("seed", range(6))
def test_hinge_bounds_the_task_loss_of_the_crf(backend, seed):
    """f(x*) - Dbar >= gamma * l(x, x*) for the minimiser x of f, with complete truth."""
    rng = np.random.default_rng(seed)
    f, edges, target = crf_problem(rng, 3, 3, 2, invalid=-1)
    hinge = structured_hinge(backend, f, edges, PENALTIES, target, GAMMA, TAU, 5)
    solution, _ = naive.brute_force_map(f, edges.wx, edges.wy, PENALTIES.p1, PENALTIES.p2)
    assert (
        hinge.loss >= GAMMA * task_loss(backend, np.array(solution, np.int32), target, TAU) - 1e-9
    )
    assert hinge.loss >= -1e-9


@pytest.mark.parametrize("seed", range(3))
def test_subgradient_is_the_derivative_where_inference_is_exact(backend, seed):
    """On one row Dual_MM is exact: the formulas equal finite differences of the true hinge."""
    rng = np.random.default_rng(seed)
    f, edges, target = crf_problem(rng, 1, 5, 3, invalid=-1)

    def loss(penalties: Penalties = PENALTIES) -> float:
        return structured_hinge(backend, f, edges, penalties, target, GAMMA, TAU, 2).loss

    hinge = structured_hinge(backend, f, edges, PENALTIES, target, GAMMA, TAU, 2)
    _assert_unique_minimiser(augment_costs(backend, f, target, GAMMA, TAU), edges)
    indices = list(itertools.product([0], range(5), range(3)))
    np.testing.assert_allclose(
        [hinge.gradients.df[i] for i in indices],
        numeric_gradient(loss, f, indices, 1e-6),
        atol=1e-6,
    )
    indices = [(0, x) for x in range(4)]
    np.testing.assert_allclose(
        [hinge.gradients.dwx[i] for i in indices],
        numeric_gradient(loss, edges.wx, indices, 1e-6),
        atol=1e-6,
    )
    step = 1e-6
    for name, derivative in (("p1", hinge.gradients.dp1), ("p2", hinge.gradients.dp2)):
        values = [
            loss(Penalties(**{**vars(PENALTIES), name: getattr(PENALTIES, name) + sign * step}))
            for sign in (1, -1)
        ]
        assert derivative == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-5)


def _assert_unique_minimiser(f, edges):
    energies = sorted(
        naive.energy(f, edges.wx, edges.wy, PENALTIES.p1, PENALTIES.p2, np.array([labels]))
        for labels in itertools.product(range(f.shape[2]), repeat=f.shape[1])
    )
    assert energies[1] - energies[0] > 1e-4
