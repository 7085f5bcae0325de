"""Fit the weights of `hybridstereo.confidence` to scenes with truth, and judge them on others.

    python tools/fit_confidence.py DATA WORK --models general   # one model: fit, store, judge
    python tools/fit_confidence.py DATA WORK                    # all models, and the joint weights
    python tools/fit_confidence.py DATA WORK --judge            # judge the weights that are there

DATA is what tools/train_models.sh reads. WORK keeps what was computed of each model and scene
(some 200 kB for a scene, 2 to 5 MB for a judged one): a second run goes on where the first one
ended, and fits again in seconds; a model whose fingerprint has changed is computed anew. Weights go
to models/confidence.json, where those of models that have changed or are gone are removed.

Fitted on 81 scenes, judged on all test scenes of tools/kept_scenes.py and on generated ones that
are not fitted (29). A data set counts in the fit by how many pixels with truth its test scenes
have, and its scenes count the same (`tools/confidence_evidence.py`, `confidence_regression.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from confidence_evidence import Scene, collect, pixels_of
from confidence_regression import (
    KNOTS,
    Shares,
    calibrate,
    confidence_of,
    evidence_of_others,
    fit,
    pool,
)
from mdtable import markdown_table

from hybridstereo.confidence import ConfidenceFit, term_names
from hybridstereo.io.atomic import atomic_write
from hybridstereo.kernels import limited_threads
from hybridstereo.metrics import sparsification
from hybridstereo.model import fingerprint
from hybridstereo.models.confidence_fits import FITS_FILE, JOINT, confidence_fit, read_fits
from hybridstereo.models.zoo import available_models, load_model

MODELS = ("general", "general-fast", "kitti", "kitti-fast", "middlebury", "middlebury-fast")
"""Each gets a fit of its own; models that we do not know get the joint one of all."""
FEWEST = 0.005  # of all pixels: a tenth with fewer is noise, and marked
NONE = 0.005  # percent of the pixels: between steps of the calibration


def fitted(scenes: Sequence[Scene], described: str, shares: Shares) -> ConfidenceFit:
    """The fit to some scenes."""
    with limited_threads(None):  # small matrix products: threads would only wait for each other
        found = np.round(fit(scenes, shares), 4) + 0.0  # no -0
        evidence = evidence_of_others(scenes, shares)
        calibration = np.round(calibrate(scenes, shares, evidence), 3)
        steps = [np.round(x, 8) for x in pool(scenes, shares, evidence, calibration)]
    return ConfidenceFit(
        described,
        tuple(found[:, 0].tolist()),
        {name: tuple(x) for name, x in zip(term_names(), found[:, 1:].T.tolist(), strict=True)},
        KNOTS,
        tuple(map(tuple, calibration.tolist())),
        (tuple(steps[0].tolist()), tuple(steps[1].tolist())),
    )


def write_fits(new: Mapping[str, ConfidenceFit], path: Path) -> None:
    """Add fits by fingerprint to a file; those of models that are no longer shipped go."""
    shipped = {JOINT, *(fingerprint(load_model(name)) for name in available_models())}
    fits = {key: x for key, x in {**read_fits(path), **new}.items() if key in shipped}
    text = json.dumps({key: asdict(x) for key, x in fits.items()}, indent=1)
    with atomic_write(path) as temporary:
        temporary.write_text(_short_lists(text), encoding="utf-8")
    read_fits.cache_clear()


def _short_lists(text: str) -> str:
    """JSON with every list of numbers on one line, so that a term is a line."""
    parts = text.split("[")
    for place, part in enumerate(parts[1:], start=1):
        numbers, bracket, rest = part.partition("]")
        if bracket:
            parts[place] = ", ".join(x.strip() for x in numbers.split(",")) + bracket + rest
    return "[".join(parts) + "\n"


def tenths(confidence: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(10, 2): points between the share that is right and the mean confidence; % of the pixels."""
    place = np.minimum((10 * confidence).astype(int), 9)
    counts, sure, found = (
        np.bincount(place, x * weight, minlength=10) for x in (np.ones(1), confidence, right)
    )
    points = 100 * (found - sure) / np.where(counts > 0, counts, 1)
    return np.column_stack([points, 100 * counts / weight.sum()])


def _points(points: float, percent: float) -> str:
    """As the table shows those of a tenth: nothing without pixels, a star with few of them."""
    if percent < NONE:
        return ""
    return f"{points:+.1f}" + ("" if percent >= 100 * FEWEST else "\\*")


def judge(model: str, scenes: Sequence[Scene]) -> list[list[str]]:
    """Two lines for each group of scenes, and for all: points, and percent of the pixels."""
    used = confidence_fit(fingerprint(load_model(model)))
    rows = []
    for title in (*dict.fromkeys(scene.group for scene in scenes), "all"):
        chosen = [scene for scene in scenes if title in (scene.group, "all")]
        confidences = [confidence_of(x.evidence, used) for x in chosen]
        areas = [
            (
                100 * x.bad.mean(),
                *(sparsification(y, x.bad).area for y in (x.evidence.peak_ratio, confidence)),
            )
            for x, confidence in zip(chosen, confidences, strict=True)
        ]
        random, naive, area = np.mean(areas, axis=0)
        each = [np.full(x.right.size, x.evidence.known / x.right.size) for x in chosen]
        right = np.concatenate([x.right for x in chosen])
        found = tenths(np.concatenate(confidences), right, np.concatenate(each))
        counting = found[found[:, 1] >= 100 * FEWEST, 0]
        rows.append(
            [
                model,
                title,
                str(len(chosen)),
                f"{random:.2f}",
                f"{naive:.2f}",
                f"{area:.2f}",
                f"{100 - 100 * area / random:.0f} %",
                f"{100 - 100 * area / naive:.0f} %",
                f"{np.abs(counting).max():.1f}",
                *(_points(*tenth) for tenth in found),
            ]
        )
        rows.append([model, f"{title}, % of pixels"] + [""] * 7 + [f"{x:.2f}" for x in found[:, 1]])
    return rows


def main() -> None:
    """Compute, fit, write and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--judge", action="store_true", help="leave the weights as they are")
    parser.add_argument("--models", default=",".join(MODELS), help="which to take, with commas")
    arguments = parser.parse_args()
    models = arguments.models.split(",")
    scenes_of = {
        model: collect(
            arguments.data, arguments.work, model, lambda task: task.judged or not arguments.judge
        )
        for model in models
    }
    judged = {model: [x for x in scenes if x.judged] for model, scenes in scenes_of.items()}
    if not arguments.judge:
        shares = pixels_of(next(iter(judged.values())))
        used = {model: [x for x in scenes if not x.judged] for model, scenes in scenes_of.items()}
        fits = {
            fingerprint(load_model(model)): fitted(scenes, model, shares)
            for model, scenes in used.items()
        }
        if set(MODELS) <= set(models):
            everything = [x for scenes in used.values() for x in scenes]
            fits[JOINT] = fitted(everything, "all models", shares)
        write_fits(fits, FITS_FILE)
    header = ["model", "scenes", "maps", "error (= random)", "peak ratio", "area", "below random"]
    header += ["below peak ratio", "worst tenth", *(f"to {tenth / 10:g}" for tenth in range(1, 11))]
    print(markdown_table(header, [row for model in models for row in judge(model, judged[model])]))


if __name__ == "__main__":
    main()
