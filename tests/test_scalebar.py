"""The scale beside a picture of disparities: its colours stand at the right numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.io.color import colorize
from hybridstereo.scalebar import marks_between, with_scale_bar


@pytest.mark.parametrize("height", [4, 100, 700])
def test_the_bar_has_the_colours_of_the_picture(height):
    disparity = np.linspace(10, 50, height * 80, dtype=np.float32).reshape(height, 80)
    picture = colorize(disparity, lo=10, hi=50)
    shown = with_scale_bar(picture, 10, 50)
    np.testing.assert_array_equal(shown[:height, :80], picture)
    assert shown.shape[0] >= height
    size = min(max(height // 30, 9), 96)
    column = shown[:, 80 + 2 * size].astype(int)  # the middle of the bar
    first, last = shown.shape[0] - 1.5 * size, 1.5 * size
    for value in (12, 30, 48):
        row = round(first + (last - first) * (value - 10) / 40)
        expected = colorize(np.array([[value]], np.float32), lo=10, hi=50)[0, 0]
        assert np.abs(column[row] - expected).max() < 24


def test_numbers_are_drawn_beside_it():
    picture = np.zeros((200, 50, 3), np.uint8)
    shown = with_scale_bar(picture, 0, 64)
    bar_ends = 50 + 9 + 2 * 9
    ink = (shown[:, bar_ends + 9 :] < 128).all(axis=2)
    assert ink.any(axis=1).sum() > 20  # rows with digits
    assert not ink[:, -2:].any()  # and none is cut off


@pytest.mark.parametrize("most", [1, 2, 5, 8])
@pytest.mark.parametrize("span", [(0, 1), (-12.5, 3), (99.9, 100.1), (0, 65536), (3, 3)])
def test_marks_lie_inside_and_are_few(most, span):
    marks = marks_between(*span, most)
    assert 1 <= len(marks) <= most
    assert all(span[0] - 1e-6 <= mark <= span[1] + 1e-6 for mark in marks)
