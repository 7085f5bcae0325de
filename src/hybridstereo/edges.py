"""Left image -> edge weights of the CRF: contrast or Pairwise-CNN (paper, sec. 3; model.md 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
from .kernels import Array, Backend


@dataclass(frozen=True)
class EdgeWeights:
    """Weights (H, W) of the edges to the right (``wx``) and to the lower neighbour (``wy``)."""

    wx: Array
    wy: Array


@dataclass(frozen=True)
class EdgeModel:
    """How edge weights are made.

    Attributes
    ----------
    kind
        From image ``contrast``, or by the Pairwise-``cnn``.
    scale
        Factor of all weights.
    alpha, beta
        Shape of the contrast function.
    layers
        The Pairwise-CNN; empty for contrast weights.
    unary
        The Unary-CNN: the Pairwise-CNN sees the image normalised with the statistics of *its*
        input, whose padding is wider for deeper networks (docs/model.md 5b).
    """

    kind: Literal["contrast", "cnn"]
    scale: float
    alpha: float
    beta: float
    layers: Sequence[ConvLayer]
    unary: Sequence[ConvLayer]


def edges_input(image: np.ndarray, model: EdgeModel, stats: Statistics | None = None) -> np.ndarray:
    """The left image (H, W, 3) as the edge model takes it.

    The contrast function takes the image itself.  The Pairwise-CNN takes it padded and normalised;
    the statistics are those of the image unless it is a part of another one whose are given.
    """
    if model.kind == "contrast":
        return image
    if stats is None:
        stats = statistics(pad(image, padding_of(model.unary)))
    return normalise(pad(image, padding_of(model.layers)), stats)


def edges_forward(
    backend: Backend, edges_in: Array, model: EdgeModel, keep: list[Array] | None = None
) -> EdgeWeights:
    """Edge weights from what `edges_input` gives.

    Contrast: ``scale * exp(-alpha |dI|^beta)``.  Pairwise-CNN: tanh between layers, the last one
    linear, then ``scale * |.|``, channel 0 for ``wx`` and channel 1 for ``wy``.  ``keep`` collects
    what `edges_backward` needs: nothing for contrast weights, which have no trained parameters.
    """
    if model.kind == "contrast":
        return EdgeWeights(
            *backend.contrast_weights(
                edges_in, scale=model.scale, alpha=model.alpha, beta=model.beta
            )
        )
    linear = network_forward(backend, edges_in, model.layers, activate_last=False, keep=keep)
    return EdgeWeights(*backend.magnitude_forward(linear, scale=model.scale))


def edges_backward(
    backend: Backend, dwx: Array, dwy: Array, kept: Sequence[Array], model: EdgeModel
) -> list[ConvLayer]:
    """Gradients of the Pairwise-CNN's parameters from those of the edge weights (H, W)."""
    dlinear = backend.magnitude_backward(dwx, dwy, linear=kept[-1], scale=model.scale)
    return network_backward(backend, dlinear, kept, model.layers, activate_last=False)
