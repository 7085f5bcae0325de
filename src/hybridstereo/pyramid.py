"""Matching costs of the images at several sizes, added up (docs/model.md 12; not in the paper).

The Unary-CNN sees some 9x9 pixels.  Where these are plain, such as a road in shadow, the same
network on images of half and quarter size sees more: ``f = f0 + a1 * up(f1 + a2 * up(f2))``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .features import Statistics, statistics
from .kernels import Array, Backend
from .labels import LabelRange

LEVELS = 3
"""The images themselves, at half size and at quarter size: how many levels a model can have."""


def half_size(image: np.ndarray) -> np.ndarray:
    """An image (H, W, C) at half its size, rounded up: means of 2x2 pixels, the border repeated."""
    height, width, _ = image.shape
    even = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    rows = even[0::2] + even[1::2]
    return ((rows[:, 0::2] + rows[:, 1::2]) * image.dtype.type(0.25)).astype(image.dtype)


def half_truth(disparity: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A disparity map (H, W) and where it is valid, at half size and in pixels of it.

    A coarse pixel has the mean of its valid fine ones.  It is valid itself if they belong to one
    surface: if none is more than a pixel away from the mean.
    """
    height, width = disparity.shape
    even = ((0, height % 2), (0, width % 2))
    known = np.pad(valid & np.isfinite(disparity), even)
    values = np.where(known, np.pad(disparity, even), 0).astype(np.float64)
    # (rows, 2, columns, 2): the four fine pixels of each coarse one.
    blocks = (known.shape[0] // 2, 2, known.shape[1] // 2, 2)
    known, values = known.reshape(blocks), values.reshape(blocks)
    count = known.sum(axis=(1, 3))
    mean = values.sum(axis=(1, 3)) / np.maximum(count, 1)
    spread = np.where(known, np.abs(values - mean[:, None, :, None]), 0).max(axis=(1, 3))
    seen = (count > 0) & (spread <= 1)
    return np.where(seen, mean / 2, np.inf).astype(np.float32), seen


def level_statistics(image: np.ndarray) -> tuple[Statistics, ...]:
    """The statistics of an image (H, W, C) at all sizes, which its crops are normalised with."""
    found = []
    for _ in range(LEVELS):
        found.append(statistics(image))
        image = half_size(image)
    return tuple(found)


def half_labels(label_range: LabelRange) -> LabelRange:
    """The labels at half size: half the disparities, so that label k is k / 2 there."""
    return LabelRange(label_range.minimum / 2, label_range.count // 2 + 1, label_range.step)


def pyramid_forward(
    backend: Backend, levels: Sequence[Array], weights: Sequence[float], in_place: bool = True
) -> list[Array]:
    """The costs of each level with those of all coarser ones; the first are the model's.

    Parameters
    ----------
    backend
        Where to compute.
    levels
        The costs (H, W, K) of the images themselves, then of those at half size, and so on.
    weights
        How much each level after the first counts beside the one before it.
    in_place
        Whether ``levels`` take the sums; `pyramid_backward` needs them as they were.
    """
    sums = list(levels)
    for level in reversed(range(len(weights))):
        sums[level] = backend.upsample_forward(
            levels[level], sums[level + 1], weight=weights[level], in_place=in_place
        )
    return sums


def pyramid_backward(
    backend: Backend, dcosts: Array, sums: Sequence[Array], weights: Sequence[float]
) -> tuple[list[Array], list[float]]:
    """Gradients of the costs of all levels and of their weights, from that of the model's costs.

    ``sums`` is what `pyramid_forward` gave.
    """
    dlevels, dweights = [dcosts], []
    for level, weight in enumerate(weights):
        dcoarse, dweight = backend.upsample_backward(
            dlevels[level], coarse=sums[level + 1], weight=weight
        )
        dlevels.append(dcoarse)
        dweights.append(dweight)
    return dlevels, dweights
