"""Convolution + bias + tanh on the CPU, channels last: forward and backward.

Every layer of the Unary-CNN and the Pairwise-CNN (paper, sec. 3) is a *true* convolution (kernel
rotated by 180 degrees, docs/model.md 1) over the valid extent:

    y[r, c, o] = act(b[o] + sum_i sum_{u,v} W[o, i, u, v] * x[r + kh-1-u, c + kw-1-v, i])

The 2x2 layers with many channels, nearly all of the work, are computed by ``winograd.py``, all
others by ``direct.py``, both in tiles that stay in cache while they are multiplied by the kernels
and passed through tanh.  Here the rows of the image are spread over the worker threads.  No
full-size im2col, padded copy or pre-activation ever exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numba import get_num_threads

from .cpu import buffers, direct, winograd
from .cpu.tiles import Plan
from .cpu.workers import run_tiles

_BAND = 2048  # pixels, at least, that a worker processes at a time
_CHUNK = 8192  # pixels, at least, whose kernel gradients a worker sums before storing them

# Rows that go through a whole network at a time, a multiple of 3: the activations between two
# layers, 1242 pixels of 100 channels wide, then take 6 MB of the L3 cache.
_STEP = 12
# What a stage may add to the rows of a step: two of a tile that was not complete, two of a tile
# that begins above the band, two that it keeps and does not yet use; and the rows of its kernel.
_HELD_ROWS = 6
_BAND_ROWS = 24  # rows of a network's output, at least, per band: bands recompute their overlap


def _algorithm(weight: np.ndarray) -> ModuleType:
    return winograd if winograd.suits(weight) else direct


def _row_bands(rows: int, at_least: int) -> list[tuple[int, int]]:
    """Cut into bands (first, last + 1) that begin at a multiple of 3, as the Winograd tiles do."""
    height = 3 * -(-at_least // 3)
    return [(first, min(first + height, rows)) for first in range(0, rows, height)]


def _rotated(weight: np.ndarray) -> np.ndarray:
    """(O, I, kh, kw) -> (kh, kw, I, O), rotated: convolution as correlation."""
    return weight[:, :, ::-1, ::-1].transpose(2, 3, 1, 0)


def _contiguous(*arrays: np.ndarray | None) -> list[Any]:
    """C-contiguous versions of the arrays; mixed precision is refused, not converted."""
    kinds = {array.dtype for array in arrays if array is not None}
    if len(kinds) > 1:
        raise TypeError(f"arrays of one dtype expected, not {sorted(map(str, kinds))}")
    return [array if array is None else np.ascontiguousarray(array) for array in arrays]


# ---------------------------------------------------------------- forward


def _convolve(
    algorithm: ModuleType, plan: Plan, image: np.ndarray, y: np.ndarray | None, padded: bool
) -> np.ndarray:
    """Correlate an image or, given the values y of tanh, a gradient; see `tiles.cut_strip`.

    ``padded`` adds zeros on all sides, so that the result is larger than the image.
    """
    kh, kw, _, outputs = plan.taps
    padding = (kh - 1, kw - 1) if padded else (0, 0)
    height = image.shape[0] + 2 * padding[0] - kh + 1
    width = image.shape[1] + 2 * padding[1] - kw + 1
    result = buffers.empty((height, width, outputs), image.dtype)

    def worker(bands: Iterator[tuple[int, int]]) -> None:
        scratch = algorithm.scratch(plan.taps, image.dtype)
        for first, last in bands:
            algorithm.convolve_rows(
                plan, image, image if y is None else y, y is not None, padding,
                first, last, scratch, result,
            )  # fmt: skip

    run_tiles(worker, _row_bands(height, -(-_BAND // width)))
    return result


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
    algorithm = _algorithm(weight)
    plan = algorithm.prepare(_rotated(weight), bias, activate)
    return _convolve(algorithm, plan, x, None, padded=False)


# ---------------------------------------------------------------- a whole network


def _band_rows(
    stages: list[tuple[ModuleType, Plan]], first: int, last: int
) -> list[tuple[int, int]]:
    """Rows (begin, end) of the input and of every stage's output that a band of the result needs.

    The tiles of a stage begin at the rows of one grid, wherever a band begins: that of the result
    at multiples of 3, that of each stage before so much further down that its tiles end where the
    next stage has read its last complete one.  A band begins in each stage with the tile that holds
    the first row it needs.  Rows of this tile that it does not need, which may lie above the image,
    are computed from rows that it does not have, and read by nothing that it needs.
    """
    rows = []
    phase = 0
    for algorithm, plan in reversed(stages):
        begin, needed = algorithm.tile_at(first, phase)
        rows.append((begin, last))
        first, last = max(needed, 0), last + plan.taps[0] - 1
        phase += plan.taps[0] - 1
    return [(first, last), *reversed(rows)]


def _stream(
    stages: list[tuple[ModuleType, Plan]], scratch: list[Any], between: list[np.ndarray],
    x: np.ndarray, first: int, last: int, result: np.ndarray,
) -> None:  # fmt: skip
    """Rows ``first``, a multiple of 3, to ``last`` - 1 of the result, a few rows at a time.

    Of the rows that have come, a stage computes whole tiles, so that they lie on its grid
    (`_band_rows`); the rows of its input that it has not used up are kept for the next step.
    """
    band = _band_rows(stages, first, last)
    waiting, width = [], x.shape[1]
    for _, plan in stages:
        waiting.append(np.empty((0, width, plan.taps[2]), x.dtype))
        width -= plan.taps[1] - 1
    kept = [begin for begin, _ in band[:-1]]  # the first row of each stage's input that is kept
    done = [begin for begin, _ in band[1:]]  # the row up to which each stage has computed
    begin, end = band[0]
    for come in [*range(begin + _STEP, end, _STEP), end]:
        source, available = x[kept[0] : come], come
        for i, (algorithm, plan) in enumerate(stages):
            begin, end = band[i + 1]
            upto = available - plan.taps[0] + 1
            if upto < end:
                upto = max(begin + algorithm.whole_rows(upto - begin), done[i])
            rows = upto - done[i]
            if i + 1 < len(stages):
                old = waiting[i + 1]
                shape = len(old) + rows, *old.shape[1:]
                following = between[i % 2][: math.prod(shape)].reshape(shape)
                following[: len(old)] = old
                target = following[len(old) :]
            else:
                target = following = result[done[i] : upto]
            above = kept[i] - done[i]
            algorithm.convolve_rows(
                plan, source, source, False, (above, 0), 0, rows, scratch[i], target
            )
            unused = max(upto - kept[i], 0)
            kept[i] += unused
            if i > 0:
                waiting[i] = source[unused:].copy()
            source, available, done[i] = following, upto, upto


def _between_size(width: int, shapes: Sequence[tuple[int, ...]]) -> int:
    """Numbers between two layers that a thread holds at a time; shapes: of the kernels."""
    rows = _STEP + _HELD_ROWS + max(kh for _, _, kh, _ in shapes)
    return rows * width * max(outputs for outputs, *_ in shapes)


def memory_per_thread(width: int, weights: Sequence[np.ndarray]) -> int:
    """Bytes that a thread of `network_forward` needs for an image of this width.

    The scratch of the layers themselves, below a megabyte each, is left out.
    """
    return 2 * _between_size(width, [x.shape for x in weights]) * weights[0].dtype.itemsize


def network_forward(
    x: np.ndarray, layers: Sequence[tuple[np.ndarray, np.ndarray | None]], activate_last: bool
) -> np.ndarray:
    """`conv_forward` of all layers, with tanh in between: the same up to rounding, but faster.

    A few rows at a time go through all layers, so that the activations in between stay in cache
    and only the result is ever written to memory.

    Parameters
    ----------
    x
        Input (H, W, I), float32 or float64.
    layers
        Kernels and biases, as in `conv_forward`.
    activate_last
        Apply tanh after the last layer as well.

    Returns
    -------
    y
        The output of the last layer; the same bits whatever the number of threads.
    """
    x, *parameters = _contiguous(x, *(array for layer in layers for array in layer))
    weights, biases = parameters[::2], parameters[1::2]
    stages = []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        algorithm, activate = _algorithm(weight), activate_last or i < len(layers) - 1
        stages.append((algorithm, algorithm.prepare(_rotated(weight), bias, activate)))
    consumed = [sum(weight.shape[axis] - 1 for weight in weights) for axis in (2, 3)]
    height, width = x.shape[0] - consumed[0], x.shape[1] - consumed[1]
    result = buffers.empty((height, width, weights[-1].shape[0]), x.dtype)
    room = _between_size(x.shape[1], [weight.shape for weight in weights])

    def worker(bands: Iterator[tuple[int, int]]) -> None:
        scratch = [algorithm.scratch(plan.taps, x.dtype) for algorithm, plan in stages]
        between = [np.empty(room, x.dtype) for _ in range(2)]
        for first, last in bands:
            _stream(stages, scratch, between, x, first, last, result)

    # Two bands per thread, so that the other threads can take over a slow one's second band.  Where
    # they begin changes no bit of the result (`_stream`).
    run_tiles(worker, _row_bands(height, max(_BAND_ROWS, height // (2 * get_num_threads()))))
    return result


# ---------------------------------------------------------------- backward


def _weight_gradient(
    algorithm: ModuleType,
    taps: tuple[int, int, int, int],
    dy: np.ndarray,
    y: np.ndarray | None,
    x: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the kernels (O, I, kh, kw) and of the biases (O,)."""
    height, width, outputs = dy.shape
    bands = _row_bands(height, -(-_CHUNK // width))
    dtaps = np.empty((len(bands), *taps), x.dtype)
    dbias = np.zeros((len(bands), outputs))

    def worker(chunks: Iterator[tuple[int, tuple[int, int]]]) -> None:
        scratch = algorithm.scratch(taps, x.dtype)
        for chunk, (first, last) in chunks:
            sums = algorithm.empty_sums(taps, x.dtype)
            algorithm.gradient_rows(
                taps, x, dy, dy if y is None else y, y is not None,
                first, last, scratch, sums, dbias[chunk],
            )  # fmt: skip
            dtaps[chunk] = algorithm.kernels_from_sums(sums, taps)

    # Every chunk has its own sums, added in their order afterwards: the result does not depend
    # on which thread took which chunk.
    run_tiles(worker, enumerate(bands))
    dweight = dtaps.sum(axis=0)[::-1, ::-1].transpose(3, 2, 0, 1)
    return np.ascontiguousarray(dweight), dbias.sum(axis=0).astype(x.dtype)


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
    algorithm = _algorithm(weight)
    dx = None
    if need_dx:
        # The gradient of a convolution is a correlation with the same kernels, channels swapped.
        plan = algorithm.prepare(weight.transpose(2, 3, 0, 1), None, False)
        dx = _convolve(algorithm, plan, dy, tanh_values, padded=True)
    taps = (*weight.shape[2:], weight.shape[1], weight.shape[0])
    return dx, *_weight_gradient(algorithm, taps, dy, tanh_values, x)
