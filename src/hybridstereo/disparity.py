"""Labelling -> disparity map: read-out and sub-label refinement (docs/model.md 6.3, 7)."""

from __future__ import annotations

import numpy as np

from .kernels import Array, Backend
from .labels import LabelRange


def cheapest_labels(backend: Backend, costs: Array) -> Array:
    """The label of the lowest cost at every pixel, int32 (H, W): the network without a CRF."""
    return backend.argmin(costs)


def label_disparity(backend: Backend, label_map: Array, label_range: LabelRange) -> np.ndarray:
    """The disparity of every pixel's label, float32 (H, W) in pixels."""
    return label_range.to_disparity(backend.to_host(label_map))


def refined_disparity(
    backend: Backend, costs: Array, label_map: Array, unrefined: np.ndarray, step: float
) -> np.ndarray:
    """Disparities moved to the minimum of the parabola through a label's cost and its neighbours'.

    ``costs`` (H, W, K) are those the labels were chosen by: the CRF's minorant or, without a CRF,
    the matching costs.  ``unrefined`` (H, W) is what `label_disparity` gives.
    """
    return unrefined + backend.to_host(backend.refine(costs, label_map, step=step))
