"""Edge weights on the CPU, from image contrast or from the outputs of the Pairwise-CNN.

Contrast-sensitive weights (paper, eq. 2; docs/model.md 5a) are

    w_pq = max(scale * exp(-alpha * |g_p - g_q|^beta), 1e-6)

where ``g`` is the luma of the left image in [0, 1], smoothed by a Gaussian of sigma 0.7.  Those of
the Pairwise-CNN (docs/model.md 5b) are ``scale * |output|``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .constants import LUMA, SMALLEST_WEIGHT, SMOOTHING_RADIUS, SMOOTHING_SIGMA
from .cpu.jit import compiled
from .cpu.workers import run_rows

# ---------------------------------------------------------------- from image contrast


def _gaussian_taps() -> np.ndarray:
    positions = np.arange(-SMOOTHING_RADIUS, SMOOTHING_RADIUS + 1)
    taps = np.exp(-0.5 * (positions / SMOOTHING_SIGMA) ** 2)
    return taps / taps.sum()


def _smoothed(image: np.ndarray, taps: np.ndarray, axis: int) -> np.ndarray:
    """An image (H, W), filtered along one axis with clamped borders; sums in float64."""
    radius, size = len(taps) // 2, image.shape[axis]
    around = [(radius, radius) if x == axis else (0, 0) for x in range(2)]
    padded = np.pad(image, around, mode="edge")
    total = np.zeros(image.shape)
    for t, tap in enumerate(taps):
        total += tap * (padded[:, t : t + size] if axis else padded[t : t + size])
    return total.astype(image.dtype)


def _smoothed_luma(image: np.ndarray) -> np.ndarray:
    """(H, W, 3) -> (H, W): luma, then a separable filter."""
    red, green, blue = (np.float64(weight) * image[..., c] for c, weight in enumerate(LUMA))
    taps = _gaussian_taps()
    luma = (red + green + blue).astype(image.dtype)
    return _smoothed(_smoothed(luma, taps, axis=1), taps, axis=0)


@compiled(nogil=True)
def _weights(
    first: int, last: int,
    smooth: Any, scale: float, alpha: float, beta: float, wx: Any, wy: Any,
) -> None:  # fmt: skip
    """Weights of the forward differences of smooth; all arrays (H, W)."""
    height, width = smooth.shape
    for y in range(first, last):
        for x in range(width):
            wx[y, x] = 0
            wy[y, x] = 0
            if x + 1 < width:
                difference = abs(smooth[y, x + 1] - smooth[y, x])
                wx[y, x] = max(scale * math.exp(-alpha * difference**beta), SMALLEST_WEIGHT)
            if y + 1 < height:
                difference = abs(smooth[y + 1, x] - smooth[y, x])
                wy[y, x] = max(scale * math.exp(-alpha * difference**beta), SMALLEST_WEIGHT)


def contrast_weights(
    image: np.ndarray, scale: float, alpha: float, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Edge weights from image contrast.

    Parameters
    ----------
    image
        Left image (H, W, 3), RGB in [0, 1].
    scale, alpha, beta
        The factor and the shape of the weight function; published cfg files call ``scale``
        ``lambda``.

    Returns
    -------
    wx, wy
        Weights (H, W) of the edges to the right and to the lower neighbour; 0 where there is none.
    """
    smooth = _smoothed_luma(image)
    wx, wy = np.empty_like(smooth), np.empty_like(smooth)
    shape = float(scale), float(alpha), float(beta)
    run_rows(_weights, len(smooth), smooth, *shape, wx, wy)
    return wx, wy


# ---------------------------------------------------------------- from the Pairwise-CNN


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
