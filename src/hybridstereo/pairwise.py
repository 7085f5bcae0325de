"""Left image -> edge weights of the CRF: contrast model or Pairwise-CNN (paper, sec. 3; SPEC 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .features import ConvLayer, normalise, pad, padding_of, statistics
from .kernels import Backend


def pairwise_input(
    image: np.ndarray, unary: Sequence[ConvLayer], pairwise: Sequence[ConvLayer]
) -> np.ndarray:
    """The left image as the Pairwise-CNN sees it.

    It is normalised with the statistics of the Unary-CNN's input, whose padding is wider for
    deeper networks (SPEC 5b).
    """
    stats = statistics(pad(image, padding_of(unary)))
    return normalise(pad(image, padding_of(pairwise)), stats)


def pairwise_forward(
    backend: Backend, network_in: np.ndarray, layers: Sequence[ConvLayer], scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The Pairwise-CNN: tanh between layers, the last one linear, then ``scale * |.|``.

    Returns
    -------
    wx, wy
        Weights (H, W) of the edges to the right (channel 0) and to the lower neighbour (channel 1).
    """
    activation = network_in
    for index, layer in enumerate(layers):
        activate = index < len(layers) - 1
        activation = backend.conv_forward(activation, layer.weight, layer.bias, activate)
    weights = np.abs(activation) * np.asarray(scale, activation.dtype)
    return np.ascontiguousarray(weights[..., 0]), np.ascontiguousarray(weights[..., 1])
