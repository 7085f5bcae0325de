"""Left image -> edge weights of the CRF: contrast model or Pairwise-CNN (paper, sec. 3; SPEC 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .features import (
    ConvLayer,
    Statistics,
    network_backward,
    network_forward,
    normalise,
    pad,
    padding_of,
    statistics,
)
from .kernels import Backend


def pairwise_input(
    image: np.ndarray,
    unary: Sequence[ConvLayer],
    pairwise: Sequence[ConvLayer],
    stats: Statistics | None = None,
) -> np.ndarray:
    """The left image as the Pairwise-CNN sees it.

    It is normalised with the statistics of the Unary-CNN's input, whose padding is wider for
    deeper networks (SPEC 5b), unless others are given.
    """
    if stats is None:
        stats = statistics(pad(image, padding_of(unary)))
    return normalise(pad(image, padding_of(pairwise)), stats)


def pairwise_forward(
    backend: Backend,
    network_in: np.ndarray,
    layers: Sequence[ConvLayer],
    scale: float,
    keep: list[np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The Pairwise-CNN: tanh between layers, the last one linear, then ``scale * |.|``.

    Returns
    -------
    wx, wy
        Weights (H, W) of the edges to the right (channel 0) and to the lower neighbour (channel 1).
    """
    linear = network_forward(backend, network_in, layers, False, keep)
    return backend.magnitude_forward(linear, scale)


def pairwise_backward(
    backend: Backend,
    dwx: np.ndarray,
    dwy: np.ndarray,
    kept: Sequence[np.ndarray],
    layers: Sequence[ConvLayer],
    scale: float,
) -> list[ConvLayer]:
    """Gradients of the Pairwise-CNN's parameters from those of the edge weights (H, W)."""
    dlinear = backend.magnitude_backward(dwx, dwy, kept[-1], scale)
    return network_backward(backend, dlinear, kept, layers, False)
