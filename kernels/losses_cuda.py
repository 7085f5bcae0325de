"""Losses of training and their gradients on the GPU: the twin of ``losses_cpu.py``.

Kernels that fill a volume give every pixel a warp, whose lanes go through the labels; those that
work on pixels leave float64 terms for ``sums_cuda.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import float64, int32, uint32, uint64

from .cuda import cudalib
from .cuda.cudalib import Kernel, blocks_for, kernel, kernel_family, launch
from .cuda.sums import add_up, sum_of, total
from .losses_cpu import HingeGradients

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_LANES = 32
_WARPS = 4
_BLOCK = (_LANES, _WARPS)
_THREADS = _LANES * _WARPS
_ALL_LANES = 0xFFFFFFFF
_TINY = 1e-37


def _flat(array: Any, dtype: Any = None) -> Any:
    return cudalib.to_device(array, dtype).reshape(-1)


def _pixel_blocks(pixels: int) -> tuple[int, int]:
    """Grid and block of a kernel with a thread per pixel."""
    return blocks_for(pixels, _THREADS), _THREADS


# ---------------------------------------------------------------- cross-entropy


@kernel_family(("float32",))
def _cross_entropy_kernel(dtype: str) -> Kernel:
    """The gradient and the terms of the loss, for which the gradient reads all costs anyway."""
    number = getattr(numba, dtype)

    @kernel(
        f"{dtype}[::1], float64[::1], int32[::1], boolean[::1], {dtype}[::1], float64[::1],"
        " int32, int32, int32, int32",
        _THREADS,
    )
    def cross_entropy(
        f: Any, position: Any, nearest: Any, valid: Any, ds: Any, terms: Any,
        pixels: Any, labels: Any, count: Any, soft: Any,
    ) -> None:  # fmt: skip
        # f, ds: (pixels, labels); the others: (pixels,).  A warp takes 32 pixels: every lane looks
        # up the truth of one of them and tells the others, goes through its share of the labels of
        # each, and at the end takes the logarithms of its own: not one lane for all the others.
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
        factor = number(-1.0 / count)
        lower_pull, upper_pull = number((1.0 - my_share) / count), number(my_share / count)
        for i in range(min(pixels - first, _LANES)):
            known = cuda.shfl_sync(_ALL_LANES, my_valid, i)
            lower = cuda.shfl_sync(_ALL_LANES, my_lower, i)
            upper = int32(min(lower + 1, labels - 1))
            at_lower = cuda.shfl_sync(_ALL_LANES, lower_pull, i)
            at_upper = cuda.shfl_sync(_ALL_LANES, upper_pull, i)
            lower_cost, upper_cost = number(0), number(0)
            at = uint64(uint32(first + i)) * uint64(uint32(labels))
            for k in range(lane, labels, _LANES):
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
            term = (1.0 - my_share) * math.log(max(-float64(my_lower_cost), _TINY))
            term += my_share * math.log(max(-float64(my_upper_cost), _TINY))
            terms[mine] = -term if my_valid else 0.0

    return cross_entropy


def cross_entropy(
    f: Any, position: Any, nearest: Any, valid: Any, count: int, soft: bool
) -> tuple[float, Any]:
    """Mean cross-entropy and its gradient w.r.t. the scores, as `losses_cpu.cross_entropy`."""
    f = cudalib.to_device(f)
    labels = f.shape[2]
    pixels = f.size // labels
    ds = cudalib.empty(f.shape, f.dtype)
    terms = cudalib.empty((pixels,), np.float64)
    launch(
        _cross_entropy_kernel(str(f.dtype)), blocks_for(pixels, _THREADS), _BLOCK,
        f.reshape(-1), _flat(position, np.float64), _flat(nearest, np.int32),
        _flat(valid, np.bool_), ds.reshape(-1), terms, pixels, labels, count, soft,
    )  # fmt: skip
    return sum_of(terms) / count, ds


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
        pixels: Any, labels: Any, gamma: Any, tau: Any,
    ) -> None:  # fmt: skip
        lane = int32(cuda.threadIdx.x)
        pixel = int32(cuda.blockIdx.x * _WARPS + cuda.threadIdx.y)
        if pixel >= pixels:
            return
        truth = nearest[uint32(pixel)]
        weight = gamma if valid[uint32(pixel)] else number(0)
        farthest = number(tau)
        at = uint64(uint32(pixel)) * uint64(uint32(labels))
        for k in range(lane, labels, _LANES):
            distance = min(number(abs(int32(k - truth))), farthest)
            augmented[at + uint64(k)] = f[at + uint64(k)] - distance * weight

    return augment_costs


def augment_costs(f: Any, nearest: Any, valid: Any, gamma: float, tau: float) -> Any:
    """Loss-augmented unaries ``f - gamma * min(|k - x*|, tau)`` on valid pixels, (H, W, K)."""
    f = cudalib.to_device(f)
    labels = f.shape[2]
    pixels = f.size // labels
    augmented = cudalib.empty(f.shape, f.dtype)
    launch(
        _augment_kernel(str(f.dtype)), blocks_for(pixels, _WARPS), _BLOCK,
        f.reshape(-1), _flat(nearest, np.int32), _flat(valid, np.bool_), augmented.reshape(-1),
        pixels, labels, gamma, tau,
    )  # fmt: skip
    return augmented


@kernel(
    "int32[::1], int32[::1], boolean[::1], float64[::1], int32, float64",
    _THREADS,
)
def _task_terms(labels: Any, nearest: Any, valid: Any, terms: Any, pixels: Any, tau: Any) -> None:
    i = uint32(cuda.grid(1))
    if i < pixels:
        distance = float64(abs(int32(labels[i] - nearest[i])))
        terms[i] = min(distance, tau) if valid[i] else 0.0


def task_loss(labels: Any, nearest: Any, valid: Any, tau: float) -> float:
    """Sum of the truncated absolute differences of labels over valid pixels."""
    labels = _flat(labels, np.int32)
    terms = cudalib.empty(labels.shape, np.float64)
    launch(
        _task_terms, *_pixel_blocks(labels.size),
        labels, _flat(nearest, np.int32), _flat(valid, np.bool_), terms, labels.size, tau,
    )  # fmt: skip
    return sum_of(terms)


@kernel("int32[::1], float64[::1], boolean[::1], int32[::1], int32, float64", _THREADS)
def _bad_terms(
    labels: Any, position: Any, valid: Any, terms: Any, pixels: Any, threshold: Any
) -> None:
    i = uint32(cuda.grid(1))
    if i < pixels:
        wrong = abs(float64(labels[i]) - position[i]) > threshold
        terms[i] = int32(1) if valid[i] and wrong else int32(0)


def count_bad_labels(labels: Any, position: Any, valid: Any, threshold: float) -> int:
    """Number of valid pixels whose label is off by more than ``threshold``."""
    labels = _flat(labels, np.int32)
    terms = cudalib.empty(labels.shape, np.int32)
    launch(
        _bad_terms, *_pixel_blocks(labels.size),
        labels, _flat(position, np.float64), _flat(valid, np.bool_), terms, labels.size, threshold,
    )  # fmt: skip
    return int(sum_of(terms))


@kernel("int32[::1], int32[::1], int32[::1], int32", _THREADS)
def _different_terms(a: Any, b: Any, terms: Any, pixels: Any) -> None:
    i = uint32(cuda.grid(1))
    if i < pixels:
        terms[i] = int32(1) if a[i] != b[i] else int32(0)


def count_different(a: Any, b: Any) -> int:
    """Number of pixels at which two labellings differ."""
    a = _flat(a, np.int32)
    terms = cudalib.empty(a.shape, np.int32)
    launch(_different_terms, *_pixel_blocks(a.size), a, _flat(b, np.int32), terms, a.size)
    return int(sum_of(terms))


@kernel("int32[::1], boolean[::1], int32[::1], int32[::1], int32", _THREADS)
def _complete(nearest: Any, valid: Any, elsewhere: Any, truth: Any, pixels: Any) -> None:
    i = uint32(cuda.grid(1))
    if i < pixels:
        known, other = nearest[i], elsewhere[i]
        truth[i] = known if valid[i] else other


def complete_truth(nearest: Any, valid: Any, elsewhere: Any) -> Any:
    """The true labels, and those of another labelling where the truth is unknown; int32 (H, W)."""
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
        truth: Any, worst: Any, valid: Any, df: Any, pixels: Any, labels: Any, count: Any
    ) -> None:
        # A warp takes 32 pixels: every lane looks up one of them and tells the others.
        lane = int32(cuda.threadIdx.x)
        first = int32((cuda.blockIdx.x * _WARPS + cuda.threadIdx.y) * _LANES)
        mine = uint32(min(first + lane, pixels - 1))
        my_up, my_down = truth[mine], worst[mine]
        my_share = number(1.0 / count) if valid[mine] and my_up != my_down else number(0)
        for i in range(min(pixels - first, _LANES)):
            up = cuda.shfl_sync(_ALL_LANES, my_up, i)
            down = cuda.shfl_sync(_ALL_LANES, my_down, i)
            share = cuda.shfl_sync(_ALL_LANES, my_share, i)
            at = uint64(uint32(first + i)) * uint64(uint32(labels))
            for k in range(lane, labels, _LANES):
                gradient = number(0)
                if k == up:
                    gradient = share
                elif k == down:
                    gradient = -share
                df[at + uint64(k)] = gradient

    return hinge_costs


@kernel_family(("float32",))
def _edge_gradient_kernel(dtype: str) -> Kernel:
    """Gradients of the edges that are ``stride`` pixels apart, and their terms of dP1, dP2.

    ``inside`` edges of every row of ``width`` pixels exist.
    """

    @kernel(
        f"{dtype}[::1], float64, float64, int32[::1], int32[::1], boolean[::1], {dtype}[::1],"
        " float64[::1], float64[::1], int32, int32, int32, int32, int32",
        _THREADS,
    )
    def hinge_edges(
        weights: Any, p1: Any, p2: Any, truth: Any, worst: Any, valid: Any, dweights: Any,
        one_terms: Any, more_terms: Any,
        pixels: Any, width: Any, inside: Any, stride: Any, count: Any,
    ) -> None:  # fmt: skip
        i = uint32(cuda.grid(1))
        if i >= pixels:
            return
        exists = i + stride < pixels and int32(i) % width < inside
        other = uint32(i + stride) if exists else i
        pulls = exists and valid[i] and valid[other]
        wanted = abs(int32(truth[i] - truth[other]))
        found = abs(int32(worst[i] - worst[other]))
        one = float64(wanted == 1) - float64(found == 1) if pulls else 0.0
        more = float64(wanted > 1) - float64(found > 1) if pulls else 0.0
        dweights[i] = (p1 * one + p2 * more) / count
        one_terms[i] = float64(weights[i]) * one
        more_terms[i] = float64(weights[i]) * more

    return hinge_edges


def hinge_gradients(
    f: Any, wx: Any, wy: Any, p1: float, p2: float, truth: Any, worst: Any, valid: Any, count: int
) -> HingeGradients:
    """Approximate subgradient of the structured hinge, as `losses_cpu.hinge_gradients`."""
    f = cudalib.to_device(f)
    height, width, labels = f.shape
    pixels = height * width
    kind = str(f.dtype)
    labellings = _flat(truth, np.int32), _flat(worst, np.int32), _flat(valid, np.bool_)
    df = cudalib.empty(f.shape, f.dtype)
    launch(
        _cost_gradient_kernel(kind), blocks_for(pixels, _THREADS), _BLOCK,
        *labellings, df.reshape(-1), pixels, labels, count,
    )  # fmt: skip
    dweights, ones, more = [], [], []
    for weights, inside, stride in ((wx, width - 1, 1), (wy, width, width)):
        gradient = cudalib.empty((height, width), f.dtype)
        terms = [cudalib.empty((pixels,), np.float64) for _ in range(2)]
        launch(
            _edge_gradient_kernel(kind), *_pixel_blocks(pixels),
            _flat(weights, f.dtype), p1, p2, *labellings, gradient.reshape(-1), *terms,
            pixels, width, inside, stride, count,
        )  # fmt: skip
        dweights.append(gradient)
        ones.append(add_up(terms[0]))
        more.append(add_up(terms[1]))
    dp1, dp2 = (sum(total(x) for x in parts) / count for parts in (ones, more))
    return HingeGradients(df, dweights[0], dweights[1], dp1, dp2)
