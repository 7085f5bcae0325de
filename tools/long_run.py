"""Whether memory and open files stay flat over many predictions and training steps; Linux only.

    python tools/long_run.py                                 # 2000 predictions, 1000 steps
    python tools/long_run.py --predictions 60 --steps 30     # what the tests do

Sizes, numbers of labels, models and methods alternate; the training goes through all its stages. A
short one comes before it: each stage loads code of its own when it first begins, 100 MB in all.
Prints one JSON object: for both, resident megabytes and open files after the warm-up, at the end
and at most in between.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize
from hybridstereo.training.options import TrainOptions
from hybridstereo.training.run import train
from hybridstereo.training.stages import Reporter

# Width, height, labels: from smaller to larger and back, so that no buffer fits twice in a row.
SIZES = [(61, 40, 8), (200, 150, 40), (33, 97, 16), (320, 120, 64), (1, 1, 1), (128, 128, 24)]
MODELS = ("general-fast", "census")
WARM_UP = 0.1  # share of the whole, in which caches and buffers reach their size
GRADIENT_STAGES = 3


class Watch:
    """Resident memory and open files of this process over time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._samples: list[tuple[int, int]] = []

    def sample(self) -> None:
        """Look once; call it ``count`` times."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self._samples.append((pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))))

    def figures(self) -> dict[str, float | int]:
        """After the warm-up, at the end, and at most."""
        after = self._samples[int(WARM_UP * self._count) :]
        memory, files = zip(*after, strict=True)
        return {
            "count": len(self._samples),
            "megabytes_after_warm_up": memory[0] / 1e6,
            "megabytes_at_the_end": memory[-1] / 1e6,
            "megabytes_at_most": max(memory) / 1e6,
            "files_after_warm_up": files[0],
            "files_at_the_end": files[-1],
            "files_at_most": max(files),
        }


def predict(count: int) -> dict[str, float | int]:
    """Predictions of alternating sizes."""
    stereos = [Stereo(name, "cpu") for name in MODELS]
    rng = np.random.default_rng(0)
    pairs = [rng.integers(0, 256, (2, height, width, 3), np.uint8) for width, height, _ in SIZES]
    watch = Watch(count)
    for i in range(count):
        left, right = pairs[i % len(SIZES)]
        method = "crf" if i % 5 else "argmax"
        stereos[i % 2].match(left, right, SIZES[i % len(SIZES)][2], method=method, iterations=2)
        if i == int(WARM_UP * count):
            gc.collect()
        watch.sample()
    return watch.figures()


class _Watching(Reporter):
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def step(self, *arguments: object) -> None:
        """A step is done."""
        self._watch.sample()


def train_steps(count: int) -> dict[str, float | int]:
    """A training of all stages with ``count`` steps in all, after a short one."""
    watch = Watch(count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scene = SceneOptions(height=40, width=56, max_disparity=11, objects=4)
        synthesize(folder / "scenes", 4, 3, scene)
        options = TrainOptions(
            "middlebury",
            str(folder / "scenes"),
            layers=2,
            filters=16,
            pyramid=1,
            steps=1,
            crop=(24, 32),
            iterations=2,
            val_fraction=0.25,
            validate_every=100,
        )
        train(options, folder / "first", device="cpu")
        options = replace(options, steps=-(-count // GRADIENT_STAGES))
        train(options, folder / "run", device="cpu", reporter=_Watching(watch))
    return watch.figures()


def main() -> None:
    """Run both and print what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--predictions", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    found = {"predictions": predict(options.predictions), "steps": train_steps(options.steps)}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
