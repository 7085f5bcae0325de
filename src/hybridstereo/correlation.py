"""Features of both views -> matching costs: correlation and softmax (paper, sec. 3; model.md 4).

The softmax is that of the left view, or ``mutual``, of both (docs/model.md 4.1; not in the paper).
"""

from __future__ import annotations

from collections.abc import Sequence

from .kernels import Array, Backend
from .labels import LabelRange


def correlation_forward(
    backend: Backend,
    left_features: Array,
    right_features: Array,
    label_range: LabelRange,
    costs: Array | None = None,
    softmax: str = "left",
    kept: list[Array] | None = None,
) -> Array:
    """Matching costs ``f = -softmax_k <left(x), right(x - d_k)>``, (H, W, K) in [-1, 0].

    ``costs`` receives them, if given, and ``kept`` what `softmax_backward` needs beside them.
    """
    views, disparities = (left_features, right_features), label_range.disparities
    if softmax == "left":
        return backend.correlation_forward(*views, disparities, costs)
    log_sums = backend.empty(left_features.shape[:2], left_features.dtype)
    costs = backend.correlation_forward(*views, disparities, costs, log_sums)
    of_right = backend.mutual_forward(costs, log_sums, right_features.shape[1], disparities)
    if kept is not None:
        kept += [log_sums, of_right]
    return costs


def softmax_backward(
    backend: Backend,
    costs: Array,
    dcosts: Array,
    label_range: LabelRange,
    kept: Sequence[Array] = (),
) -> Array:
    """Gradient of the scores (H, W, K) from that of the matching costs."""
    if not kept:
        return backend.softmax_backward(costs, dcosts)
    log_sums, of_right = kept
    return backend.mutual_backward(costs, dcosts, log_sums, of_right, label_range.disparities)


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
