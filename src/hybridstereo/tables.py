"""Tables as aligned text."""

from __future__ import annotations

from collections.abc import Sequence

RULE = None
"""Stands for a line across the table, instead of a row."""


def aligned(rows: Sequence[Sequence[str] | None], left: int = 1) -> list[str]:
    """Lines with columns as wide as their widest cell, two spaces apart.

    Parameters
    ----------
    rows
        The cells, as many in each row; or `RULE`.
    left
        How many columns are aligned to the left; the others, numbers mostly, to the right.
    """
    cells = [row for row in rows if row is not None]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = "  ".join("-" * width for width in widths)

    def line(row: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return [rule if row is None else line(row) for row in rows]
