"""Losses of training and their gradients on the GPU: the twin of ``losses_cpu.py``.

Kernels that fill a volume assign a warp to every pixel, with the lanes iterating over its labels;
those that work on pixels write float64 terms, which ``cuda/sums.py`` adds.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import float64, int32, uint32, uint64

from .backend import CrfGradients
from .constants import SMALLEST_PROBABILITY
from .cuda import cudalib
from .cuda.cudalib import Kernel, blocks_for, device_function, kernel, kernel_family, launch
from .cuda.sums import add_up, sum_of, total
from .cuda.warps import warp_max, warp_sum
from .penalty import rho_slopes

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_LANES = 32
_WARPS = 4
_BLOCK = (_LANES, _WARPS)
_THREADS = _LANES * _WARPS
_ALL_LANES = 0xFFFFFFFF

_rho_slopes = device_function(rho_slopes)


def _flat(array: Any, dtype: Any = None) -> Any:
    return cudalib.to_device(array, dtype).reshape(-1)


def _pixel_blocks(pixels: int) -> tuple[int, int]:
    """Grid and block of a kernel with a thread per pixel."""
    return blocks_for(pixels, _THREADS), _THREADS


# ---------------------------------------------------------------- cross-entropy


@kernel_family(("float32",))
def _cross_entropy_kernel(dtype: str) -> Kernel:
    """The gradient and the terms of the loss in one pass over the costs."""
    number = getattr(numba, dtype)

    @kernel(
        f"{dtype}[::1], float64[::1], int32[::1], boolean[::1], {dtype}[::1], float64[::1],"
        " int32, int32, int32, int32",
        _THREADS,
    )
    def cross_entropy(
        f: Any, position: Any, nearest: Any, valid: Any, ds: Any, terms: Any,
        pixels: Any, label_count: Any, valid_count: Any, soft: Any,
    ) -> None:  # fmt: skip
        # f, ds: (pixels, K); the others: (pixels,).  A warp takes 32 pixels: every lane looks up
        # the truth of one pixel and broadcasts it, processes its share of the labels of all 32,
        # and finally computes the logarithms of its own pixel, so that no lane is idle.
        lane = int32(cuda.threadIdx.x)
        first = int32((cuda.blockIdx.x * _WARPS + cuda.threadIdx.y) * _LANES)
        mine = uint32(min(first + lane, pixels - 1))
        my_valid = int32(valid[mine])
        my_lower = nearest[mine]
        my_share = 0.0  # of the label above
        if soft:
            place = position[mine]
            my_lower = int32(math.floor(place))
            my_share = place - float64(my_lower)
        my_lower_cost, my_upper_cost = number(0), number(0)
        factor = number(-1.0 / valid_count)
        lower_pull = number((1.0 - my_share) / valid_count)
        upper_pull = number(my_share / valid_count)
        for i in range(min(pixels - first, _LANES)):
            known = cuda.shfl_sync(_ALL_LANES, my_valid, i)
            lower = cuda.shfl_sync(_ALL_LANES, my_lower, i)
            upper = int32(min(lower + 1, label_count - 1))
            at_lower = cuda.shfl_sync(_ALL_LANES, lower_pull, i)
            at_upper = cuda.shfl_sync(_ALL_LANES, upper_pull, i)
            lower_cost, upper_cost = number(0), number(0)
            at = uint64(uint32(first + i)) * uint64(uint32(label_count))
            for k in range(lane, label_count, _LANES):
                gradient = number(0)
                if known:
                    cost = f[at + uint64(k)]
                    gradient = cost * factor
                    if k == lower:
                        lower_cost = cost
                        gradient -= at_lower
                    if k == upper:
                        upper_cost = cost
                        gradient -= at_upper
                ds[at + uint64(k)] = gradient
            lower_cost = cuda.shfl_sync(_ALL_LANES, lower_cost, lower % _LANES)
            upper_cost = cuda.shfl_sync(_ALL_LANES, upper_cost, upper % _LANES)
            if lane == i:
                my_lower_cost, my_upper_cost = lower_cost, upper_cost
        if first + lane < pixels:
            term = (1.0 - my_share) * math.log(max(-float64(my_lower_cost), SMALLEST_PROBABILITY))
            term += my_share * math.log(max(-float64(my_upper_cost), SMALLEST_PROBABILITY))
            terms[mine] = -term if my_valid else 0.0

    return cross_entropy


def cross_entropy(
    f: Any, position: Any, nearest: Any, valid: Any, valid_count: int, soft: bool
) -> tuple[float, Any]:
    """Mean cross-entropy and its gradient w.r.t. the scores, as `losses_cpu.cross_entropy`."""
    f = cudalib.to_device(f)
    label_count = f.shape[2]
    pixels = f.size // label_count
    ds = cudalib.empty(f.shape, f.dtype)
    terms = cudalib.empty((pixels,), np.float64)
    launch(
        _cross_entropy_kernel(str(f.dtype)), blocks_for(pixels, _THREADS), _BLOCK,
        f.reshape(-1), _flat(position, np.float64), _flat(nearest, np.int32),
        _flat(valid, np.bool_), ds.reshape(-1), terms, pixels, label_count, valid_count, soft,
    )  # fmt: skip
    return sum_of(terms) / valid_count, ds


# ---------------------------------------------------------------- share of wrong pixels


@kernel_family(("float32",), ("float64",))
def _softmax_kernel(dtype: str) -> Kernel:
    """result = -softmax(factor * volume); a warp for every pixel."""
    number = getattr(numba, dtype)
    infinity = math.inf

    @kernel(f"{dtype}[::1], {dtype}, {dtype}[::1], int32, int32", _THREADS)
    def negated_softmax(
        volume: Any, factor: Any, result: Any, pixels: Any, label_count: Any
    ) -> None:
        # volume, result: (pixels, K).
        lane = int32(cuda.threadIdx.x)
        pixel = int32(cuda.blockIdx.x * _WARPS + cuda.threadIdx.y)
        if pixel >= pixels:
            return
        at = uint64(uint32(pixel)) * uint64(uint32(label_count))
        top = number(-infinity)
        for k in range(lane, label_count, _LANES):
            top = max(top, factor * volume[at + uint64(k)])
        top = warp_max(top)
        sum_of_lane = number(0)
        for k in range(lane, label_count, _LANES):
            value = math.exp(factor * volume[at + uint64(k)] - top)
            sum_of_lane += value
            result[at + uint64(k)] = value
        scale = number(-1) / warp_sum(sum_of_lane)
        for k in range(lane, label_count, _LANES):
            result[at + uint64(k)] *= scale

    return negated_softmax


def negated_softmax(volume: Any, factor: float) -> Any:
    """``-softmax(factor * volume)`` over the labels, as `losses_cpu.negated_softmax`."""
    volume = cudalib.to_device(volume)
    label_count = volume.shape[2]
    pixels = volume.size // label_count
    result = cudalib.empty(volume.shape, volume.dtype)
    launch(
        _softmax_kernel(str(volume.dtype)), blocks_for(pixels, _WARPS), _BLOCK,
        volume.reshape(-1), factor, result.reshape(-1), pixels, label_count,
    )  # fmt: skip
    return result


@kernel_family(("float32",), ("float64",))
def _error_rate_kernel(dtype: str) -> Kernel:
    """The gradient and the terms of the loss; a warp for every pixel."""
    number = getattr(numba, dtype)

    @kernel(
        f"{dtype}[::1], float64[::1], boolean[::1], {dtype}[::1], float64[::1],"
        f" int32, int32, int32, {dtype}, float64",
        _THREADS,
    )
    def error_rate(
        f: Any, position: Any, valid: Any, ds: Any, terms: Any,
        pixels: Any, label_count: Any, valid_count: Any, tolerance: Any, exponent: Any,
    ) -> None:  # fmt: skip
        # f, ds: (pixels, K); the others: (pixels,).  A warp takes 32 pixels: every lane looks up
        # the truth of one pixel and broadcasts it, processes its share of the labels of all 32,
        # and computes the powers of its own pixel, so that no lane is idle.
        lane = int32(cuda.threadIdx.x)
        first = int32((cuda.blockIdx.x * _WARPS + cuda.threadIdx.y) * _LANES)
        mine = uint32(min(first + lane, pixels - 1))
        my_valid = int32(valid[mine])
        my_position = number(position[mine])
        my_right = 0.0
        count = int32(min(pixels - first, _LANES))
        for i in range(count):
            known = cuda.shfl_sync(_ALL_LANES, my_valid, i)
            truth = cuda.shfl_sync(_ALL_LANES, my_position, i)
            right = 0.0
            if known:
                at = uint64(uint32(first + i)) * uint64(uint32(label_count))
                for k in range(lane, label_count, _LANES):
                    if abs(number(k) - truth) <= tolerance:
                        right -= float64(f[at + uint64(k)])
                right = warp_sum(right)
            if lane == i:
                my_right = right
        my_right = max(my_right, SMALLEST_PROBABILITY)
        power = my_right**exponent
        if first + lane < pixels:
            terms[mine] = (1.0 - power) / exponent if my_valid else 0.0
        my_slope = number(power / my_right / valid_count)
        narrow = number(my_right)
        for i in range(count):
            known = cuda.shfl_sync(_ALL_LANES, my_valid, i)
            truth = cuda.shfl_sync(_ALL_LANES, my_position, i)
            right = cuda.shfl_sync(_ALL_LANES, narrow, i)
            slope = cuda.shfl_sync(_ALL_LANES, my_slope, i)
            at = uint64(uint32(first + i)) * uint64(uint32(label_count))
            for k in range(lane, label_count, _LANES):
                gradient = number(0)
                if known:
                    near = number(1) if abs(number(k) - truth) <= tolerance else number(0)
                    gradient = slope * f[at + uint64(k)] * (near - right)
                ds[at + uint64(k)] = gradient

    return error_rate


def error_rate(
    f: Any, position: Any, valid: Any, valid_count: int, tolerance: float, exponent: float
) -> tuple[float, Any]:
    """Mean of ``(1 - P^q) / q`` and its gradient, as `losses_cpu.error_rate`."""
    f = cudalib.to_device(f)
    label_count = f.shape[2]
    pixels = f.size // label_count
    ds = cudalib.empty(f.shape, f.dtype)
    terms = cudalib.empty((pixels,), np.float64)
    launch(
        _error_rate_kernel(str(f.dtype)), blocks_for(pixels, _THREADS), _BLOCK,
        f.reshape(-1), _flat(position, np.float64), _flat(valid, np.bool_), ds.reshape(-1), terms,
        pixels, label_count, valid_count, tolerance, exponent,
    )  # fmt: skip
    return sum_of(terms) / valid_count, ds


# ---------------------------------------------------------------- structured hinge


@kernel_family(("float32",))
def _augment_kernel(dtype: str) -> Kernel:
    number = getattr(numba, dtype)

    @kernel(
        f"{dtype}[::1], int32[::1], boolean[::1], {dtype}[::1], int32, int32, {dtype}, float64",
        _THREADS,
    )
    def augment_costs(
        f: Any, nearest: Any, valid: Any, augmented: Any,
        pixels: Any, label_count: Any, gamma: Any, tau: Any,
    ) -> None:  # fmt: skip
        lane = int32(cuda.threadIdx.x)
        pixel = int32(cuda.blockIdx.x * _WARPS + cuda.threadIdx.y)
        if pixel >= pixels:
            return
        truth = nearest[uint32(pixel)]
        weight = gamma if valid[uint32(pixel)] else number(0)
        farthest = number(tau)
        at = uint64(uint32(pixel)) * uint64(uint32(label_count))
        for k in range(lane, label_count, _LANES):
            distance = min(number(abs(int32(k - truth))), farthest)
            augmented[at + uint64(k)] = f[at + uint64(k)] - distance * weight

    return augment_costs


def augment_costs(f: Any, nearest: Any, valid: Any, gamma: float, tau: float) -> Any:
    """Loss-augmented unaries ``f - gamma * min(|k - x*|, tau)`` on valid pixels, (H, W, K)."""
    f = cudalib.to_device(f)
    label_count = f.shape[2]
    pixels = f.size // label_count
    augmented = cudalib.empty(f.shape, f.dtype)
    launch(
        _augment_kernel(str(f.dtype)), blocks_for(pixels, _WARPS), _BLOCK,
        f.reshape(-1), _flat(nearest, np.int32), _flat(valid, np.bool_), augmented.reshape(-1),
        pixels, label_count, gamma, tau,
    )  # fmt: skip
    return augmented


@kernel(
    "int32[::1], int32[::1], boolean[::1], float64[::1], int32, float64",
    _THREADS,
)
def _task_terms(
    label_map: Any, nearest: Any, valid: Any, terms: Any, pixels: Any, tau: Any
) -> None:
    i = uint32(cuda.grid(1))
    if i < pixels:
        distance = float64(abs(int32(label_map[i] - nearest[i])))
        terms[i] = min(distance, tau) if valid[i] else 0.0


def task_loss(label_map: Any, nearest: Any, valid: Any, tau: float) -> float:
    """Sum of the truncated absolute differences of labels over valid pixels."""
    label_map = _flat(label_map, np.int32)
    terms = cudalib.empty(label_map.shape, np.float64)
    launch(
        _task_terms, *_pixel_blocks(label_map.size),
        label_map, _flat(nearest, np.int32), _flat(valid, np.bool_), terms, label_map.size, tau,
    )  # fmt: skip
    return sum_of(terms)


@kernel("int32[::1], float64[::1], boolean[::1], int32[::1], int32, float64", _THREADS)
def _bad_terms(
    label_map: Any, position: Any, valid: Any, terms: Any, pixels: Any, threshold: Any
) -> None:
    i = uint32(cuda.grid(1))
    if i < pixels:
        wrong = abs(float64(label_map[i]) - position[i]) > threshold
        terms[i] = int32(1) if valid[i] and wrong else int32(0)


def count_bad_labels(label_map: Any, position: Any, valid: Any, threshold: float) -> int:
    """Number of valid pixels whose label is off by more than ``threshold``."""
    label_map = _flat(label_map, np.int32)
    terms = cudalib.empty(label_map.shape, np.int32)
    launch(
        _bad_terms, *_pixel_blocks(label_map.size),
        label_map, _flat(position, np.float64), _flat(valid, np.bool_), terms, label_map.size,
        threshold,
    )  # fmt: skip
    return int(sum_of(terms))


@kernel("int32[::1], int32[::1], int32[::1], int32", _THREADS)
def _different_terms(label_map: Any, other: Any, terms: Any, pixels: Any) -> None:
    i = uint32(cuda.grid(1))
    if i < pixels:
        terms[i] = int32(1) if label_map[i] != other[i] else int32(0)


def count_different(label_map: Any, other: Any) -> int:
    """Number of pixels at which two label maps differ."""
    label_map = _flat(label_map, np.int32)
    terms = cudalib.empty(label_map.shape, np.int32)
    launch(
        _different_terms, *_pixel_blocks(label_map.size),
        label_map, _flat(other, np.int32), terms, label_map.size,
    )  # fmt: skip
    return int(sum_of(terms))


@kernel("int32[::1], boolean[::1], int32[::1], int32[::1], int32", _THREADS)
def _complete(nearest: Any, valid: Any, elsewhere: Any, truth: Any, pixels: Any) -> None:
    i = uint32(cuda.grid(1))
    if i < pixels:
        known, other = nearest[i], elsewhere[i]
        truth[i] = known if valid[i] else other


def complete_truth(nearest: Any, valid: Any, elsewhere: Any) -> Any:
    """The true labels, and those of another label map where the truth is unknown; int32 (H, W)."""
    truth = cudalib.empty(elsewhere.shape, np.int32)
    launch(
        _complete, *_pixel_blocks(truth.size),
        _flat(nearest, np.int32), _flat(valid, np.bool_), _flat(elsewhere, np.int32),
        truth.reshape(-1), truth.size,
    )  # fmt: skip
    return truth


@kernel_family(("float32",))
def _cost_gradient_kernel(dtype: str) -> Kernel:
    number = getattr(numba, dtype)

    @kernel(f"int32[::1], int32[::1], boolean[::1], {dtype}[::1], int32, int32, int32", _THREADS)
    def hinge_costs(
        truth: Any,
        worst: Any,
        active: Any,
        df: Any,
        pixels: Any,
        label_count: Any,
        valid_count: Any,
    ) -> None:
        # A warp takes 32 pixels: every lane looks one of them up and broadcasts what it found.
        lane = int32(cuda.threadIdx.x)
        first = int32((cuda.blockIdx.x * _WARPS + cuda.threadIdx.y) * _LANES)
        mine = uint32(min(first + lane, pixels - 1))
        my_up, my_down = truth[mine], worst[mine]
        my_share = number(1.0 / valid_count) if active[mine] and my_up != my_down else number(0)
        for i in range(min(pixels - first, _LANES)):
            up = cuda.shfl_sync(_ALL_LANES, my_up, i)
            down = cuda.shfl_sync(_ALL_LANES, my_down, i)
            share = cuda.shfl_sync(_ALL_LANES, my_share, i)
            at = uint64(uint32(first + i)) * uint64(uint32(label_count))
            for k in range(lane, label_count, _LANES):
                gradient = number(0)
                if k == up:
                    gradient = share
                elif k == down:
                    gradient = -share
                df[at + uint64(k)] = gradient

    return hinge_costs


@kernel_family(("float32",))
def _edge_gradient_kernel(dtype: str) -> Kernel:
    """Gradients of edges between pixels ``stride`` apart, and their terms of dP1 and dP2.

    Of every row of ``width`` pixels, the first ``inside`` have such an edge.
    """

    @kernel(
        f"{dtype}[::1], float64, float64, int32[::1], int32[::1], boolean[::1], {dtype}[::1],"
        " float64[::1], float64[::1], int32, int32, int32, int32, int32",
        _THREADS,
    )
    def hinge_edges(
        weights: Any, p1: Any, p2: Any, truth: Any, worst: Any, active: Any, dweights: Any,
        p1_terms: Any, p2_terms: Any,
        pixels: Any, width: Any, inside: Any, stride: Any, valid_count: Any,
    ) -> None:  # fmt: skip
        i = uint32(cuda.grid(1))
        if i >= pixels:
            return
        exists = i + stride < pixels and int32(i) % width < inside
        other = uint32(i + stride) if exists else i
        contributes = exists and active[i] and active[other]
        wanted1, wanted2 = _rho_slopes(abs(int32(truth[i] - truth[other])))
        found1, found2 = _rho_slopes(abs(int32(worst[i] - worst[other])))
        p1_change = float64(wanted1) - float64(found1) if contributes else 0.0
        p2_change = float64(wanted2) - float64(found2) if contributes else 0.0
        dweights[i] = (p1 * p1_change + p2 * p2_change) / valid_count
        p1_terms[i] = float64(weights[i]) * p1_change
        p2_terms[i] = float64(weights[i]) * p2_change

    return hinge_edges


def hinge_gradients(
    f: Any,
    wx: Any,
    wy: Any,
    p1: float,
    p2: float,
    truth: Any,
    worst: Any,
    active: Any,
    valid_count: int,
) -> CrfGradients:
    """Approximate subgradient of the structured hinge, as `losses_cpu.hinge_gradients`."""
    f = cudalib.to_device(f)
    height, width, label_count = f.shape
    pixels = height * width
    kind = str(f.dtype)
    label_maps = _flat(truth, np.int32), _flat(worst, np.int32), _flat(active, np.bool_)
    df = cudalib.empty(f.shape, f.dtype)
    launch(
        _cost_gradient_kernel(kind), blocks_for(pixels, _THREADS), _BLOCK,
        *label_maps, df.reshape(-1), pixels, label_count, valid_count,
    )  # fmt: skip
    dweights, dp1_sums, dp2_sums = [], [], []
    for weights, inside, stride in ((wx, width - 1, 1), (wy, width, width)):
        gradient = cudalib.empty((height, width), f.dtype)
        terms = [cudalib.empty((pixels,), np.float64) for _ in range(2)]
        launch(
            _edge_gradient_kernel(kind), *_pixel_blocks(pixels),
            _flat(weights, f.dtype), p1, p2, *label_maps, gradient.reshape(-1), *terms,
            pixels, width, inside, stride, valid_count,
        )  # fmt: skip
        dweights.append(gradient)
        dp1_sums.append(add_up(terms[0]))
        dp2_sums.append(add_up(terms[1]))
    dp1, dp2 = (sum(total(x) for x in parts) / valid_count for parts in (dp1_sums, dp2_sums))
    return CrfGradients(df, dweights[0], dweights[1], dp1, dp2)
