"""Convolution + bias + tanh on the CPU, channels last: forward and backward.

Every layer of the Unary-CNN and the Pairwise-CNN (paper, sec. 3) is a *true* convolution (kernel
rotated by 180 degrees, docs/model.md 1) over the valid extent:

    y[r, c, o] = act(b[o] + sum_i sum_{u,v} W[o, i, u, v] * x[r + kh-1-u, c + kw-1-v, i])

The 2x2 and 3x3 layers with many channels, nearly all of the work, are computed by
``winograd.py``, all others by ``direct.py``, both in tiles that stay in cache while they are
multiplied by the kernels and passed through tanh.  Here the rows of the image are spread over the
worker threads.  No full-size im2col, padded copy or pre-activation ever exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
from numba import get_num_threads

from .cpu import buffers
from .cpu.streaming import (
    BAND_ROWS,
    algorithm_of,
    numbers_between,
    row_bands,
    rows_at_a_time,
    whole_tiles,
)
from .cpu.tiles import Plan
from .cpu.workers import one_blas_thread, run_tiles

_BAND = 2048  # pixels, at least, that a worker processes at a time
_CHUNK = 16384  # pixels, at least, of whose gradients a worker sums up the kernels' by itself


def _rotated(weight: np.ndarray) -> np.ndarray:
    """(O, I, kh, kw) -> (kh, kw, I, O), rotated: convolution as correlation."""
    return weight[:, :, ::-1, ::-1].transpose(2, 3, 1, 0)


def _prepared(
    algorithm: ModuleType, taps: np.ndarray, bias: np.ndarray | None, activate: bool
) -> Plan:
    # BLAS would start its threads for a few products, which takes longer than they do.
    with one_blas_thread():
        return algorithm.prepare(taps, bias, activate)


def _contiguous(*arrays: np.ndarray | None) -> list[Any]:
    """C-contiguous versions of the arrays; mixed precision is refused, not converted."""
    kinds = {array.dtype for array in arrays if array is not None}
    if len(kinds) > 1:
        raise TypeError(f"arrays of one dtype expected, not {sorted(map(str, kinds))}")
    return [array if array is None else np.ascontiguousarray(array) for array in arrays]


# ---------------------------------------------------------------- forward


def conv_forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activate: bool
) -> np.ndarray:
    """Valid convolution, bias and (optionally) tanh.

    Parameters
    ----------
    x
        Input (H, W, I), float32 or float64; copied if it is not C-contiguous.
    weight, bias
        Kernels (O, I, kh, kw) and biases (O,) or none, of the same dtype.
    activate
        Apply tanh.

    Returns
    -------
    y
        (H - kh + 1, W - kw + 1, O).
    """
    x, weight, bias = _contiguous(x, weight, bias)
    algorithm = algorithm_of(weight)
    plan = _prepared(algorithm, _rotated(weight), bias, activate)
    kh, kw, _, outputs = plan.taps
    height, width = x.shape[0] - kh + 1, x.shape[1] - kw + 1
    result = buffers.empty((height, width, outputs), x.dtype)

    def worker(bands: Iterator[tuple[int, int]]) -> None:
        scratch = algorithm.scratch(plan.taps, x.dtype)
        for first, last in bands:
            algorithm.convolve_rows(plan, x, x, False, (0, 0), first, last, scratch, result)

    run_tiles(worker, row_bands(height, -(-_BAND // width), algorithm.tile_side(plan.taps)))
    return result


# ---------------------------------------------------------------- a whole network


def _band_rows(
    stages: list[tuple[ModuleType, Plan]], first: int, last: int
) -> list[tuple[int, int]]:
    """Rows (begin, end) of the input and of every stage's output that a band of the result needs.

    The tiles of a stage begin at the rows of one grid, wherever a band begins: that of the result
    at multiples of their side, that of each stage before so much further down that its tiles end
    where the next stage has read its last complete one.  A band begins in each stage with the tile
    that holds the first row it needs.  Rows of this tile that it does not need, which may lie above
    the image, are computed from rows that it does not have, and read by nothing that it needs: the
    first row of a patch enters that of the tile only, while all others enter every row of it, where
    they may cancel but round.
    """
    rows = []
    phase = 0
    for algorithm, plan in reversed(stages):
        begin = first - (first - phase) % algorithm.tile_side(plan.taps)
        rows.append((begin, last))
        first, last = max(begin + (first > begin), 0), last + plan.taps[0] - 1
        phase += plan.taps[0] - 1
    return [(first, last), *reversed(rows)]


def _stream(
    stages: list[tuple[ModuleType, Plan]], scratch: list[Any], between: list[np.ndarray],
    x: np.ndarray, first: int, last: int, step: int, result: np.ndarray, origin: int,
) -> None:  # fmt: skip
    """Rows ``first``, where a tile begins, to ``last`` - 1 of the result, ``step`` rows at a time.

    ``result`` begins with row ``origin``.
    Of the rows that have come, a stage computes whole tiles, so that they lie on its grid
    (`_band_rows`); the rows of its input that it has not used up are kept for the next step.  Steps
    end where tiles end in all stages, so that these are few.
    """
    band = _band_rows(stages, first, last)
    waiting, width = [], x.shape[1]
    for _, plan in stages:
        waiting.append(np.empty((0, width, plan.taps[2]), x.dtype))
        width -= plan.taps[1] - 1
    kept = [begin for begin, _ in band[:-1]]  # the first row of each stage's input that is kept
    done = [begin for begin, _ in band[1:]]  # the row up to which each stage has computed
    begin, end = band[0]
    aligned = first + sum(plan.taps[0] - 1 for _, plan in stages)
    for come in [*range(begin + ((aligned - begin) % step or step), end, step), end]:
        source, available = x[kept[0] : come], come
        for i, (algorithm, plan) in enumerate(stages):
            begin, end = band[i + 1]
            upto = available - plan.taps[0] + 1
            if upto < end:
                side = algorithm.tile_side(plan.taps)
                upto = max(begin + (upto - begin) // side * side, done[i])
            rows = upto - done[i]
            if i + 1 < len(stages):
                old = waiting[i + 1]
                shape = len(old) + rows, *old.shape[1:]
                following = between[i % 2][: math.prod(shape)].reshape(shape)
                following[: len(old)] = old
                target = following[len(old) :]
            else:
                target = following = result[done[i] - origin : upto - origin]
            above = kept[i] - done[i]
            algorithm.convolve_rows(
                plan, source, source, False, (above, 0), 0, rows, scratch[i], target
            )
            unused = min(max(upto - kept[i], 0), len(source))
            kept[i] += unused
            if i > 0:
                waiting[i] = source[unused:].copy()
            source, available, done[i] = following, upto, upto


def network_forward(
    images: Sequence[np.ndarray],
    layers: Sequence[tuple[np.ndarray, np.ndarray | None]],
    activate_last: bool,
    rows: tuple[int, int] | None = None,
) -> list[np.ndarray]:
    """`conv_forward` of all layers, with tanh in between: the same up to rounding, but faster.

    A few rows at a time go through all layers, so that the activations in between stay in cache
    and only the result is ever written to memory.

    Parameters
    ----------
    images
        Inputs (H, W, I) of the same H, float32 or float64.
    layers
        Kernels and biases, as in `conv_forward`.
    activate_last
        Apply tanh after the last layer as well.
    rows
        Which rows of the results to compute, one of `network_bands`; None: all.

    Returns
    -------
    y
        The output of the last layer for each image; the same bits whatever the number of threads
        and the rows.
    """
    together = _contiguous(*images, *(array for layer in layers for array in layer))
    images, parameters = together[: len(images)], together[len(images) :]
    weights, biases = parameters[::2], parameters[1::2]
    stages = []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        algorithm, activate = algorithm_of(weight), activate_last or i < len(layers) - 1
        stages.append((algorithm, _prepared(algorithm, _rotated(weight), bias, activate)))
    consumed = [sum(weight.shape[axis] - 1 for weight in weights) for axis in (2, 3)]
    begin, end = rows or (0, images[0].shape[0] - consumed[0])
    widths, dtype, outputs = [x.shape[1] for x in images], images[0].dtype, weights[-1].shape[0]
    results = buffers.empty_together(
        [(end - begin, width - consumed[1], outputs) for width in widths], dtype
    )
    room, step = numbers_between(max(widths), weights), rows_at_a_time(weights)

    def worker(bands: Iterator[tuple[int, tuple[int, int]]]) -> None:
        # Layers of one shape share theirs, which is then more likely to be in cache.
        of_shape = {plan.taps: algorithm.scratch(plan.taps, dtype) for algorithm, plan in stages}
        scratch = [of_shape[plan.taps] for _, plan in stages]
        between = [buffers.empty((room,), dtype) for _ in range(2)]
        for i, (first, last) in bands:
            _stream(stages, scratch, between, images[i], first, last, step, results[i], begin)

    # Two bands per thread, so that the other threads can take over a slow one's second band.  Where
    # they begin changes no bit of the result (`_stream`).
    at_least = max(BAND_ROWS, len(images) * (end - begin) // (2 * get_num_threads()))
    bands = row_bands(end, at_least, whole_tiles(weights), begin)
    run_tiles(worker, product(range(len(images)), bands))
    return results


# ---------------------------------------------------------------- backward


def conv_backward(
    dy: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    y: np.ndarray | None,
    activate: bool,
    need_dx: bool = True,
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Gradients of a loss through `conv_forward`.

    Parameters
    ----------
    dy
        Gradient with respect to y.
    x, weight, activate
        The arguments of `conv_forward`.
    y
        Its result; not needed without tanh.
    need_dx
        Compute dx.  The first layer of a network does not need it.

    Returns
    -------
    dx, dweight, dbias
        Gradients with respect to x (or none), weight and bias; the same bits on every call,
        whatever the number of threads.
    """
    dy, x, weight, tanh_values = _contiguous(dy, x, weight, y if activate else None)
    algorithm = algorithm_of(weight)
    # The gradient of a convolution is a correlation with the same kernels, channels swapped.
    plan = _prepared(algorithm, weight.transpose(2, 3, 0, 1), None, False)
    height, width, _ = x.shape
    dx = buffers.empty(x.shape if need_dx else (0, 0, 0), x.dtype)
    bands = row_bands(height, -(-_CHUNK // width), algorithm.tile_side(plan.taps))
    sums = [algorithm.empty_sums(plan.taps, x.dtype) for _ in bands]
    dbias = np.zeros((len(bands), dy.shape[2]))
    derivative, values = tanh_values is not None, dy if tanh_values is None else tanh_values

    def worker(chunks: Iterator[tuple[int, tuple[int, int]]]) -> None:
        scratch = algorithm.backward_scratch(plan.taps, x.dtype)
        for chunk, (first, last) in chunks:
            algorithm.backward_rows(
                plan, x, dy, values, derivative, first, last, need_dx,
                scratch, dx, sums[chunk], dbias[chunk],
            )  # fmt: skip

    # Every chunk has its own sums, added in their order afterwards: the result does not depend
    # on which thread took which chunk.
    run_tiles(worker, enumerate(bands))
    total = sums[0]
    for of_chunk in sums[1:]:
        total += of_chunk
    with one_blas_thread():
        dtaps = algorithm.kernels_from_sums(total, plan.taps)
    dweight = np.ascontiguousarray(dtaps.transpose(2, 3, 0, 1))
    return dx if need_dx else None, dweight, dbias.sum(axis=0).astype(x.dtype)
