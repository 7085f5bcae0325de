"""Figures of a model on the validation pairs, by the rules that `hstereo eval` prints them by."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..datasets import Sample, StereoPair
from ..datasets.loader import PairCache
from ..engines.ranks import Alone, Ranks, shared_out
from ..evaluation.protocol import SceneScores, dataset_rules, mean_figures, score_scene
from ..kernels import Backend
from ..model import StereoModel
from ..stereo import Stereo

CRITERIA = ("benchmark", "bad1", "bad2", "bad3", "bad4", "d1")
"""The figures that models can be compared by, all in percent, over non-occluded pixels.

``benchmark`` is what each data set itself ranks by: D1 for KITTI, bad1 for the others.  Each is
what `hstereo eval` would print for the same scenes; of a mixture it is the mean over the data
sets, so that one with many or difficult pairs does not decide alone.
"""


def sample_scores(sample: Sample, pair: StereoPair, disparity: np.ndarray) -> SceneScores:
    """The scores of a sample's map, by the rules of its data set."""
    return score_scene(dataset_rules(sample.source), disparity, pair)


def figures_of(samples: Sequence[Sample], scores: Sequence[SceneScores]) -> dict[str, float]:
    """Those of `CRITERIA`, from the scores of every sample."""
    by_source: dict[str, dict[str, SceneScores]] = {}
    for sample, its_scores in zip(samples, scores, strict=True):
        by_source.setdefault(sample.source, {})[sample.name] = its_scores
    tables = []
    for source, scores_of in by_source.items():
        rules = dataset_rules(source)
        means = mean_figures(rules, scores_of)
        means["benchmark"] = means.get(rules.primary_of(means), math.nan)
        means["d1"] = means.get("d1_noc", means.get("d1", math.nan))
        tables.append(means)
    return {name: _mean([table.get(name, math.nan) for table in tables]) for name in CRITERIA}


def _mean(values: Sequence[float]) -> float:
    """Over those that exist: a data set without known truth has no figures."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def validate(
    model: StereoModel,
    backend: Backend,
    cache: PairCache,
    samples: Sequence[Sample],
    method: str,
    ranks: Ranks | None = None,
) -> dict[str, float]:
    """The figures of `CRITERIA` on complete images, refined if the method is ``crf``.

    With several ``ranks``, each matches some of the samples, and all get the figures.
    """
    stereo = Stereo(model, backend)

    def scored(sample: Sample) -> SceneScores:
        pair = cache.load(sample)
        result = stereo.match(pair.left, pair.right, search_range=pair.search_range, method=method)
        return sample_scores(sample, pair, result.disparity)

    return figures_of(samples, shared_out(ranks or Alone(), scored, samples))
