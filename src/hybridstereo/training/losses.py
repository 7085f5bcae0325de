"""What training minimises: cross-entropy and the structured hinge (paper, sec. 5; training.md).

Both losses and all their gradients are *means over the valid pixels* of a pair, so that a learning
rate does not depend on the size of the image.  The paper sums; its rates differ by that factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..crf import Penalties, energy, solve
from ..edges import EdgeWeights
from ..kernels import Array, Backend
from ..kernels.backend import CrfGradients
from ..labels import LabelRange

# Of another label than the true one, where a pixel is fixed: more than its four edges can cost.
_FIXING_COST = 100.0


@dataclass(frozen=True)
class Target:
    """Ground truth in labels, on the host or, after `on_device`, on the device.

    Attributes
    ----------
    position
        Fractional label of every pixel, float64 (H, W); 0 where invalid.
    nearest
        The nearest label, int32 (H, W); 0 where invalid.
    valid
        Where the truth is known, not occluded and inside the label range, bool (H, W).
    count
        Number of valid pixels.
    """

    position: Array
    nearest: Array
    valid: Array
    count: int

    def on_device(self, backend: Backend) -> Target:
        """The same truth where all losses of a step find it without moving it again."""
        return Target(
            backend.to_device(self.position),
            backend.to_device(self.nearest),
            backend.to_device(self.valid),
            self.count,
        )


def make_target(disparity: np.ndarray, valid: np.ndarray, label_range: LabelRange) -> Target:
    """Express a disparity map (H, W) in labels; pixels outside the label range become invalid."""
    known = valid & np.isfinite(disparity)
    position = np.where(known, disparity, label_range.minimum).astype(np.float64)
    position = (position - label_range.minimum) / label_range.step
    inside = known & (position >= 0) & (position <= label_range.count - 1)
    position = np.where(inside, position, 0.0)
    nearest = np.floor(position + 0.5).astype(np.int32)
    return Target(position, nearest, inside, int(inside.sum()))


def cross_entropy(
    backend: Backend, f: np.ndarray, target: Target, soft: bool
) -> tuple[float, np.ndarray]:
    """Mean pixel-wise cross-entropy (paper, eq. 8) and its gradient w.r.t. the scores.

    Parameters
    ----------
    backend
        Where to compute.
    f
        ``-softmax(s)``, (H, W, K).
    target
        Ground truth.
    soft
        Share a sub-pixel truth linearly between its two neighbouring labels instead of taking the
        nearest one.

    Returns
    -------
    loss, ds
        ``ds`` (H, W, K) is zero at invalid pixels.
    """
    return backend.cross_entropy(
        f,
        position=target.position,
        nearest=target.nearest,
        valid=target.valid,
        valid_count=max(target.count, 1),
        soft=soft,
    )


def minorant_error_rate(
    backend: Backend,
    minorant: Array,
    target: Target,
    sharpness: float,
    tolerance: float,
    exponent: float,
) -> tuple[float, Array]:
    """A soft share of wrong pixels of the CRF and its gradient w.r.t. the minorant F.

    The CRF's solution takes the label with the lowest F.  Here a label has the probability
    ``softmax(-sharpness * F)``; with a high sharpness and an exponent of 1 the loss is the share of
    pixels that are off by more than ``tolerance`` labels.
    """
    loss, gradient = backend.error_rate(
        backend.negated_softmax(minorant, -sharpness),
        position=target.position,
        valid=target.valid,
        valid_count=max(target.count, 1),
        tolerance=tolerance,
        exponent=exponent,
    )
    backend.scale_by(gradient, -sharpness)
    return loss, gradient


def bad_labels(
    backend: Backend, label_map: Array, target: Target, thresholds: Sequence[float]
) -> list[float]:
    """Percentages of valid pixels whose label is off by more than each threshold, in labels."""
    counts = [
        backend.count_bad_labels(
            label_map, position=target.position, valid=target.valid, threshold=x
        )
        for x in thresholds
    ]
    return [100.0 * count / max(target.count, 1) for count in counts]


@dataclass(frozen=True)
class Hinge:
    """The structured hinge of one pair and its subgradients (docs/training.md).

    ``disagreement`` is the fraction of pixels at which the row and the column solution of the
    loss-augmented problem differ; ``task_loss`` is that of its labelling, per valid pixel.
    """

    loss: float
    task_loss: float
    disagreement: float
    gradients: CrfGradients


def augment_costs(
    backend: Backend, f: np.ndarray, target: Target, gamma: float, tau: float
) -> np.ndarray:
    """Loss-augmented unaries ``f - gamma * min(|k - x*|, tau)`` on valid pixels."""
    return backend.augment_costs(
        f, nearest=target.nearest, valid=target.valid, gamma=gamma, tau=tau
    )


def task_loss(backend: Backend, label_map: Array, target: Target, tau: float) -> float:
    """Mean truncated absolute difference of labels over valid pixels."""
    total = backend.task_loss(label_map, nearest=target.nearest, valid=target.valid, tau=tau)
    return total / max(target.count, 1)


def structured_hinge(
    backend: Backend,
    f: np.ndarray,
    edges: EdgeWeights,
    penalties: Penalties,
    target: Target,
    gamma: float,
    tau: float,
    iterations: int,
    infer_unknown: bool = False,
) -> Hinge:
    """Upper bound on the task loss of the CRF's solution and its approximate subgradient.

    Where the truth is unknown, ``x*`` takes the label of the loss-augmented solution: such pixels,
    and edges that touch one, contribute no gradient.  With ``infer_unknown`` it takes that of the
    CRF's solution with the known pixels fixed, and everything contributes.  That costs a second
    solution; where truth is sparse, few edges have two known pixels.
    """
    nearest, valid = target.nearest, target.valid
    elsewhere = None
    if infer_unknown:
        elsewhere = _solution_through(backend, f, edges, penalties, target, iterations)
    augmented = augment_costs(backend, f, target, gamma, tau)
    solution = solve(backend, augmented, edges, penalties, iterations, with_rows=True)
    worst = solution.label_map
    truth = backend.complete_truth(
        nearest, valid=valid, elsewhere=worst if elsewhere is None else elsewhere
    )
    active = backend.to_device(np.ones(valid.shape, bool)) if infer_unknown else valid
    count = max(target.count, 1)
    # On x* the augmentation is zero, so f itself gives its energy.
    best = energy(backend, f, edges, penalties, truth)
    gradients = backend.hinge_gradients(
        f,
        wx=edges.wx,
        wy=edges.wy,
        p1=penalties.p1,
        p2=penalties.p2,
        truth=truth,
        worst=worst,
        active=active,
        valid_count=count,
    )
    disagreeing = backend.count_different(solution.row_label_map, worst)
    return Hinge(
        loss=(best - float(solution.bounds[-1])) / count,
        task_loss=task_loss(backend, worst, target, tau),
        disagreement=disagreeing / target.valid.size,
        gradients=gradients,
    )


def _solution_through(
    backend: Backend,
    f: Array,
    edges: EdgeWeights,
    penalties: Penalties,
    target: Target,
    iterations: int,
) -> Array:
    """The CRF's labelling if all labels but the true ones are expensive where these are known."""
    fixed = augment_costs(backend, f, target, -_FIXING_COST, 1.0)
    return solve(backend, fixed, edges, penalties, iterations).label_map
