"""A small evaluation with everything that can go wrong in it, for the tests of the report."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from hybridstereo.datasets import StereoPair
from hybridstereo.datasets.pair import truth_pair
from hybridstereo.evaluation.report.html import HtmlReport
from hybridstereo.evaluation.results import (
    CURVE_ERRORS,
    Evaluation,
    Figures,
    MethodInfo,
    SceneResult,
)

HEIGHT, WIDTH = 40, 64
EVIL = "<script>alert('x')</script> & \"quoted\""
EVIL_SCENE = '"><img src=x onerror=alert(1)>'
METHODS = [
    MethodInfo("ours", "stage full, 5 iterations", "model"),
    MethodInfo("sgbm", "OpenCV, block 5", "baseline"),
    MethodInfo(EVIL, "settings <i>in</i> markup", "folder"),
]
SCENES = ["scene10", "scene9", EVIL_SCENE, "unreadable"]
FAILURE = "the file <broken>.pfm is truncated"


def example_pair() -> StereoPair:
    """A ramp from 10 to 50 pixels; two unknown rows, and a strip of occluded columns."""
    rows, columns = np.mgrid[0 : 1 : HEIGHT * 1j, 0 : 1 : WIDTH * 1j]
    left = np.stack([rows, columns, np.full_like(rows, 0.8)], axis=2).astype(np.float32)
    disparity = np.tile(np.linspace(10, 50, WIDTH, dtype=np.float32), (HEIGHT, 1))
    disparity[:2] = np.inf
    mask = np.ones((HEIGHT, WIDTH), bool)
    mask[:, :8] = False
    return truth_pair(disparity, mask, left=left)


def map_of(method: str, pair: StereoPair) -> np.ndarray:
    """Ours is 0.25 px off, sgbm 5 px with a hole of 10 x 10 pixels, the other has no estimate."""
    disparity = np.where(np.isfinite(pair.disparity), pair.disparity, 30).astype(np.float32)
    if method == "ours":
        return disparity + np.float32(0.25)
    disparity += 5
    disparity[15:25, 20:30] = np.inf
    return disparity if method == "sgbm" else np.full_like(disparity, np.inf)


def figures_of(bad1: float, invalid: float, average: float) -> Figures:
    return {
        "bad1": bad1,
        "d1_noc": bad1 / 2,
        "avgerr": average,
        "epe": average,
        "invalid": invalid,
        "bad1_all": bad1 + 1,
    }


def results() -> list[SceneResult]:
    """Ours works everywhere it can, sgbm fails once, the third gives no estimate at all."""
    table = []
    for number, scene in enumerate(SCENES[:3]):
        table.append(SceneResult(scene, "ours", figures_of(2.5 + number, 0, 0.25), 1.5, None))
        if number == 1:
            table.append(SceneResult(scene, "sgbm", {}, None, FAILURE))
        else:
            table.append(SceneResult(scene, "sgbm", figures_of(20 + number, 4, 5), 0.125, None))
        table.append(SceneResult(scene, EVIL, figures_of(100, 100, math.nan), None, None))
    return table + [SceneResult("unreadable", method.name, {}, None, FAILURE) for method in METHODS]


def evaluation() -> Evaluation:
    means = {
        "ours": figures_of(3.5, 0, 0.25) | {"bad1_pooled": 3.75},
        "sgbm": figures_of(21.0, 4, 5) | {"bad1_pooled": 21.5},
        EVIL: figures_of(100, 100, math.nan) | {"bad1_pooled": 100.0},
    }
    return Evaluation("tiny <set>", METHODS, SCENES, results(), means, "bad1")


def curves_of(maps: dict[str, np.ndarray], pair: StereoPair) -> dict[str, np.ndarray]:
    errors = {n: np.abs(m[pair.valid] - pair.disparity[pair.valid]) for n, m in maps.items()}
    return {
        name: np.array([100.0 * np.mean(values <= limit) for limit in CURVE_ERRORS])
        for name, values in errors.items()
    }


def write_report(folder: Path) -> None:
    report = HtmlReport(folder)
    for scene in SCENES[:3]:
        pair = example_pair()
        failed = "sgbm" if scene == "scene9" else ""
        maps = {m.name: map_of(m.name, pair) for m in METHODS if m.name != failed}
        report.scene(scene, pair, maps, curves_of(maps, pair))
    report.finish(evaluation())
