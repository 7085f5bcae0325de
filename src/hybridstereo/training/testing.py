"""The last word on a run: its best model on scenes that neither trained nor picked it.

The figures are those of `hstereo eval`, by the same code; they are computed once, when the run is
finished, so that nothing can be tuned by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..datasets import Dataset, Sample
from ..evaluation.methods import ModelMethod
from ..evaluation.protocol import dataset_rules
from ..evaluation.results import Evaluation
from ..evaluation.runner import run
from ..evaluation.scenes import dataset_scenes
from ..evaluation.spread import spread_of
from ..evaluation.tables import as_dict
from ..kernels import Backend
from ..model import StereoModel
from ..stereo import Stereo
from .runfolder import RunFolder

TEST_FILE = "test.json"
_NAME = "best"


def measured_on(
    model: StereoModel, backend: Backend, samples: Sequence[Sample]
) -> dict[str, Evaluation]:
    """The evaluation of a model on test samples, by data set."""
    method = ModelMethod(_NAME, Stereo(model, backend))
    found = {}
    for source in dict.fromkeys(sample.source for sample in samples):
        own = tuple(sample for sample in samples if sample.source == source)
        scenes = dataset_scenes(Dataset(own, {source: 1.0}))
        found[source] = run(source, dataset_rules(source), scenes, [method])
    return found


def write_test(folder: RunFolder, evaluations: dict[str, Evaluation]) -> None:
    """Keep the figures in the run folder, as ``hstereo eval --json`` prints them."""
    stored: dict[str, Any] = {source: as_dict(found) for source, found in evaluations.items()}
    folder.write_json(TEST_FILE, stored)


def describe_test(evaluations: dict[str, Evaluation]) -> list[str]:
    """One line for each data set."""
    lines = []
    for source, evaluation in evaluations.items():
        spread = spread_of(evaluation, _NAME)
        if spread is None:
            lines.append(f"test {source}: no scene could be measured")
            continue
        mean = evaluation.means[_NAME][evaluation.primary]
        lines.append(
            f"test {source}: {evaluation.primary} {mean:.2f} % ({evaluation.mean_name} of"
            f" {spread.scenes}; median {spread.median:.2f}, standard error"
            f" {spread.standard_error:.2f}, worst {spread.worst:.2f} on {spread.worst_scene})"
        )
    return lines
