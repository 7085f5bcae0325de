from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.features import network_input
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.training import whitening
from hybridstereo.training.stages import new_model


@pytest.fixture(scope="module")
def images():
    options = SceneOptions(height=60, width=80, max_disparity=10, objects=5)
    return [generate_scene(seed, options).left for seed in range(3)]


@pytest.fixture(scope="module")
def model():
    return new_model(layers=2, filters=40, with_xy=False, seed=0, iterations=1)


def responses(model, image, backend):
    """What the first layer gives before tanh, (pixels, filters)."""
    layer = model.unary[0]
    given = network_input(image, model.unary)
    return backend.conv_forward(given, layer.weight, layer.bias, False).reshape(-1, 40)


def test_moments_belong_to_the_flattened_kernels(backend, images, model, monkeypatch):
    """A filter's mean squared response is ``w M w``, which a wrong order of taps would break."""
    monkeypatch.setattr(whitening, "_STRIDE", 1)
    moments = whitening.window_moments(model, images[:1])
    flat = model.unary[0].weight.reshape(40, -1).astype(np.float64)
    expected = (responses(model, images[0], backend).astype(np.float64) ** 2).mean(axis=0)
    np.testing.assert_allclose(np.einsum("oi,ij,oj->o", flat, moments, flat), expected, rtol=1e-4)


def test_whitened_filters_answer_to_texture(backend, images, model):
    """Random filters mostly give the brightness; whitened ones keep many directions apart."""
    white = whitening.whiten_first_layer(model, whitening.window_moments(model, images))

    def directions(one):
        variances = np.linalg.eigvalsh(np.cov(responses(one, images[1], backend).T))
        return variances.sum() ** 2 / (variances**2).sum()

    assert directions(model) < 2
    assert directions(white) > 6
    assert white.unary[1:] == model.unary[1:]


def test_metric_is_sgd_on_whitened_inputs(rng):
    """With W = V A, a plain step of V is a step of W along its gradient times A A."""
    windows = rng.standard_normal((500, 6)) @ rng.standard_normal((6, 6))
    moments = windows.T @ windows / len(windows)
    metric = whitening.gradient_metric(moments)
    np.testing.assert_allclose(metric, metric.T, atol=1e-10)
    root = np.linalg.cholesky(metric)
    weight = rng.standard_normal((3, 6))
    wanted = rng.standard_normal((500, 3))
    gradient = (windows @ weight.T - wanted).T @ windows
    inner = np.linalg.solve(root, weight.T).T  # W = V A with A = root^T
    inner_gradient = (windows @ root @ inner.T - wanted).T @ (windows @ root)
    step = whitening.whitened_gradient(gradient.reshape(3, 1, 2, 3), metric)
    np.testing.assert_allclose(step.reshape(3, 6), inner_gradient @ root.T, rtol=1e-6)


def test_white_windows_change_little():
    metric = whitening.gradient_metric(np.eye(5))
    np.testing.assert_allclose(metric, np.eye(5) / 1.1)
