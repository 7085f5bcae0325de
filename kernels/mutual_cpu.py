"""The softmax of both views instead of that of the left one alone (docs/model.md 4.1), on the CPU.

A label k of left pixel x and the right pixel r nearest to where it looks are a match.  The left
softmax compares the matches of x, the right one those of r; their geometric mean is large only
where each pixel chooses the other:

    f(y, x, k) = -sqrt(p0(y, x, k) * p1(y, r, k)) = -exp(s - (l0(y, x) + l1(y, r)) / 2)

with the logarithms l0 and l1 of what each softmax divides by.  A label that looks outside the right
view has no match: it keeps ``f = -p0``.  Forward and backward.
"""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np

from .constants import SMALLEST_SUM
from .cpu import buffers
from .cpu.jit import compiled, part
from .cpu.vectors import widest_vectors
from .cpu.workers import run_rows
from .label_positions import label_positions

_FURTHEST = log(SMALLEST_SUM)

# The right row is kept from right to left: label k of pixel x matches ``start - x + steps[k]``
# there, so that neighbouring labels are neighbours in memory.


@part()
def _matched(costs: Any, row: Any, at: int) -> Any:
    """The costs (K,) of a pixel that have a match in a reversed row (V,), and its part there.

    Label 0 matches ``at``, and each label the pixel behind that of the label before.
    """
    low = min(max(-at, 0), costs.size)
    matched = costs[low : max(min(row.size - at, costs.size), low)]
    return matched, row[at + low : at + low + matched.size]


@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def _normalise(
    first: int, last: int, f: Any, log_sums: Any, steps: Any, start: int, right_log_sums: Any
) -> None:  # fmt: skip
    """f (H, W, K): negated left softmax -> costs; log_sums (H, W) -> right_log_sums (H, V).

    Rows ``first`` to ``last`` - 1.  ``steps`` (K,); None, which is compiled by itself, if they are
    0, 1, 2 and so on.
    """
    widest_vectors()
    _, width, count = f.shape
    other = right_log_sums.shape[1]
    number = f.dtype.type
    sums = np.empty(other, f.dtype)
    for y in range(first, last):
        largest = log_sums[y, 0]
        for x in range(1, width):
            largest = max(largest, log_sums[y, x])
        sums[:] = 0
        for x in range(width):
            costs, at = f[y, x], start - x
            share = number(-exp(max(log_sums[y, x] - largest, _FURTHEST)))
            if steps is None:
                matched, of_right = _matched(costs, sums, at)
                for k in range(matched.size):
                    of_right[k] += share * matched[k]
            else:
                for k in range(count):
                    if 0 <= at + steps[k] < other:
                        sums[at + steps[k]] += share * costs[k]
        for r in range(other):
            total = max(sums[r], number(SMALLEST_SUM))
            right_log_sums[y, other - 1 - r] = largest + log(total)
            sums[r] = number(1) / np.sqrt(total)
        for x in range(width):
            costs, at = f[y, x], start - x
            share = number(exp(0.5 * max(log_sums[y, x] - largest, _FURTHEST)))
            if steps is None:
                matched, of_right = _matched(costs, sums, at)
                for k in range(matched.size):
                    matched[k] *= share * of_right[k]
            else:
                for k in range(count):
                    if 0 <= at + steps[k] < other:
                        costs[k] *= share * sums[at + steps[k]]


def mutual_forward(
    f: np.ndarray, log_sums: np.ndarray, right_width: int, disparities: np.ndarray
) -> np.ndarray:
    """Costs of both views' softmax, in place of those of the left one.

    Parameters
    ----------
    f
        ``-softmax(s)`` (H, W, K) of `correlation_forward`; becomes ``-sqrt(p0 p1)``.
    log_sums
        (H, W), its ``log(sum(exp(s)))``.
    right_width
        V, the columns of the right view.
    disparities
        As in `correlation_forward`.

    Returns
    -------
    right_log_sums
        (H, V), the same of the right pixels; for `mutual_backward`.
    """
    right_log_sums = buffers.empty((f.shape[0], right_width), f.dtype)
    steps, start = _matches(disparities, right_width)
    if np.array_equal(steps, np.arange(steps.size)):
        steps = None
    run_rows(_normalise, len(f), f, log_sums, steps, start, right_log_sums)
    return right_log_sums


def _matches(disparities: np.ndarray, right_width: int) -> tuple[Any, int]:
    """``steps`` (K,) and ``start``: label k matches ``start - x + steps[k]`` of a reversed row."""
    positions = label_positions(disparities, np.float64)
    nearest = positions.nearest
    return nearest[0] - nearest, right_width - 1 - int(nearest[0])


@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def _gather(
    first: int, last: int, f: Any, df: Any, log_sums: Any, right_log_sums: Any,
    steps: Any, start: int, ds: Any,
) -> None:  # fmt: skip
    """ds (H, W, K) from df (H, W, K); rows ``first`` to ``last`` - 1, the rest as `_normalise`.

    With ``g = f df``: ds = g - p0 sum_x(g / 2, or g where there is no match) - p1 sum_r(g / 2).
    """
    _, width, count = f.shape
    other = right_log_sums.shape[1]
    number = f.dtype.type
    half = number(0.5)
    sums = np.empty(other, f.dtype)
    for y in range(first, last):
        sums[:] = 0
        for x in range(width):
            at = start - x
            total = number(0)
            for k in range(count):
                g = f[y, x, k] * df[y, x, k]
                r = at + steps[k]
                if 0 <= r < other:
                    sums[r] += half * g
                    g *= half
                total += g
            ds[y, x, 0] = total
        for x in range(width):
            at = start - x
            total = ds[y, x, 0]
            for k in range(count):
                cost = f[y, x, k]
                ds[y, x, k] = cost * df[y, x, k]
                r = at + steps[k]
                if 0 <= r < other:
                    # p1 = -f * ratio, p0 = -f / ratio
                    apart = half * (log_sums[y, x] - right_log_sums[y, other - 1 - r])
                    ratio = number(exp(apart))
                    ds[y, x, k] += cost * (total / ratio + sums[r] * ratio)
                else:
                    ds[y, x, k] += cost * total


def mutual_backward(
    f: np.ndarray,
    df: np.ndarray,
    log_sums: np.ndarray,
    right_log_sums: np.ndarray,
    disparities: np.ndarray,
) -> np.ndarray:
    """Gradient ds (H, W, K) of the scores from that of the costs.

    Parameters
    ----------
    f, df
        What `mutual_forward` made of its costs, and dL/df; (H, W, K).
    log_sums, right_log_sums, disparities
        As in `mutual_forward`.
    """
    ds = buffers.empty(f.shape, f.dtype)
    steps, start = _matches(disparities, right_log_sums.shape[1])
    run_rows(_gather, len(f), f, df, log_sums, right_log_sums, steps, start, ds)
    return ds
