"""An evaluation as aligned text, CSV, and an object for JSON."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..metrics import SPARSIFICATION_SHARES
from ..tables import RULE, aligned
from .protocol import Rules
from .results import Evaluation, SceneResult
from .spread import defeats, spread_of

_POOLED = "_pooled"


def format_text(evaluation: Evaluation, rules: Rules) -> str:
    """The table for people: per-image rows, then means, then what was run and what failed."""
    columns = [name for name in rules.columns if _measured(evaluation, name)]
    timed = any(result.seconds is not None for result in evaluation.results)
    header = ["scene", "method", *map(_title, columns), *(["seconds"] if timed else [])]
    rows = [header, RULE, *(_text_row(result, columns, timed) for result in evaluation.results)]
    if len(evaluation.scenes) > 1:
        rows += [RULE, *_mean_rows(evaluation, evaluation.mean_name, "", columns, timed)]
        if rules.name != "middlebury":
            rows += [RULE, *_mean_rows(evaluation, "pooled", _POOLED, columns, timed)]
    lines = [_heading(evaluation, rules), "", *aligned(rows, left=2), "", *_spread(evaluation)]
    return "\n".join([*lines, *_notes(evaluation, columns)]).rstrip()


def _spread(evaluation: Evaluation) -> list[str]:
    """How the figure to rank by differs between scenes; nothing for a single one."""
    if len(evaluation.scenes) < 2:
        return []
    rows = [[f"{_title(evaluation.primary)} over scenes", "median", "std. error", "worst", "scene"]]
    for method in evaluation.methods:
        spread = spread_of(evaluation, method.name)
        if spread is not None:
            figures = map(_number, (spread.median, spread.standard_error, spread.worst))
            rows.append([method.name, *figures, spread.worst_scene])
    lost = [defeat.describe() for defeat in defeats(evaluation)]
    return [*aligned(rows), "", *lost, *([""] if lost else [])]


def _mean_rows(
    evaluation: Evaluation, title: str, suffix: str, columns: Sequence[str], timed: bool
) -> list[list[str]]:
    rows = []
    for method in evaluation.methods:
        means = evaluation.means[method.name]
        figures = [_number(means.get(name + suffix)) for name in columns]
        seconds = "" if suffix else _number(mean_seconds(evaluation, method.name))
        rows.append([title, method.name, *figures, *([seconds] if timed else [])])
    return rows


def as_dict(evaluation: Evaluation) -> dict[str, Any]:
    """All figures, ready for JSON; null where there is none."""
    return {
        "dataset": evaluation.dataset,
        "primary": evaluation.primary,
        "mean": evaluation.mean_name,
        "methods": [asdict(method) for method in evaluation.methods],
        "scenes": evaluation.scenes,
        "results": [
            {**asdict(result), "figures": _jsonable(result.figures)}
            for result in evaluation.results
        ],
        "means": {name: _jsonable(figures) for name, figures in evaluation.means.items()},
        "seconds": {
            method.name: mean_seconds(evaluation, method.name) for method in evaluation.methods
        },
        "spread": {
            method.name: None if spread is None else _jsonable(asdict(spread))
            for method in evaluation.methods
            for spread in [spread_of(evaluation, method.name)]
        },
        "baseline_better": [asdict(defeat) for defeat in defeats(evaluation)],
        "rectifications": {
            scene: found.as_dict() for scene, found in evaluation.rectifications.items()
        },
        "sparsification": {
            "kept": [round(share, 2) for share in SPARSIFICATION_SHARES.tolist()],
            "curves": {name: curve.tolist() for name, curve in evaluation.sparsification.items()},
        }
        if evaluation.sparsification
        else None,
        "failed": len(evaluation.failures),
    }


def format_csv(evaluation: Evaluation) -> str:
    """One line per scene and method, then those over all scenes; empty = no value.

    The first column tells them apart: ``image``, ``mean`` (or ``weighted mean``), ``pooled``;
    ``median`` and ``standard error`` over the scenes; ``worst`` has the highest value of each
    figure, and the scene that is the worst by the figure to rank by. One scene has no such lines.
    """
    names = list(dict.fromkeys(n for result in evaluation.results for n in result.figures))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["row", "scene", "method", *names, "seconds", "error"])
    for result in evaluation.results:
        writer.writerow(
            [
                "image",
                result.scene,
                result.method,
                *(_cell(result.figures.get(name)) for name in names),
                _cell(result.seconds),
                result.error or "",
            ]
        )
    for suffix, row in (("", evaluation.mean_name), (_POOLED, "pooled")):
        for method in evaluation.methods:
            means = evaluation.means[method.name]
            seconds = "" if suffix else _cell(mean_seconds(evaluation, method.name))
            figures = [_cell(means.get(name + suffix)) for name in names]
            writer.writerow([row, "", method.name, *figures, seconds, ""])
    several = len(evaluation.scenes) > 1
    for attribute in ("median", "standard_error", "worst") if several else ():
        for method in evaluation.methods:
            primary = spread_of(evaluation, method.name)
            scene = primary.worst_scene if primary and attribute == "worst" else ""
            spreads = [spread_of(evaluation, method.name, name) for name in names]
            figures = [_cell(None if x is None else getattr(x, attribute)) for x in spreads]
            row = attribute.replace("_", " ")
            writer.writerow([row, scene, method.name, *figures, "", ""])
    return stream.getvalue()


def mean_seconds(evaluation: Evaluation, method: str) -> float | None:
    """Mean computing time of a method; None if it only read files."""
    seconds = [
        result.seconds
        for result in evaluation.results
        if result.method == method and result.seconds is not None
    ]
    return math.fsum(seconds) / len(seconds) if seconds else None


def _measured(evaluation: Evaluation, name: str) -> bool:
    return _scenes_with(evaluation, name) > 0


def _scenes_with(evaluation: Evaluation, name: str) -> int:
    known = {r.scene for r in evaluation.results if not math.isnan(r.figures.get(name, math.nan))}
    return len(known)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _text_row(result: SceneResult, columns: Sequence[str], timed: bool) -> list[str]:
    if result.error is not None:
        cells = ["failed", *[""] * (len(columns) - 1)] if columns else []
    else:
        cells = [_number(result.figures.get(name)) for name in columns]
    return [
        result.scene,
        result.method,
        *cells,
        *([_number(result.seconds)] if timed else []),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.2f}"


def _cell(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(float(value))


def _jsonable(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The same with null for NaN."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in figures.items()
    }


def _heading(evaluation: Evaluation, rules: Rules) -> str:
    count = len(evaluation.scenes)
    masked = any(name.endswith("_noc") for r in evaluation.results for name in r.figures)
    region = "non-occluded pixels unless 'all'" if masked else "all known pixels"
    scenes = "1 scene" if count == 1 else f"{count} scenes"
    units = "bad, d1, invalid in %, errors in px"
    views = "; right views corrected" if evaluation.rectifications else ""
    return f"{evaluation.dataset}: {scenes}, {region}; {rules.summary}{views}; {units}"


def rectification_notes(evaluation: Evaluation) -> list[str]:
    """What was done to the right view of each scene, one line each."""
    return [f"{scene}: {found.describe()}" for scene, found in evaluation.rectifications.items()]


def _notes(evaluation: Evaluation, columns: Sequence[str]) -> list[str]:
    width = max((len(method.name) for method in evaluation.methods), default=0)
    notes = [f"{method.name.ljust(width)}  {method.settings}" for method in evaluation.methods]
    measured = {name: _scenes_with(evaluation, name) for name in columns}
    most = max(measured.values(), default=0)
    notes += [
        f"'{_title(name)}' is known for {count} of {most} scenes only"
        for name, count in measured.items()
        if count < most
    ]
    corrections = rectification_notes(evaluation)
    if corrections:
        notes += ["", "Every method got the right view with its rows corrected:"]
        notes += [f"  {line}" for line in corrections]
    failures = evaluation.failures
    if failures:
        share = f"{len(failures)} of {len(evaluation.results)}"
        notes += ["", f"Failed: {share}; means are over the others."]
        notes += [f"  {x.scene}, {x.method}: {x.error}" for x in failures]
    return notes
