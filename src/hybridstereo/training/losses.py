"""What training minimises: cross-entropy and the structured hinge (paper, sec. 5; TRAINING.md).

Both losses and all their gradients are *means over the valid pixels* of a pair, so that a learning
rate does not depend on the size of the image.  The paper sums; its rates differ by that factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..crf import EdgeWeights, Penalties
from ..kernels import Backend
from ..labels import LabelRange

_TINY = 1e-37


@dataclass(frozen=True)
class Target:
    """Ground truth in labels.

    Attributes
    ----------
    position
        Fractional label of every pixel, float64 (H, W); 0 where invalid.
    nearest
        The nearest label, int32 (H, W); 0 where invalid.
    valid
        Where the truth is known, not occluded and inside the label range, bool (H, W).
    """

    position: np.ndarray
    nearest: np.ndarray
    valid: np.ndarray

    @property
    def count(self) -> int:
        """Number of valid pixels."""
        return int(self.valid.sum())


def make_target(disparity: np.ndarray, valid: np.ndarray, labels: LabelRange) -> Target:
    """Express a disparity map (H, W) in labels; pixels outside the label range become invalid."""
    known = valid & np.isfinite(disparity)
    position = np.where(known, disparity, labels.minimum).astype(np.float64)
    position = (position - labels.minimum) / labels.step
    inside = known & (position >= 0) & (position <= labels.count - 1)
    position = np.where(inside, position, 0.0)
    return Target(position, np.floor(position + 0.5).astype(np.int32), inside)


def cross_entropy(f: np.ndarray, target: Target, soft: bool) -> tuple[float, np.ndarray]:
    """Mean pixel-wise cross-entropy (paper, eq. 8) and its gradient w.r.t. the scores.

    Parameters
    ----------
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
    count = max(target.count, 1)
    rows, columns = np.nonzero(target.valid)
    if soft:
        lower = np.floor(target.position[rows, columns]).astype(np.int64)
        share = target.position[rows, columns] - lower
        upper = np.minimum(lower + 1, f.shape[2] - 1)
        parts = [(lower, 1.0 - share), (upper, share)]
    else:
        parts = [(target.nearest[rows, columns].astype(np.int64), np.ones(rows.size))]
    ds = np.where(target.valid[..., None], f, f.dtype.type(0)) * f.dtype.type(-1.0 / count)
    loss = 0.0
    for label, share in parts:
        probability = np.maximum(-f[rows, columns, label].astype(np.float64), _TINY)
        loss -= float((share * np.log(probability)).sum())
        # The two neighbours of one pixel are never the same label unless one share is zero.
        ds[rows, columns, label] -= (share / count).astype(f.dtype)
    return loss / count, ds


@dataclass(frozen=True)
class Hinge:
    """The structured hinge of one pair and its subgradients (TRAINING.md).

    ``disagreement`` is the fraction of pixels at which the row and the column solution of the
    loss-augmented problem differ; ``task_loss`` is that of its labelling, per valid pixel.
    """

    loss: float
    task_loss: float
    disagreement: float
    df: np.ndarray
    dwx: np.ndarray
    dwy: np.ndarray
    dp1: float
    dp2: float


def augment_costs(f: np.ndarray, target: Target, gamma: float, tau: float) -> np.ndarray:
    """Loss-augmented unaries ``f - gamma * min(|k - x*|, tau)`` on valid pixels."""
    labels = np.arange(f.shape[2], dtype=np.int32)
    distance = np.abs(labels - target.nearest[..., None])
    penalty = np.minimum(distance, tau).astype(f.dtype) * f.dtype.type(gamma)
    return f - np.where(target.valid[..., None], penalty, f.dtype.type(0))


def task_loss(labels: np.ndarray, target: Target, tau: float) -> float:
    """Mean truncated absolute difference of labels over valid pixels."""
    distance = np.minimum(np.abs(labels - target.nearest), tau)
    return float(distance[target.valid].sum()) / max(target.count, 1)


def structured_hinge(
    backend: Backend,
    f: np.ndarray,
    edges: EdgeWeights,
    penalties: Penalties,
    target: Target,
    gamma: float,
    tau: float,
    iterations: int,
) -> Hinge:
    """Upper bound on the task loss of the CRF's solution and its approximate subgradient.

    Where the truth is unknown, ``x*`` takes the label of the loss-augmented solution: such pixels
    pull nothing, and edges that touch one do not either.
    """
    augmented = augment_costs(f, target, gamma, tau)
    row_labels = np.empty(f.shape[:2], np.int32)
    minorant, bounds = backend.dual_mm(
        augmented, edges.wx, edges.wy, penalties.p1, penalties.p2, iterations, row_labels
    )
    worst = backend.read_out(minorant)
    truth = np.where(target.valid, target.nearest, worst).astype(np.int32)
    count = max(target.count, 1)
    # On x* the augmentation is zero, so f itself gives its energy.
    energy = backend.energy(f, edges.wx, edges.wy, penalties.p1, penalties.p2, truth)

    df = np.zeros_like(f)
    rows, columns = np.nonzero(target.valid & (truth != worst))
    df[rows, columns, truth[rows, columns]] += f.dtype.type(1.0 / count)
    df[rows, columns, worst[rows, columns]] -= f.dtype.type(1.0 / count)

    valid = target.valid
    dp1 = dp2 = 0.0
    dweights = []
    for weights, first, second in (
        (edges.wx, np.s_[:, :-1], np.s_[:, 1:]),
        (edges.wy, np.s_[:-1, :], np.s_[1:, :]),
    ):
        both = valid[first] & valid[second]
        jumps = [np.abs(x[first] - x[second]) for x in (truth, worst)]
        ones, more = (
            [np.where(both, condition(jump), False) for jump in jumps]
            for condition in (lambda j: j == 1, lambda j: j > 1)
        )
        one_change = ones[0].astype(np.float64) - ones[1]
        more_change = more[0].astype(np.float64) - more[1]
        dp1 += float((weights[first] * one_change).sum())
        dp2 += float((weights[first] * more_change).sum())
        gradient = np.zeros_like(weights)
        gradient[first] = (penalties.p1 * one_change + penalties.p2 * more_change) / count
        dweights.append(gradient)
    return Hinge(
        loss=(energy - float(bounds[-1])) / count,
        task_loss=task_loss(worst, target, tau),
        disagreement=float((row_labels != worst).mean()),
        df=df,
        dwx=dweights[0],
        dwy=dweights[1],
        dp1=dp1 / count,
        dp2=dp2 / count,
    )
