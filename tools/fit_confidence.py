"""Fit the weights of `hybridstereo.confidence` to scenes with truth, and judge them on others.

    python tools/fit_confidence.py DATA WORK              # fit, write the weights, judge
    python tools/fit_confidence.py DATA WORK --judge      # judge the weights that are there

DATA is what tools/train_models.sh reads. WORK keeps what was computed for each model and scene, so
that a second run goes on where the first one ended; remove its files of a model that has changed.
Fitted on the validation scenes of tools/kept_scenes.py, some training scenes and generated ones;
judged on all test scenes and on generated ones that are not fitted. Data sets count the same, and
so do the scenes of each.

Scenes differ more than the terms can tell, so weights that suit the fitted ones are too sure of
themselves on others. Hence the calibration: each part of the scenes is judged by weights that were
fitted to the other parts, and what that shows corrects the evidence of the weights fitted to all.

Where the truth leaves out occluded pixels (KITTI without disp_occ), those that the left-right check
calls occluded are left out as well: the few of them that have truth are those where the check errs.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from kept_scenes import TEST, VALIDATION, Group
from mdtable import markdown_table

import hybridstereo
from hybridstereo import Stereo, confidence_weights
from hybridstereo.confidence import (
    CALIBRATION_KNOTS,
    KINDS,
    RIGHT_WITHIN,
    ConfidenceFit,
    Cues,
    kinds_of,
    terms_of,
)
from hybridstereo.datasets import StereoPair, open_dataset, parse_roots
from hybridstereo.datasets.generated import generated_samples
from hybridstereo.metrics import sparsification
from hybridstereo.model import fingerprint
from hybridstereo.models.zoo import load_model
from hybridstereo.synthetic import SceneOptions
from hybridstereo.validity import OCCLUDED

WEIGHTS_FILE = Path(hybridstereo.__file__).parent / "confidence_weights.py"
MODELS = ("general", "general-fast", "kitti", "kitti-fast", "middlebury", "middlebury-fast")
"""Each gets a fit of its own; models that we do not know get the joint one of all."""

FITTED = (
    *VALIDATION,
    Group("", "middlebury", "MiddEval3", ("ArtL", "Recycle", "Vintage")),
    Group("", "middlebury", "middlebury-2005", ("Laundry", "Reindeer")),
    Group("", "middlebury", "middlebury-2006", ("Aloe", "Lampshade1", "Midd1")),
)
GENERATED = (
    SceneOptions(width=480, height=320, max_disparity=60),
    SceneOptions(width=640, height=360, max_disparity=140),
)
# Seeds; training sees none of these sizes.
GENERATED_FITTED, GENERATED_JUDGED = range(20, 27), range(12, 14)
MOST_PIXELS = 2_000  # of a scene that are fitted
RIDGE = 1e-3  # pulls weights to zero: the scenes are few
PARTS = 6  # of the scenes, for the calibration
LEAST_SLOPE = 0.1  # of the calibration, so that it keeps the order of the pixels
FEWEST = 0.005  # of all pixels: a tenth with fewer is noise, and marked


@dataclass(frozen=True)
class Task:
    """A scene to compute."""

    group: str
    name: str
    judged: bool
    read: Callable[[], StereoPair]


@dataclass(frozen=True)
class Measured:
    """Pixels (N,) of a scene whose truth is known; terms (N, T)."""

    group: str
    name: str
    judged: bool
    terms: np.ndarray
    error: np.ndarray
    truth: np.ndarray
    peak_ratio: np.ndarray
    kind: np.ndarray

    def evidence(self, found: np.ndarray) -> np.ndarray:
        """Of all pixels, with intercepts and weights (kinds, 1 + T), before the calibration."""
        evidence = found[self.kind, 0]
        for term in range(self.terms.shape[1]):
            evidence += found[self.kind, 1 + term] * self.terms[:, term]
        return evidence

    def confidence(self, found: np.ndarray, calibration: np.ndarray) -> np.ndarray:
        """Of all pixels."""
        return logistic(np.interp(self.evidence(found), CALIBRATION_KNOTS, calibration))

    @property
    def right(self) -> np.ndarray:
        """In the sense of the confidence."""
        return self.error <= RIGHT_WITHIN

    @property
    def bad(self) -> np.ndarray:
        """In the sense of the benchmark: D1 of KITTI, else bad1."""
        if self.group == "KITTI":
            return (self.error > 3) & (self.error > 0.05 * self.truth)
        return self.error > 1


def tasks(data: Path) -> Iterator[Task]:
    """All scenes, those that are fitted first."""
    for judged, groups, seeds in (
        (False, FITTED, GENERATED_FITTED),
        (True, TEST, GENERATED_JUDGED),
    ):
        for options in GENERATED:
            samples = generated_samples(max(seeds) + 1, options)
            for seed in seeds:
                name = f"generated-{options.width}-{seed}"
                yield Task("generated", name, judged, samples[seed].read)
        for group in groups:
            opened = open_dataset(group.dataset, parse_roots([str(data / group.folder)]))
            by_name = {sample.name.rpartition("/")[2]: sample for sample in opened.samples}
            title = "KITTI" if group.dataset == "kitti" else "Middlebury"
            for scene in group.scenes:
                yield Task(title, f"{group.folder}-{scene}", judged, by_name[scene].read)


def peak_ratio(costs: np.ndarray) -> np.ndarray:
    """The naive confidence: the best score over the best one that is no neighbour of it."""
    scores = -costs
    best = scores.argmax(axis=2)[..., np.newaxis]
    first = np.take_along_axis(scores, best, axis=2)[..., 0]
    near = np.clip(best + np.array([-1, 0, 1]), 0, costs.shape[2] - 1)
    np.put_along_axis(scores, near, -np.inf, axis=2)
    return first / np.maximum(scores.max(axis=2), 1e-6)


def compute(stereo: Stereo, task: Task) -> dict[str, np.ndarray]:
    """Everything that terms, fit and judgement need of a scene; maps (H, W)."""
    pair = task.read()
    result = stereo.match(
        pair.left,
        pair.right,
        "auto",
        view="both",
        confidence=True,
        volumes=task.judged,
    )
    assert result.right is not None
    assert result.cues is not None
    assert result.validity is not None
    known = np.isfinite(pair.disparity)
    if not pair.covers_occluded:
        known &= result.validity != OCCLUDED
    return {
        "disparity": result.disparity,
        "other": result.right.disparity,
        "background": result.filled().disparity,
        "validity": result.validity,
        **vars(result.cues),
        "truth": pair.disparity,
        "known": known,
        "peak_ratio": np.zeros(0) if result.costs is None else peak_ratio(result.costs)[known],
    }


def measured(task: Task, arrays: Mapping[str, np.ndarray]) -> Measured:
    """The terms and errors of what `compute` gave."""
    known, disparity = arrays["known"], arrays["disparity"]
    cues = Cues(*(arrays[field.name] for field in fields(Cues)))
    others = (arrays[name] for name in ("other", "background", "validity"))
    other, background, validity = others
    terms = terms_of(disparity, other, -1, background, validity, cues)
    return Measured(
        task.group,
        task.name,
        task.judged,
        np.stack([term[known] for _, term in terms], axis=1),
        np.abs(disparity - arrays["truth"])[known],
        arrays["truth"][known],
        arrays["peak_ratio"],
        kinds_of(validity)[known],
    )


def sampled(scene: Measured) -> Measured:
    """Some of its pixels, the same in every run."""
    count = min(MOST_PIXELS, scene.error.size)
    chosen = np.random.default_rng(0).choice(scene.error.size, count, replace=False)
    arrays = ("terms", "error", "truth", "kind")
    return replace(scene, **{name: getattr(scene, name)[chosen] for name in arrays})


def collect(data: Path, work: Path, models: Sequence[str], wanted: Callable[[Task], bool]) -> None:
    """Compute what WORK does not hold yet."""
    work.mkdir(parents=True, exist_ok=True)
    for model in models:
        stereo = None
        for task in filter(wanted, tasks(data)):
            path = work / f"{model}-{task.name}.npz"
            if path.exists():
                continue
            stereo = stereo or Stereo(model)
            unfinished = path.with_suffix(".part")
            with unfinished.open("wb") as stream:
                np.savez(stream, **compute(stereo, task))
            unfinished.rename(path)
            print(f"{model}, {task.name}", flush=True)


def stored(data: Path, work: Path, model: str) -> list[Measured]:
    """What WORK holds of a model."""
    found = []
    for task in tasks(data):
        path = work / f"{model}-{task.name}.npz"
        if path.exists():
            with np.load(path) as arrays:
                scene = measured(task, arrays)
            found.append(scene if task.judged else sampled(scene))
    return found


def logistic(evidence: np.ndarray) -> np.ndarray:
    """The probability that goes with some evidence."""
    return 1 / (1 + np.exp(-evidence))


def bounded_regression(
    terms: np.ndarray, right: np.ndarray, weight: np.ndarray, start: np.ndarray, least: np.ndarray
) -> np.ndarray:
    """Logistic regression by projected Newton steps.

    Parameters
    ----------
    terms, right, weight
        (N, T), (N,) and (N,): what is seen of each pixel, whether it is right, how much it counts.
    start
        (T,), where the coefficients begin, and what a ridge pulls them to.
    least
        (T,), their lower bounds.
    """
    weight = weight / weight.sum()
    sign = np.where(right, -1.0, 1.0)

    def loss(found: np.ndarray) -> float:
        misfit = np.logaddexp(0, sign * (terms @ found)) @ weight
        return float(misfit + RIDGE / 2 * np.sum((found - start) ** 2))

    found = np.maximum(start, least)
    before = loss(found)
    for _ in range(100):
        probability = logistic(terms @ found)
        gradient = terms.T @ (weight * (probability - right)) + RIDGE * (found - start)
        curvature = (terms * (weight * probability * (1 - probability))[:, np.newaxis]).T @ terms
        curvature += RIDGE * np.eye(found.size)
        free = (found > least) | (gradient < 0)
        step = np.zeros(found.size)
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        while (after := loss(moved := np.maximum(found - step, least))) > before:
            step /= 2
            if np.abs(step).max() < 1e-6:
                return found
        if before - after < 1e-9:
            return moved
        found, before = moved, after
    raise SystemExit("the regression does not converge")


def pixel_weights(scenes: Sequence[Measured]) -> np.ndarray:
    """(N,): every data set counts the same, every scene of it, and every pixel of a scene."""
    of_group = {group: sum(x.group == group for x in scenes) for group in {x.group for x in scenes}}
    parts = (np.full(x.error.size, 1 / of_group[x.group] / x.error.size) for x in scenes)
    return np.concatenate(list(parts))


def fit(scenes: Sequence[Measured]) -> np.ndarray:
    """Intercepts and weights (kinds, 1 + T) of which none counts against its meaning."""
    terms = np.concatenate([x.terms for x in scenes]).astype(np.float64)
    right, kind = (np.concatenate([getattr(x, name) for x in scenes]) for name in ("right", "kind"))
    weight = pixel_weights(scenes)
    # Terms are turned so that none may count against its sign; those without one may.
    signs = np.array([_sign(name) for name in term_names()])
    turned = np.column_stack([np.ones(len(terms)), terms * np.where(signs < 0, -1, 1)])
    least = np.where(np.concatenate([[0], signs]) == 0, -np.inf, 0.0)
    found = []
    for number in range(len(KINDS)):
        inside = kind == number
        coefficients = bounded_regression(
            turned[inside], right[inside], weight[inside], np.zeros(least.size), least
        )
        found.append(coefficients * np.concatenate([[1], np.where(signs < 0, -1, 1)]))
    return np.stack(found)


def calibrate(scenes: Sequence[Measured]) -> np.ndarray:
    """What the evidence at `CALIBRATION_KNOTS` amounts to on scenes that were not fitted."""
    names = sorted({scene.name for scene in scenes})
    part = {name: number % PARTS for number, name in enumerate(names)}
    evidence = [np.zeros(0)] * len(scenes)
    for number in range(PARTS):
        found = fit([scene for scene in scenes if part[scene.name] != number])
        for place, scene in enumerate(scenes):
            if part[scene.name] == number:
                evidence[place] = scene.evidence(found)
    knots = np.array(CALIBRATION_KNOTS, np.float64)
    steps = np.diff(knots)
    # How far the evidence has come within each piece; the coefficients are how much that counts.
    shares = np.clip((np.concatenate(evidence)[:, np.newaxis] - knots[:-1]) / steps, 0, 1)
    found = bounded_regression(
        np.column_stack([np.ones(len(shares)), shares]),
        np.concatenate([scene.right for scene in scenes]),
        pixel_weights(scenes),
        np.concatenate([knots[:1], steps]),
        np.concatenate([[-np.inf], LEAST_SLOPE * steps]),
    )
    return np.cumsum(found)


def _sign(name: str) -> int:
    """Which way a term may go: more of it is better, worse, or (0) either.

    What the other view sees instead says something only of pixels that it does not confirm.
    """
    if name.startswith(("the other view", "outside")):
        return 0
    return 1 if name.startswith(("margin", "distance")) else -1


def term_names() -> list[str]:
    """The names of the terms, in their order."""
    blank = np.zeros((2, 2), np.float32)
    return [name for name, _ in terms_of(blank, blank, -1, blank, blank, Cues(blank, blank))]


def fit_in_words(scenes: Sequence[Measured], described: str) -> str:
    """The arguments of a `ConfidenceFit`, as source text."""
    found, calibration = np.round(fit(scenes), 4) + 0.0, np.round(calibrate(scenes), 3)  # no -0
    rows = zip(["", *term_names()], found.T.tolist(), strict=True)
    table = "".join(f'        "{name}": {tuple(row)},\n' for name, row in rows if name)
    intercepts, steps = tuple(found[:, 0].tolist()), tuple(calibration.tolist())
    return f'(\n    "{described}",\n    {intercepts},\n    {{\n{table}    }},\n    {steps},\n)'


def write_fits(scenes_of: Mapping[str, Sequence[Measured]]) -> None:
    """Store all fits as the module that `hybridstereo.confidence` imports.

    Fits of models that are not given stay as they are, and so does the joint one unless all are.
    """
    fitted = {
        model: [scene for scene in scenes if not scene.judged]
        for model, scenes in scenes_of.items()
    }
    joint = repr(confidence_weights.JOINT_FIT)
    if set(MODELS) <= fitted.keys():
        joint = fit_in_words([x for scenes in fitted.values() for x in scenes], "all models")
    fits = {key: repr(x) for key, x in confidence_weights.FITS.items() if x[0] not in fitted}
    for model, scenes in fitted.items():
        fits[fingerprint(load_model(model))] = fit_in_words(scenes, model)
    own = "".join(f'FITS["{key}"] = {fit}\n\n' for key, fit in fits.items())
    WEIGHTS_FILE.write_text(
        '"""Weights of `hybridstereo.confidence`, written by ``tools/fit_confidence.py``.\n\n'
        "What they mean says `hybridstereo.confidence.ConfidenceFit`.\n"
        '"""\n\nfrom __future__ import annotations\n\n'
        "from typing import Any\n\n"
        f"JOINT_FIT = {joint}\n"
        '"""For models that have none of their own."""\n\n'
        "FITS: dict[str, tuple[Any, ...]] = {}\n"
        '"""By the fingerprints of models (`hybridstereo.model.fingerprint`)."""\n\n'
        f"{own}"
    )


def stored_fit(model: str) -> tuple[np.ndarray, np.ndarray]:
    """Intercepts and weights (kinds, 1 + T), and the calibration, that a model uses."""
    used = ConfidenceFit.of(fingerprint(load_model(model)))
    return np.column_stack([used.intercepts, *used.weights.values()]), np.array(used.calibration)


def tenths(confidence: np.ndarray, right: np.ndarray) -> str:
    """For each tenth of the confidence, points between the share that is right and its mean.

    A star marks those with too few pixels to mean anything.
    """
    place = np.minimum((10 * confidence).astype(int), 9)
    found = []
    for tenth in range(10):
        inside = place == tenth
        if not inside.any():
            found.append(".")
            continue
        points = 100 * (right[inside].mean() - confidence[inside].mean())
        found.append(f"{points:+.1f}" + ("" if inside.mean() >= FEWEST else "*"))
    return " ".join(found)


def shares(confidence: np.ndarray) -> str:
    """Percent of the pixels in each tenth of the confidence."""
    place = np.minimum((10 * confidence).astype(int), 9)
    return " ".join(f"{100 * np.mean(place == tenth):.1f}" for tenth in range(10))


def judge(
    model: str, scenes: Sequence[Measured], found: np.ndarray, calibration: np.ndarray
) -> list[list[str]]:
    """A line for each group of scenes, and one for all."""
    rows = []
    groups = dict.fromkeys(scene.group for scene in scenes)
    for title in (*groups, "all"):
        confidences, rights, areas = [], [], []
        for scene in scenes:
            if title not in (scene.group, "all"):
                continue
            confidence = scene.confidence(found, calibration)
            confidences.append(confidence)
            rights.append(scene.right)
            area, naive = (
                sparsification(x, scene.bad).area for x in (confidence, scene.peak_ratio)
            )
            areas.append((100 * scene.bad.mean(), area, naive))
        random, area, naive = np.mean(areas, axis=0)
        confidence = np.concatenate(confidences)
        rows.append(
            [
                model,
                title,
                str(len(areas)),
                f"{random:.2f}",
                f"{naive:.2f}",
                f"{area:.2f}",
                f"{100 - 100 * area / random:.0f} %",
                f"{100 - 100 * area / naive:.0f} %",
                tenths(confidence, np.concatenate(rights)),
                shares(confidence),
            ]
        )
    return rows


def main() -> None:
    """Compute, fit, write and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--judge", action="store_true", help="leave the weights as they are")
    parser.add_argument("--models", default=",".join(MODELS), help="which to take, with commas")
    arguments = parser.parse_args()
    data, work, models = arguments.data, arguments.work, arguments.models.split(",")
    collect(data, work, models, lambda task: task.judged or not arguments.judge)
    scenes_of = {model: stored(data, work, model) for model in models}
    if not arguments.judge:
        write_fits(scenes_of)
        importlib.reload(confidence_weights)
    header = ["model", "scenes", "maps", "error (= random)", "peak ratio", "area"]
    header += ["below random", "below peak ratio", "right - confidence, points per tenth"]
    header += ["% of the pixels in each tenth"]
    rows = [
        row
        for model, scenes in scenes_of.items()
        for row in judge(model, [scene for scene in scenes if scene.judged], *stored_fit(model))
    ]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
