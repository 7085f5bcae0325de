"""What is drawn has the right length, colour and place."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.charts import Bar, Canvas, bar_chart, text_width, ticks


def test_bars_are_as_long_as_their_values():
    picture = bar_chart("t", "s", {"a": [Bar("x", 10.0)], "b": [Bar("x", 40.0)]}, "ms")
    assert picture.dtype == np.uint8
    blue = (picture == (0, 114, 178)).all(axis=2)
    # Rows of the legend, of the first and of the second bar have 12, n and 4n blue pixels.
    lengths = {length for length in blue.sum(axis=1) if length > 12}
    assert max(lengths) == pytest.approx(4 * min(lengths), rel=0.02)
    assert max(lengths) > 800


def test_reference_series_are_grey():
    groups = {"a": [Bar("quoted", 10.0), Bar("measured", 20.0)]}
    picture = bar_chart("t", "s", groups, "ms", {"quoted"})
    assert (picture == (150, 150, 150)).all(axis=2).sum() > 1000
    assert (picture == (0, 114, 178)).all(axis=2).sum() > 2000


@pytest.mark.parametrize("largest", [0.003, 1.0, 8.0, 99.0, 5301.0])
def test_ticks_are_few_and_reach_the_end(largest):
    marks = ticks(largest)
    assert 3 <= len(marks) <= 9
    assert marks[0] == 0
    assert marks[-2] < largest <= marks[-1] * (1 + 1e-9)


def test_lines_and_dots_are_where_they_should_be():
    canvas = Canvas(40, 30)
    canvas.line([(10, 5), (10, 25)], (200, 0, 0), 2)
    canvas.line([(30, 5)], (0, 0, 200), 2)  # one point is no line
    canvas.dot(30, 15, 4, (0, 150, 0))
    picture = canvas.finished()
    assert picture.shape == (30, 40, 3)
    red, green = ((picture == color).all(axis=2) for color in ((200, 0, 0), (0, 150, 0)))
    assert set(np.flatnonzero(red.any(axis=0))) <= {9, 10, 11}
    assert red.sum() >= 18
    assert np.argwhere(green).mean(axis=0) == pytest.approx((15, 30), abs=0.6)
    assert 30 < green.sum() < 60
    assert (picture[:, 35:] == 255).all()


@pytest.mark.parametrize("align", [0.0, 0.5, 1.0])
def test_text_is_aligned(align):
    canvas = Canvas(120, 30)
    width = text_width("label", 12)
    canvas.text(60, 20, "label", 12, align=align)
    inked = np.flatnonzero((canvas.finished() < 128).any(axis=(0, 2)))
    assert inked[0] == pytest.approx(60 - align * width, abs=4)
    assert inked[-1] == pytest.approx(60 + (1 - align) * width, abs=4)
