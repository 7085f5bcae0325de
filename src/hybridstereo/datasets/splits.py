"""Dividing the samples of a data set into training, validation and test, scene by scene."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from hybridstereo.datasets.samples import Dataset, Sample
from hybridstereo.errors import InputError

_SHOWN = 5  # scenes that an error message lists


def split(
    dataset: Dataset, val_fraction: float, seed: int
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Divide the samples into training and validation, scene by scene.

    All samples of a scene go to the same side, whichever data set they come from: Teddy of 2003
    and Teddy of the benchmark, Art and ArtL. The side depends on the seed and the names of the
    scenes, not on the order of the samples or the version of NumPy.

    Parameters
    ----------
    dataset
        Each source contributes this fraction of its scenes, at least one if it has two or more.
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
    home: dict[str, str] = {}  # a scene that several sources share counts for the first
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
        See `scenes_named`.

    Returns
    -------
    training, validation
        In the order of the data set.

    Raises
    ------
    InputError
        If there is no such scene, or none is left for training.

    """
    validation = scenes_named(dataset, names)
    training, chosen = _divided(dataset, validation)
    if not training:
        raise InputError("no scene is left for training", hint="Name fewer validation scenes")
    return training, chosen


def take_out(
    dataset: Dataset, names: Sequence[str], validation: Sequence[str] = ()
) -> tuple[Dataset, tuple[Sample, ...]]:
    """Take the test scenes out of a data set, before it is divided any further.

    Parameters
    ----------
    dataset
        All samples of a scene are taken out, or none.
    names
        Of the test scenes, see `scenes_named`; possibly none.
    validation
        Names of scenes that are meant for something else.

    Returns
    -------
    rest, test
        The data set without these scenes, and their samples.

    Raises
    ------
    InputError
        If there is no such scene, none is left, or one is named twice.

    """
    test = scenes_named(dataset, names)
    both = sorted(test & scenes_named(dataset, validation))
    if both:
        raise InputError(
            f"the scene {both[0]} is named for validation and for testing",
            hint="What picks a model cannot judge it: name it once",
        )
    rest, chosen = _divided(dataset, test)
    if not rest:
        raise InputError("no scene is left for training", hint="Name fewer test scenes")
    return replace(dataset, samples=rest), chosen


def scenes_named(dataset: Dataset, names: Sequence[str]) -> set[str]:
    """The scenes of a data set that names stand for.

    Parameters
    ----------
    dataset
        Whose scenes to look through.
    names
        Scenes such as ``teddy``, ``000017_10`` or ``synthetic/3``, in upper or lower case, or
        patterns such as ``kitti2012/0001[4-7]*``, which stands for a stretch of road.

    Raises
    ------
    InputError
        If a name stands for no scene.

    """
    scenes = {sample.scene for sample in dataset.samples}
    named: set[str] = set()
    for name in names:
        wanted = name.strip().lower()
        found = {scene for scene in scenes if _is_called(scene.lower(), wanted)}
        if not found:
            known = ", ".join(sorted(x.rpartition("/")[2] for x in scenes)[:_SHOWN])
            raise InputError(
                f"the data set has no scene {name!r}",
                hint=f"Its scenes are {known}{' and others' if len(scenes) > _SHOWN else ''}",
            )
        named |= found
    return named


def _is_called(scene: str, wanted: str) -> bool:
    """Whether a name or pattern fits a scene, or the last part of its name."""
    return any(
        name == wanted or fnmatchcase(name, wanted) for name in (scene, scene.rpartition("/")[2])
    )


def _divided(
    dataset: Dataset, validation: set[str]
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    return (
        tuple(sample for sample in dataset.samples if sample.scene not in validation),
        tuple(sample for sample in dataset.samples if sample.scene in validation),
    )
