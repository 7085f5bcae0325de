"""Bar charts: what is drawn has the right length, colour and place."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.charts import Bar, bar_chart, ticks


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
