from __future__ import annotations

import naive
import numpy as np
import pytest
from support.networks import as_pairs, network, pairwise_network

from hybridstereo.edges import EdgeModel, edges_forward, edges_input


@pytest.mark.parametrize("unary_layers", [1, 3, 7])
@pytest.mark.parametrize("shape", [(1, 4), (6, 7)])
def test_weights_equal_naive(backend, rng, unary_layers, shape):
    image = rng.random((*shape, 3)).astype(np.float32)
    unary, layers = network(rng, unary_layers), pairwise_network(rng)
    model = EdgeModel("cnn", 0.7, 20.0, 0.9, layers, unary)
    edges = edges_forward(backend, edges_input(image, model), model)
    wx, wy = edges.wx, edges.wy
    padding = naive.unary_padding(as_pairs(unary))
    expected_wx, expected_wy = naive.pairwise_cnn_weights(image, as_pairs(layers), 0.7, padding)
    # The last column of wx and the last row of wy belong to no edge.
    np.testing.assert_allclose(wx[:, :-1], expected_wx[:, :-1], atol=5e-6)
    np.testing.assert_allclose(wy[:-1], expected_wy[:-1], atol=5e-6)
    assert min(wx.min(), wy.min()) >= 0


def test_crop_of_the_deeper_padding_is_the_same(rng):
    """docs/model.md 5b: for 7 layers crop 2 px off the 4 px padding, statistics included."""
    from hybridstereo.features import network_input

    image = rng.random((9, 8, 3)).astype(np.float32)
    unary = network(rng, 7)
    cropped = network_input(image, unary)[2:-2, 2:-2]
    model = EdgeModel("cnn", 1.0, 20.0, 0.9, pairwise_network(rng), unary)
    np.testing.assert_array_equal(edges_input(image, model), cropped)
