"""Dual_MM in 16-bit fixed point (docs/model.md 6.9), CPU.

A volume of int16 is half as large as one of float32, and a vector of AVX2 holds twice as many
numbers, of which Zen 4 also compares twice as many in a cycle.  The costs are rounded once; from
then on everything but the division of a cut is exact.

Rounded costs and working costs lie in the memory of the float32 costs: of each row of the image
the first half holds the one and the second half the other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..constants import SMALLEST_CURVATURE
from .jit import compiled, part
from .pixels import read_out_rows, row_energies
from .pointers import advance, pointer_to, restrict_arguments
from .simd import minimum
from .sweeps import sweep
from .workers import run_rows

__all__ = ["FixedPointProblem", "FixedPointVolume"]

_LARGEST = 32767
_FRACTIONS = 65535  # of a weight: the largest is 65535 / 65536
# A penalty beyond so many times the range of the costs is as good as any larger one.
_FORBIDDING = 8.0
# Every so many rows are looked at to find the range of the costs; few costs will exceed it, by
# less than the penalty that there is room for.
_SAMPLE = 8


class _Scale(NamedTuple):
    """What the numbers stand for."""

    quantum: float  # the cost of 1
    highest_weight: float  # of an edge
    p1: int  # of an edge of that weight
    p2: int
    limit: int  # of costs; what is larger, by a penalty at most, has room


class FixedPointVolume:
    """A volume (H, W, K) of fixed point numbers, which reads like one of float32.

    Parameters
    ----------
    numbers
        int16 (H, W, K).
    quantum
        The cost of 1.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, numbers: np.ndarray, quantum: float) -> None:
        self.numbers = numbers
        self.quantum = quantum
        self.shape = numbers.shape

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.numbers[rows] * np.float32(self.quantum)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)


class FixedPointProblem:
    """A CRF whose costs were rounded.

    Parameters
    ----------
    costs
        float32 (H, W, K), contiguous.  Their memory is taken over: they are lost.
    wx, wy, p1, p2
        As for `dual_mm`.

    Attributes
    ----------
    costs, minorant
        Volumes; the minorant is there after `solve`.  The minimum of either is 0 at every pixel.
    row_minima
        float64 (H,), the minima of the costs, which were taken off, summed up over each row; not
        finite where a cost was not.
    """

    def __init__(
        self, costs: np.ndarray, wx: np.ndarray, wy: np.ndarray, p1: float, p2: float
    ) -> None:
        height, width, label_count = costs.shape
        self._weights, self._penalties = (wx, wy), (float(p1), float(p2))
        self._scale = _scale_of(costs, self._weights, self._penalties)
        # (H, 2W, K): of each row the costs and then the working costs.
        numbers = costs.reshape(height, -1).view(np.int16).reshape(height, 2 * width, label_count)
        if math.isfinite(self._scale.quantum):
            self.row_minima = np.empty(height, np.float64)
            rounding = 1 / self._scale.quantum, self._scale.limit
            run_rows(_round_rows, height, costs, numbers, *rounding, self.row_minima)
        else:
            self.row_minima = costs.sum(axis=(1, 2), dtype=np.float64)
        self._pixels = numbers.reshape(-1, label_count)
        self.costs = FixedPointVolume(numbers[:, :width], self._scale.quantum)
        self.minorant = FixedPointVolume(numbers[:, width:], self._scale.quantum)

    def solve(self, iterations: int, row_label_map: np.ndarray | None = None) -> np.ndarray:
        """Run Dual_MM; returns the bounds.  Arguments and bounds are those of `dual_mm`."""
        height, width, _ = self.costs.shape
        scale, pitch = self._scale, 2 * width
        if not math.isfinite(scale.quantum):
            return np.full(2 * iterations, np.nan)
        costs, working = self._pixels, self._pixels[width:]
        rows, columns = (height, width, pitch, 1), (width, height, 1, pitch)
        wx, wy = (_rounded_weights(w, scale.highest_weight) for w in self._weights)
        penalties, limit = (np.int16(scale.p1), np.int16(scale.p2)), np.int16(scale.limit)
        no_winners = np.empty(0, np.int32)
        optima = np.empty(2 * iterations, np.float64)
        for i in range(iterations):
            cold, last = i == 0, i == iterations - 1
            wanted = last and row_label_map is not None
            winners = np.empty(height * pitch, np.int32) if wanted else no_winners
            start = costs if cold else working
            optima[2 * i] = sweep(costs, start, working, wx, winners, rows, penalties, cold, limit)
            if last and row_label_map is not None:
                row_label_map[:] = winners.reshape(height, pitch)[:, :width]
            optima[2 * i + 1] = sweep(
                costs, working, working, wy, no_winners, columns, penalties, last, limit
            )
        # A family hands over no more than F above its minima.  So it keeps its optimum, and the
        # bound is the sum of those of both families; at first that of the columns is 0.
        other = np.concatenate([[0.0], optima[:-1]])
        return self.row_minima.sum() + scale.quantum * (optima + other)

    def read_out(self) -> np.ndarray:
        """The labels of the minorant, as `read_out` of floats; equal numbers are ties."""
        label_map = np.empty(self.costs.shape[:2], np.int32)
        if not math.isfinite(self._scale.quantum):
            label_map[:] = 0
            return label_map
        run_rows(_read_out, len(label_map), self.minorant.numbers, label_map)
        return label_map

    def energy(self, label_map: np.ndarray) -> float:
        """Energy of a labelling with the rounded costs, and the penalties as they are."""
        if not math.isfinite(self._scale.quantum):
            return math.nan
        rows = np.empty(label_map.shape[0], np.float64)
        terms = self.costs.numbers, self._scale.quantum, *self._weights, *self._penalties
        run_rows(row_energies, len(rows), *terms, label_map, rows)
        return float((rows + self.row_minima).sum())

    def refine(self, label_map: np.ndarray, step: float) -> np.ndarray:
        """Sub-label refinement, as `refine` of floats."""
        offsets = np.empty(label_map.shape, np.float32)
        smallest = SMALLEST_CURVATURE / self._scale.quantum
        given = self.minorant.numbers, label_map, float(step), smallest, offsets
        run_rows(_refine_rows, len(label_map), *given)
        return offsets


def _scale_of(
    costs: np.ndarray, weights: tuple[np.ndarray, np.ndarray], penalties: tuple[float, float]
) -> _Scale:
    """Units in which the largest cost and two of the largest penalties have room."""
    spans = np.empty(-(-costs.shape[0] // _SAMPLE), np.float64)
    run_rows(_row_spans, spans.size, costs, _SAMPLE, spans)
    span = float(spans.max())
    p1, p2 = penalties
    weight = float(max(w.max() for w in weights))
    if not (math.isfinite(span) and math.isfinite(weight)):
        return _Scale(math.nan, 0.0, 0, 0, 0)
    span = max(span, 1e-30)
    if p2 * weight > _FORBIDDING * span:
        weight = _FORBIDDING * span / p2
    quantum = (span + 2 * p2 * weight) / _LARGEST
    limit = int((span + p2 * weight) / quantum)
    return _Scale(quantum, weight, int(p1 * weight / quantum), int(p2 * weight / quantum), limit)


def _rounded_weights(weights: np.ndarray, highest: float) -> np.ndarray:
    """Edge weights (H, W) as fractions of the highest, rounded down: int16 (H * 2W,)."""
    height, width = weights.shape
    rounded = np.zeros((height, 2 * width), np.uint16)
    if highest > 0:
        rounded[:, :width] = np.minimum(weights * (_FRACTIONS / highest), _FRACTIONS)
    return rounded.view(np.int16).reshape(-1)


@part()
def _lowest(costs: Any, label_count: int) -> Any:
    """The minimum at a pixel; costs: pointer to K."""
    lowest = costs[0]
    for k in range(1, label_count):
        lowest = minimum(lowest, costs[k])
    return lowest


@part()
def _highest(costs: Any, label_count: int) -> Any:
    """The maximum at a pixel; costs: pointer to K."""
    negated = -costs[0]
    for k in range(1, label_count):
        negated = minimum(negated, -costs[k])
    return -negated


@part(fastmath={"reassoc"})
def _sum(costs: Any, label_count: int) -> Any:
    """Of the costs of a pixel, in any order; costs: pointer to K."""
    total = costs[0]
    for k in range(1, label_count):
        total += costs[k]
    return total


@part()
def _round_pixel(costs: Any, lowest: Any, scale: Any, limit: Any, kept: Any, count: int) -> None:
    """kept = costs above the lowest in units of 1 / scale, at most the limit; pointers to K."""
    restrict_arguments()
    half = type(lowest)(0.5)
    for k in range(count):
        kept[k] = np.int16(np.int32(minimum((costs[k] - lowest) * scale + half, limit)))


@compiled(nogil=True)
def _row_spans(first: int, last: int, costs: Any, step: int, spans: Any) -> None:
    """spans[i] = the largest difference of costs at a pixel of row i * step; costs: (H, W, K)."""
    width, label_count = costs.shape[1:]
    for i in range(first, last):
        row = advance(pointer_to(costs), i * step * width * label_count)
        span = 0.0
        for x in range(width):
            pixel = advance(row, x * label_count)
            difference = _highest(pixel, label_count) - _lowest(pixel, label_count)
            if not difference <= span:  # NaN counts, too
                span = difference
        spans[i] = span


@compiled(nogil=True)
def _round_rows(
    first: int, last: int, costs: Any, numbers: Any, per_cost: float, limit: int, minima: Any
) -> None:
    """Numbers in the first half of each row of the costs, relative to the minimum of the pixel.

    costs: (H, W, K); numbers: (H, 2W, K), the same memory; minima: (H,), of the pixels, summed up.
    """
    width, label_count = costs.shape[1:]
    scale, highest = costs.dtype.type(per_cost), costs.dtype.type(limit)
    for y in range(first, last):
        row = advance(pointer_to(costs), y * width * label_count)
        kept = np.empty(label_count, np.int16)
        total = 0.0
        for x in range(width):
            pixel = advance(row, x * label_count)
            lowest = _lowest(pixel, label_count)
            total += lowest + 0 * _sum(pixel, label_count)  # which is NaN, if a cost is not finite
            _round_pixel(pixel, lowest, scale, highest, pointer_to(kept), label_count)
            numbers[y, x, :] = kept  # not at once: the costs of the first pixels are overwritten
        minima[y] = total


def _read_out(first: int, last: int, minorant: np.ndarray, label_map: np.ndarray) -> None:
    """Labels of rows of the image; minorant: (H, W, K)."""
    for y in range(first, last):
        read_out_rows(0, label_map.shape[1], minorant[y], label_map[y])


def _refine_rows(
    first: int, last: int, volume: np.ndarray, label_map: np.ndarray, step: float, smallest: float,
    offsets: np.ndarray,
) -> None:  # fmt: skip
    """Sub-label shifts in pixels (docs/model.md 7); volume: (H, W, K), smallest: of curvatures."""
    top = volume.shape[2] - 1
    labels = label_map[first:last, :, np.newaxis]
    near = np.clip(labels + np.arange(-1, 2), 0, top)
    costs = np.take_along_axis(volume[first:last], near, axis=2).astype(np.float64)
    before, here, after = np.moveaxis(costs, 2, 0)
    slope = (before - after) / (2 * step)
    curvature = (before - 2 * here + after) / (step * step)
    shift = np.clip(slope / np.maximum(smallest, curvature), -step, step)
    inside = (labels[..., 0] > 0) & (labels[..., 0] < top)
    offsets[first:last] = np.where(inside, shift, 0)
