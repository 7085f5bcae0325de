"""Edge weights from the outputs of the Pairwise-CNN on the CPU (SPEC 5b): ``scale * |.|``."""

from __future__ import annotations

import numpy as np


def magnitude_forward(linear: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the edges to the right and to the lower neighbour: (H, W, 2) -> two (H, W)."""
    weights = np.abs(linear) * np.asarray(scale, linear.dtype)
    return np.ascontiguousarray(weights[..., 0]), np.ascontiguousarray(weights[..., 1])


def magnitude_backward(
    dwx: np.ndarray, dwy: np.ndarray, linear: np.ndarray, scale: float
) -> np.ndarray:
    """Gradient with respect to ``linear`` from those of the weights; zero where it is zero."""
    dweights = np.stack([dwx, dwy], axis=-1).astype(linear.dtype)
    return np.sign(linear) * dweights * np.asarray(scale, linear.dtype)
