"""Figures of a model on the validation pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..datasets import Sample, StereoPair, ranked_by
from ..datasets.loader import PairCache
from ..kernels import Backend
from ..labels import LabelRange
from ..metrics import Scores, per_image_mean, score
from ..model import StereoModel, predict

THRESHOLDS = (1.0, 2.0, 3.0, 4.0)
CRITERIA = ("benchmark", "bad1", "bad2", "bad3", "bad4", "d1")
"""The figures that models can be compared by, all in percent.

``benchmark`` is what each data set itself ranks by: D1 for KITTI, bad1 for the others.  Of a
mixture it is the mean over the data sets, so that one with many or difficult pairs does not decide
alone.
"""

# Labels come in multiples of this, so that pairs of similar range share compiled shapes and BLAS
# gets even blocks.
_LABEL_MULTIPLE = 8


def labels_for(pair: StereoPair, disparities: int | None) -> LabelRange:
    """The labels to train or validate a pair with: as asked for, or what its data set says."""
    if disparities is not None:
        return LabelRange(0.0, disparities)
    return LabelRange(0.0, -(-pair.search_range // _LABEL_MULTIPLE) * _LABEL_MULTIPLE)


def score_prediction(disparity: np.ndarray, pair: StereoPair) -> Scores:
    """Figures over non-occluded pixels with known truth."""
    return score(disparity, pair.disparity, pair.valid, THRESHOLDS)


def mean_figures(samples: Sequence[Sample], scores: Sequence[Scores]) -> dict[str, float]:
    """Those of `CRITERIA` in percent, each but ``benchmark`` the mean over images."""
    by_source: dict[str, list[Scores]] = {}
    for sample, its_scores in zip(samples, scores, strict=True):
        by_source.setdefault(sample.source, []).append(its_scores)
    ranked = [
        per_image_mean(of_source)[ranked_by(source)] for source, of_source in by_source.items()
    ]
    known = [figure for figure in ranked if not math.isnan(figure)]
    benchmark = sum(known) / len(known) if known else math.nan
    means = {**per_image_mean(scores), "benchmark": benchmark}
    return {name: means[name] for name in CRITERIA}


def validate(
    model: StereoModel,
    backend: Backend,
    cache: PairCache,
    samples: Sequence[Sample],
    method: str,
    disparities: int | None,
) -> dict[str, float]:
    """The figures of `CRITERIA` on complete images, refined if the method is ``crf``."""
    scores = []
    for sample in samples:
        pair = cache.load(sample)
        labels = labels_for(pair, disparities)
        prediction = predict(model, backend, pair.left, pair.right, labels=labels, method=method)
        scores.append(score_prediction(prediction.disparity, pair))
    return mean_figures(samples, scores)
