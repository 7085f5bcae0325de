"""Losses of training and their gradients on the CPU (paper, sec. 5; TRAINING.md).

``nearest`` and ``position`` are the true label of every pixel, rounded and not, ``valid`` tells
where it is known; all (H, W).  ``count`` is the number of valid pixels, by which all gradients are
divided.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_TINY = 1e-37


def cross_entropy(
    f: np.ndarray,
    position: np.ndarray,
    nearest: np.ndarray,
    valid: np.ndarray,
    count: int,
    soft: bool,
) -> tuple[float, np.ndarray]:
    """Mean pixel-wise cross-entropy (paper, eq. 8) and its gradient w.r.t. the scores.

    Parameters
    ----------
    f
        ``-softmax(s)``, (H, W, K).
    position, nearest, valid, count
        Ground truth.
    soft
        Share a sub-pixel truth linearly between its two neighbouring labels instead of taking the
        nearest one.

    Returns
    -------
    loss, ds
        ``ds`` (H, W, K) is zero at invalid pixels.
    """
    rows, columns = np.nonzero(valid)
    if soft:
        lower = np.floor(position[rows, columns]).astype(np.int64)
        share = position[rows, columns] - lower
        upper = np.minimum(lower + 1, f.shape[2] - 1)
        parts = [(lower, 1.0 - share), (upper, share)]
    else:
        parts = [(nearest[rows, columns].astype(np.int64), np.ones(rows.size))]
    ds = np.where(valid[..., None], f, f.dtype.type(0)) * f.dtype.type(-1.0 / count)
    loss = 0.0
    for label, share in parts:
        probability = np.maximum(-f[rows, columns, label].astype(np.float64), _TINY)
        loss -= float((share * np.log(probability)).sum())
        # The two neighbours of one pixel are never the same label unless one share is zero.
        ds[rows, columns, label] -= (share / count).astype(f.dtype)
    return loss / count, ds


def augment_costs(
    f: np.ndarray, nearest: np.ndarray, valid: np.ndarray, gamma: float, tau: float
) -> np.ndarray:
    """Loss-augmented unaries ``f - gamma * min(|k - x*|, tau)`` on valid pixels, (H, W, K)."""
    labels = np.arange(f.shape[2], dtype=np.int32)
    distance = np.abs(labels - nearest[..., None])
    penalty = np.minimum(distance, tau).astype(f.dtype) * f.dtype.type(gamma)
    return f - np.where(valid[..., None], penalty, f.dtype.type(0))


def task_loss(labels: np.ndarray, nearest: np.ndarray, valid: np.ndarray, tau: float) -> float:
    """Sum of the truncated absolute differences of labels over valid pixels."""
    distance = np.minimum(np.abs(labels - nearest), tau)
    return float(distance[valid].sum())


def count_bad_labels(
    labels: np.ndarray, position: np.ndarray, valid: np.ndarray, threshold: float
) -> int:
    """Number of valid pixels whose label is off by more than ``threshold``."""
    return int((np.abs(labels - position) > threshold)[valid].sum())


def count_different(a: np.ndarray, b: np.ndarray) -> int:
    """Number of pixels at which two labellings differ."""
    return int((a != b).sum())


def complete_truth(nearest: np.ndarray, valid: np.ndarray, elsewhere: np.ndarray) -> np.ndarray:
    """The true labels, and those of another labelling where the truth is unknown; int32 (H, W)."""
    return np.where(valid, nearest, elsewhere).astype(np.int32)


class HingeGradients(NamedTuple):
    """Subgradients of the structured hinge: costs (H, W, K), edge weights (H, W), penalties.

    The arrays are those of the device.
    """

    df: Any
    dwx: Any
    dwy: Any
    dp1: float
    dp2: float


def hinge_gradients(
    f: np.ndarray,
    wx: np.ndarray,
    wy: np.ndarray,
    p1: float,
    p2: float,
    truth: np.ndarray,
    worst: np.ndarray,
    valid: np.ndarray,
    count: int,
) -> HingeGradients:
    """Approximate subgradient of the structured hinge (TRAINING.md).

    Parameters
    ----------
    f
        Unary costs (H, W, K); only their shape and type matter.
    wx, wy, p1, p2
        The edges, as in Dual_MM.
    truth, worst
        `complete_truth` and the loss-augmented solution.
    valid, count
        Pixels that pull, and their number; an edge pulls if both its pixels do.
    """
    df = np.zeros_like(f)
    rows, columns = np.nonzero(valid & (truth != worst))
    df[rows, columns, truth[rows, columns]] += f.dtype.type(1.0 / count)
    df[rows, columns, worst[rows, columns]] -= f.dtype.type(1.0 / count)

    dp1 = dp2 = 0.0
    dweights = []
    for weights, first, second in (
        (wx, np.s_[:, :-1], np.s_[:, 1:]),
        (wy, np.s_[:-1, :], np.s_[1:, :]),
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
        gradient[first] = (p1 * one_change + p2 * more_change) / count
        dweights.append(gradient)
    return HingeGradients(df, dweights[0], dweights[1], dp1 / count, dp2 / count)
