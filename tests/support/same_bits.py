"""Everything the CPU computes, as checksums by number of threads: ``python same_bits.py 1,2,8``.

A program of its own, because the largest number of threads is fixed when Numba starts.  Prints a
JSON object: for every case, the checksum by number of threads, of which there are at least two.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from hybridstereo import kernels
from hybridstereo.datasets import StereoPair
from hybridstereo.io.weights import read_weights
from hybridstereo.labels import LabelRange
from hybridstereo.model import with_config
from hybridstereo.models.zoo import available_models, load_model
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.synthetic.write import synthesize
from hybridstereo.training.options import TrainOptions
from hybridstereo.training.run import train
from hybridstereo.training.steps import (
    HingeOptions,
    MinorantOptions,
    minorant_step,
    structured_step,
    unary_step,
)

PYRAMID = {"half_weight": 0.25, "quarter_weight": 0.5}
# Multiples of nothing that the kernels divide their work into.
HEIGHT, WIDTH, LABELS = 151, 137, 21

Case = Callable[[], Any]


def operation_cases() -> dict[str, Case]:
    """One call of every operation of the backend, with arrays that all threads get a part of."""
    cpu = kernels.select("cpu")
    rng = np.random.default_rng(1)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    image = rng.random((HEIGHT, WIDTH, 3)).astype(np.float32)
    first, later = random(24, 3, 3, 3), random(24, 24, 2, 2) / 4
    bias = random(24)
    x = random(HEIGHT, WIDTH, 24)
    y = cpu.conv_forward(x, later, bias, True)
    left, right = random(HEIGHT, WIDTH, 24), random(HEIGHT, WIDTH, 24)
    volume, dvolume = random(HEIGHT, WIDTH, LABELS), random(HEIGHT, WIDTH, LABELS)
    coarse = random((HEIGHT + 1) // 2, (WIDTH + 1) // 2, LABELS // 2 + 1)
    wx, wy = np.abs(random(HEIGHT, WIDTH)), np.abs(random(HEIGHT, WIDTH))
    disparities, fractions = np.arange(LABELS) - 3.0, np.arange(LABELS) * 0.75
    position = rng.uniform(0, LABELS - 1, (HEIGHT, WIDTH)).astype(np.float32)
    nearest, other = (np.rint(position).astype(np.int32) for _ in range(2))
    other[::3] = 1

    def carried() -> np.ndarray:
        costs = dvolume.copy()
        cpu.carry_into(costs, volume, left[..., :LABELS], 0.7)
        return costs

    valid = rng.random((HEIGHT, WIDTH)) < 0.8
    count = int(valid.sum())
    kernel, velocity, gradient = (random(100, 100, 2, 2) for _ in range(3))

    def updated(name: str, *arguments: Any) -> Case:
        def case() -> Any:
            changed = kernel.copy(), velocity.copy()
            getattr(cpu, name)(*changed, gradient, 0.1, 0.9, True, *arguments)
            return changed

        return case

    def changed(name: str, *arguments: Any) -> Case:
        def case() -> np.ndarray:
            array = volume.copy()
            getattr(cpu, name)(array, *arguments)
            return array

        return case

    return {
        "conv_forward": lambda: [
            cpu.conv_forward(image, first, bias, True), cpu.conv_forward(x, later, None, False)
        ],
        "network_forward": lambda: cpu.network_forward(
            [image], [(first, bias), *[(later, bias)] * 6], True
        ),
        "conv_backward": lambda: cpu.conv_backward(y, x, later, y, True),
        "correlation_forward": lambda: [
            cpu.correlation_forward(left, right, d) for d in (disparities, fractions)
        ],
        "softmax_backward": lambda: cpu.softmax_backward(volume, dvolume),
        "mutual_forward": changed("mutual_forward", wx, volume.shape[1], disparities),
        "mutual_backward": lambda: cpu.mutual_backward(volume, dvolume, wx, wy, disparities),
        "scores_backward": lambda: [
            cpu.scores_backward(dvolume, left, right, d) for d in (disparities, fractions)
        ],
        "upsample_forward": lambda: cpu.upsample_forward(volume, coarse, 0.3, in_place=False),
        "upsample_backward": lambda: cpu.upsample_backward(dvolume, coarse, 0.3),
        "contrast_weights": lambda: cpu.contrast_weights(image, 0.2, 20.0, 0.9),
        "magnitude_forward": lambda: cpu.magnitude_forward(x[..., :2], 0.3),
        "magnitude_backward": lambda: cpu.magnitude_backward(wx, wy, x[..., :2], 0.3),
        "dual_mm": lambda: cpu.dual_mm(volume, wx, wy, 0.1, 0.4, 3, np.empty_like(nearest)),
        "dual_mm_backward": lambda: cpu.dual_mm_backward(
            volume, wx, wy, 0.1, 0.4, 2, dvolume
        ),
        "carry_into": carried,
        "argmin": lambda: cpu.argmin(volume),
        "read_out": lambda: cpu.read_out(volume),
        "energy": lambda: cpu.energy(volume, wx, wy, 0.1, 0.4, nearest),
        "refine": lambda: cpu.refine(volume, cpu.argmin(volume), 0.5),
        "cross_entropy": lambda: cpu.cross_entropy(
            -np.abs(volume) / 4, position, nearest, valid, count, True
        ),
        "negated_softmax": lambda: cpu.negated_softmax(volume, -2.0),
        "error_rate": lambda: cpu.error_rate(
            -np.abs(volume) / 30, position, valid, count, 1.0, 0.5
        ),
        "augment_costs": lambda: cpu.augment_costs(volume, nearest, valid, 0.2, 3.0),
        "task_loss": lambda: cpu.task_loss(other, nearest, valid, 3.0),
        "count_bad_labels": lambda: cpu.count_bad_labels(other, position, valid, 1.0),
        "count_different": lambda: cpu.count_different(other, nearest),
        "complete_truth": lambda: cpu.complete_truth(nearest, valid, other),
        "hinge_gradients": lambda: cpu.hinge_gradients(
            volume, wx, wy, 0.1, 0.4, nearest, other, valid, count
        ),
        "squared_norm": lambda: cpu.squared_norm(volume),
        "scale_by": changed("scale_by", 0.3),
        "divide_by": changed("divide_by", 0.3),
        "add_to": changed("add_to", dvolume),
        "sgd_update": updated("sgd_update", 1e-3),
        "muon_update": updated("muon_update", 1e-3),
        "normalised_update": updated("normalised_update"),
    }  # fmt: skip


def prediction_cases() -> dict[str, Case]:
    """Every shipped model, and one with a pyramid, on a generated pair."""
    scene = generate_scene(3, SceneOptions(height=71, width=89, max_disparity=14, objects=4))
    models = {name: load_model(name) for name in available_models()}
    models["pyramid"] = with_config(load_model("general-fast"), **PYRAMID)

    def case(name: str) -> Case:
        def predict() -> Any:
            result = Stereo(models[name], "cpu").match(
                scene.left, scene.right, disparities=17, volumes=True
            )
            return result.disparity, result.costs, result.minorant, result.energy, result.bounds

        return predict

    return {f"model {name}": case(name) for name in models}


def training_cases(folder: Path) -> dict[str, Case]:
    """The gradients of a step of each kind, and a short run of all stages."""
    model = with_config(load_model("general-fast"), **PYRAMID)
    cpu = kernels.select("cpu")
    scene = generate_scene(5, SceneOptions(height=61, width=83, max_disparity=11, objects=4))
    pair = StereoPair(scene.left, scene.right, scene.disparity, ~scene.occlusion)
    labels = LabelRange(0, 14)
    synthesize(
        folder / "scenes", 3, 3, SceneOptions(height=40, width=56, max_disparity=11, objects=4)
    )

    def gradients(step: Any) -> Any:
        return step.loss, [step.gradients[name] for name in sorted(step.gradients)]

    def run() -> Any:
        options = TrainOptions(
            "middlebury", str(folder / "scenes"), layers=2, filters=18, pyramid=1, steps=2,
            crop=(27, 37), batch=2, iterations=2, val_fraction=0.4, optimizer="muon",
        )  # fmt: skip
        output = folder / f"run{len(list(folder.iterdir()))}"
        train(options, output, device="cpu")
        stored = read_weights(output / "last.h5")
        return [stored.tensors[name] for name in sorted(stored.tensors)], sorted(stored.config)

    return {
        "step unary": lambda: gradients(unary_step(model, cpu, pair, labels, True)),
        "step full": lambda: gradients(structured_step(model, cpu, pair, labels, HingeOptions())),
        "step minorant": lambda: gradients(
            minorant_step(model, cpu, pair, labels, MinorantOptions(iterations=2))
        ),
        "training run": run,
    }


def checksum(value: Any) -> str:
    """Of all numbers in a nest of lists, tuples and arrays."""
    digest = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, (list, tuple)):
            for item in part:
                add(item)
        elif part is not None:
            digest.update(np.ascontiguousarray(part).tobytes())

    add(value)
    return digest.hexdigest()[:16]


def main() -> None:
    """Run every case with every number of threads; BLAS is given as many."""
    counts = [int(x) for x in sys.argv[1].split(",")]
    with tempfile.TemporaryDirectory() as folder:
        cases = operation_cases() | prediction_cases() | training_cases(Path(folder))
        found: dict[str, dict[str, str]] = {}
        for name, case in cases.items():
            # A run takes a second; its steps are cases of their own.
            ends = dict.fromkeys((counts[0], counts[-1]))
            for count in ends if name == "training run" else counts:
                with threadpool_limits(count, user_api="blas"):
                    kernels.set_threads(count)
                    found.setdefault(name, {})[str(count)] = checksum(case())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
