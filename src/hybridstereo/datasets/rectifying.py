"""A data set whose right views are corrected as they are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import replace

from hybridstereo.datasets.pair import FloatImage, StereoPair
from hybridstereo.datasets.samples import Dataset, Sample
from hybridstereo.rectification import Rectification, corrected, estimate


def rectified(dataset: Dataset) -> Dataset:
    """The data set with the rows of its right views brought in line with those of the left ones.

    What is to be corrected is found when a pair is first read, and only once; see
    `hybridstereo.rectification`. All conditions of a scene share the correction of the first of
    its samples: the cameras did not move. Generated scenes are exact and stay as they are.

    """
    cameras: dict[Hashable, _Corrector] = {}
    samples = []
    for sample in dataset.samples:
        if not sample.files:
            samples.append(sample)
            continue
        key = sample.conditions.right if sample.conditions else sample
        corrector = cameras.setdefault(key, _Corrector(sample.read))
        samples.append(_rectified_sample(sample, corrector))
    return replace(dataset, samples=tuple(samples))


def _rectified_sample(sample: Sample, corrector: _Corrector) -> Sample:
    def read() -> StereoPair:
        pair = sample.read()
        if not pair.has_images:
            return pair
        found = corrector.found(pair if corrector.reads is sample.read else None)
        return replace(pair, right=corrected(pair.right, found), rectification=found)

    return replace(sample, read=read, correct_right=corrector.correct)


class _Corrector:
    """The correction of one right camera, found when it is first needed; threads may share it.

    Parameters
    ----------
    reads
        Reads the pair that tells what to correct.

    """

    def __init__(self, reads: Callable[[], StereoPair]) -> None:
        self.reads = reads
        self._found: Rectification | None = None
        self._lock = threading.Lock()

    def found(self, pair: StereoPair | None = None) -> Rectification:
        """What to correct; ``pair`` saves reading it, if it is at hand."""
        with self._lock:
            if self._found is None:
                pair = self.reads() if pair is None else pair
                self._found = estimate(*pair.images(), pair.right_camera)
            return self._found

    def correct(self, right: FloatImage) -> FloatImage:
        """A view of this camera, corrected."""
        return corrected(right, self.found())
