"""How large the steps of the confidence have to be, by mock tests drawn from the fitted scenes.

    python tools/confidence_mock.py DATA WORK --models general,kitti

DATA and WORK as for ``tools/fit_confidence.py``. No test scene is judged: a mock test has as many
scenes of each data set as the test, half of the fitted ones at most, and the others calibrate.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from confidence_evidence import Scene, collect, pixels_of
from confidence_regression import (
    Shares,
    calibrate,
    calibrated,
    evidence_of_others,
    pixel_weights,
    pool,
)
from fit_confidence import tenths
from mdtable import markdown_table

from hybridstereo.kernels import limited_threads

# The largest standard error of a step, and its least share of the pixels; the first has no steps.
LIMITS = (
    (np.inf, 0.0),
    (0.025, 0.0),
    (0.025, 0.02),
    (0.025, 0.03),
    (0.0225, 0.02),
    (0.0225, 0.03),
    (0.0225, 0.05),
    (0.02, 0.03),
    (0.02, 0.05),
)
ALLOWED = 5.0  # points in any tenth
SEED = 1


def drawn(
    generator: np.random.Generator, fitted: Sequence[Scene], judged: Sequence[Scene]
) -> set[int]:
    """The places of the scenes of a mock test."""
    places: set[int] = set()
    for group in dict.fromkeys(scene.group for scene in judged):
        inside = [place for place, scene in enumerate(fitted) if scene.group == group]
        count = min(sum(scene.group == group for scene in judged), len(inside) // 2)
        places.update(generator.choice(inside, count, replace=False).tolist())
    return places


def mock_test(
    fitted: Sequence[Scene], evidence: Sequence[np.ndarray], shares: Shares, test: set[int]
) -> list[tuple[float, float]]:
    """For each of `LIMITS`, points in the worst tenth, and the mean squared error in percent."""
    others = [place for place in range(len(fitted)) if place not in test]
    used, known = [fitted[x] for x in others], [evidence[x] for x in others]
    calibration = calibrate(used, shares, known)
    mock = [fitted[x] for x in test]
    sure = np.concatenate([calibrated(fitted[x].evidence, evidence[x], calibration) for x in test])
    right, weight = np.concatenate([x.right for x in mock]), pixel_weights(mock, shares)
    found = []
    for error, share in LIMITS:
        worth = sure
        if np.isfinite(error):
            worth = np.interp(sure, *pool(used, shares, known, calibration, error, share))
        points, percent = tenths(worth, right, weight).T
        worst = float(np.abs(points[percent >= 0.005]).max())
        found.append((worst, float(100 * weight @ (worth - right) ** 2 / weight.sum())))
    return found


def main() -> None:
    """Print a line for each model and each of `LIMITS`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--models", default="general")
    parser.add_argument("--tests", type=int, default=30)
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models.split(","):
        scenes = collect(arguments.data, arguments.work, model)
        fitted, judged = ([x for x in scenes if x.judged == test] for test in (False, True))
        shares = pixels_of(judged)
        generator = np.random.default_rng(SEED)
        with limited_threads(None):
            evidence = evidence_of_others(fitted, shares)
            tests = [
                mock_test(fitted, evidence, shares, drawn(generator, fitted, judged))
                for _ in range(arguments.tests)
            ]
        for limits, figures in zip(LIMITS, np.transpose(tests, (1, 2, 0)), strict=True):
            within = f"{100 * np.mean(figures[0] < ALLOWED):.0f} %"
            worst, squared = f"{np.median(figures[0]):.1f}", f"{figures[1].mean():.2f}"
            rows.append([model, *(f"{100 * x:g}" for x in limits), within, worst, squared])
    header = [
        "model",
        "largest error",
        "least share, %",
        "within 5 points",
        "worst tenth",
        "mean squared error, %",
    ]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
