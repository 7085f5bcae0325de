"""Small random networks."""

from __future__ import annotations

import numpy as np

from hybridstereo.features import ConvLayer
from hybridstereo.model import ModelConfig, StereoModel


def network(rng, layers, filters=6, inputs=3):
    stack = []
    for index in range(layers):
        size = 3 if index == 0 else 2
        shape = (filters, inputs if index == 0 else filters, size, size)
        weight = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        stack.append(
            ConvLayer(weight.astype(np.float32), rng.standard_normal(filters).astype(np.float32))
        )
    return stack


def as_pairs(layers):
    return [(layer.weight, layer.bias) for layer in layers]


def pairwise_network(rng, filters=5):
    shapes = [(filters, 3, 3, 3), (filters, filters, 3, 3), (2, filters, 1, 1)]
    weights = [rng.standard_normal(shape).astype(np.float32) / 4 for shape in shapes]
    biases = [rng.standard_normal(filters).astype(np.float32) for _ in range(2)]
    return [ConvLayer(w, b) for w, b in zip(weights, [*biases, None], strict=True)]


def stereo_model(rng, edge_model):
    pairwise = tuple(pairwise_network(rng)) if edge_model == "cnn" else ()
    return StereoModel(tuple(network(rng, 3)), pairwise, ModelConfig(edge_model=edge_model))


def published_arrays(rng, layers, inputs=3, pairwise=False, penalties=None):
    """The list of arrays that a published file holds."""
    shapes = [(100, inputs, 3, 3)] + (layers - 1) * [(100, 100, 2, 2)]
    result = []
    for shape in shapes:
        result += [rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.zeros(100)]
    if pairwise:
        result += [rng.standard_normal((64, 3, 3, 3)) / 5, np.zeros(64)]
        result += [rng.standard_normal((64, 64, 3, 3)) / 24, np.zeros(64)]
        result += [rng.standard_normal((2, 64, 1, 1)) / 8]
    if penalties is not None:
        result += [np.array([p]) for p in penalties]
    return [x.astype(np.float32) for x in result]
