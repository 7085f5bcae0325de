"""The data sets that we know, and how to open one of them or a mixture.

To add a data set, write a module with a ``find_samples`` and an ``EXPECTED`` like those of
`hybridstereo.datasets.kitti` and add a line to `KINDS`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybridstereo.datasets import csvlist, kitti, middlebury
from hybridstereo.datasets.generated import generated_samples
from hybridstereo.datasets.samples import Dataset, Sample
from hybridstereo.errors import InputError
from hybridstereo.synthetic import SceneOptions

_SHOWN = 5  # incomplete samples that an error message lists

Root = str | os.PathLike[str]
Roots = Mapping[str, Root | Sequence[Root]] | Root | Sequence[Root] | None
Finder = Callable[[Path], tuple[list[Sample], list[str]]]


@dataclass(frozen=True)
class DatasetKind:
    """What the package knows about a data set.

    Parameters
    ----------
    find
        Finds the samples below a root, and says in one sentence each which are incomplete. None:
        the scenes are generated and need no root.
    expected
        What a root should hold, as a sentence for error messages.
    rules
        How maps are scored, and by which figure models are ranked: a key of
        `hybridstereo.evaluation.protocol.RULES`.

    """

    find: Finder | None
    expected: str
    rules: str


KINDS = {
    "kitti": DatasetKind(kitti.find_samples, kitti.EXPECTED, "kitti"),
    "middlebury": DatasetKind(middlebury.find_samples, middlebury.EXPECTED, "middlebury"),
    "csv": DatasetKind(csvlist.find_samples, csvlist.EXPECTED, "plain"),
    "synthetic": DatasetKind(None, "", "middlebury"),
}
"""By name, as in the specification of `open_dataset`."""

NAMES = tuple(KINDS)
"""The data sets that `open_dataset` knows."""


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
        One of `NAMES`, or several with optional weights, such as ``synthetic:1,middlebury:2``.
    roots
        Where the files are: for each name its folder (for ``csv`` the file) or a sequence of
        them, or the same for all.
    scenes, scene_options
        How many synthetic scenes there are, and what they look like; None: the generator's
        defaults. A quarter as many plain scenes come in addition.

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
        find = KINDS[name].find
        if find is None:
            samples += generated_samples(scenes, scene_options or SceneOptions())
            continue
        given = roots.get(name) if isinstance(roots, Mapping) else roots
        found, missing = _found(name, find, _as_paths(given))
        samples += found
        warnings += missing
    return Dataset(tuple(samples), weights, tuple(warnings))


def absolute_roots(roots: Roots, base: str) -> Roots:
    """Roots for `open_dataset` that hold in any folder; ``base`` is what they are relative to."""

    def absolute(root: Root | Sequence[Root]) -> Root | Sequence[Root]:
        if isinstance(root, str | os.PathLike):
            return os.path.join(base, root)
        return [os.path.join(base, one) for one in root]

    if roots is None:
        return None
    if isinstance(roots, Mapping):
        return {name: absolute(root) for name, root in roots.items()}
    return absolute(roots)


def parse_roots(values: Sequence[str]) -> dict[str, tuple[str, ...]] | tuple[str, ...] | None:
    """Parse roots written as text: folders for all, or ``name=folder`` for each.

    Parameters
    ----------
    values
        As a user wrote them, possibly none; a name may appear several times.

    Returns
    -------
    dict, tuple or None
        For `open_dataset`.

    Raises
    ------
    InputError
        If a folder without a name stands beside one with a name.

    """
    on_disk = [name for name, kind in KINDS.items() if kind.find is not None]
    named: dict[str, tuple[str, ...]] = {}
    unnamed: list[str] = []
    for value in values:
        name, equals, folder = value.partition("=")
        if equals and name in on_disk:  # a folder's name may contain "="
            named[name] = (*named.get(name, ()), folder)
        else:
            unnamed.append(value)
    if named and unnamed:
        raise InputError(
            f"`root={unnamed[0]}` does not say which data set it belongs to",
            hint=f"Write `root=NAME={unnamed[0]}` with one of {', '.join(on_disk)}",
        )
    return named or tuple(unnamed) or None


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


def _as_paths(given: Root | Sequence[Root] | None) -> list[Path]:
    """Folders given as one or as a sequence; one that is given twice counts once."""
    if given is None:
        return []
    several = [given] if isinstance(given, str | os.PathLike) else given
    return list(dict.fromkeys(Path(root) for root in several))


def _found(name: str, find: Finder, roots: Sequence[Path]) -> tuple[list[Sample], list[str]]:
    """The samples of a data set on disk; an error that explains if a root has none."""
    expected = KINDS[name].expected
    if not roots:
        raise InputError(
            f"the data set {name} needs to know where its files are",
            hint=f"Give `root=DIR` or `root={name}=DIR`. {expected}",
        )
    found: list[tuple[Path, Sample]] = []
    warnings: list[str] = []
    for root in roots:
        if not os.path.exists(root):
            raise InputError(f"{root}, the root of {name}, does not exist", hint=expected)
        samples, missing = find(root)
        if not samples:
            problem = f"{root} holds no usable pair for the data set {name}"
            if missing:
                more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
                problem += f": {'; '.join(missing[:_SHOWN])}{more}"
            raise InputError(problem, hint=expected)
        found += [(root, sample) for sample in samples]
        warnings += missing
    return _distinct(found), list(dict.fromkeys(warnings))


def _distinct(found: Sequence[tuple[Path, Sample]]) -> list[Sample]:
    """Samples of several roots: each once, and under a name of its own.

    Roots may lie within each other, or hold pairs of the same name.
    """
    owners: dict[tuple[str, ...], Path] = {}
    kept: list[tuple[Path, Sample]] = []
    for root, sample in found:
        files = tuple(os.path.realpath(path) for path in sample.files)
        if owners.setdefault(files, root) == root:
            kept.append((root, sample))
    places: dict[str, set[Path]] = {}
    for root, sample in kept:
        places.setdefault(sample.name, set()).add(root)
    folders = {root: root.resolve().name for root in owners.values()}
    if len(set(folders.values())) < len(folders):
        folders = {root: root.as_posix() for root in folders}
    return [
        replace(sample, name=f"{folders[root]}/{sample.name}")
        if len(places[sample.name]) > 1
        else sample
        for root, sample in kept
    ]
