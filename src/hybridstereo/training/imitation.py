"""A first Pairwise-CNN that imitates the contrast weights, in closed form.

A random Pairwise-CNN would throw away what stage ``joint`` has learnt to rely on, so stage ``full``
starts from one that is close to the contrast weights (docs/training.md). The contrast weight is an
even, peaked function of the luma difference ``d`` along the edge, and so is ``tanh(k (d + c)) -
tanh(k (d - c))``, a peak of width ``c``: hidden units of this kind for several widths, next to
random ones, span it well, and the last layer, which is linear, follows by least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..datasets import StereoPair
from ..edges import EdgeWeights, edges_forward, edges_input
from ..features import IMAGE_CHANNELS, ConvLayer, network_forward
from ..kernels import Backend
from ..kernels.constants import LUMA
from ..model import StereoModel

_FILTERS = 64
# Widths of the peaks, in standard deviations of the image.
_WIDTHS = (0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2)
# Slope of the first layer: nearly linear over the differences that occur.
_SLOPE = 0.5
# Hidden units are combined with weights of moderate size, which later gradients can move.
_RIDGE = 1e-3


def imitate_contrast(
    model: StereoModel, backend: Backend, pairs: Sequence[StereoPair], seed: int
) -> tuple[StereoModel, float]:
    """The model with a Pairwise-CNN in place of its contrast weights.

    Parameters
    ----------
    model
        A model with contrast weights.
    backend, pairs
        Where and on what to fit; a few left images are enough for 64 unknowns per edge direction.
    seed
        Decides the random hidden units.

    Returns
    -------
    model, explained
        ``explained`` is the fraction of the contrast weights' variance that the network explains.
    """
    hidden = _hidden_layers(seed)
    gram = np.zeros((_FILTERS, _FILTERS))
    moments = np.zeros((_FILTERS, 2))
    sums, squares, edges = np.zeros(2), np.zeros(2), np.zeros(2)
    for pair in pairs:
        network_in = edges_input(pair.left, replace(model.edges, kind="cnn", layers=hidden))
        units = backend.to_host(network_forward(backend, network_in, hidden, True))
        contrast = edges_forward(backend, edges_input(pair.left, model.edges), model.edges)
        wanted = EdgeWeights(backend.to_host(contrast.wx), backend.to_host(contrast.wy))
        # The last column of wx and the last row of wy belong to no edge.
        inside = [(units[:, :-1], wanted.wx[:, :-1]), (units[:-1], wanted.wy[:-1])]
        for direction, (seen, weights) in enumerate(inside):
            x = seen.reshape(-1, _FILTERS).astype(np.float64)
            y = weights.reshape(-1).astype(np.float64)
            moments[:, direction] += x.T @ y
            sums[direction] += y.sum()
            squares[direction] += y @ y
            edges[direction] += y.size
            # Both directions see the same units; the border that one lacks does not matter here.
            gram += 0.5 * (x.T @ x)
    gram += _RIDGE * np.trace(gram) / _FILTERS * np.eye(_FILTERS)
    solution = np.linalg.solve(gram, moments)
    residual = squares - 2 * np.einsum("ud,ud->d", solution, moments)
    residual += np.einsum("ud,uv,vd->d", solution, gram, solution)
    variance = squares - sums**2 / edges
    last = ConvLayer(solution.T.reshape(2, _FILTERS, 1, 1).astype(np.float32), None)
    explained = 1.0 - float(residual.sum() / max(variance.sum(), 1e-12))
    # The fitted weights include the factor of the contrast model.
    config = replace(model.config, edge_model="cnn", weight_scale=1.0)
    return StereoModel(model.unary, (*hidden, last), config), explained


def _hidden_layers(seed: int) -> tuple[ConvLayer, ConvLayer]:
    """Two layers of 64 units: differences and peaks for both directions, the rest random."""
    rng = np.random.default_rng([seed, 1])
    first = rng.standard_normal((_FILTERS, IMAGE_CHANNELS, 3, 3)) / math.sqrt(IMAGE_CHANNELS * 9)
    second = rng.standard_normal((_FILTERS, _FILTERS, 3, 3)) / math.sqrt(_FILTERS * 9)
    first_bias = np.zeros(_FILTERS)
    second_bias = np.zeros(_FILTERS)
    # Windows as they lie over the image; the layers are true convolutions, hence the flip below.
    # The contrast weights smooth the image (docs/model.md 5a): across the difference the first
    # layer does it, along the difference, where its window is used up, the second.
    smooth = np.array([0.24, 0.52, 0.24])
    difference = np.array([0.0, -1.0, 1.0])
    windows = np.outer(smooth, difference), np.outer(difference, smooth)
    for direction, window in enumerate(windows):
        for channel, share in enumerate(LUMA):
            first[direction, channel] = _SLOPE * share * window
        for index, width in enumerate(_WIDTHS):
            for side, sign in enumerate((1.0, -1.0)):
                unit = 2 * (direction * len(_WIDTHS) + index) + side
                gain = 1.0 / width
                second[unit] = 0.0
                along = (
                    second[unit, direction, 1, :]
                    if direction == 0
                    else second[unit, direction, :, 1]
                )
                along[:] = gain / _SLOPE * smooth
                second_bias[unit] = sign * gain * width
    layers = [(first, first_bias), (second, second_bias)]
    first_layer, second_layer = (
        ConvLayer(
            np.ascontiguousarray(weight[:, :, ::-1, ::-1], np.float32), bias.astype(np.float32)
        )
        for weight, bias in layers
    )
    return first_layer, second_layer
