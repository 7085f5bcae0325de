"""Pairs of a data set that are read when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hybridstereo.datasets.pair import FloatImage, StereoPair


@dataclass(frozen=True)
class Conditions:
    """Images of one scene under several lights and exposures; the geometry is always the same.

    Parameters
    ----------
    left, right
        The images of each condition, in the same order.
    differ
        Whether the two views of a pair come from different conditions, or from the same one.

    """

    left: tuple[Path, ...]
    right: tuple[Path, ...]
    differ: bool

    def draw(self, rng: np.random.Generator) -> tuple[Path, Path]:
        """The images of a random left and right condition, all choices being equally likely."""
        first = int(rng.integers(len(self.left)))
        second = first
        if self.differ:
            second = (first + 1 + int(rng.integers(len(self.left) - 1))) % len(self.left)
        return self.left[first], self.right[second]


@dataclass(frozen=True)
class Sample:
    """A pair that has not been read yet.

    Parameters
    ----------
    name
        Unique within its data set.
    scene
        What it shows. Samples of one scene always stay on the same side of a split.
    source
        The data set, as it is called in the specification: ``kitti``, ``middlebury``...
    files
        What `read` will read; empty for generated scenes.
    read
        Reads or generates the pair; raises `InputError` if a file is unusable.
    keys
        Names under which other programs may have stored a map of it, the most specific first;
        empty: its name, and the last part of that.
    conditions
        What a training step draws its images from, instead of those that `read` always takes;
        None: there are no others.
    correct_right
        Corrects the rows of those right images, as `read` does; None: they stay as they are.

    """

    name: str
    scene: str
    source: str
    files: tuple[Path, ...]
    read: Callable[[], StereoPair] = field(repr=False, compare=False)
    keys: tuple[str, ...] = ()
    conditions: Conditions | None = None
    correct_right: Callable[[FloatImage], FloatImage] | None = field(
        default=None, repr=False, compare=False
    )


@dataclass(frozen=True, eq=False)
class Dataset:
    """The samples of one or several data sets.

    Parameters
    ----------
    samples
        In a fixed order.
    weights
        For each source, how often its samples are drawn relative to the others.
    warnings
        Sentences about samples that were skipped because files are missing.

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
