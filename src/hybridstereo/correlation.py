"""Features of both views -> matching costs: correlation and softmax (paper, sec. 3; model.md 4)."""

from __future__ import annotations

from .kernels import Array, Backend
from .labels import LabelRange


def correlation_forward(
    backend: Backend,
    left_features: Array,
    right_features: Array,
    label_range: LabelRange,
    costs: Array | None = None,
) -> Array:
    """Matching costs ``f = -softmax_k <left(x), right(x - d_k)>``, (H, W, K) in [-1, 0].

    ``costs`` receives them, if given.
    """
    return backend.correlation_forward(
        left_features, right_features, label_range.disparities, costs=costs
    )


def softmax_backward(backend: Backend, costs: Array, dcosts: Array) -> Array:
    """Gradient of the scores (H, W, K) from that of the matching costs."""
    return backend.softmax_backward(costs, dcosts)


def correlation_backward(
    backend: Backend,
    dscores: Array,
    left_features: Array,
    right_features: Array,
    label_range: LabelRange,
) -> tuple[Array, Array]:
    """Gradients of both views' features (H, W, C) from that of the scores (H, W, K)."""
    return backend.scores_backward(
        dscores,
        left=left_features,
        right=right_features,
        disparities=label_range.disparities,
    )
