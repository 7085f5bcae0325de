"""The charts of the report: SVG to be put inside the page, coloured by its style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from hybridstereo.charts import ticks

# In user units; the page scales the whole.
_WIDTH, _HEIGHT = 560, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 14, 46
_LABEL_HEIGHT = 17

_CURVE_ENDS = (4.0, 8.0, 16.0)
_REACHED = 95.0  # percent; the axis ends where the best method has got this far
_SERIES = 6  # colours and dash patterns in the style sheet

Scale = Callable[[float], float]


@dataclass(frozen=True)
class ChartPoint:
    """A method in the chart of runtime against accuracy; ``series`` is its place in the table."""

    name: str
    series: int
    seconds: float
    figure: float


def series_class(index: int) -> str:
    """The class that gives a method its colour and dash pattern."""
    return f"series-{index % _SERIES}"


def curve_chart(errors: Sequence[float], curves: Mapping[str, NDArray[np.floating]]) -> str:
    """Draw for each method the percentage of pixels whose error is at most x pixels.

    Parameters
    ----------
    errors
        In pixels, ascending from 0.
    curves
        By method, a percentage for each of the errors; methods without one are not drawn.
    """
    known = {name: values for name, values in curves.items() if np.isfinite(values).all()}
    if not known:
        return _nothing("No method has errors to draw.")
    best = np.max(list(known.values()), axis=0)
    reached = best[np.searchsorted(errors, _CURVE_ENDS, side="right") - 1] >= _REACHED
    end = _CURVE_ENDS[int(np.argmax(reached))] if reached.any() else _CURVE_ENDS[-1]
    lowest = min(float(values[np.searchsorted(errors, 1.0)]) for values in known.values())
    bottom = max(0, 20 * math.floor((lowest - 10) / 20))  # from about 1 px on in full view
    x, y = _linear(0, end, _LEFT, _WIDTH - _RIGHT), _linear(bottom, 100, _HEIGHT - _BOTTOM, _TOP)
    lines = []
    for series, (name, values) in enumerate(curves.items()):
        if name in known:
            inside = [(e, v) for e, v in zip(errors, values, strict=True) if e <= end + 1e-9]
            lines.append(_line(name, series, inside, x, y))
    step = 10 if bottom >= 60 else 20
    frame = _frame(
        [(x(mark), f"{mark:g}") for mark in ticks(end)],
        [(y(mark), f"{mark:g}") for mark in range(bottom, 101, step)],
        "error in pixels, at most",
        "% of pixels",
    )
    clip = f'<clipPath id="plot"><rect x="{_LEFT}" y="{_TOP - 2}" width="{_WIDTH}" '
    clip += f'height="{_HEIGHT - _TOP - _BOTTOM + 2}"/></clipPath>'
    drawn = f'<g clip-path="url(#plot)">{"".join(lines)}</g>'
    names = ", ".join(known)
    return _svg(f"Cumulative error curves of {names}", clip + frame + drawn)


def sparsification_chart(
    kept: Sequence[float], curves: Mapping[str, tuple[int, NDArray[np.floating]]]
) -> str:
    """Draw for each method the percentage of bad pixels among its most confident ones.

    Parameters
    ----------
    kept
        Shares of the pixels, ascending to 1.
    curves
        By method, its place in the table, and a percentage for each of the shares.
    """
    top = max(float(values.max()) for _, values in curves.values())
    marks = ticks(top) if top > 0 else [0.0, 1.0]
    top = max(top * 1.05, marks[-1])
    x, y = _linear(0, 100, _LEFT, _WIDTH - _RIGHT), _linear(0, top, _HEIGHT - _BOTTOM, _TOP)
    lines = [
        _line(name, series, [(100 * k, v) for k, v in zip(kept, values, strict=True)], x, y)
        for name, (series, values) in curves.items()
    ]
    frame = _frame(
        [(x(mark), f"{mark}") for mark in range(0, 101, 20)],
        [(y(mark), f"{mark:g}") for mark in marks],
        "% of pixels kept, the most confident first",
        "% of them bad",
    )
    return _svg(f"Sparsification curves of {', '.join(curves)}", frame + "".join(lines))


def _line(name: str, series: int, points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    """A curve through points, in the colour and dash pattern of its method."""
    path = " ".join(f"{x(across):.1f},{y(up):.1f}" for across, up in points)
    return (
        f'<polyline class="line {series_class(series)}" points="{path}">'
        f"<title>{escape(name)}</title></polyline>"
    )


def scatter_chart(points: Sequence[ChartPoint], label: str) -> str:
    """Draw runtime, on a logarithmic axis, against a figure of which less is better."""
    points = [p for p in points if p.seconds > 0 and math.isfinite(p.figure)]
    if not points:
        return _nothing("No method was timed: its maps were read from files.")
    marks = _decade_marks([point.seconds for point in points])
    x = _logarithmic(marks[0], marks[-1], _LEFT, _WIDTH - _RIGHT)
    heights = ticks(1.05 * max(point.figure for point in points) or 1.0)
    y = _linear(0, heights[-1], _HEIGHT - _BOTTOM, _TOP)
    dots, free = [], float(_TOP)
    for point in sorted(points, key=lambda p: p.figure, reverse=True):
        right_half = x(point.seconds) > (_LEFT + _WIDTH) / 2
        baseline = free = max(y(point.figure) + 4.5, free + _LABEL_HEIGHT)
        text_x = x(point.seconds) + (-12 if right_half else 12)
        caption = f"{escape(point.name)}: {point.figure:.2f}, {point.seconds:.3g} s"
        dots.append(
            f'<circle class="dot {series_class(point.series)}" cx="{x(point.seconds):.1f}" '
            f'cy="{y(point.figure):.1f}" r="6.5"><title>{caption}</title></circle>'
            f'<text class="name" x="{text_x:.1f}" y="{baseline:.1f}" '
            f'text-anchor="{"end" if right_half else "start"}">{escape(point.name)}</text>'
        )
    frame = _frame(
        [(x(mark), f"{mark:g}") for mark in marks],
        [(y(mark), f"{mark:g}") for mark in heights],
        "seconds per image (mean)",
        label,
    )
    names = ", ".join(point.name for point in points)
    return _svg(f"Runtime and {label} of {names}", frame + "".join(dots))


def _decade_marks(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times powers of ten, from just below the smallest value to just above."""
    low, high = min(values) / 1.15, max(values) * 1.15
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    first = max(i for i, mark in enumerate(marks) if mark <= low)
    last = min(i for i, mark in enumerate(marks) if mark >= high)
    chosen = marks[first : last + 1]
    if len(chosen) > 8:  # whole decades only
        chosen = [10.0**power for power in powers]
    return chosen


def _linear(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    position = _linear(math.log(low), math.log(high), start, end)
    return lambda value: position(math.log(value))


def _frame(
    columns: Sequence[tuple[float, str]], rows: Sequence[tuple[float, str]], x: str, y: str
) -> str:
    """Grid lines with their numbers, and what the two axes show."""
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [
        f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" y2="{bottom}"/>'
        f'<text x="{place:.1f}" y="{bottom + 18}" text-anchor="middle">{number}</text>'
        for place, number in columns
    ]
    parts += [
        f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{place:.1f}" y2="{place:.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{place + 4.5:.1f}" text-anchor="end">{number}</text>'
        for place, number in rows
    ]
    middle = (_TOP + bottom) / 2
    return "".join(parts) + (
        f'<text class="axis" x="{(_LEFT + right) / 2}" y="{_HEIGHT - 6}" '
        f'text-anchor="middle">{escape(x)}</text>'
        f'<text class="axis" x="14" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 14 {middle})">{escape(y)}</text>'
    )


def _svg(label: str, content: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{content}</svg>'
    )


def _nothing(sentence: str) -> str:
    return f'<p class="nothing">{escape(sentence)}</p>'
