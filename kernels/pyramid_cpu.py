"""Costs of a coarse level of the pyramid, brought up and added to a finer one (docs/model.md 12).

A coarse level has half the rows and columns of the finer one, rounded up, and ``K // 2 + 1``
labels: label k of the finer level reads label k / 2.  In between, costs are interpolated linearly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .cpu.jit import compiled, part
from .cpu.workers import run_rows

# Fine pixel 2i lies a quarter of a coarse pixel before coarse pixel i, 2i + 1 as far behind it.
_NEAR, _FAR = 0.75, 0.25


@part()
def _beside(position: int, size: int) -> int:
    """The coarse pixel beyond the nearest one, that the fine pixel reads too; within the image."""
    near = position // 2
    return min(max(near - 1 if position % 2 == 0 else near + 1, 0), size - 1)


@compiled(nogil=True)
def _add(
    first: int, last: int,
    total: Any, coarse: Any, near_near: Any, near_far: Any, far_far: Any, half: Any,
) -> None:  # fmt: skip
    """total (H, W, K) += coarse (H', W', K'), by the products of the interpolation's shares.

    Rows ``first`` to ``last`` - 1.
    """
    _, width, label_count = total.shape
    rows, columns, coarse_count = coarse.shape
    mixed = np.empty(coarse_count + 1, total.dtype)
    for y in range(first, last):
        near_row, far_row = coarse[y // 2], coarse[_beside(y, rows)]
        for x in range(width):
            near, far = x // 2, _beside(x, columns)
            a, b, c, d = near_row[near], near_row[far], far_row[near], far_row[far]
            for k in range(coarse_count):
                mixed[k] = near_near * a[k] + near_far * (b[k] + c[k]) + far_far * d[k]
            mixed[coarse_count] = mixed[coarse_count - 1]  # read only beyond the last label
            target = total[y, x]
            for k in range(label_count // 2):
                target[2 * k] += mixed[k]
                target[2 * k + 1] += half * (mixed[k] + mixed[k + 1])
            if label_count % 2:
                target[label_count - 1] += mixed[label_count // 2]


def upsample_forward(
    fine: np.ndarray, coarse: np.ndarray, weight: float, in_place: bool = True
) -> np.ndarray:
    """``fine + weight * up(coarse)``.

    Parameters
    ----------
    fine
        (H, W, K).
    coarse
        (ceil(H / 2), ceil(W / 2), K // 2 + 1).
    weight
        How much the coarse level counts.
    in_place
        Whether ``fine`` takes the sum, or is left alone.
    """
    number = fine.dtype.type
    total = fine if in_place else fine.copy()
    shares = (weight * x for x in (_NEAR * _NEAR, _NEAR * _FAR, _FAR * _FAR))
    run_rows(_add, len(total), total, coarse, *map(number, shares), number(0.5))
    return total


@part()
def _share(position: int, near: int, size: int) -> float:
    """How much fine pixel ``position`` reads of coarse pixel ``near``; the border counts twice."""
    share = 0.0
    if position // 2 == near:
        share += _NEAR
    if _beside(position, size) == near:
        share += _FAR
    return share


@compiled(nogil=True)
def _gather(
    first: int, last: int, dfine: Any, coarse: Any, weight: Any, dcoarse: Any, dweights: Any
) -> None:
    """dfine (H, W, K) -> dcoarse (H', W', K') and, by rows, the gradient of the weight (H',).

    Coarse rows ``first`` to ``last`` - 1.
    """
    height, width, label_count = dfine.shape
    rows, columns, coarse_count = coarse.shape
    number = dfine.dtype.type
    # One more label on both sides, so that the neighbours of all labels exist.
    total = np.empty(2 * coarse_count + 2, dfine.dtype)
    for row in range(first, last):
        dweight = 0.0
        for column in range(columns):
            total[:] = 0
            for y in range(max(2 * row - 1, 0), min(2 * row + 3, height)):
                for x in range(max(2 * column - 1, 0), min(2 * column + 3, width)):
                    share = number(_share(y, row, rows) * _share(x, column, columns))
                    source = dfine[y, x]
                    for k in range(label_count):
                        total[k + 1] += share * source[k]
            for k in range(coarse_count):
                at = 2 * k + 1
                moved = total[at] + number(0.5) * (total[at - 1] + total[at + 1])
                dcoarse[row, column, k] = weight * moved
                dweight += np.float64(moved) * np.float64(coarse[row, column, k])
        dweights[row] = dweight


def upsample_backward(
    dfine: np.ndarray, coarse: np.ndarray, weight: float
) -> tuple[np.ndarray, float]:
    """Gradients of the coarse costs (H', W', K') and of their weight from that of the sum."""
    dcoarse = np.empty_like(coarse)
    dweights = np.empty(coarse.shape[0])
    weight = dfine.dtype.type(weight)
    run_rows(_gather, len(coarse), dfine, coarse, weight, dcoarse, dweights)
    return dcoarse, float(dweights.sum())
