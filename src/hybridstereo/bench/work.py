"""The work of each stage (operations, bytes) and the peak rates of the machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from ..features import ConvLayer
from ..kernels.cpu.workers import run_tiles
from ..model import IMAGE_CHANNELS, StereoModel

_FLOAT = 4  # bytes
# Operations per cost: interpolated along three axes, two each, multiplied by the weight, added.
_BRINGING_UP = 8

# Side of the matrices: large enough for BLAS to reach its best speed, 50 MB for all three.
_SGEMM_SIDE = 2048
# A copy must not fit into the caches, of which a core has some megabytes.
_COPY_BYTES, _COPY_BYTES_PER_THREAD = 128 << 20, 16 << 20
# A peak is the best of a few attempts in a row, which makes it steadier at little cost.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Work:
    """Floating-point operations (None: not counted) and the least bytes to read and write."""

    flop: float | None
    bytes: float


def count_work(
    model: StereoModel, height: int, width: int, label_count: int, iterations: int
) -> dict[str, Work]:
    """Work of every stage of `Stereo.match` with a Pairwise-CNN, and their sum as ``total``.

    Convolutions count as direct ones, ``2 kh kw I O`` operations per output pixel, also where
    the kernel needs fewer (Winograd): the rates that follow are *effective* ones.  Messages of
    the CRF count as in docs/model.md 6.7.  Bytes are those of arrays as large as the image or
    larger, each read or written once per layer or sweep.
    """
    pixels = height * width
    images = 2 * _input_bytes(model.unary, height, width)
    sweeps = sum(3 * math.log2(nodes) + 21 for nodes in (width, height))
    work = {
        "input": Work(None, images + _input_bytes(model.pairwise, height, width)),
        "pairwise_cnn": _network_work(model.pairwise, height, width),
        "unary_cnn": _both_views(model, height, width),
        "correlation": _correlation_work(model, height, width, label_count),
        # A sweep reads the unaries and the working costs and writes the latter.
        "crf": Work(
            sweeps * iterations * pixels * label_count,
            2 * 3 * _FLOAT * iterations * pixels * label_count,
        ),
    }
    if model.config.pyramid:
        work["pyramid"] = _pyramid_work(model, height, width, label_count)
    work["total"] = Work(
        sum(x.flop or 0 for x in work.values()), sum(x.bytes for x in work.values())
    )
    return work


def _both_views(model: StereoModel, height: int, width: int) -> Work:
    one = _network_work(model.unary, height, width)
    return Work(2 * (one.flop or 0), 2 * one.bytes)


def _correlation_work(model: StereoModel, height: int, width: int, label_count: int) -> Work:
    pixels, channels = height * width, model.unary[-1].weight.shape[0]
    return Work(
        2.0 * channels * label_count * pixels, _FLOAT * pixels * (2 * channels + label_count)
    )


def _pyramid_work(model: StereoModel, height: int, width: int, label_count: int) -> Work:
    """All that the coarser levels add: networks, correlation, and bringing their costs up."""
    flop = moved = 0.0
    for _ in model.config.pyramid:
        finer = height * width * label_count
        height, width, label_count = -(-height // 2), -(-width // 2), label_count // 2 + 1
        networks = _both_views(model, height, width)
        correlation = _correlation_work(model, height, width, label_count)
        flop += (networks.flop or 0) + (correlation.flop or 0) + _BRINGING_UP * finer
        # The coarser costs are read; the finer ones are read and written.
        brought_up = _FLOAT * (height * width * label_count + 2 * finer)
        moved += networks.bytes + correlation.bytes + brought_up
    return Work(flop, moved)


def _padded_size(layers: Sequence[ConvLayer], height: int, width: int) -> tuple[int, int]:
    """The size of the input that gives an output of (height, width)."""
    rows, columns = (sum(x.weight.shape[axis] - 1 for x in layers) for axis in (2, 3))
    return height + rows, width + columns


def _input_bytes(layers: Sequence[ConvLayer], height: int, width: int) -> float:
    """Read an image, write it padded and normalised."""
    rows, columns = _padded_size(layers, height, width)
    channels = layers[0].weight.shape[1]
    return _FLOAT * (height * width * IMAGE_CHANNELS + rows * columns * channels)


def _network_work(layers: Sequence[ConvLayer], height: int, width: int) -> Work:
    """Pass one image through the "valid" layers of a network."""
    rows, columns = _padded_size(layers, height, width)
    flop, values = 0, 0
    for layer in layers:
        outputs, inputs, kh, kw = layer.weight.shape
        values += rows * columns * inputs
        rows, columns = rows - kh + 1, columns - kw + 1
        values += rows * columns * outputs
        flop += 2 * kh * kw * inputs * outputs * rows * columns
    return Work(float(flop), float(_FLOAT * values))


@dataclass(frozen=True)
class Peaks:
    """The best that the machine did: operations per second (SGEMM), bytes per second (copy).

    Bytes read and bytes written both count.
    """

    flop_rate: float
    byte_rate: float


class MachinePeaks:
    """Times a large matrix product and a large copy, both with all threads in use."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        rng = np.random.default_rng(0)
        side = _SGEMM_SIDE
        self._factors = [rng.standard_normal((side, side), np.float32) for _ in range(2)]
        self._product = np.empty((side, side), np.float32)
        count = max(_COPY_BYTES, _COPY_BYTES_PER_THREAD * threads) // _FLOAT
        # One piece per thread: long copies bypass the caches, as those of large arrays do.
        self._source = np.array_split(np.ones(count, np.float32), threads)
        self._target = np.array_split(np.zeros(count, np.float32), threads)

    def sample(self) -> dict[str, float]:
        """Seconds of the product and of the copy, the best of a few attempts each."""
        with threadpool_limits(self._threads, user_api="blas"):
            sgemm = min(_seconds(self._multiply) for _ in range(_ATTEMPTS))
        return {"sgemm": sgemm, "copy": min(_seconds(self._copy) for _ in range(_ATTEMPTS))}

    def best(self, sgemm_seconds: float, copy_seconds: float) -> Peaks:
        """The rates that these times amount to."""
        copied = sum(piece.nbytes for piece in self._source)
        return Peaks(2.0 * _SGEMM_SIDE**3 / sgemm_seconds, 2.0 * copied / copy_seconds)

    def _multiply(self) -> None:
        np.matmul(self._factors[0], self._factors[1], out=self._product)

    def _copy(self) -> None:
        def worker(pieces: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:
            for target, source in pieces:
                np.copyto(target, source)

        run_tiles(worker, zip(self._target, self._source, strict=True))


def _seconds(call: Callable[[], None]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
