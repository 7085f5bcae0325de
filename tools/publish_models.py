"""Puts trained models into the package: python tools/publish_models.py RUNS DATA

RUNS is the folder that tools/train_models.sh filled, DATA the data that it was given. Every
finished stage is measured on the validation scenes (tools/kept_scenes.py); what was measured before
is taken from RUNS/measured.json. The best stage of each model that beats SGBM there is written to
src/hybridstereo/models, with its figures on the test scenes, which pick nothing, and where it comes
from; a model without runs in RUNS stays as it is and is only measured. The tables of docs/models.md
and docs/results.md go to standard output.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kept_scenes import FIGURES, TEST, VALIDATION, Group, groups_of
from mdtable import markdown_table

from hybridstereo.evaluation.compare import EvalOptions, evaluate_components, evaluate_dataset
from hybridstereo.evaluation.components import COLUMNS, PYRAMID_COLUMN
from hybridstereo.evaluation.results import Evaluation
from hybridstereo.evaluation.spread import compared, spread, values_of
from hybridstereo.model import with_config
from hybridstereo.models.zoo import SHIPPED, STAGES, load_model, save_model

BASELINE = "sgbm-hh"

ABOUT = {
    "general": "indoor and street scenes",
    "middlebury": "indoor scenes, close objects",
    "kitti": "street scenes from a car",
}
_INDOOR = "Middlebury 2001-2006 and v3"
_STREET = "KITTI 2012 and 2015"
TRAINED_ON = {
    "general": f"generated scenes, {_INDOOR}, {_STREET}",
    "middlebury": f"generated scenes and {_INDOOR}, after a start that also saw {_STREET}",
    "kitti": f"generated scenes and {_STREET}, after a start that also saw {_INDOOR}",
}
LICENCE = (
    "terms of the training data: Middlebury for research, KITTI CC BY-NC-SA 3.0 (attribution,"
    " non-commercial, share alike)"
)
SUFFIX = {7: "", 3: "-fast"}
DISPARITIES = {"general": 128, "middlebury": 128, "kitti": 256}
# Whose figures pick the stage of a model.
JUDGES = {"general": ("middlebury", "kitti"), "middlebury": ("middlebury",), "kitti": ("kitti",)}

Values = dict[str, float]
"""Name of a scene -> percent."""


@dataclass(frozen=True)
class Stage:
    """A finished stage of a model and its figures on the validation scenes.

    ``plain`` and ``refined`` are by column of the table of components (the network with a pyramid
    has two), and by data set; the last column is the stage itself.
    """

    name: str
    file: Path
    plain: dict[str, dict[str, float]]
    refined: dict[str, dict[str, float]]

    def score(self, dataset: str) -> float:
        """What picks it."""
        return list(self.refined.values())[-1][dataset]


def values_in(evaluation: Evaluation, method: str, group: Group) -> Values:
    """What a method reaches on each scene of a group."""
    return values_of(evaluation, method, group.figure)


def mean(values: Iterable[float]) -> float:
    """Each scene counts the same."""
    known = list(values)
    return math.fsum(known) / len(known)


class Measurements:
    """Figures on the scenes kept back, which are computed once."""

    def __init__(self, runs: Path, data: Path, rectify: bool) -> None:
        self._data, self._path, self._rectify = data, runs / "measured.json", rectify
        self._known = json.loads(self._path.read_text()) if self._path.exists() else {}

    def baseline(self, group: Group) -> Values:
        """SGBM."""
        if (key := self._key(BASELINE, group)) not in self._known:
            options = self._options(group, baselines=(BASELINE,), compare_default=False)
            evaluation = evaluate_dataset(group.dataset, self._root(group), options).evaluation
            self._keep(key, values_in(evaluation, BASELINE, group))
        return self._known[key]

    def stage(self, name: str, file: Path, group: Group) -> tuple[dict[str, Values], ...]:
        """By column, a model without and with refinement; the stage says whether its CRF is on."""
        key = self._key(f"{name}={file} {file.stat().st_mtime_ns}", group)
        if key not in self._known:
            options = self._options(group, models=(f"{name}={file}",))
            comparison, table = evaluate_components(group.dataset, self._root(group), options)
            found = [
                {c: values_in(comparison.evaluation, x, group) for c, x in row.cells.items()}
                for row in table.rows
            ]
            self._keep(key, found)
        plain, refined = self._known[key]
        return plain, refined

    def refined(self, stage: Stage, group: Group) -> Values:
        """What a stage itself reaches, refined."""
        return list(self.stage(stage.name, stage.file, group)[1].values())[-1]

    def _options(self, group: Group, **options: object) -> EvalOptions:
        return EvalOptions(scenes=group.scenes, rectify=self._rectify, **options)

    def _key(self, what: str, group: Group) -> str:
        corrected = " rectified" if self._rectify else ""
        return f"{what} {group.folder}: {','.join(group.scenes)}{corrected}"

    def _root(self, group: Group) -> str:
        return str(self._data / group.folder)

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
    """A stage with its means over the validation scenes of these data sets."""
    halves: tuple[dict[str, dict[str, float]], ...] = ({}, {})
    for dataset in datasets:
        found = [measured.stage(name, file, x) for x in groups_of(VALIDATION, [dataset])]
        for half, of_half in enumerate(halves):
            for column in found[0][half]:
                values = [value for group in found for value in group[half][column].values()]
                of_half.setdefault(column, {})[dataset] = mean(values)
    return Stage(name, file, *halves)


def best_stage(data: str, stages: Sequence[Stage]) -> Stage | None:
    """The one to ship; the network alone is not a model."""
    candidates = [stage for stage in stages if stage.name != "unary"]
    if not candidates:
        return None
    return min(candidates, key=lambda stage: sum(map(stage.score, JUDGES[data])))


def beats_baseline(data: str, stage: Stage, measured: Measurements) -> bool:
    """Whether it is worth its download: better than SGBM on the data that it is meant for."""
    return all(
        stage.score(judge)
        < mean(
            value
            for group in groups_of(VALIDATION, [judge])
            for value in measured.baseline(group).values()
        )
        for judge in JUDGES[data]
    )


def ship(name: str, data: str, stage: Stage, measured: Measurements) -> None:
    """Write a model into the package, with its figures on the test scenes."""
    stated = []
    for group in TEST:
        values = measured.refined(stage, group)
        figure = {"bad1": "bad1", "d1_noc": "D1"}[group.figure]
        scenes = ", ".join(values) if group.dataset == "middlebury" else f"{len(values)} frames"
        stated.append(f"{figure} {mean(values.values()):.2f} % on {group.title} ({scenes})")
    day = datetime.datetime.fromtimestamp(stage.file.stat().st_mtime).date()
    model = with_config(
        load_model(str(stage.file)),
        description=ABOUT[data],
        trained_on=f"{TRAINED_ON[data]}; stage {stage.name}",
        trained_date=day.isoformat(),
        validation=", ".join(stated),
        licence=LICENCE,
        disparities=DISPARITIES[data],
    )
    SHIPPED.mkdir(exist_ok=True)
    save_model(SHIPPED / f"{name}.h5", model)


def print_stages(stages: Mapping[tuple[str, int], Sequence[Stage]]) -> None:
    """What each stage adds, on the validation scenes."""
    every = [stage for found in stages.values() for stage in found]
    columns = list(COLUMNS.values())
    if any(PYRAMID_COLUMN in stage.plain for stage in every):
        columns.insert(1, PYRAMID_COLUMN)
    for dataset, figure in FIGURES.items():
        rows = []
        for (data, layers), found in stages.items():
            if dataset not in JUDGES[data] or not found:
                continue
            for word, half in (("", "plain"), (", refined", "refined")):
                means = {c: x for stage in found for c, x in getattr(stage, half).items()}
                cells = [f"{means[c][dataset]:.2f}" if c in means else "-" for c in columns]
                rows.append([f"CNN{layers} `{data}`{word}", *cells])
        print(f"{dataset}, {figure}, mean of the validation scenes\n")
        print(markdown_table(["", *columns], rows), end="\n\n")


def print_group(group: Group, shipped: Mapping[str, Values], baseline: Values) -> None:
    """The spread over the scenes of a group, then scene by scene."""
    rows = []
    for name, values in {BASELINE: baseline, **shipped}.items():
        over = spread(values)
        lost = compared(name, values, BASELINE, baseline)
        better = f"{len(lost.scenes)}" + (f": {', '.join(lost.scenes)}" if lost.scenes else "")
        rows.append(
            [
                f"`{name}`",
                f"{over.mean:.2f} ± {over.standard_error:.2f}",
                f"{over.median:.2f}",
                f"{over.worst:.2f} ({over.worst_scene})",
                "" if name == BASELINE else better,
            ]
        )
    header = ["", "mean ± standard error", "median", "worst", "scenes where SGBM is better"]
    print(f"{group.title}, {group.figure}, {len(baseline)} test scenes, refined\n")
    print(markdown_table(header, rows), end="\n\n")
    scenes = ([x, *(f"{of[x]:.2f}" for of in (baseline, *shipped.values()))] for x in baseline)
    print(markdown_table(["scene", BASELINE, *shipped], scenes), end="\n\n")


def main() -> None:
    """Measure, describe and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rectify", action="store_true", help="measure with corrected right views")
    arguments = parser.parse_args()
    measured = Measurements(arguments.runs, arguments.data, arguments.rectify)
    shipped: dict[str, Stage] = {}
    stages: dict[tuple[str, int], list[Stage]] = {}
    for data in ABOUT:
        for layers, suffix in SUFFIX.items():
            name = data + suffix
            found = finished_stages(arguments.runs, data, layers, measured)
            stages[data, layers] = found
            earlier = SHIPPED / f"{name}.h5"
            if not found and earlier.exists():
                shipped[name] = measured_stage(STAGES[-1], earlier, JUDGES[data], measured)
                continue
            best = best_stage(data, found)
            if best is not None and beats_baseline(data, best, measured):
                shipped[name] = best
                ship(name, data, best, measured)
    print_stages(stages)
    for group in TEST:
        of = {name: measured.refined(stage, group) for name, stage in shipped.items()}
        print_group(group, of, measured.baseline(group))


if __name__ == "__main__":
    main()
