from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.training.optim import (
    Sgd,
    SgdOptions,
    clip_gradients,
    gradient_norm,
    learning_rate,
)


def test_plain_sgd():
    x = np.array([1.0, 2.0])
    Sgd({"x": x}, SgdOptions(momentum=0, nesterov=False)).step({"x": np.array([1.0, -1.0])}, 0.5)
    np.testing.assert_allclose(x, [0.5, 2.5])


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_by_hand(nesterov):
    x = np.array([0.0])
    optimiser = Sgd({"x": x}, SgdOptions(momentum=0.5, nesterov=nesterov))
    expected, velocity = 0.0, 0.0
    for gradient in (1.0, -2.0, 0.5):
        optimiser.step({"x": np.array([gradient])}, 0.1)
        velocity = 0.5 * velocity + gradient
        expected -= 0.1 * (gradient + 0.5 * velocity if nesterov else velocity)
    assert x[0] == pytest.approx(expected)


def test_weight_decay_spares_biases():
    parameters = {"unary/0/weight": np.array([2.0]), "unary/0/bias": np.array([2.0])}
    options = SgdOptions(momentum=0, nesterov=False, weight_decay=0.1)
    Sgd(parameters, options).step({name: np.zeros(1) for name in parameters}, 1.0)
    assert parameters["unary/0/weight"][0] == pytest.approx(1.8)
    assert parameters["unary/0/bias"][0] == 2.0


def test_rates_of_single_parameters():
    parameters = {"a": np.zeros(1), "b": np.zeros(1)}
    optimiser = Sgd(parameters, SgdOptions(momentum=0, nesterov=False), {"b": 10.0})
    optimiser.step({"a": np.ones(1), "b": np.ones(1)}, 0.1)
    assert parameters["b"][0] == pytest.approx(10 * parameters["a"][0])


def test_parameters_without_gradient_stay():
    parameters = {"a": np.ones(1), "b": np.ones(1)}
    Sgd(parameters, SgdOptions()).step({"a": np.ones(1)}, 0.1)
    assert parameters["b"][0] == 1


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
    options = SgdOptions(lr=1.0, schedule=schedule)
    np.testing.assert_allclose(
        [learning_rate(options, p) for p in (0, 0.5, 1)], expected, atol=1e-12
    )


def test_step_schedule_in_the_middle():
    assert learning_rate(SgdOptions(lr=1.0, schedule="step"), 0.7) == pytest.approx(0.1)
