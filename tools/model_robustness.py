"""How robust the models are to differences between the views: python tools/model_robustness.py DATA

The scenes of Middlebury v3 that were kept back, for validation or test, with the right view as
recorded, exposed for a shorter or a longer time, and lit from the side. DATA is the folder that
tools/train_models.sh was given; the table of docs/results.md goes to standard output.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from kept_scenes import FIGURES, TEST, VALIDATION, groups_of
from mdtable import markdown_table
from publish_models import BASELINE

from hybridstereo.datasets import StereoPair, open_dataset
from hybridstereo.evaluation.compare import EvalOptions, build_methods
from hybridstereo.evaluation.protocol import RULES
from hybridstereo.evaluation.runner import run
from hybridstereo.evaluation.scenes import Scene, dataset_scenes, select_scenes
from hybridstereo.synthetic import quantised

DATASET = "middlebury"
MODELS = ("general", "general-fast", "middlebury", "middlebury-fast")

Change = Callable[[np.ndarray], np.ndarray]


def exposed(view: np.ndarray, light: float | np.ndarray) -> np.ndarray:
    """The view (H, W, 3) with so many times the light, as an 8-bit camera records it."""
    return quantised(np.clip(view * light, 0.0, 1.0)).astype(np.float32) / 255


def lit_from_the_right(view: np.ndarray) -> np.ndarray:
    """From half the light at the left margin to one and a half at the right one."""
    return exposed(view, np.linspace(0.5, 1.5, view.shape[1], dtype=np.float32)[None, :, None])


CHANGES: dict[str, Change] = {
    "as recorded": lambda view: view,
    "0.35 times the light": partial(exposed, light=0.35),
    "1.8 times the light, clipped": partial(exposed, light=1.8),
    "lit from the right": lit_from_the_right,
}


def changed(scene: Scene, change: Change) -> Scene:
    """The scene with another right view."""

    def load() -> StereoPair:
        pair = scene.load()
        _, right = pair.images()
        return replace(pair, right=change(right))

    return replace(scene, load=load)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    groups = groups_of((*VALIDATION, *TEST), [DATASET])
    roots = sorted({str(data / group.folder) for group in groups})
    wanted = [scene for group in groups for scene in group.scenes]
    scenes = select_scenes(dataset_scenes(open_dataset(DATASET, roots)), wanted, None)
    methods = build_methods(EvalOptions(models=MODELS, baselines=(BASELINE,)), DATASET)
    figure, rows = FIGURES[DATASET], []
    for name, change in CHANGES.items():
        disturbed = [changed(scene, change) for scene in scenes]
        means = run(DATASET, RULES[DATASET], disturbed, methods).means
        rows.append([name, *(f"{means[method.info.name][figure]:.2f}" for method in methods)])
    print(markdown_table(["right view", *(method.info.name for method in methods)], rows))


if __name__ == "__main__":
    main()
