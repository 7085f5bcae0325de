"""Tables as aligned text."""

from __future__ import annotations

from hybridstereo.tables import RULE, aligned


def test_columns_are_aligned():
    rows = [["a", "b", "value"], RULE, ["x", "long name", "1.00"], ["y", "", "123.45"]]
    assert aligned(rows, left=2) == [
        "a  b           value",
        "-  ---------  ------",
        "x  long name    1.00",
        "y             123.45",
    ]


def test_the_first_column_is_to_the_left_and_lines_end_without_spaces():
    assert aligned([["", "ms"], ["total", ""]]) == ["       ms", "total"]
