"""What `tools/fit_confidence.py` fits to and judges by: pixels of scenes with truth, kept in files.

Fitted are scenes that no model is trained on (validation and the neighbours of the test), some that
the models are trained on, and generated ones. Trained scenes do no harm: with `general`, no more
pixels of equal evidence are right there than on scenes that it never saw (docs/model.md 18).

Where the truth leaves out occluded pixels (KITTI without disp_occ), those that the left-right check
calls occluded are left out as well, in fitting and in judging: the few of them that have truth are
those where the check errs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from kept_scenes import NEIGHBOURS, TEST, VALIDATION, Group, frames

from hybridstereo import Stereo
from hybridstereo.confidence import RIGHT_WITHIN, kinds_of, term_names, terms_of
from hybridstereo.datasets import StereoPair, open_dataset, parse_roots
from hybridstereo.datasets.generated import generated_samples
from hybridstereo.model import fingerprint
from hybridstereo.models.zoo import load_model
from hybridstereo.synthetic import SceneOptions
from hybridstereo.validity import OCCLUDED

FITTED = (
    *VALIDATION,
    *NEIGHBOURS,
    Group("", "middlebury", "MiddEval3", ("ArtL", "Recycle", "Vintage")),
    Group("", "middlebury", "middlebury-2003", ("cones",)),
    Group(
        "", "middlebury", "middlebury-2005", ("Books", "Dolls", "Laundry", "Moebius", "Reindeer")
    ),
    Group(
        "", "middlebury", "middlebury-2006",
        ("Aloe", "Baby1", "Baby3", "Bowling1", "Bowling2", "Cloth3", "Cloth4", "Flowerpots",
         "Lampshade1", "Lampshade2", "Midd1", "Midd2", "Monopoly", "Rocks1", "Wood1", "Wood2"),
    ),
    Group("", "kitti", "kitti2015", frames(3, 7, 11, 19, 27)),
    Group("", "kitti", "kitti2015-more", frames(54, 57, 59, 60, 900008)),
    Group("", "kitti", "kitti2012", frames(12, 32, 52, 82, 102, 122, 142, 177, 192)),
)  # fmt: skip
GENERATED = (
    SceneOptions(width=480, height=320, max_disparity=60),
    SceneOptions(width=640, height=360, max_disparity=140),
)
# Seeds; training sees none of these sizes.
GENERATED_FITTED, GENERATED_JUDGED = range(20, 32), range(12, 14)
MOST_FITTED, MOST_JUDGED = 3_000, 40_000
"""Pixels of a scene that are kept, drawn at random."""


@dataclass(frozen=True)
class Task:
    """A scene to compute."""

    group: str
    name: str
    judged: bool
    read: Callable[[], StereoPair]


@dataclass(frozen=True)
class Evidence:
    """Pixels (N,) of a scene whose truth is known.

    Attributes
    ----------
    terms
        (N, T), those of `hybridstereo.confidence.terms_of`.
    error, truth
        In pixels.
    peak_ratio
        The naive confidence, which the table compares with.
    kind
        The place of its kind in `hybridstereo.confidence.KINDS`.
    known
        Of how many pixels these were drawn.
    """

    terms: np.ndarray
    error: np.ndarray
    truth: np.ndarray
    peak_ratio: np.ndarray
    kind: np.ndarray
    known: np.ndarray


@dataclass(frozen=True)
class Scene:
    """The evidence of a scene, and which one it is."""

    group: str
    name: str
    judged: bool
    evidence: Evidence

    @property
    def right(self) -> np.ndarray:
        """In the sense of the confidence."""
        return self.evidence.error <= RIGHT_WITHIN

    @property
    def bad(self) -> np.ndarray:
        """In the sense of the benchmark: D1 of KITTI, else bad1."""
        error = self.evidence.error
        if self.group.startswith("KITTI"):
            return (error > 3) & (error > 0.05 * self.evidence.truth)
        return error > 1


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
            title = "Middlebury"
            if group.dataset == "kitti":  # the years differ in cameras and in what truth covers
                title = "KITTI 2012" if group.folder == "kitti2012" else "KITTI 2015"
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


def compute(stereo: Stereo, task: Task) -> Evidence:
    """Match a scene and draw pixels, the same in every run."""
    pair = task.read()
    result = stereo.match(
        pair.left, pair.right, "auto", view="both", confidence=True, volumes=task.judged
    )
    right, cues, validity = result.right, result.cues, result.validity
    assert right is not None
    assert cues is not None
    assert validity is not None
    known = np.isfinite(pair.disparity)
    if not pair.covers_occluded:
        known &= validity != OCCLUDED
    places = np.flatnonzero(known)
    count = min(MOST_JUDGED if task.judged else MOST_FITTED, places.size)
    drawn = np.unravel_index(
        np.random.default_rng(0).choice(places, count, replace=False), known.shape
    )
    background = result.filled().disparity
    terms = terms_of(result.disparity, right.disparity, -1, background, validity, cues)
    return Evidence(
        np.stack([term[drawn] for _, term in terms], axis=1),
        np.abs(result.disparity - pair.disparity)[drawn],
        pair.disparity[drawn],
        np.zeros(count) if result.costs is None else peak_ratio(result.costs)[drawn],
        kinds_of(validity)[drawn],
        np.array(places.size),
    )


def collect(
    data: Path, work: Path, model: str, wanted: Callable[[Task], bool] = lambda _: True
) -> list[Scene]:
    """The evidence of a model's maps; what WORK does not hold yet is computed.

    A file belongs to a fingerprint and to the names of the terms, so that a model that has changed,
    or other terms, are computed anew.
    """
    folder = work / f"{model}-{fingerprint(load_model(model))}"
    folder.mkdir(parents=True, exist_ok=True)
    stereo = None
    found = []
    for task in filter(wanted, tasks(data)):
        path = folder / f"{task.name}.npz"
        evidence = _stored(path)
        if evidence is None:
            stereo = stereo or Stereo(model)
            evidence = compute(stereo, task)
            unfinished = path.with_suffix(".part")
            with unfinished.open("wb") as stream:
                np.savez(stream, names=np.array(term_names()), **vars(evidence))
            unfinished.replace(path)
            print(f"{model}, {task.name}", flush=True)
        found.append(Scene(task.group, task.name, task.judged, evidence))
    return found


def _stored(path: Path) -> Evidence | None:
    """What a file holds; None if there is none, or it is about other terms."""
    if not path.exists():
        return None
    with np.load(path) as arrays:
        if arrays["names"].tolist() != term_names():
            return None
        return Evidence(*(arrays[field.name] for field in fields(Evidence)))


def pixels_of(scenes: Sequence[Scene]) -> dict[str, int]:
    """How many pixels with truth the scenes of each data set have."""
    found: dict[str, int] = {}
    for scene in scenes:
        found[scene.group] = found.get(scene.group, 0) + int(scene.evidence.known)
    return found
