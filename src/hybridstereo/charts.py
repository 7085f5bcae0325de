"""Charts drawn with OpenCV: so little needs no plotting package.

`Canvas` and what follows it serve every chart, `bar_chart` is one.  All text is ASCII, because
OpenCV's fonts have no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from .opencv import cv2

Color = tuple[int, int, int]
Point = tuple[float, float]

# Distinguishable with every kind of colour vision (after Okabe and Ito), R, G, B.
_PALETTE: tuple[Color, ...] = (
    (0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (213, 94, 0),
)  # fmt: skip
_GREYS: tuple[Color, ...] = ((150, 150, 150), (190, 190, 190))
INK, FAINT_INK, GRID, PAPER = (35, 35, 35), (110, 110, 110), (226, 226, 226), (255, 255, 255)

# Drawn this many times larger and then reduced: smoother than OpenCV's own antialiasing.
_OVERSAMPLING = 3
_FONT = cv2.FONT_HERSHEY_SIMPLEX
# Sizes in pixels of the finished picture; those of letters are heights of capitals.
WIDTH, MARGIN = 1200, 36
TITLE, TEXT, SMALL = 17, 12, 11
LINE = 30  # from one line of text to the next
_BAR, _BAR_GAP, _GROUP_GAP = 22, 4, 22
_LEGEND_GAP = 28
_MOST_TICKS = 8


@dataclass(frozen=True)
class Bar:
    """A value, the series that it belongs to and, if known, its smallest and largest sample."""

    series: str
    value: float
    spread: tuple[float, float] | None = None


class Canvas:
    """A white picture to draw on, in coordinates of the finished picture."""

    def __init__(self, width: int, height: int) -> None:
        self._pixels = np.full((height * _OVERSAMPLING, width * _OVERSAMPLING, 3), 255, np.uint8)

    def box(self, left: float, top: float, right: float, bottom: float, color: Color) -> None:
        """A filled rectangle, at least a hairline wide."""
        corners = [round(x * _OVERSAMPLING) for x in (left, top, right, bottom)]
        x0, y0, x1, y1 = corners
        self._pixels[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = color

    def line(self, points: Sequence[Point], color: Color, width: float) -> None:
        """A line through all ``points``; less than two give none."""
        if len(points) > 1:
            # Four fractional bits keep a line smooth where its points are denser than pixels.
            corners = np.rint(np.array(points) * (16 * _OVERSAMPLING)).astype(np.int32)
            thickness = round(width * _OVERSAMPLING)
            cv2.polylines(self._pixels, [corners], False, color, thickness, cv2.LINE_AA, 4)

    def dot(self, x: float, y: float, radius: float, color: Color) -> None:
        """A filled circle."""
        centre = round(x * _OVERSAMPLING), round(y * _OVERSAMPLING)
        radius = round(radius * _OVERSAMPLING)
        cv2.circle(self._pixels, centre, radius, color, cv2.FILLED, cv2.LINE_AA)

    def text(
        self,
        x: float,
        baseline: float,
        words: str,
        size: int,
        color: Color = INK,
        align: float = 0.0,
        bold: bool = False,
    ) -> None:
        """Text that begins (``align`` 0), is centred (0.5) or ends (1) at ``x``."""
        scale, thickness = _font(size, bold)
        left = x - align * text_width(words, size, bold)
        origin = round(left * _OVERSAMPLING), round(baseline * _OVERSAMPLING)
        cv2.putText(self._pixels, words, origin, _FONT, scale, color, thickness, cv2.LINE_AA)

    def legend(self, x: float, baseline: float, colors: Mapping[str, Color]) -> None:
        """The names of series on one line, each after a square in its colour."""
        for name, color in colors.items():
            self.box(x, baseline - TEXT, x + TEXT, baseline, color)
            self.text(x + TEXT + 8, baseline, name, TEXT)
            x += legend_width(name)

    def finished(self) -> NDArray[np.uint8]:
        """The picture in its final size."""
        height, width = (side // _OVERSAMPLING for side in self._pixels.shape[:2])
        return np.asarray(
            cv2.resize(self._pixels, (width, height), interpolation=cv2.INTER_AREA), np.uint8
        )


def _font(size: int, bold: bool) -> tuple[float, int]:
    """Scale and stroke width, for the enlarged picture, of letters ``size`` pixels high."""
    thickness = round((2.2 if bold else 1.3) * _OVERSAMPLING * size / TEXT)
    return cv2.getFontScaleFromHeight(_FONT, size * _OVERSAMPLING, thickness), thickness


def text_width(words: str, size: int, bold: bool = False) -> float:
    """Width of a line of text in the finished picture."""
    scale, thickness = _font(size, bold)
    (width, _), _ = cv2.getTextSize(words, _FONT, scale, thickness)
    return width / _OVERSAMPLING


def legend_width(series: str) -> float:
    """Width of a name in a legend, with its square and the gap to the next one."""
    return TEXT + 8 + text_width(series, TEXT) + _LEGEND_GAP


def ticks(largest: float) -> list[float]:
    """Round numbers from 0 to just beyond ``largest``."""
    power = 10.0 ** math.floor(math.log10(largest / _MOST_TICKS))
    step = next(x * power for x in (1, 2, 2.5, 5, 10) if x * power * _MOST_TICKS >= largest)
    return [step * index for index in range(math.ceil(largest / step) + 1)]


def format_number(value: float) -> str:
    """Three significant digits, or all digits of a large number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _series_colors(bars: Sequence[Bar], references: Collection[str]) -> dict[str, Color]:
    """Colours in the order in which the series appear; references come last, in grey."""
    names = dict.fromkeys(bar.series for bar in bars)
    measured = [name for name in names if name not in references]
    quoted = [name for name in names if name in references]
    return {
        **dict(zip(measured, cycle(_PALETTE), strict=False)),
        **dict(zip(quoted, cycle(_GREYS), strict=False)),
    }


def _legend_lines(names: Sequence[str]) -> list[list[str]]:
    """Break the legend into lines that fit."""
    lines: list[list[str]] = [[]]
    for name in names:
        if lines[-1] and sum(map(legend_width, [*lines[-1], name])) > WIDTH - 2 * MARGIN:
            lines.append([])
        lines[-1].append(name)
    return lines


def _draw_bar(
    canvas: Canvas, bar: Bar, top: float, position: Callable[[float], float], color: Color
) -> None:
    """The bar, a thin line over its spread, and its value in figures."""
    # However small the value, its colour shows.
    end = max(position(bar.value), position(0) + 2)
    canvas.box(position(0), top, end, top + _BAR, color)
    if bar.spread is not None:
        low, high = map(position, bar.spread)
        middle, cap = top + _BAR / 2, _BAR / 5
        canvas.box(low, middle - 0.7, high, middle + 0.7, INK)
        for x in (low, high):
            canvas.box(x - 0.7, middle - cap, x + 0.7, middle + cap, INK)
        end = max(end, high)
    number = format_number(bar.value)
    # On paper of its own, so that no grid line crosses the figures.
    canvas.box(end + 5, top + 2, end + 11 + text_width(number, SMALL), top + _BAR - 2, PAPER)
    canvas.text(end + 8, top + (_BAR + SMALL) / 2, number, SMALL)


def bar_chart(
    title: str,
    subtitle: str,
    groups: Mapping[str, Sequence[Bar]],
    unit: str,
    references: Collection[str] = (),
) -> NDArray[np.uint8]:
    """Draw horizontal bars in groups, one colour per series.

    Parameters
    ----------
    title, subtitle
        The two lines on top.
    groups
        Label of each group -> its bars, from top to bottom; at least one value above zero.
    unit
        Of the values, for the axis.
    references
        Series to draw in grey: figures from elsewhere.

    Returns
    -------
    ndarray of uint8, (H, W, 3)
        R, G, B.
    """
    bars = [bar for group in groups.values() for bar in group]
    colors = _series_colors(bars, references)
    legend = _legend_lines(list(colors))
    ends = [bar.spread[1] if bar.spread else bar.value for bar in bars]
    marks = ticks(max(ends))

    left = MARGIN + max(text_width(label, TEXT) for label in groups) + 14
    # Room for the value written behind the longest bar.
    right = WIDTH - MARGIN - max(text_width(format_number(bar.value), SMALL) for bar in bars)
    top = MARGIN + TITLE + (1 + len(legend)) * LINE + 20
    bottom = top + sum(len(group) * (_BAR + _BAR_GAP) + _GROUP_GAP for group in groups.values())
    canvas = Canvas(WIDTH, bottom + 3 * LINE)

    canvas.text(MARGIN, MARGIN + TITLE, title, TITLE, bold=True)
    canvas.text(MARGIN, MARGIN + TITLE + LINE, subtitle, TEXT, FAINT_INK)
    for row, line in enumerate(legend):
        baseline = MARGIN + TITLE + (row + 2) * LINE + 2
        canvas.legend(MARGIN, baseline, {series: colors[series] for series in line})

    def position(value: float) -> float:
        return left + (right - left) * value / marks[-1]

    for mark in marks:
        canvas.box(position(mark), top, position(mark) + 1, bottom, GRID)
        canvas.text(position(mark), bottom + 22, format_number(mark), SMALL, FAINT_INK, align=0.5)
    canvas.text((left + right) / 2, bottom + 22 + LINE, unit, TEXT, FAINT_INK, align=0.5)
    y = top + _GROUP_GAP / 2
    for label, group in groups.items():
        height = len(group) * (_BAR + _BAR_GAP) - _BAR_GAP
        canvas.text(left - 12, y + (height + TEXT) / 2, label, TEXT, align=1.0)
        for bar in group:
            _draw_bar(canvas, bar, y, position, colors[bar.series])
            y += _BAR + _BAR_GAP
        y += _GROUP_GAP
    canvas.box(left - 1.5, top, left, bottom, FAINT_INK)
    return canvas.finished()
