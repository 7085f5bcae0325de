"""What a warm start is worth, and how many frames per second this machine makes.

    python tools/stream_figures.py warm [--frames 12] [--width 320 --height 240]
    python tools/stream_figures.py speed [--frames 12]

``warm`` matches generated sequences with exact truth, with and without a warm start, and prints
how far bound and energy are from the best bound known, and how many pixels are wrong.  ``speed``
times the paper's real-time setting (3 layers, 4 iterations, 128 labels) in turns with OpenCV's
SGBM.  The tables of docs/streams.md come from here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from statistics import median

import numpy as np
from mdtable import markdown_table

from hybridstereo.opencv import cv2, sgbm_matcher
from hybridstereo.sequence import StereoSequence
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import (
    Photometric,
    SceneOptions,
    StereoScene,
    generate_sequence,
    quantised,
)

MODEL, LABELS = "general-fast", 128
# Noise (standard deviation of 255) and motion (pixels per frame of a point of disparity 30).
SEQUENCES = ((0, 0.0), (0.5, 0.0), (0.5, 0.5), (1, 0.0), (1, 1.0), (2.5, 1.0), (2.5, 4.0))
ITERATIONS = (1, 2, 3, 4)
REFERENCE = 60  # iterations whose bound counts as the best one
SETTLED = 3  # frames before those that count


def frames_of(
    seed: int, noise: float, motion: float, width: int, height: int
) -> Iterator[StereoScene]:
    """A sequence whose cameras move to the right."""
    options = SceneOptions(
        height=height,
        width=width,
        max_disparity=60.0,
        photometric=Photometric(0.0, 0.0, noise / 255 / 0.65, 0.0) if noise else None,
    )
    return generate_sequence(seed, options, travel=motion / 30)


def warm(arguments: argparse.Namespace) -> None:
    """The table of cold and warm starts."""
    stereo = Stereo(MODEL, "cpu")
    rows = []
    for noise, motion in SEQUENCES:
        sums: dict[tuple[int, bool], list[list[float]]] = {}
        for seed in range(arguments.seeds):
            scenes = list(
                islice(
                    frames_of(seed, noise, motion, arguments.width, arguments.height),
                    arguments.frames,
                )
            )
            views = [(quantised(x.left), quantised(x.right)) for x in scenes]
            best = [
                stereo.match(*pair, disparities=64, iterations=REFERENCE).bounds[-1]
                for pair in views[SETTLED:]
            ]
            for count in ITERATIONS:
                for warmed in (False, True):
                    sequence = StereoSequence(
                        stereo, disparities=64, iterations=count, warm_start=warmed
                    )
                    results = [sequence.match(*pair) for pair in views][SETTLED:]
                    for scene, result, bound in zip(scenes[SETTLED:], results, best, strict=True):
                        wrong = np.abs(result.disparity - scene.disparity) > 1
                        figures = [
                            100 * (bound - result.bounds[-1]) / abs(bound),
                            100 * (result.energy - bound) / abs(bound),
                            100 * wrong[~scene.occlusion].mean(),
                        ]
                        sums.setdefault((count, warmed), []).append(figures)
        for count in ITERATIONS:
            cold, hot = (np.mean(sums[count, x], axis=0) for x in (False, True))
            row = [f"{noise:g}", f"{motion:g}", str(count)]
            row += [
                f"{x:.3f}" if i < 1 else f"{x:.2f}" for i in range(3) for x in (cold[i], hot[i])
            ]
            rows.append(row)
            print(*row, flush=True)
    head = ["noise", "motion", "iterations", "bound, cold", "warm", "energy, cold", "warm"]
    print(markdown_table([*head, "bad1, cold", "warm"], rows))


def speed(arguments: argparse.Namespace) -> None:
    """Frames per second, in turns with SGBM; the median of all frames."""
    stereo = Stereo(MODEL, "cpu")
    rows = []
    for width, height in ((640, 480), (320, 240)):
        scenes = islice(frames_of(1, 1.0, 0.5, width, height), arguments.frames)
        views = [(quantised(x.left), quantised(x.right)) for x in scenes]
        sgbm = sgbm_matcher(cv2.STEREO_SGBM_MODE_SGBM, LABELS, 5, 3)
        common = {"disparities": LABELS}
        matchers = {
            "4 iterations": StereoSequence(stereo, iterations=4, **common).match,
            "4 iterations, warm": StereoSequence(
                stereo, iterations=4, warm_start=True, **common
            ).match,
            "2 iterations, warm": StereoSequence(
                stereo, iterations=2, warm_start=True, **common
            ).match,
            "SGBM": sgbm.compute,
        }
        wall: dict[str, list[float]] = {name: [] for name in matchers}
        busy: dict[str, list[float]] = {name: [] for name in matchers}
        for pair in views:
            for name, match in matchers.items():
                begun = time.perf_counter(), time.process_time()
                match(*pair)
                wall[name].append(time.perf_counter() - begun[0])
                busy[name].append(time.process_time() - begun[1])
        for name in matchers:
            taken, theirs = median(wall[name][1:]), median(wall["SGBM"][1:])
            row = [f"{width}x{height}", name, f"{1 / taken:.2f}", f"{1 / min(wall[name][1:]):.2f}"]
            rows.append([*row, f"{taken / theirs:.1f}", f"{min(busy[name][1:]):.2f}"])
            print(*rows[-1], flush=True)
    head = ["size", "method", "frames/s, median", "best", "times SGBM's time", "CPU seconds, least"]
    print(markdown_table(head, rows))


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("warm", "speed"))
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--height", type=int, default=240)
    arguments = parser.parse_args()
    {"warm": warm, "speed": speed}[arguments.what](arguments)


if __name__ == "__main__":
    main()
