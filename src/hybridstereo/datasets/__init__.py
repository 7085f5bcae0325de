"""Data sets by name: KITTI, Middlebury, generated scenes, your own pairs, and mixtures of them.

Opening a data set finds its files; a pair is read when it is loaded::

    dataset = open_dataset("synthetic:1,middlebury:2", {"middlebury": "/data/middlebury"})
    training, validation = split(dataset, 0.2, seed=0)
    pair = dataset.load(training[0])
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hybridstereo.datasets import csvlist, kitti, middlebury
from hybridstereo.datasets.pair import FloatImage, Sample, StereoPair, build_pair
from hybridstereo.errors import InputError
from hybridstereo.synthetic import SceneOptions, generate_scene, quantised

__all__ = [
    "NAMES",
    "Dataset",
    "Sample",
    "StereoPair",
    "open_dataset",
    "parse_roots",
    "split",
    "split_named",
]

_ON_DISK = {
    "kitti": kitti,
    "middlebury": middlebury,
    "csv": csvlist,
}
NAMES = (*_ON_DISK, "synthetic")
"""The data sets that `open_dataset` knows."""

_SHOWN = 5  # incomplete samples that an error message lists
Roots = Mapping[str, str | os.PathLike[str]] | str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples that can be loaded, of one or several data sets.

    Parameters
    ----------
    samples
        In a fixed order.
    weights
        For each source, how often its samples are drawn compared to those of the others.
    warnings
        Sentences about samples that were left out because files are missing.

    """

    samples: tuple[Sample, ...]
    weights: Mapping[str, float]
    warnings: tuple[str, ...] = ()

    def load(self, sample: Sample) -> StereoPair:
        """Read or generate a pair.

        Raises
        ------
        InputError
            If a file is damaged, or the sizes of the pair's files differ.

        """
        return sample.read()


def open_dataset(
    spec: str,
    roots: Roots = None,
    *,
    scenes: int = 200,
    scene_options: SceneOptions | None = None,
) -> Dataset:
    """Find the samples of a data set or a mixture; images are read later, by `Dataset.load`.

    Parameters
    ----------
    spec
        ``kitti``, ``middlebury``, ``csv`` or ``synthetic``; or several with optional weights,
        for example ``synthetic:1,middlebury:2``.
    roots
        Where the files are: for each name its folder (for ``csv`` the file), or one for all.
    scenes, scene_options
        How many synthetic scenes there are, and what they look like; None: the generator's
        defaults.

    Raises
    ------
    InputError
        If the specification is wrong, a root is missing, or a data set has no usable sample.

    """
    weights = _parse_spec(spec)
    _check_roots(roots, weights)
    samples: list[Sample] = []
    warnings: list[str] = []
    for name in weights:
        if name == "synthetic":
            samples += _synthetic_samples(scenes, scene_options or SceneOptions())
            continue
        root = roots.get(name) if isinstance(roots, Mapping) else roots
        found, missing = _find(name, root)
        samples += found
        warnings += missing
    return Dataset(tuple(samples), weights, tuple(warnings))


def parse_roots(values: Sequence[str]) -> dict[str, str] | str | None:
    """Understand the values of ``--root``: one folder for all, or ``name=folder`` for each.

    Parameters
    ----------
    values
        As given on the command line, possibly none.

    Returns
    -------
    dict, str or None
        For `open_dataset`.

    Raises
    ------
    InputError
        If a folder without a name stands beside others, or a name appears twice.

    """
    roots: dict[str, str] = {}
    for value in values:
        name, equals, folder = value.partition("=")
        if not equals or name not in _ON_DISK:  # a folder's name may contain "="
            if len(values) == 1:
                return value
            raise InputError(
                f"--root {value} does not say which data set it belongs to",
                hint=f"Write --root NAME={value} with one of {', '.join(_ON_DISK)}",
            )
        if name in roots:
            raise InputError(
                f"--root gives two folders for {name}", hint="Give one that holds both"
            )
        roots[name] = folder
    return roots or None


def split(
    dataset: Dataset, val_fraction: float, seed: int
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Divide the samples into training and validation, scene by scene.

    All samples of a scene go to the same side, from whichever data set they come: Teddy of 2003
    and Teddy of the benchmark, Art and ArtL. The side depends on the seed and the names of the
    scenes, not on the order of the samples nor on the version of NumPy.

    Parameters
    ----------
    dataset
        Each of its sources gives this fraction of its scenes, at least one if it has two or more.
    val_fraction
        In [0, 1); 0 means no validation.
    seed
        Picks the scenes.

    Returns
    -------
    training, validation
        In the order of the data set.

    Raises
    ------
    InputError
        If the fraction is out of range or there are too few scenes to divide.

    """
    if not 0.0 <= val_fraction < 1.0:
        raise InputError(
            f"the validation fraction is {val_fraction:g}", hint="Give a number from 0 to below 1"
        )
    if val_fraction == 0.0:
        return dataset.samples, ()
    home: dict[str, str] = {}  # a scene of several sources belongs to the first of them
    for sample in dataset.samples:
        home.setdefault(sample.scene, sample.source)
    validation: set[str] = set()
    for source in dataset.weights:
        scenes = sorted(
            (scene for scene in home if home[scene] == source),
            key=lambda scene: hashlib.sha256(f"{seed}:{scene}".encode()).digest(),
        )
        count = min(max(round(val_fraction * len(scenes)), 1), len(scenes) - 1)
        validation.update(scenes[: max(count, 0)])
    if not validation:
        raise InputError(
            f"{len(home)} scene cannot be divided into training and validation",
            hint="Add scenes or use no validation (fraction 0)",
        )
    return _divided(dataset, validation)


def split_named(
    dataset: Dataset, names: Sequence[str]
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Divide the samples into training and validation, which gets the scenes with these names.

    Parameters
    ----------
    dataset
        All samples of a scene go to the same side, as in `split`.
    names
        Scenes such as ``teddy``, ``000017_10`` or ``synthetic/3``; upper and lower case are equal.

    Returns
    -------
    training, validation
        In the order of the data set.

    Raises
    ------
    InputError
        If there is no such scene, or none is left for training.

    """
    scenes = {sample.scene for sample in dataset.samples}
    validation: set[str] = set()
    for name in names:
        wanted = name.strip().lower()
        found = {x for x in scenes if wanted in (x.lower(), x.lower().rpartition("/")[2])}
        if not found:
            known = ", ".join(sorted(x.rpartition("/")[2] for x in scenes)[:_SHOWN])
            raise InputError(
                f"the data set has no scene {name!r}",
                hint=f"Its scenes are {known}{', ...' if len(scenes) > _SHOWN else ''}",
            )
        validation |= found
    if validation == scenes:
        raise InputError("no scene is left for training", hint="Name fewer validation scenes")
    return _divided(dataset, validation)


def _divided(
    dataset: Dataset, validation: set[str]
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    return (
        tuple(sample for sample in dataset.samples if sample.scene not in validation),
        tuple(sample for sample in dataset.samples if sample.scene in validation),
    )


def _parse_spec(spec: str) -> dict[str, float]:
    """The weight of each named data set, in the order of the specification."""
    weights: dict[str, float] = {}
    for part in spec.split(","):
        name, colon, text = (word.strip() for word in part.partition(":"))
        if name not in NAMES:
            raise InputError(
                f"there is no data set {name!r}",
                hint=f"Use {', '.join(NAMES)}, or a mixture such as synthetic:1,middlebury:2",
            )
        if name in weights:
            raise InputError(f"the data set {name} appears twice in {spec!r}")
        try:
            weight = float(text) if colon else 1.0
        except ValueError:
            weight = math.nan
        if not 0.0 < weight < math.inf:
            raise InputError(
                f"the weight {text!r} of the data set {name} is not a positive number",
                hint="Write for example synthetic:1,middlebury:2",
            )
        weights[name] = weight
    return weights


def _check_roots(roots: Roots, weights: Mapping[str, float]) -> None:
    if isinstance(roots, Mapping):
        unused = sorted(set(roots) - set(weights))
        if unused:
            raise InputError(
                f"a root is given for {', '.join(unused)}, which is not in the mixture",
                hint=f"The mixture is {', '.join(weights)}",
            )


def _find(name: str, root: str | os.PathLike[str] | None) -> tuple[list[Sample], list[str]]:
    """The samples of a data set on disk; an error that explains if there are none."""
    module = _ON_DISK[name]
    if root is None:
        raise InputError(
            f"the data set {name} needs to know where its files are",
            hint=f"Give --root DIR or --root {name}=DIR. {module.EXPECTED}",
        )
    if not Path(root).exists():
        raise InputError(f"{root}, the root of {name}, does not exist", hint=module.EXPECTED)
    samples, warnings = module.find_samples(Path(root))
    if not samples:
        problem = f"{root} holds no usable pair for the data set {name}"
        if warnings:
            more = f"; and {len(warnings) - _SHOWN} more" if len(warnings) > _SHOWN else ""
            problem += f": {'; '.join(warnings[:_SHOWN])}{more}"
        raise InputError(problem, hint=module.EXPECTED)
    return samples, warnings


def _synthetic_samples(count: int, options: SceneOptions) -> list[Sample]:
    if count < 1:
        raise InputError(f"the number of synthetic scenes is {count}", hint="Give at least 1")
    return [
        Sample(
            name=f"seed {seed}",
            scene=f"synthetic/{seed}",
            source="synthetic",
            files=(),
            read=partial(_generate, seed, options),
        )
        for seed in range(count)
    ]


def _generate(seed: int, options: SceneOptions) -> StereoPair:
    """A scene as if it had been written to 8-bit files and read again."""

    def stored(view: FloatImage) -> FloatImage:
        return quantised(view).astype(np.float32) / np.float32(255)

    scene = generate_scene(seed, options)
    return build_pair(
        f"synthetic scene {seed}",
        stored(scene.left),
        stored(scene.right),
        scene.disparity,
        visible=~scene.occlusion,
        right_disparity=scene.right_disparity,
        ndisp=max(math.floor(options.max_disparity) + 1, 1),
    )
