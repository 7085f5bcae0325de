"""Code of LLVM that transposes a square of vectors by shuffles, for `lanes`.

Which shuffles are fast, and how many are needed, depends on how wide the vectors are.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

__all__ = ["halves_interleaved", "lane_numbers", "quarters_interleaved", "squares_exchanged"]


def lane_numbers(numbers: list[int]) -> Any:
    """Which lane of two vectors each lane of a shuffled one comes from."""
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), numbers)


def squares_exchanged(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose by exchanging squares of 1, 2 and 4 lanes: three shuffles a row."""
    rows, count = list(rows), len(rows)
    width = 1
    while width < count:
        for i in (i for i in range(count) if not i & width):
            a, b = rows[i], rows[i + width]
            # Lane t of both results comes from a, or from b in the second half of a square.
            own = [(t & ~width) + (count if t & width else 0) for t in range(count)]
            rows[i] = builder.shuffle_vector(a, b, lane_numbers(own))
            others = lane_numbers([t + width for t in own])
            rows[i + width] = builder.shuffle_vector(a, b, others)
        width *= 2
    return rows


def halves_interleaved(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose 16 rows of 16 by shuffles within the halves of vectors, which are the fast ones.

    The halves of rows i and i + 8 are put side by side.  Then 8 rows are interleaved.
    """
    count, half = len(rows), len(rows) // 2
    first = lane_numbers([*range(half), *range(count, count + half)])
    second = lane_numbers([*range(half, count), *range(count + half, 2 * count)])
    done: list[Any] = []
    for side in (first, second):
        part = [builder.shuffle_vector(rows[i], rows[i + half], side) for i in range(half)]
        done += _interleaved(builder, part, 2)
    return done


def quarters_interleaved(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose rows of AVX-512 by exchanging quarters, then by shuffles within these.

    The quarters q of four rows, as far apart as a quarter has numbers, are put side by side, which
    takes two shuffles a row.  Then as many rows as a quarter has numbers are interleaved.
    """
    size = len(rows) // 4
    numbers = [list(range(i * size, (i + 1) * size)) for i in range(8)]  # of the quarters of two

    def shuffled(a: Any, b: Any, *quarters: int) -> Any:
        order = [number for quarter in quarters for number in numbers[quarter]]
        return builder.shuffle_vector(a, b, lane_numbers(order))

    done: list[Any] = []
    parts: list[list[Any]] = [[], [], [], []]
    for i in range(size):
        upper, lower = rows[i :: 2 * size], rows[i + size :: 2 * size]
        even, odd = (
            [shuffled(a, b, *which) for a, b in zip(upper, lower, strict=True)]
            for which in ((0, 2, 4, 6), (1, 3, 5, 7))
        )
        for q, pair in enumerate((even, odd, even, odd)):
            parts[q].append(shuffled(*pair, *((0, 2, 4, 6) if q < 2 else (1, 3, 5, 7))))
    for part in parts:
        done += _interleaved(builder, part, 4)
    return done


def _interleaved(builder: Any, part: list[Any], pieces: int) -> list[Any]:
    """Transpose the squares of as many rows as each of the ``pieces`` of a row has numbers.

    Rows half the number apart are interleaved, in all pieces alike, until every row has been with
    every other one.
    """
    size, count = len(part), len(part) * pieces
    low, high = (
        lane_numbers(
            [
                begin + i + of_row
                for begin in range(0, count, size)
                for i in half
                for of_row in (0, count)
            ]
        )
        for half in (range(size // 2), range(size // 2, size))
    )
    for _ in range(size.bit_length() - 1):
        pairs = list(zip(part[: size // 2], part[size // 2 :], strict=True))
        part = [builder.shuffle_vector(a, b, which) for a, b in pairs for which in (low, high)]
    return part
