"""The pictures of docs/results.md: python tools/model_pictures.py

Generated scenes that no model was trained on: left image and truth, then for SGBM and for the
default model the map and its errors.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from hybridstereo.datasets import StereoPair
from hybridstereo.datasets.pair import truth_pair
from hybridstereo.evaluation.baselines import OpenCvMethod
from hybridstereo.evaluation.methods import Method, ModelMethod
from hybridstereo.evaluation.protocol import RULES, score_scene
from hybridstereo.evaluation.report.pictures import color_range, error_codes, error_palette
from hybridstereo.evaluation.scenes import Scene
from hybridstereo.io.color import colorize
from hybridstereo.io.images import write_image
from hybridstereo.models.zoo import DEFAULT_MODEL
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import Photometric, SceneOptions, generate_scene, quantised

FOLDER = Path(__file__).parents[1] / "docs/pictures"
SEEDS = (1003, 1008, 1011)  # training uses 0 to 199
OPTIONS = SceneOptions(height=300, width=400, max_disparity=60, photometric=Photometric())
GAP, CAPTION = 8, 22


def pair_of(seed: int) -> StereoPair:
    """A scene as if it had been read from 8-bit files."""
    scene = generate_scene(seed, OPTIONS)
    left, right = (quantised(x).astype(np.float32) / 255 for x in (scene.left, scene.right))
    return truth_pair(scene.disparity, ~scene.occlusion, left=left, right=right, ndisp=64)


def titled(picture: np.ndarray, title: str) -> np.ndarray:
    """The picture with a line of text above it and a margin around it."""
    framed = cv2.copyMakeBorder(
        np.ascontiguousarray(picture), CAPTION, GAP, GAP, GAP, cv2.BORDER_CONSTANT,
        value=(255, 255, 255),
    )  # fmt: skip
    cv2.putText(
        framed, title, (GAP, CAPTION - 7), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (0, 0, 0), 1, cv2.LINE_AA
    )
    return framed


def page(pair: StereoPair, methods: dict[str, Method]) -> np.ndarray:
    """All pictures of a scene: images and truth on the left, a column for each method."""
    lo, hi = color_range(pair)
    columns = [[("left image", quantised(pair.left)), ("truth", colorize(pair.disparity, lo, hi))]]
    for name, method in methods.items():
        disparity = method.compute(Scene("", (), lambda: pair), pair).disparity
        bad = score_scene(RULES["middlebury"], disparity, pair).figures()["bad1"]
        errors = error_palette("kitti")[error_codes(disparity, pair)]
        columns.append(
            [(name, colorize(disparity, lo, hi)), (f"errors: {bad:.1f} % over 1 px", errors)]
        )
    return np.hstack([np.vstack([titled(x, title) for title, x in column]) for column in columns])


def main() -> None:
    """Draw and write."""
    methods: dict[str, Method] = {
        "SGBM": OpenCvMethod("sgbm-hh", "middlebury"),
        f"hstereo, model {DEFAULT_MODEL}": ModelMethod("", Stereo(DEFAULT_MODEL, "cpu")),
    }
    FOLDER.mkdir(exist_ok=True)
    for number, seed in enumerate(SEEDS, 1):
        write_image(FOLDER / f"scene{number}.png", page(pair_of(seed), methods))


if __name__ == "__main__":
    main()
