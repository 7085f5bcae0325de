"""Puts trained models into the package: python tools/publish_models.py RUNS DATA

RUNS is the folder that tools/train_models.sh filled, DATA the data that it was given. Every
finished stage is measured on the scenes that were kept back; what was measured before is taken from
RUNS/measured.json. The best stage of each model that beats SGBM is written to
src/hybridstereo/models with its figures and where it comes from; a model without runs in RUNS
stays as it is and is only measured. The tables of docs/models.md and docs/results.md go to standard
output.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mdtable import markdown_table

from hybridstereo.evaluation.compare import EvalOptions, evaluate_components, evaluate_dataset
from hybridstereo.evaluation.results import Evaluation
from hybridstereo.model import with_config
from hybridstereo.models.zoo import SHIPPED, STAGES, load_model, save_model

ROOT = Path(__file__).parents[1]
BASELINE = "sgbm-hh"
FIGURES = {"middlebury": "bad1", "kitti": "d1_noc"}
FOLDERS = {"middlebury": "MiddEval3", "kitti": "kitti2015"}

ABOUT = {
    "general": "indoor and street scenes",
    "middlebury": "indoor scenes, close objects",
    "kitti": "street scenes from a car",
}
_INDOOR = "Middlebury 2001-2006 and v3 (41 pairs)"
_STREET = "KITTI 2015 (21 pairs)"
TRAINED_ON = {
    "general": f"generated scenes, {_INDOOR}, {_STREET}",
    "middlebury": f"generated scenes and {_INDOOR}, after a start that also saw {_STREET}",
    "kitti": f"generated scenes and {_STREET}, after a start that also saw {_INDOOR}",
}
LICENCE = (
    "terms of the training data: Middlebury for research, KITTI 2015 CC BY-NC-SA 3.0 (attribution,"
    " non-commercial, share alike)"
)
SUFFIX = {7: "", 3: "-fast"}
DISPARITIES = {"general": 128, "middlebury": 128, "kitti": 256}
# Whose figures pick the stage of a model.
JUDGES = {"general": ("middlebury", "kitti"), "middlebury": ("middlebury",), "kitti": ("kitti",)}

Means = dict[str, float]
"""Name of a scene, or "mean" -> percent."""


@dataclass(frozen=True)
class Stage:
    """A finished stage of a model and its figures by data set, without and with refinement."""

    name: str
    file: Path
    plain: dict[str, Means]
    refined: dict[str, Means]


def kept_scenes() -> dict[str, tuple[str, ...]]:
    """The scenes that the training script keeps back, by data set."""
    script = (ROOT / "tools/train_models.sh").read_text()
    found = re.findall(r"^(\w+)_kept=(\S+)$", script, re.M)
    return {name: tuple(scenes.split(",")) for name, scenes in found}


def means_of(evaluation: Evaluation, method: str, dataset: str) -> Means:
    """What a method reaches on each scene and in the mean."""
    figure = FIGURES[dataset]
    scenes = {x.scene: x.figures[figure] for x in evaluation.results if x.method == method}
    return scenes | {"mean": evaluation.means[method][figure]}


class Measurements:
    """Figures on the scenes kept back, which are computed once."""

    def __init__(self, runs: Path, data: Path) -> None:
        self._data, self._path = data, runs / "measured.json"
        self._known = json.loads(self._path.read_text()) if self._path.exists() else {}

    def baseline(self, dataset: str) -> Means:
        """SGBM."""
        if (key := f"{BASELINE} {dataset}") not in self._known:
            options = EvalOptions(
                baselines=(BASELINE,), scenes=kept_scenes()[dataset], compare_default=False
            )
            evaluation = evaluate_dataset(dataset, self._root(dataset), options).evaluation
            self._keep(key, means_of(evaluation, BASELINE, dataset))
        return self._known[key]

    def stage(self, name: str, file: Path, dataset: str) -> tuple[Means, Means]:
        """A model without and with refinement; the stage says whether its CRF is on."""
        key = f"{file} {file.stat().st_mtime_ns} {dataset}"
        if key not in self._known:
            options = EvalOptions(models=(f"{name}={file}",), scenes=kept_scenes()[dataset])
            comparison, table = evaluate_components(dataset, self._root(dataset), options)
            rows = [next(iter(row.cells.values())) for row in table.rows]
            self._keep(key, [means_of(comparison.evaluation, row, dataset) for row in rows])
        plain, refined = self._known[key]
        return plain, refined

    def _root(self, dataset: str) -> str:
        return str(self._data / FOLDERS[dataset])

    def _keep(self, key: str, value: object) -> None:
        self._known[key] = value
        self._path.write_text(json.dumps(self._known, indent=1))


def finished_stages(runs: Path, data: str, layers: int, measured: Measurements) -> list[Stage]:
    """The stages of a model that are there, in order."""
    stages = []
    for name in STAGES:
        file = runs / f"{data}-{layers}-{name}" / f"{name}.h5"
        if file.exists():
            stages.append(measured_stage(name, file, JUDGES[data], measured))
    return stages


def measured_stage(name: str, file: Path, datasets: Iterable[str], measured: Measurements) -> Stage:
    """A stage with its figures on these data sets."""
    both = {dataset: measured.stage(name, file, dataset) for dataset in datasets}
    plain, refined = ({d: x[i] for d, x in both.items()} for i in (0, 1))
    return Stage(name, file, plain, refined)


def best_stage(data: str, stages: Sequence[Stage]) -> Stage | None:
    """The one to ship; the network alone is not a model."""
    candidates = [stage for stage in stages if stage.name != "unary"]
    if not candidates:
        return None
    return min(candidates, key=lambda x: sum(x.refined[judge]["mean"] for judge in JUDGES[data]))


def ship(name: str, data: str, stage: Stage) -> None:
    """Write a model into the package."""
    indoor, street = (stage.refined[dataset] for dataset in FIGURES)
    scenes = ", ".join(scene for scene in indoor if scene != "mean")
    day = datetime.datetime.fromtimestamp(stage.file.stat().st_mtime).date()
    model = with_config(
        load_model(str(stage.file)),
        description=ABOUT[data],
        trained_on=f"{TRAINED_ON[data]}; stage {stage.name}",
        trained_date=day.isoformat(),
        validation=f"bad1 {indoor['mean']:.2f} % on Middlebury v3 ({scenes}), "
        f"D1 {street['mean']:.2f} % on KITTI 2015 ({len(street) - 1} frames)",
        licence=LICENCE,
        disparities=DISPARITIES[data],
    )
    SHIPPED.mkdir(exist_ok=True)
    save_model(SHIPPED / f"{name}.h5", model)


def main() -> None:
    """Measure, describe and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("data", type=Path)
    arguments = parser.parse_args()
    measured = Measurements(arguments.runs, arguments.data)
    shipped: dict[str, Stage] = {}
    components: dict[str, list[list[str]]] = {x: [] for x in FIGURES}
    for data in ABOUT:
        for layers, suffix in SUFFIX.items():
            stages = finished_stages(arguments.runs, data, layers, measured)
            earlier = SHIPPED / f"{data}{suffix}.h5"
            if not stages and earlier.exists():
                shipped[data + suffix] = measured_stage(STAGES[-1], earlier, FIGURES, measured)
                continue
            for dataset in JUDGES[data]:
                for refined in (False, True):
                    figures = {x.name: x.refined if refined else x.plain for x in stages}
                    means = [
                        f"{figures[stage][dataset]['mean']:.2f}" if stage in figures else "-"
                        for stage in STAGES
                    ]
                    word = ", refined" if refined else ""
                    components[dataset].append([f"CNN{layers} `{data}`{word}", *means])
            best = best_stage(data, stages)
            # What loses against SGBM on the data it is meant for is not worth its download.
            if best is not None and all(
                best.refined[judge]["mean"] < measured.baseline(judge)["mean"]
                for judge in JUDGES[data]
            ):
                everywhere = measured_stage(best.name, best.file, FIGURES, measured)
                shipped[data + suffix] = everywhere
                ship(data + suffix, data, everywhere)
    names = [BASELINE, *shipped]
    for dataset, figure in FIGURES.items():
        print(f"{dataset}, {figure}\n")
        print(markdown_table(["model", *STAGES], components[dataset]), end="\n\n")
        of = [measured.baseline(dataset), *(x.refined[dataset] for x in shipped.values())]
        scenes = ([s, *(f"{x[s]:.2f}" for x in of)] for s in of[0])
        print(markdown_table(["scene", *names], scenes), end="\n\n")


if __name__ == "__main__":
    main()
