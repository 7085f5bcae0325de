"""curves.png: training and validation error over all stages, as in the paper's supplement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..charts import (
    FAINT_INK,
    GRID,
    LINE,
    MARGIN,
    SMALL,
    TEXT,
    TITLE,
    WIDTH,
    Canvas,
    Color,
    Point,
    format_number,
    text_width,
    ticks,
)
from ..io.images import write_image

_HEIGHT = 620
# The frame around the curves, with room for the titles and the numbers beside it.
_LEFT, _RIGHT = MARGIN + 60, WIDTH - MARGIN - 60
_TOP, _BOTTOM = MARGIN + TITLE + 2 * LINE + 6, _HEIGHT - 2 * LINE
_VALIDATION: Color = (200, 60, 50)
_TRAINING: Color = (120, 150, 220)
_LOSS: Color = (170, 170, 170)
_SMOOTHING = 25
# The losses stay in the lower part of the picture, below most of the errors.
_LOSS_SHARE = 0.5


def plot_curves(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the log of a run.

    Parameters
    ----------
    entries
        The lines of the log, in order.  Drawn are bad1 of the training crops and of the
        validation pairs, and the loss, over the steps of all stages.
    path
        The PNG file to write.
    """
    borders = _borders(entries)
    total = max(borders.pop(""), 1)

    def curve(kind: str, name: str, stage: str) -> list[Point]:
        """Column and value of the entries of a stage that have such a value, a finite one."""
        return [
            (_column(borders[stage] + entry["step"], total), entry[name])
            for entry in entries
            if entry["kind"] == kind
            and entry["stage"] == stage
            # A figure that does not exist is NaN.
            and math.isfinite(entry.get(name, math.nan))
        ]

    validation = [point for stage in borders for point in curve("validation", "bad1", stage)]
    # The error jumps where a stage brings the CRF, so nothing is averaged across a border.
    training = [_smooth(curve("step", "bad1", stage)) for stage in borders]
    marks = ticks(max([10.0] + [value for _, value in itertools.chain(validation, *training)]))

    def placed(points: list[Point]) -> list[Point]:
        return [(x, _row(value, marks[-1])) for x, value in points]

    canvas = Canvas(WIDTH, _HEIGHT)
    _draw_frame(canvas, marks, total)
    _draw_stages(canvas, {stage: _column(step, total) for stage, step in borders.items()})
    losses = dict.fromkeys((e["stage"], e["loss"]) for e in entries if "loss" in e)
    for stage, name in losses:
        loss = _smooth(curve("step", name, stage))
        # Losses of different stages are not comparable: each is scaled to its own maximum.
        highest = max([value for _, value in loss], default=0.0) or 1.0
        scale = _LOSS_SHARE * marks[-1] / highest
        canvas.line(placed([(x, value * scale) for x, value in loss]), _LOSS, 1.4)
    for points in training:
        canvas.line(placed(points), _TRAINING, 1.8)
    canvas.line(placed(validation), _VALIDATION, 2.4)
    for x, y in placed(validation):
        canvas.dot(x, y, 4, _VALIDATION)
    if validation:
        x, y = placed(validation)[-1]
        canvas.text(x + 9, y + SMALL / 2, f"{validation[-1][1]:.2f} %", SMALL, _VALIDATION)
    write_image(path, canvas.finished())


def _column(step: float, total: int) -> float:
    return _LEFT + (_RIGHT - _LEFT) * step / total


def _row(value: float, highest: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * value / highest


def _borders(entries: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The step at which each stage begins, counted over all stages; by "" the end of the last."""
    lengths: dict[str, int] = {}
    for entry in entries:
        end = entry["step"] + (entry["kind"] == "step")
        lengths[entry["stage"]] = max(lengths.get(entry["stage"], 0), end)
    begins = itertools.accumulate(lengths.values(), initial=0)
    return dict(zip((*lengths, ""), begins, strict=True))


def _draw_frame(canvas: Canvas, marks: list[float], total: int) -> None:
    """Titles, axes and the grid."""
    canvas.text(MARGIN, MARGIN + TITLE, "Pixels off by more than 1 px", TITLE, bold=True)
    series = {"validation": _VALIDATION, "training crops": _TRAINING}
    canvas.legend(MARGIN, MARGIN + TITLE + LINE, {**series, "loss (scaled per stage)": _LOSS})
    for mark in marks:
        y = _row(mark, marks[-1])
        canvas.box(_LEFT, y, _RIGHT, y + 1, GRID)
        canvas.text(_LEFT - 12, y + SMALL / 2, f"{mark:g} %", SMALL, FAINT_INK, align=1.0)
    for step in ticks(total):
        if step <= total and step == int(step):
            x = _column(step, total)
            canvas.text(x, _BOTTOM + 22, format_number(step), SMALL, FAINT_INK, align=0.5)
    canvas.text((_LEFT + _RIGHT) / 2, _BOTTOM + 22 + 26, "steps", TEXT, FAINT_INK, align=0.5)
    canvas.box(_LEFT - 1.5, _TOP, _LEFT, _BOTTOM, FAINT_INK)
    canvas.box(_LEFT - 1.5, _BOTTOM, _RIGHT, _BOTTOM + 1.5, FAINT_INK)


def _draw_stages(canvas: Canvas, columns: dict[str, float]) -> None:
    """A line where each stage begins, with its name; a short stage shares the next one's label."""
    ends = [*columns.values(), float(_RIGHT)][1:]
    names: list[str] = []
    for (stage, begin), end in zip(columns.items(), ends, strict=True):
        canvas.box(begin, _TOP - 20, begin + 1, _BOTTOM, FAINT_INK)
        names.append(stage)
        label = ", ".join(names)
        if text_width(label, SMALL) + 12 < end - begin or end == _RIGHT:
            canvas.text(begin + 7, _TOP - 9, label, SMALL, FAINT_INK)
            names = []


def _smooth(points: list[Point]) -> list[Point]:
    """Moving average over at most _SMOOTHING points, single crops being noisy."""
    values = np.array([value for _, value in points])
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return [
        (x, float(sums[i + 1] - sums[max(0, i + 1 - _SMOOTHING)]) / min(i + 1, _SMOOTHING))
        for i, (x, _) in enumerate(points)
    ]
