"""Dividing the samples of a data set into training and validation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

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
        Scenes such as ``teddy``, ``000017_10`` or ``synthetic/3``, in upper or lower case.

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
                hint=f"Its scenes are {known}{' and others' if len(scenes) > _SHOWN else ''}",
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
