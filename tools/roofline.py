"""Where each stage of the model stands under the roof of this machine, as a table in Markdown.

Operations and bytes are counted, peaks and times are measured in one run, in turns:

    python tools/roofline.py --width 1242 --height 375 --disparities 128

The least time of a stage is the longer one of its operations at the peak and its bytes at the speed
of a copy.  Convolutions count with the products that Winograd's method leaves; networks and the
correlation are held against SGEMM, the CRF against a loop of minima and sums.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import numba
import numpy as np
from mdtable import markdown_table

from hybridstereo import Stereo, kernels
from hybridstereo.bench.run import random_model, synthetic_pair
from hybridstereo.bench.work import MachinePeaks, Work, count_work
from hybridstereo.features import ConvLayer
from hybridstereo.kernels.cpu import winograd
from hybridstereo.kernels.cpu.streaming import algorithm_of
from hybridstereo.kernels.cpu.workers import run_tiles
from hybridstereo.model import IMAGE_CHANNELS, StereoModel

_FLOAT, _LINE = 4, 64  # bytes of a number, and of a cache line
_IN_CACHE = 2048  # numbers of which minima are taken
_ROUNDS = 10_000
_MINIMA = 8  # of each number in a round, with as many sums

STAGES = {
    "input": "input",
    "pairwise_cnn": "Pairwise-CNN",
    "unary_cnn": "Unary-CNN",
    "correlation": "correlation",
    "pyramid": "pyramid",
    "crf": "CRF",
    "refinement": "refinement",
}


# Sums as multiply-adds, which do not take the pipes of minima from them on a Zen 4.
@numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})
def _minima(numbers, least, rounds):
    """Sums and minima of numbers in the first-level cache: 8 of each for two loads and a store."""
    for i in range(rounds):
        a = np.float32(i)
        b, c, d = a * a, a + np.float32(0.5), a * np.float32(0.3)
        e, f, g, h = a + np.float32(1), b + a, c + b, d + c
        for j in range(numbers.size):
            x, y = numbers[j], least[j]
            p, q, r, s = a * x + b, b * x + c, c * x + d, d * x + e
            t, u, v, w = e * x + f, f * x + g, g * x + h, h * x + a
            p, q = p if p < q else q, r if r < s else s
            r, s = t if t < u else u, v if v < w else w
            p, r = p if p < q else q, r if r < s else s
            p = p if p < r else r
            least[j] = p if p < y else y


def minima_and_sums(threads: int) -> float:
    """How many minima and sums the machine does per second."""
    numbers = np.ones(_IN_CACHE, np.float32)

    def worker(pieces: Iterator[int]) -> None:
        for _ in pieces:
            _minima(numbers, numbers.copy(), _ROUNDS)

    begin = time.perf_counter()
    run_tiles(worker, range(threads))
    return 2 * _MINIMA * threads * _IN_CACHE * _ROUNDS / (time.perf_counter() - begin)


def _network(layers: Sequence[ConvLayer], height: int, width: int) -> Work:
    """Pass an image through a network: products that are computed; its input and its output."""
    rows, columns = (
        n + sum(x.weight.shape[axis] - 1 for x in layers) for n, axis in ((height, 2), (width, 3))
    )
    moved = rows * columns * layers[0].weight.shape[1] + height * width * layers[-1].weight.shape[0]
    flop = 0.0
    for layer in layers:
        outputs, inputs, kh, kw = layer.weight.shape
        rows, columns = rows - kh + 1, columns - kw + 1
        products = kh * kw
        if algorithm_of(layer.weight) is winograd:
            side = winograd.tile_side((kh, kw, inputs, outputs))
            products = (side + kh - 1) ** 2 / side**2
        flop += 2.0 * products * inputs * outputs * rows * columns
    return Work(flop, _FLOAT * moved)


def _sum(*parts: Work) -> Work:
    return Work(sum(x.flop or 0 for x in parts), sum(x.bytes for x in parts))


def stage_work(
    model: StereoModel, height: int, width: int, labels: int, iterations: int
) -> dict[str, Work]:
    """Operations and bytes of every stage, as this implementation does them."""
    counted = count_work(model, height, width, labels, iterations)
    view = _network(model.unary, height, width)
    work = {
        "input": Work(None, counted["input"].bytes),
        "pairwise_cnn": _network(model.pairwise, height, width),
        "unary_cnn": _sum(view, view),
        "correlation": counted["correlation"],
        "crf": counted["crf"],
        # A line of the volume around the label, the label, and the result.
        "refinement": Work(None, height * width * (_LINE + 2 * _FLOAT)),
    }
    levels = []
    for _ in model.config.pyramid:
        finer = height * width * labels
        height, width, labels = -(-height // 2), -(-width // 2), labels // 2 + 1
        coarse = count_work(model, height, width, labels, iterations)
        view = _network(model.unary, height, width)
        images = 2 * IMAGE_CHANNELS * height * width
        brought_up = Work(8.0 * finer, _FLOAT * (height * width * labels + 2 * finer + 5 * images))
        levels += [view, view, coarse["correlation"], brought_up]
    return work | {"pyramid": _sum(*levels)}


def _format(value: float | None, factor: float) -> str:
    return "-" if value is None else f"{value / factor:.3g}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--width", type=int, default=1242)
    parser.add_argument("--height", type=int, default=375)
    parser.add_argument("--disparities", type=int, default=128)
    parser.add_argument("--layers", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=kernels.max_threads())
    parser.add_argument(
        "--cpu", action="store_true", help="CPU seconds of one thread, for a busy machine"
    )
    given = parser.parse_args()
    if given.cpu:
        given.threads = 1
        time.perf_counter = time.process_time  # also for the stages' clock and the peaks
    size = given.height, given.width, given.disparities
    model = random_model(given.layers, pyramid=2)
    stereo = Stereo(model, "cpu", given.threads)
    pair = synthetic_pair(given.width, given.height, given.disparities)
    machine = MachinePeaks(given.threads)
    taken, peaks, minima = [], [], []
    with kernels.limited_threads(given.threads):
        for turn in range(1 + given.repeat):  # the first one compiles
            seconds = stereo.match(*pair, given.disparities, iterations=given.iterations).seconds
            sample, rate = machine.sample(), minima_and_sums(given.threads)
            if turn:
                taken.append(seconds)
                peaks.append(sample)
                minima.append(rate)
    best = machine.best(*(min(x[part] for x in peaks) for part in ("sgemm", "copy")))
    rows = []
    for stage, work in stage_work(model, *size, given.iterations).items():
        measured = float(np.median([x[stage] for x in taken]))
        rate = max(minima) if stage == "crf" else best.flop_rate
        arithmetic = None if work.flop is None else work.flop / rate
        memory = work.bytes / best.byte_rate
        least = max(arithmetic or 0.0, memory)
        rows.append(
            [
                STAGES[stage],
                _format(work.flop, 1e9),
                _format(work.bytes, 1e9),
                _format(arithmetic, 1e-3),
                _format(memory, 1e-3),
                _format(measured, 1e-3),
                f"{100 * least / measured:.0f} %",
                "memory" if least == memory else "arithmetic",
            ]
        )
    heads = [
        "stage",
        "Gop",
        "GB",
        "arithmetic, ms",
        "memory, ms",
        "measured, ms",
        "of the roof",
        "bound by",
    ]
    print(markdown_table(heads, rows))
    print(
        f"\nPeaks, {given.threads} thread(s): SGEMM {best.flop_rate / 1e9:.0f} GFLOP/s, "
        f"minima and sums {max(minima) / 1e9:.0f} G/s, copy {best.byte_rate / 1e9:.1f} GB/s."
    )


if __name__ == "__main__":
    main()
