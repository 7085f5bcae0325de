"""Losses of training and their gradients on the CPU (paper, sec. 5; docs/training.md).

``position`` is the true label of every pixel as a float, ``nearest`` the same rounded, ``valid``
where it is known; all (H, W).  ``valid_count`` is the number of valid pixels, by which all
gradients are divided.
"""

from __future__ import annotations

import numpy as np

from .backend import CrfGradients
from .constants import SMALLEST_PROBABILITY
from .cpu import buffers
from .cpu.workers import run_rows
from .penalty import rho_slopes


def cross_entropy(
    f: np.ndarray,
    position: np.ndarray,
    nearest: np.ndarray,
    valid: np.ndarray,
    valid_count: int,
    soft: bool,
) -> tuple[float, np.ndarray]:
    """Mean pixel-wise cross-entropy (paper, eq. 8) and its gradient w.r.t. the scores.

    Parameters
    ----------
    f
        ``-softmax(s)``, (H, W, K).
    position, nearest, valid, valid_count
        Ground truth.
    soft
        Split a sub-pixel truth linearly between its two neighbouring labels instead of using the
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
    ds = np.where(valid[..., None], f, f.dtype.type(0)) * f.dtype.type(-1.0 / valid_count)
    loss = 0.0
    for label, share in parts:
        probability = np.maximum(-f[rows, columns, label].astype(np.float64), SMALLEST_PROBABILITY)
        loss -= float((share * np.log(probability)).sum())
        # A pixel's two neighbours are the same label only if one of the shares is zero.
        ds[rows, columns, label] -= (share / valid_count).astype(f.dtype)
    return loss / valid_count, ds


def _negated_softmax_rows(
    first: int, last: int, volume: np.ndarray, factor: float, result: np.ndarray
) -> None:
    """result[i] = -softmax(factor * volume[i]) for rows of pixels, (W, K) each."""
    for i in range(first, last):
        np.multiply(volume[i], factor, out=result[i])
        result[i] -= result[i].max(axis=1, keepdims=True)
        np.exp(result[i], out=result[i])
        result[i] /= -result[i].sum(axis=1, keepdims=True)


def negated_softmax(volume: np.ndarray, factor: float) -> np.ndarray:
    """``-softmax(factor * volume)`` over the labels, as matching costs are; (H, W, K)."""
    result = buffers.empty(volume.shape, volume.dtype)
    factor = volume.dtype.type(factor)
    run_rows(_negated_softmax_rows, len(volume), volume, factor, result)
    return result


def _error_rate_rows(
    first: int,
    last: int,
    f: np.ndarray,
    position: np.ndarray,
    valid: np.ndarray,
    valid_count: int,
    tolerance: float,
    exponent: float,
    ds: np.ndarray,
    losses: np.ndarray,
) -> None:
    """The gradient ds (H, W, K) of rows of pixels, and the sum of ``1 - P^q`` of each (H,)."""
    labels = np.arange(f.shape[2], dtype=f.dtype)
    for y in range(first, last):
        columns = np.flatnonzero(valid[y])
        p = -f[y, columns]
        near = np.abs(labels - position[y, columns, None].astype(f.dtype)) <= tolerance
        right = np.maximum((p * near).sum(axis=1, dtype=np.float64), SMALLEST_PROBABILITY)
        losses[y] = (1.0 - right**exponent).sum()
        slope = (right ** (exponent - 1) / valid_count).astype(f.dtype)
        ds[y] = 0
        ds[y, columns] = slope[:, None] * p * (right[:, None].astype(f.dtype) - near)


def error_rate(
    f: np.ndarray,
    position: np.ndarray,
    valid: np.ndarray,
    valid_count: int,
    tolerance: float,
    exponent: float,
) -> tuple[float, np.ndarray]:
    """Mean of ``(1 - P^q) / q``, P the probability of a label near the true one, and its gradient.

    With an exponent q of 1 that is the share of pixels that are expected to be wrong; with one
    close to 0 it is ``-log P``, which never gives a pixel up.

    Parameters
    ----------
    f
        ``-softmax(s)``, (H, W, K).
    position, valid, valid_count
        Ground truth.
    tolerance
        How many labels a right one is off at most.
    exponent
        q, above 0.

    Returns
    -------
    loss, ds
        ``ds`` (H, W, K) is zero at invalid pixels.
    """
    ds = buffers.empty(f.shape, f.dtype)
    losses = np.zeros(len(f))
    terms = f, position, valid, valid_count, tolerance, exponent
    run_rows(_error_rate_rows, len(f), *terms, ds, losses)
    return float(losses.sum()) / exponent / valid_count, ds


def augment_costs(
    f: np.ndarray, nearest: np.ndarray, valid: np.ndarray, gamma: float, tau: float
) -> np.ndarray:
    """Loss-augmented unaries ``f - gamma * min(|k - x*|, tau)`` on valid pixels, (H, W, K)."""
    labels = np.arange(f.shape[2], dtype=np.int32)
    distance = np.abs(labels - nearest[..., None])
    penalty = np.minimum(distance, tau).astype(f.dtype) * f.dtype.type(gamma)
    return f - np.where(valid[..., None], penalty, f.dtype.type(0))


def task_loss(label_map: np.ndarray, nearest: np.ndarray, valid: np.ndarray, tau: float) -> float:
    """Sum of the truncated absolute differences of labels over valid pixels."""
    distance = np.minimum(np.abs(label_map - nearest), tau)
    return float(distance[valid].sum())


def count_bad_labels(
    label_map: np.ndarray, position: np.ndarray, valid: np.ndarray, threshold: float
) -> int:
    """Number of valid pixels whose label is off by more than ``threshold``."""
    return int((np.abs(label_map - position) > threshold)[valid].sum())


def count_different(label_map: np.ndarray, other: np.ndarray) -> int:
    """Number of pixels at which two label maps differ."""
    return int((label_map != other).sum())


def complete_truth(nearest: np.ndarray, valid: np.ndarray, elsewhere: np.ndarray) -> np.ndarray:
    """The true labels, and those of another label map where the truth is unknown; int32 (H, W)."""
    return np.where(valid, nearest, elsewhere).astype(np.int32)


def hinge_gradients(
    f: np.ndarray,
    wx: np.ndarray,
    wy: np.ndarray,
    p1: float,
    p2: float,
    truth: np.ndarray,
    worst: np.ndarray,
    active: np.ndarray,
    valid_count: int,
) -> CrfGradients:
    """Approximate subgradient of the structured hinge (docs/training.md).

    Parameters
    ----------
    f
        Unary costs (H, W, K); only their shape and type matter.
    wx, wy, p1, p2
        The edges, as in Dual_MM.
    truth, worst
        `complete_truth` and the loss-augmented solution.
    active
        Pixels that contribute, bool (H, W); an edge contributes if both its pixels do.
    valid_count
        What the gradients are divided by.
    """
    df = np.zeros_like(f)
    rows, columns = np.nonzero(active & (truth != worst))
    df[rows, columns, truth[rows, columns]] += f.dtype.type(1.0 / valid_count)
    df[rows, columns, worst[rows, columns]] -= f.dtype.type(1.0 / valid_count)

    dp1 = dp2 = 0.0
    dweights = []
    for weights, first, second in (
        (wx, np.s_[:, :-1], np.s_[:, 1:]),
        (wy, np.s_[:-1, :], np.s_[1:, :]),
    ):
        both = active[first] & active[second]
        wanted, found = (rho_slopes(np.abs(x[first] - x[second])) for x in (truth, worst))
        p1_change, p2_change = (
            np.where(both, a.astype(np.float64) - b, 0.0)
            for a, b in zip(wanted, found, strict=True)
        )
        dp1 += float((weights[first] * p1_change).sum())
        dp2 += float((weights[first] * p2_change).sum())
        gradient = np.zeros_like(weights)
        gradient[first] = (p1 * p1_change + p2 * p2_change) / valid_count
        dweights.append(gradient)
    return CrfGradients(df, dweights[0], dweights[1], dp1 / valid_count, dp2 / valid_count)
