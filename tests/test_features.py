from __future__ import annotations

import naive
import numpy as np
import pytest
from support.networks import as_pairs, network

from hybridstereo.features import (
    ConvLayer,
    features_forward,
    network_input,
    pad,
    padding_of,
    statistics,
)


@pytest.mark.parametrize(
    ("layers", "before", "after"), [(1, 1, 1), (2, 1, 2), (3, 2, 2), (7, 4, 4)]
)
def test_padding_keeps_the_image_size(rng, layers, before, after):
    padding = padding_of(network(rng, layers))
    assert padding.before == (before, before)
    assert padding.after == (after, after)


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("with_xy", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (9, 6)])
def test_features_equal_naive(backend, rng, layers, with_xy, shape):
    image = rng.random((*shape, 3)).astype(np.float32)
    if shape == (1, 1):
        # Every channel of a single pixel is constant, which is a case of its own.
        np.testing.assert_array_equal(network_input(image, network(rng, layers))[..., :3], 0)
    stack = network(rng, layers, inputs=5 if with_xy else 3)
    features = features_forward(backend, network_input(image, stack), stack)
    expected = naive.unary_features(image, as_pairs(stack), with_xy)
    assert features.shape == (*shape, 6)
    np.testing.assert_allclose(features, expected, atol=5e-6)


def test_padding_repeats_the_border_pixel():
    image = np.arange(3.0).reshape(1, 3, 1)
    stack = [ConvLayer(np.zeros((1, 1, 5, 5)), None)]
    padded = pad(image, padding_of(stack))
    np.testing.assert_array_equal(padded[0, :, 0], [1, 0, 0, 1, 2, 2, 1])


def test_constant_channel_normalises_to_zero(rng):
    image = rng.random((5, 6, 3)).astype(np.float32)
    image[..., 1] = 0.1  # not representable: the mean is off by rounding
    normalised = network_input(image, network(rng, 3))
    np.testing.assert_array_equal(normalised[..., 1], 0)
    assert np.isfinite(normalised).all()


def test_statistics_are_those_of_the_padded_image(rng):
    image = rng.random((4, 5, 3)).astype(np.float32)
    normalised = network_input(image, network(rng, 3)).astype(np.float64)
    np.testing.assert_allclose(normalised.mean(axis=(0, 1)), 0, atol=1e-6)
    np.testing.assert_allclose(normalised.std(axis=(0, 1)), 1, rtol=1e-6)
    assert statistics(image).mean.dtype == np.float64
