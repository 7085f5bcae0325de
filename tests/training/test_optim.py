from __future__ import annotations

import naive
import numpy as np
import pytest

from hybridstereo.training.optim import (
    OPTIMISERS,
    Muon,
    OptimiserOptions,
    Sgd,
    clip_gradients,
    gradient_norm,
    learning_rate,
)


def test_plain_sgd():
    x = np.array([1.0, 2.0])
    options = OptimiserOptions(momentum=0, nesterov=False)
    Sgd({"x": x}, options).step({"x": np.array([1.0, -1.0])}, 0.5)
    np.testing.assert_allclose(x, [0.5, 2.5])


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_by_hand(nesterov):
    x = np.array([0.0])
    optimiser = Sgd({"x": x}, OptimiserOptions(momentum=0.5, nesterov=nesterov))
    expected, velocity = 0.0, 0.0
    for gradient in (1.0, -2.0, 0.5):
        optimiser.step({"x": np.array([gradient])}, 0.1)
        velocity = 0.5 * velocity + gradient
        expected -= 0.1 * (gradient + 0.5 * velocity if nesterov else velocity)
    assert x[0] == pytest.approx(expected)


def test_weight_decay_spares_biases():
    parameters = {"unary/0/weight": np.array([2.0]), "unary/0/bias": np.array([2.0])}
    options = OptimiserOptions(momentum=0, nesterov=False, weight_decay=0.1)
    Sgd(parameters, options).step({name: np.zeros(1) for name in parameters}, 1.0)
    assert parameters["unary/0/weight"][0] == pytest.approx(1.8)
    assert parameters["unary/0/bias"][0] == 2.0


def test_rates_of_single_parameters():
    parameters = {"a": np.zeros(1), "b": np.zeros(1)}
    optimiser = Sgd(parameters, OptimiserOptions(momentum=0, nesterov=False), {"b": 10.0})
    optimiser.step({"a": np.ones(1), "b": np.ones(1)}, 0.1)
    assert parameters["b"][0] == pytest.approx(10 * parameters["a"][0])


def test_parameters_without_gradient_stay():
    parameters = {"a": np.ones(1), "b": np.ones(1)}
    Sgd(parameters, OptimiserOptions()).step({"a": np.ones(1)}, 0.1)
    assert parameters["b"][0] == 1


def network_parameters(rng):
    """Kernels, biases and a penalty, as the stages name them."""
    shapes = {"unary/0/weight": (6, 3, 2, 2), "unary/0/bias": (6,), "p1": (1,)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def test_muon_equals_naive_and_penalties_follow_sgd(rng):
    parameters = network_parameters(rng)
    weight, bias, p1 = (x.copy() for x in parameters.values())
    v_weight, v_bias, v_p1 = (np.zeros_like(x) for x in parameters.values())
    optimiser = Muon(parameters, OptimiserOptions("muon", weight_decay=0.1), {"p1": 3.0})
    for lr in (0.1, 0.05, 0.2):
        gradients = network_parameters(rng)
        dweight, dbias, dp1 = gradients.values()
        weight, v_weight = naive.muon_update(weight, v_weight, dweight, lr, 0.9, True, 0.1)
        bias, v_bias = naive.normalised_update(bias, v_bias, dbias, 0.1 * lr, 0.9, True)
        p1, v_p1 = naive.sgd_update(p1, v_p1, dp1, 3 * lr, 0.9, True, 0.0)
        optimiser.step(gradients, lr)
    for found, expected in zip(parameters.values(), (weight, bias, p1), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    for found, expected in zip(optimiser.momentum.values(), (v_weight, v_bias, v_p1), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_muon_asks_only_for_the_direction_of_a_gradient(rng):
    """A first step is as long for a gradient a thousand times as large; not so a penalty's."""
    gradients = network_parameters(rng)
    steps = []
    for scale in (1.0, 1000.0):
        parameters = {name: np.zeros_like(x) for name, x in gradients.items()}
        Muon(parameters, OptimiserOptions("muon")).step(
            {name: scale * x for name, x in gradients.items()}, 0.1
        )
        steps.append(parameters)
    for name in ("unary/0/weight", "unary/0/bias"):
        np.testing.assert_allclose(steps[0][name], steps[1][name], rtol=1e-9)
    np.testing.assert_allclose(1000 * steps[0]["p1"], steps[1]["p1"])


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_restored_momentum_continues_bit_for_bit(rng, kind):
    start, gradients = network_parameters(rng), [network_parameters(rng) for _ in range(4)]
    whole, parts = ({name: x.copy() for name, x in start.items()} for _ in range(2))
    one = OPTIMISERS[kind](whole, OptimiserOptions(kind))
    first = OPTIMISERS[kind](parts, OptimiserOptions(kind))
    for index, gradient in enumerate(gradients):
        one.step(gradient, 0.1)
        if index == 2:
            kept = {name: x.copy() for name, x in first.momentum.items()}
            first = OPTIMISERS[kind](parts, OptimiserOptions(kind))
            first.restore_momentum(kept)
        first.step(gradient, 0.1)
    for name in start:
        assert whole[name].tobytes() == parts[name].tobytes()


def test_clipping():
    gradients = {"a": np.array([3.0], np.float32), "b": np.array([4.0], np.float32)}
    assert clip_gradients(gradients, 10.0) == pytest.approx(5)
    assert gradient_norm(gradients) == pytest.approx(5)
    assert clip_gradients(gradients, 1.0) == pytest.approx(5)
    assert gradient_norm(gradients) == pytest.approx(1)
    assert gradients["a"][0] == pytest.approx(0.6)
    clip_gradients(gradients, 0.0)  # 0 switches it off
    assert gradient_norm(gradients) == pytest.approx(1)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [1, 1, 1]), ("cosine", [1, 0.5, 0]), ("step", [1, 1, 0.01])],
)
def test_schedules(schedule, expected):
    options = OptimiserOptions(lr=1.0, schedule=schedule)
    np.testing.assert_allclose(
        [learning_rate(options, p) for p in (0, 0.5, 1)], expected, atol=1e-12
    )


def test_step_schedule_in_the_middle():
    assert learning_rate(OptimiserOptions(lr=1.0, schedule="step"), 0.7) == pytest.approx(0.1)
