"""Speed beside accuracy as a table and as a picture: time across, error upwards."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..charts import (
    FAINT_INK,
    GRID,
    LINE,
    MARGIN,
    PAPER,
    SMALL,
    TEXT,
    TITLE,
    WIDTH,
    Canvas,
    Color,
    format_number,
    text_width,
    ticks,
)
from ..tables import aligned
from .accuracy import MethodFigures, SpeedAccuracy, describe_scenes, table_rows

_HEIGHT = 620
_DOT = 7
_OURS, _OTHERS, _FRONT = (0, 114, 178), (230, 159, 0), (190, 190, 190)
_STEPS = (1, 2, 5)  # of a decade, the marks of the logarithmic axis


def format_accuracy(report: SpeedAccuracy) -> str:
    """The table, with a legend."""
    legend = [
        "seconds:  mean computing time of a pair, in turns scene by scene; files are not included",
        f"{report.figure + ':':<10}as 'hstereo eval {report.dataset}' has it",
        "*:        no other method here is both faster and more accurate",
    ]
    blocks = [describe_scenes(report), "\n".join(aligned(table_rows(report))), "\n".join(legend)]
    return "\n\n".join([*blocks, *report.unavailable.values()])


def draw_accuracy(report: SpeedAccuracy) -> NDArray[np.uint8]:
    """The plot, uint8 RGB: the lower left corner is best."""
    canvas = Canvas(WIDTH, _HEIGHT)
    canvas.text(MARGIN, MARGIN + TITLE, "Speed and accuracy", TITLE, bold=True)
    canvas.text(MARGIN, MARGIN + TITLE + LINE, describe_scenes(report), TEXT, FAINT_INK)
    colors: dict[str, Color] = {"hybridstereo": _OURS}
    if any(x.kind != "model" for x in report.methods):
        colors["others"] = _OTHERS
    if len(report.front) > 1:
        colors["no other is faster and more accurate"] = _FRONT
    canvas.legend(MARGIN, MARGIN + TITLE + 2 * LINE + 2, colors)

    marks = ticks(1.05 * max(x.error for x in report.methods))
    left = MARGIN + max(text_width(format_number(x), SMALL) for x in marks) + 40
    right, top, bottom = WIDTH - MARGIN, MARGIN + TITLE + 3 * LINE + 16, _HEIGHT - MARGIN - 2 * LINE
    seconds = [x.seconds for x in report.methods]
    low, high = math.log10(min(seconds) / 1.6), math.log10(max(seconds) * 2.2)

    def across(value: float) -> float:
        return left + (right - left) * (math.log10(value) - low) / (high - low)

    def upwards(value: float) -> float:
        return bottom - (bottom - top) * value / marks[-1]

    for mark in marks:
        canvas.box(left, upwards(mark), right, upwards(mark) + 1, GRID)
        canvas.text(
            left - 10, upwards(mark) + SMALL / 2, format_number(mark), SMALL, FAINT_INK, align=1.0
        )
    for value in _decade_marks(10**low, 10**high):
        canvas.box(across(value), top, across(value) + 1, bottom, GRID)
        canvas.text(across(value), bottom + 22, format_number(value), SMALL, FAINT_INK, align=0.5)
    canvas.text((left + right) / 2, bottom + 22 + LINE, "seconds per pair", TEXT, FAINT_INK, 0.5)
    canvas.text(left, top - 10, f"{report.figure}, percent of pixels", SMALL, FAINT_INK)
    places = {x.name: (across(x.seconds), upwards(x.error)) for x in report.methods}
    canvas.line([places[x.name] for x in report.front], _FRONT, 2)
    for x in report.methods:
        canvas.dot(*places[x.name], _DOT, _OURS if x.kind == "model" else _OTHERS)
    _label(canvas, report.methods, places, right)
    return canvas.finished()


def _decade_marks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [step * 10.0**power for power in powers for step in _STEPS]
    return [x for x in values if low <= x <= high]


def _label(
    canvas: Canvas,
    methods: tuple[MethodFigures, ...],
    places: dict[str, tuple[float, float]],
    right: float,
) -> None:
    """Write each name beside its dot, where no other name or dot is."""
    taken = [(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in places.values()]
    for method in methods:
        x, y = places[method.name]
        width = text_width(method.name, TEXT)
        middle = y + TEXT / 2
        candidates = [
            (x - width / 2, y - 14),
            (x - width / 2, y + 14 + TEXT),
            (x + 14, middle),
            (x - 14 - width, middle),
            (x + 10, y - 12),
            (x + 10, y + 12 + TEXT),
        ]
        boxes = [(a - 3, b - TEXT - 3, a + width + 3, b + 5) for a, b in candidates]
        free = [
            i
            for i, box in enumerate(boxes)
            if box[2] < right and not any(_overlap(box, other) for other in taken)
        ]
        chosen = free[0] if free else 0
        taken.append(boxes[chosen])
        canvas.box(*boxes[chosen], PAPER)
        canvas.text(*candidates[chosen], method.name, TEXT)


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
