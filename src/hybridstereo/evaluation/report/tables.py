"""The tables of the report: figures by method, and by scene and method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..results import Evaluation
from ..spread import defeats, spread_of
from .charts import series_class
from .text import (
    MAIN_GROUP,
    duration,
    group,
    is_percentage,
    label,
    meaning,
    more_is_better,
    number,
    short_label,
)


@dataclass(frozen=True)
class Summary:
    """What the page says about a method besides its mean figures."""

    seconds: float
    failures: int
    curve: np.ndarray


def summary_table(evaluation: Evaluation, summaries: Mapping[str, Summary]) -> str:
    """One row per method, the best first."""
    means = evaluation.means
    names = _names(means.values(), first=evaluation.primary)
    best = {
        name: (max if more_is_better(name) else min)(
            finite_values(means.values(), name), default=math.nan
        )
        for name in names
    }
    timed = any(math.isfinite(one.seconds) for one in summaries.values())
    rows = []
    order = {method.name: series for series, method in enumerate(evaluation.methods)}
    for method in sorted(
        evaluation.methods,
        key=lambda m: _nan_last(means.get(m.name, {}).get(evaluation.primary, math.nan)),
    ):
        own, summary = means.get(method.name, {}), summaries[method.name]
        cells = [_figure_cell(name, own.get(name, math.nan), best[name]) for name in names]
        cells[1:1] = [_seconds_cell(summary.seconds)] * timed
        if evaluation.failures:
            cells.append(f'<td data-value="{summary.failures}">{summary.failures}</td>')
        swatch = f'<span class="swatch {series_class(order[method.name])}"></span>'
        rows.append(
            f'<tr><th scope="row" data-value="{escape(method.name)}">{swatch}'
            f"{escape(method.name)}<small>{escape(method.settings)}</small></th>"
            f"{''.join(cells)}</tr>"
        )
    headers = [_header("Method"), *_figure_headers(names, evaluation.primary)]
    # Beside the primary figure, which comes first: the two that most readers want.
    headers[2:2] = [_header("time", unit="s", title="Mean computing time per image")] * timed
    headers += [_header("failed", title="Scenes without a result")] * bool(evaluation.failures)
    return _table("Mean figures of each method", headers, rows)


def spread_table(evaluation: Evaluation) -> str:
    """How the figure to rank by differs between scenes, and where baselines beat models."""
    if len(evaluation.scenes) < 2:
        return ""
    name, rows = evaluation.primary, []
    for method in evaluation.methods:
        spread = spread_of(evaluation, method.name)
        if spread is None:
            continue
        cells = [
            _plain_cell(value) for value in (spread.median, spread.standard_error, spread.worst)
        ]
        scene = escape(spread.worst_scene)
        rows.append(
            f'<tr><th scope="row" data-value="{escape(method.name)}">{escape(method.name)}</th>'
            f'{"".join(cells)}<td class="text" data-value="{scene}">{scene}</td></tr>'
        )
    unit = "%" if is_percentage(name) else "px"
    headers = [
        _header("Method"),
        _header("median", unit, "Median over the scenes"),
        _header("std. error", unit, "Standard error of the mean over the scenes"),
        _header("worst", unit, "The worst scene"),
        _header("worst scene"),
    ]
    lost = "".join(f"<li>{escape(defeat.describe())}</li>" for defeat in defeats(evaluation))
    table = _table(f"Spread of {escape(label(name))} over the scenes", headers, rows)
    return table + (f'<ul class="note">{lost}</ul>' if lost else "")


def figures_table(evaluation: Evaluation) -> str:
    """One row per scene and method."""
    figures = [result.figures for result in evaluation.results]
    names = _names(figures, first=evaluation.primary)
    rows = []
    for result in evaluation.results:
        cells = [_figure_cell(name, result.figures.get(name, math.nan)) for name in names]
        cells.append(_seconds_cell(math.nan if result.seconds is None else result.seconds))
        scene, method = escape(result.scene), escape(result.method)
        failed = ""
        if result.error is not None:
            failed = f' <span class="failed">failed: {escape(result.error)}</span>'
        rows.append(
            f'<tr><th scope="row" data-value="{scene}">{scene}</th>'
            f'<td class="text" data-value="{method}">{method}{failed}</td>{"".join(cells)}</tr>'
        )
    headers = [_header("Scene"), _header("Method"), *_figure_headers(names)]
    headers.append(_header("time", unit="s", title="Computing time"))
    return _table("Figures of every scene and method", headers, rows)


def _table(caption: str, headers: Sequence[str], rows: Sequence[str]) -> str:
    body = "\n".join(rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
        f'<table class="sortable"><caption class="hidden">{caption}</caption>'
        f"<thead><tr>{''.join(headers)}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _figure_headers(names: Sequence[str], sorted_by: str | None = None) -> list[str]:
    return [
        _header(
            short_label(name),
            unit="%" if is_percentage(name) else "px",
            title=meaning(name),
            direction="ascending" if name == sorted_by else "none",
            attributes=_of_group(name),
        )
        for name in names
    ]


def _header(
    text: str, unit: str = "", title: str = "", direction: str = "none", attributes: str = ""
) -> str:
    small = f" <small>{unit}</small>" if unit else ""
    tip = f' title="{escape(title)}"' if title else ""
    return (
        f'<th scope="col" aria-sort="{direction}"{attributes}><button type="button"{tip}>'
        f"{escape(text)}{small}</button></th>"
    )


def _figure_cell(name: str, value: float, best: float = math.nan) -> str:
    if not math.isfinite(value):
        return _missing(_of_group(name))
    chosen = ' class="best"' if value == best else ""
    return f'<td{chosen}{_of_group(name)} data-value="{float(value)!r}">{number(value)}</td>'


def _plain_cell(value: float) -> str:
    """A number that is shown whichever figures the reader chooses."""
    if not math.isfinite(value):
        return _missing()
    return f'<td data-value="{float(value)!r}">{number(value)}</td>'


def _missing(attributes: str = "") -> str:
    return f'<td{attributes} data-value=""><span title="no value">–</span></td>'


def _of_group(name: str) -> str:
    """Attributes of a column: its group, and whether it is hidden until the reader chooses it."""
    chosen = group(name)
    return f' data-group="{chosen}"' + " hidden" * (chosen != MAIN_GROUP)


def groups(evaluation: Evaluation) -> dict[str, str]:
    """The groups of figures that there are, and what the page calls them."""
    names = _names([*evaluation.means.values(), *(one.figures for one in evaluation.results)])
    present = {group(name) for name in names} | {MAIN_GROUP}
    masked = any("noc" in name.split("_") for name in names)
    region = "Non-occluded pixels" if masked else "All known pixels"
    titles = {
        MAIN_GROUP: f"{region}, {evaluation.mean_name}",
        "all": f"All pixels, {evaluation.mean_name}",
        "pooled": f"{region}, pooled over images",
        "all-pooled": "All pixels, pooled over images",
    }
    return {name: title for name, title in titles.items() if name in present}


def _seconds_cell(seconds: float) -> str:
    if not math.isfinite(seconds):
        return _missing()
    return f'<td data-value="{float(seconds)!r}">{duration(seconds)}</td>'


def _names(tables: Iterable[Mapping[str, float]], first: str = "") -> list[str]:
    """The figures of any of the tables, in the order in which they appear, but one first.

    Without ``epe``, which for disparities is ``avgerr`` under another name.
    """
    names = dict.fromkeys(name for table in tables for name in table)
    return sorted(
        (name for name in names if not name.startswith("epe")), key=lambda name: name != first
    )


def finite_values(tables: Iterable[Mapping[str, float]], name: str) -> list[float]:
    """The values that tables have for a figure."""
    values = (table.get(name, math.nan) for table in tables)
    return [value for value in values if math.isfinite(value)]


def _nan_last(value: float) -> float:
    return value if math.isfinite(value) else math.inf
