"""Fit the weights of `hybridstereo.confidence` to scenes with truth, and judge them on others.

    python tools/fit_confidence.py DATA WORK              # fit, write the weights, judge
    python tools/fit_confidence.py DATA WORK --judge      # judge the weights that are there

DATA is what tools/train_models.sh reads. WORK keeps what was computed for each model and scene, so
that a second run goes on where the first one ended; remove its files of a model that has changed.
Fitted on validation scenes, some training scenes and generated ones; judged on the test scenes
of tools/kept_scenes.py and generated ones, which are not fitted. Every scene counts the same.

Where the truth leaves out occluded pixels (KITTI without disp_occ), those that the left-right check
calls occluded are left out as well: the few of them that have truth are those where the check errs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from kept_scenes import TEST, Group, frames
from mdtable import markdown_table

import hybridstereo
from hybridstereo import LabelRange, Stereo
from hybridstereo.confidence import KINDS, RIGHT_WITHIN, Cues, confirmed_by, terms_of
from hybridstereo.confidence_weights import INTERCEPTS, WEIGHTS
from hybridstereo.datasets import StereoPair, open_dataset, parse_roots
from hybridstereo.datasets.generated import generated_samples
from hybridstereo.metrics import sparsification
from hybridstereo.synthetic import SceneOptions
from hybridstereo.validity import OCCLUDED

WEIGHTS_FILE = Path(hybridstereo.__file__).parent / "confidence_weights.py"
MODELS = ("general", "general-fast", "kitti", "middlebury")
FITTED = (
    Group("", "middlebury", "MiddEval3", ("Adirondack", "Teddy", "ArtL", "Vintage")),
    Group("", "middlebury", "middlebury-2005", ("Laundry",)),
    Group("", "middlebury", "middlebury-2006", ("Midd1",)),
    Group("", "kitti", "kitti2015", frames(5)),
    Group("", "kitti", "kitti2015-more", frames(0)),
    Group("", "kitti", "kitti2012", frames(67)),
)
GENERATED = (
    SceneOptions(width=480, height=320, max_disparity=60),
    SceneOptions(width=640, height=360, max_disparity=140),
)
# Seeds; training sees none of these sizes.
GENERATED_FITTED, GENERATED_JUDGED = range(20, 27), range(12, 14)
MOST_PIXELS = 20_000  # of a scene that are fitted
FRAMES_JUDGED = 7  # every seventh frame of KITTI: neighbours show the same street
FEWEST = 0.005  # of all pixels: a tenth with fewer says nothing about the calibration


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
    judged: bool
    terms: np.ndarray
    error: np.ndarray
    truth: np.ndarray
    peak_ratio: np.ndarray
    confirmed: np.ndarray

    def confidence(self, found: np.ndarray) -> np.ndarray:
        """Of all pixels, with intercepts and weights (kinds, 1 + T)."""
        kind = np.where(self.confirmed, *KINDS)
        evidence = found[kind, 0] + (found[kind, 1:] * self.terms).sum(axis=1)
        return 1 / (1 + np.exp(-evidence))

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
            every = FRAMES_JUDGED if judged and group.dataset == "kitti" else 1
            title = "KITTI" if group.dataset == "kitti" else "Middlebury"
            for scene in group.scenes[::every]:
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
    found = stereo.find_range(pair.left, pair.right)
    labels = found or LabelRange(0.0, pair.search_range)
    result = stereo.match(
        pair.left,
        pair.right,
        labels=labels,
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
        **vars(result.cues),
        "truth": pair.disparity,
        "known": known,
        "peak_ratio": np.zeros(0) if result.costs is None else peak_ratio(result.costs)[known],
    }


def measured(task: Task, arrays: Mapping[str, np.ndarray]) -> Measured:
    """The terms and errors of what `compute` gave."""
    known, disparity = arrays["known"], arrays["disparity"]
    cues = Cues(*(arrays[field.name] for field in fields(Cues)))
    terms = terms_of(disparity, arrays["other"], -1, arrays["background"], cues)
    return Measured(
        task.group,
        task.judged,
        np.stack([term[known] for _, term in terms], axis=1),
        np.abs(disparity - arrays["truth"])[known],
        arrays["truth"][known],
        arrays["peak_ratio"],
        confirmed_by(disparity, arrays["other"], -1)[known],
    )


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
                found.append(measured(task, arrays))
    return found


def logistic_regression(
    terms: np.ndarray, right: np.ndarray, weight: np.ndarray, ridge: float = 1e-5
) -> np.ndarray:
    """Intercept and weights (1 + T,) by Newton's method; the ridge keeps unused terms at zero."""
    terms = np.column_stack([np.ones(len(terms)), terms]).astype(np.float64)
    weight = weight / weight.sum()
    penalty = ridge * np.diag([0.0, *[1.0] * (terms.shape[1] - 1)])
    found = np.zeros(terms.shape[1])
    for _ in range(50):
        probability = 1 / (1 + np.exp(-terms @ found))
        gradient = terms.T @ (weight * (probability - right)) + penalty @ found
        curvature = weight * probability * (1 - probability)
        step = np.linalg.solve((terms * curvature[:, np.newaxis]).T @ terms + penalty, gradient)
        found -= step
        if np.abs(step).max() < 1e-6:
            return found
    raise SystemExit("the regression does not converge")


def fit(scenes: Sequence[Measured]) -> np.ndarray:
    """Intercepts and weights (kinds, 1 + T) from a sample of each scene's pixels."""
    generator = np.random.default_rng(0)
    parts = []
    for scene in scenes:
        count = min(MOST_PIXELS, scene.error.size)
        chosen = generator.choice(scene.error.size, count, replace=False)
        sample = scene.terms, scene.right, scene.confirmed
        parts.append((*(values[chosen] for values in sample), np.full(count, 1 / count)))
    terms, right, confirmed, weight = map(np.concatenate, zip(*parts, strict=True))
    return np.stack([monotone_fit(terms[x], right[x], weight[x]) for x in (confirmed, ~confirmed)])


def monotone_fit(terms: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Intercept and weights (1 + T,) of which none counts against its meaning.

    More evidence of one kind never counts the other way: terms that would be used so, to correct
    others, are left out one by one.
    """
    names = term_names()
    used = [term for term in range(len(names)) if np.ptp(terms[:, term]) > 0]
    while True:
        found = logistic_regression(terms[:, used], right, weight)
        expected = found[1:] * [_sign(names[term]) for term in used]
        if expected.min() >= 0:
            complete = np.zeros(1 + len(names))
            complete[[0, *(1 + term for term in used)]] = found
            return complete
        del used[int(expected.argmin())]


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
    return [name for name, _ in terms_of(blank, blank, -1, blank, Cues(blank, blank))]


def write_weights(found: np.ndarray, models: Sequence[str], scenes: int) -> None:
    """Store the weights as the module that `hybridstereo.confidence` imports."""
    rounded = np.round(found, 4).tolist()
    table = "".join(
        f'    "{name}": {weights},\n'
        for name, weights in zip(["", *term_names()], zip(*rounded, strict=True), strict=True)
        if name
    )
    WEIGHTS_FILE.write_text(
        '"""Weights of `hybridstereo.confidence`, written by ``tools/fit_confidence.py``.\n\n'
        "Two each: for pixels that the other view confirms, and for those that it does not.\n"
        f"Fitted to {scenes} maps of {', '.join(models)}.\n"
        '"""\n\n'
        f"INTERCEPTS = {tuple(row[0] for row in rounded)}\n\nWEIGHTS = {{\n{table}}}\n"
        '"""By the names of the terms, in their order."""\n'
    )


def tenths(confidence: np.ndarray, right: np.ndarray) -> list[float]:
    """For each tenth of the confidence, points between the share that is right and its mean.

    NaN where there are too few pixels.
    """
    place = np.minimum((10 * confidence).astype(int), 9)
    found = []
    for tenth in range(10):
        inside = place == tenth
        enough = inside.mean() >= FEWEST
        points = 100 * (right[inside].mean() - confidence[inside].mean()) if enough else math.nan
        found.append(points)
    return found


def judge(model: str, scenes: Sequence[Measured], found: np.ndarray) -> list[list[str]]:
    """A line for each group of scenes, and one for all."""
    rows = []
    groups = dict.fromkeys(scene.group for scene in scenes)
    for title in (*groups, "all"):
        confidences, rights, areas = [], [], []
        for scene in scenes:
            if title not in (scene.group, "all"):
                continue
            confidence = scene.confidence(found)
            confidences.append(confidence)
            rights.append(scene.right)
            area, naive = (
                sparsification(x, scene.bad).area for x in (confidence, scene.peak_ratio)
            )
            areas.append((100 * scene.bad.mean(), area, naive))
        random, area, naive = np.mean(areas, axis=0)
        points = tenths(np.concatenate(confidences), np.concatenate(rights))
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
                " ".join("." if math.isnan(x) else f"{x:+.0f}" for x in points),
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
    if list(WEIGHTS) != term_names():  # the terms have changed, and there are no weights yet
        if arguments.judge:
            parser.error("the stored weights are not those of the terms: fit them first")
        WEIGHTS.clear()
        WEIGHTS.update(dict.fromkeys(term_names(), (0.0, 0.0)))
    collect(data, work, models, lambda task: task.judged or not arguments.judge)
    scenes_of = {model: stored(data, work, model) for model in models}
    found = np.column_stack([INTERCEPTS, *WEIGHTS.values()])
    if not arguments.judge:
        every = [scene for scenes in scenes_of.values() for scene in scenes]
        fitted = [scene for scene in every if not scene.judged]
        found = fit(fitted)
        write_weights(found, models, len(fitted))
    header = ["model", "scenes", "maps", "error (= random)", "peak ratio", "area"]
    header += ["below random", "below peak ratio", "right - confidence, points per tenth"]
    rows = [
        row
        for model, scenes in scenes_of.items()
        for row in judge(model, [scene for scene in scenes if scene.judged], found)
    ]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
