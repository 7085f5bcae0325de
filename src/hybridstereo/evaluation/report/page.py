"""The HTML of the report: figures, charts and pictures in, one self-contained page out.

Names of scenes, methods and files come from users' disks: everything that is not a constant of
this module passes through `html.escape`.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

import numpy as np

from hybridstereo import __version__
from hybridstereo.io.color import palette
from hybridstereo.metrics import SPARSIFICATION_SHARES

from ..results import CURVE_ERRORS, Evaluation, SceneResult
from .charts import (
    ChartPoint,
    curve_chart,
    scatter_chart,
    series_class,
    sparsification_chart,
)
from .pictures import (
    DISPARITY_COLORS,
    ERROR_STYLES,
    KITTI_ERROR_COLORS,
    KITTI_ERROR_EDGES,
    NO_ESTIMATE_COLOR,
    ScenePictures,
    color_bar,
    error_palette,
)
from .tables import (
    Summary,
    figures_table,
    finite_values,
    groups,
    spread_table,
    summary_table,
)
from .text import duration, is_percentage, label, number, plural

_WIDE = 2.2  # width by height from which on pictures get larger tiles


def render(
    evaluation: Evaluation,
    summaries: Mapping[str, Summary],
    pictures: Mapping[str, ScenePictures],
) -> str:
    """Fill the page's template.

    Parameters
    ----------
    evaluation
        The figures.
    summaries
        By method, for all methods; NaN for what is not known.
    pictures
        By scene; scenes that could not be read have none.
    """
    page = files("hybridstereo.evaluation.report") / "assets"
    read = {
        kind: (page / f"report.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "css", "js")
    }
    points = [
        ChartPoint(
            method.name,
            series,
            summaries[method.name].seconds,
            evaluation.means.get(method.name, {}).get(evaluation.primary, math.nan),
        )
        for series, method in enumerate(evaluation.methods)
    ]
    primary = label(evaluation.primary)
    primary += " (%)" if is_percentage(evaluation.primary) else " (px)"
    return Template(read["html"]).substitute(
        style=read["css"],
        script=read["js"],
        palettes=json.dumps(_palettes()),
        dataset=escape(evaluation.dataset),
        counts=escape(
            f"{plural(len(evaluation.scenes), 'scene')}, "
            f"{plural(len(evaluation.methods), 'method')}"
            + (", right views corrected" if evaluation.rectifications else "")
        ),
        failures=_failures(evaluation.failures),
        summary=summary_table(evaluation, summaries),
        spread=spread_table(evaluation),
        settings="".join(
            f"<dt>{escape(method.name)}</dt><dd>{escape(method.settings)}</dd>"
            for method in evaluation.methods
        )
        + "".join(
            f"<dt>Right view of {escape(scene)}</dt><dd>{escape(found.describe())}</dd>"
            for scene, found in evaluation.rectifications.items()
        ),
        curves=curve_chart(
            CURVE_ERRORS.tolist(), {name: one.curve for name, one in summaries.items()}
        ),
        scatter=scatter_chart(points, primary),
        sparsification=_sparsification(evaluation),
        legend=_methods_legend(evaluation),
        primary=escape(primary),
        disparity_options=_options(DISPARITY_COLORS),
        error_options=_options(ERROR_STYLES),
        group_options=_options(groups(evaluation)),
        error_legend=_error_legend(),
        scenes="\n".join(
            _scene(index, name, evaluation, pictures.get(name))
            for index, name in enumerate(evaluation.scenes)
        ),
        figures=figures_table(evaluation),
        version=escape(__version__),
    )


def _palettes() -> dict[str, dict[str, str]]:
    """All palettes in base64, for the script that recolours pictures."""

    def encoded(colors: np.ndarray) -> str:
        return base64.b64encode(colors.tobytes()).decode()

    return {
        "disparity": {name: encoded(palette(name)) for name in DISPARITY_COLORS},
        "error": {name: encoded(error_palette(name)) for name in ERROR_STYLES},
    }


def _sparsification(evaluation: Evaluation) -> str:
    """The card of the sparsification curves, if a method has a confidence."""
    if not evaluation.sparsification:
        return ""
    curves = {
        method.name: (series, evaluation.sparsification[method.name])
        for series, method in enumerate(evaluation.methods)
        if method.name in evaluation.sparsification
    }
    chart = sparsification_chart(SPARSIFICATION_SHARES.tolist(), curves)
    return (
        '<figure class="card"><figcaption>Bad pixels among the most confident ones, mean of the '
        f'scenes</figcaption>{chart}<p class="note">At the right end the error of all pixels; the '
        "lower the curve stays, the better the confidence tells bad pixels.</p></figure>"
    )


def _failures(failures: Sequence[SceneResult]) -> str:
    if not failures:
        return ""
    reasons = "".join(
        f"<li><b>{escape(one.method)}</b> on <b>{escape(one.scene)}</b>: "
        f"{escape(one.error or '')}</li>"
        for one in failures
    )
    count = plural(len(failures), "result")
    return (
        f'<details class="failures"><summary>{count} missing: a method failed there. '
        f"Means are over the other scenes.</summary><ul>{reasons}</ul></details>"
    )


def _scene(index: int, name: str, evaluation: Evaluation, pictures: ScenePictures | None) -> str:
    results = {one.method: one for one in evaluation.results if one.scene == name}
    figures = [one.figures for one in results.values()]
    best = min(finite_values(figures, evaluation.primary), default=math.nan)
    tiles = []
    if pictures is not None:
        tiles.append(
            f'<figure class="tile given">{_picture(pictures, "left", pictures.left, name)}'
            f"{_picture(pictures, 'truth', pictures.truth, name)}"
            '<figcaption class="hidden">Left image and truth</figcaption></figure>'
        )
    for series, method in enumerate(evaluation.methods):
        result = results.get(method.name)
        if result is None:
            continue
        if pictures is not None and method.name in pictures.maps and result.error is None:
            shown = _flippable(pictures, method.name, name)
        else:
            reason = result.error or "There is no map to show"
            shown = f'<p class="failed"><b>Failed.</b> {escape(reason)}</p>'
        tiles.append(
            f'<figure class="tile method" data-method="{escape(method.name)}">{shown}'
            f"<figcaption>{_caption(series, result, evaluation.primary, best)}</figcaption>"
            "</figure>"
        )
    bar, wide = "", ""
    if pictures is not None:
        bar = _bar(pictures)
        wide = " wide" * (pictures.width > _WIDE * pictures.height)
    return (
        f'<article class="scene{wide}" id="scene-{index}">'
        f"<header><h3>{escape(name)}</h3>{bar}</header>"
        f'<div class="tiles" role="group" aria-label="Pictures of {escape(name)}">'
        f"{''.join(tiles)}</div></article>"
    )


def _picture(pictures: ScenePictures, kind: str, source: str, scene: str) -> str:
    words = {"left": "Left image", "truth": "Truth"}[kind]
    recoloured = ' data-palette="disparity"' if kind == "truth" else ""
    return (
        f'<div class="picture" data-kind="{kind}"><img src="{source}"{recoloured} '
        f'width="{pictures.width}" height="{pictures.height}" '
        f'alt="{words} of {escape(scene)}"><span class="badge">{words}</span></div>'
    )


def _flippable(pictures: ScenePictures, method: str, scene: str) -> str:
    """Disparity map, which flips to the truth, and error map, which flips to the left image."""
    parts = []
    for kind, source, words, other, badge in (
        ("disparity", pictures.maps[method], "Disparity map", "truth", "Truth"),
        ("error", pictures.errors[method], "Error map", "left", "Left image"),
    ):
        parts.append(
            f'<button type="button" class="picture" data-kind="{kind}" data-other="{other}" '
            f'data-badge="{badge}" aria-pressed="false" title="Click or ← → : {badge.lower()}">'
            f'<img src="{source}" data-palette="{kind}" width="{pictures.width}" '
            f'height="{pictures.height}" alt="{words} of {escape(method)} on {escape(scene)}">'
            f'<span class="badge">{words}</span></button>'
        )
    return "".join(parts)


def _caption(series: int, result: SceneResult, primary: str, best: float) -> str:
    swatch = f'<span class="swatch {series_class(series)}"></span>'
    words = [f'{swatch}<b class="name">{escape(result.method)}</b>']
    value = result.figures.get(primary, math.nan)
    if math.isfinite(value):
        unit = " %" if is_percentage(primary) else " px"
        text = f"{escape(label(primary))} {number(value)}{unit}"
        words.append(f'<span class="figure{" best" * (value == best)}">{text}</span>')
    if result.seconds is not None:
        words.append(f'<span class="figure">{duration(result.seconds)} s</span>')
    if result.error is None:
        words.append(
            '<button type="button" class="enlarge" aria-label="Enlarge the pictures of '
            f'{escape(result.method)} on {escape(result.scene)}" title="Enlarge">⤢</button>'
        )
    return "".join(words)


def _bar(pictures: ScenePictures) -> str:
    return (
        f'<div class="bar"><span>far {pictures.lo:g} px</span>'
        f'<img src="{color_bar()}" data-palette="disparity" alt="Colour bar, disparity from '
        f'{pictures.lo:g} to {pictures.hi:g} pixels"><span>{pictures.hi:g} px near</span>'
        '<span class="key"><i style="background:#000"></i>invalid</span></div>'
    )


def _methods_legend(evaluation: Evaluation) -> str:
    return "".join(
        f'<li><svg class="dash" viewBox="0 0 28 8" aria-hidden="true"><line class="line '
        f'{series_class(series)}" x1="1" x2="27" y1="4" y2="4"/></svg>{escape(method.name)}</li>'
        for series, method in enumerate(evaluation.methods)
    )


def _error_legend() -> str:
    # The unit is the D1 threshold, 3 px for disparities up to 60.
    edges = [f"{3 * edge:.2g}".lstrip("0") for edge in KITTI_ERROR_EDGES]
    steps = "".join(
        f'<li><i style="background:rgb{color}"></i><span>{edge}</span></li>'
        for color, edge in zip(KITTI_ERROR_COLORS, [*edges, "px"], strict=True)
    )
    return (
        f'<div class="legend for-kitti"><ol>{steps}</ol>'
        f'<span class="key"><i style="background:rgb{NO_ESTIMATE_COLOR}"></i>no estimate</span>'
        '<span class="key"><i style="background:#000"></i>truth unknown</span>'
        "<p>KITTI’s error colours: yellow begins at a D1 outlier, over 3 px and over 5 % of the "
        "truth; beyond 60 px the steps grow with the truth. Occluded pixels are darker. KITTI’s "
        "figures fill holes before they count.</p></div>"
        '<div class="legend for-binary">'
        '<span class="key"><i style="background:#fff"></i>right</span>'
        '<span class="key"><i style="background:#000"></i>wrong or no estimate</span>'
        '<span class="key"><i style="background:#8c8c8c"></i>occluded or truth unknown</span></div>'
    )


def _options(choices: Mapping[str, str]) -> str:
    return "".join(
        f'<option value="{value}">{escape(words)}</option>' for value, words in choices.items()
    )
