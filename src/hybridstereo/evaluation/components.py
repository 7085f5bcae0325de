"""The paper's table of components: CNN, +CRF, +Joint, +PW, without and with refinement.

Models with a pyramid, which the paper has not, get one more column, +pyramid after CNN.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InputError
from ..kernels import Backend
from ..model import PYRAMID, StereoModel, with_config
from ..models.zoo import STAGES, load_model, stage_model
from ..options import MatchOptions
from ..stereo import Stereo
from ..tables import RULE, aligned
from .methods import Method, RefinedAndNot
from .results import Evaluation

COLUMNS = dict(zip(STAGES, ("CNN", "+CRF", "+Joint", "+PW"), strict=True))
"""The paper's name for the result of each training stage."""

PYRAMID_COLUMN = "+pyramid"
"""The network with the coarser levels of its pyramid, before any CRF; ``CNN`` is without them."""

_STAGE_OF = {**{stage: stage for stage in STAGES}, "cnn": "unary", "pw": "full"}


@dataclass(frozen=True)
class ComponentRow:
    """A row of the table.

    Attributes
    ----------
    label
        ``CNN3``, ``CNN7``...
    refined
        Whether sub-label refinement was on.
    cells
        By column, the name of the method.
    """

    label: str
    refined: bool
    cells: Mapping[str, str]

    @property
    def title(self) -> str:
        """What to print in front of the row."""
        return f"{self.label}, refined" if self.refined else self.label


@dataclass(frozen=True)
class ComponentTable:
    """The methods to run and where their figures go."""

    methods: list[Method]
    rows: list[ComponentRow]


def component_table(
    models: Sequence[tuple[str, str]],
    backend: Backend,
    options: MatchOptions,
    threads: int | None = None,
) -> ComponentTable:
    """Lay out the table.

    Parameters
    ----------
    models
        Pairs of label and path.  A folder is a training run, whose stages are taken; a file must
        be labelled ``unary`` (or ``cnn``), ``crf``, ``joint`` or ``full`` (or ``pw``).  All files
        together make one group of rows, each run makes another.
    backend
        Where to compute.
    options
        How to run the models; method and refinement are set here.
    threads
        Of the CPU; None: Numba's setting.

    Raises
    ------
    InputError
        If there is no model, or a label is not a stage.
    """
    groups: list[tuple[str, dict[str, StereoModel]]] = []
    files: dict[str, StereoModel] = {}
    for label, path in models:
        if os.path.isdir(path):
            groups.append((label, _stages_of_run(Path(path))))
            continue
        stage = _STAGE_OF.get(label.lower().removeprefix("+"))
        if stage is None or stage in files:
            raise InputError(
                f"'{label}' is not a component, or is given twice",
                "Label the files unary=FILE, crf=FILE, joint=FILE, full=FILE; or name a run folder",
            )
        files[stage] = load_model(path)
    if files:
        groups.insert(0, ("", files))
    if not groups:
        raise InputError(
            "There are no models to take apart",
            "Name a run folder with `model=DIR`, or files with `model=unary=FILE` `model=...`",
        )
    return _lay_out(groups, backend, options, threads)


def _stages_of_run(folder: Path) -> dict[str, StereoModel]:
    found = {stage: stage_model(folder, stage) for stage in STAGES}
    present = {
        stage: load_model(str(path)) for stage, path in found.items() if os.path.isfile(path)
    }
    if not present:
        names = ", ".join(path.name for path in found.values())
        raise InputError(
            f"{folder} holds no result of a training stage",
            f"A run that has finished a stage has one of {names}",
        )
    return present


def _lay_out(
    groups: Sequence[tuple[str, dict[str, StereoModel]]],
    backend: Backend,
    options: MatchOptions,
    threads: int | None,
) -> ComponentTable:
    titles = [f"CNN{len(next(iter(models.values())).unary)}" for _, models in groups]
    methods: list[Method] = []
    rows: list[ComponentRow] = []
    for (name, models), title in zip(groups, titles, strict=True):
        label = f"{title} ({name})" if titles.count(title) > 1 and name else title
        runs: dict[str, RefinedAndNot] = {}
        for column, model in _columns_of(models).items():
            alone = column in (COLUMNS["unary"], PYRAMID_COLUMN)
            way = replace(options, method="argmax" if alone else "crf")
            runs[column] = RefinedAndNot(f"{label} {column}", Stereo(model, backend, threads), way)
        for refined in (False, True):
            cells = {c: run.refined if refined else run.unrefined for c, run in runs.items()}
            methods += cells.values()
            names = {column: method.info.name for column, method in cells.items()}
            rows.append(ComponentRow(label, refined, names))
    return ComponentTable(methods, rows)


def _columns_of(models: Mapping[str, StereoModel]) -> dict[str, StereoModel]:
    """The model of each column, in order; the network's is the paper's, without a pyramid."""
    columns = {}
    for stage in STAGES:
        if stage not in models:
            continue
        model = models[stage]
        columns[COLUMNS[stage]] = model
        if stage == "unary":
            levels = dict.fromkeys(PYRAMID, 0.0)
            columns[COLUMNS[stage]] = with_config(model, softmax="left", **levels)
            if model.config.pyramid:
                columns[PYRAMID_COLUMN] = model
    return columns


def format_components(evaluation: Evaluation, table: ComponentTable, figure: str) -> str:
    """The table in the paper's layout for one figure, with the other methods below it."""
    columns = list(COLUMNS.values())
    if any(PYRAMID_COLUMN in row.cells for row in table.rows):
        columns.insert(1, PYRAMID_COLUMN)
    rows = [
        [
            row.title,
            figure.replace("_", " "),
            *(_shown(evaluation, row.cells.get(column), figure) for column in columns),
        ]
        for row in table.rows
    ]
    header = [evaluation.dataset, evaluation.mean_name, *columns]
    lines = aligned([header, RULE, *rows], left=2)
    ours = {method.info.name for method in table.methods}
    others = [method.name for method in evaluation.methods if method.name not in ours]
    if others:
        lines.append("")
        lines += [f"{name}: {_shown(evaluation, name, figure)}" for name in others]
    return "\n".join(lines)


def components_as_dict(evaluation: Evaluation, table: ComponentTable) -> list[dict[str, object]]:
    """The rows, ready for JSON: for each column the means of all figures."""
    return [
        {
            "row": row.label,
            "refined": row.refined,
            "columns": {
                column: {
                    name: None if math.isnan(value) else value
                    for name, value in evaluation.means[method].items()
                }
                for column, method in row.cells.items()
            },
        }
        for row in table.rows
    ]


def _shown(evaluation: Evaluation, method: str | None, figure: str) -> str:
    value = math.nan if method is None else evaluation.means[method].get(figure, math.nan)
    return "-" if math.isnan(value) else f"{value:.2f}"
