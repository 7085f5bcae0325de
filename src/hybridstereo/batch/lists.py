"""Lists of pairs: a line ``left,right`` or ``left,right,name`` for each, in a file or a pipe."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError, shortened
from ..io.disparity import MAP_SUFFIXES
from ..io.files import check_reachable, is_file, open_stream
from ..io.urls import joined, local_name
from .pairs import Pair, PairSource, checked_name, name_of

EXPECTED = (
    "Expected is a line left,right or left,right,name for each pair; a tab will do, too. With other"
    " columns the first line has to name them, such as left,right,disparity,mask"
)
_COLUMNS = ("left", "right", "name")
_LONGEST_LINE = 1 << 16  # bytes; two paths have 4096 each at most


def listed_pairs(path: str | Path) -> PairSource:
    """The pairs of a list file, or of one at a URL; paths in it are relative to its folder.

    Blank lines and lines that start with ``#`` are skipped.  The first line may name the columns,
    in any order and with others between them, as in a list for training; otherwise they are left,
    right and, if there is a third one, the name.

    Raises
    ------
    InputError
        If there is no such file.  Going through the pairs raises it for a line that is no pair.
    """
    name = str(local_name(path))
    if not is_file(name):
        raise InputError(f"{path} does not exist or is not a file", EXPECTED)

    def find() -> Iterator[Pair]:
        with open_stream(name) as stream:
            yield from read_pairs(stream, name, os.path.dirname(name))

    return PairSource(name, find)


def streamed_pairs(stream: BinaryIO, described: str = "standard input") -> PairSource:
    """The pairs of a list that comes through a pipe; paths are relative to the working directory.

    Each line is taken when it is needed: the work begins with the first one.
    """
    return PairSource(described, lambda: read_pairs(stream, described, ""), only_once=True)


def single_pair(left: str, right: str) -> PairSource:
    """One pair, as if it were a list of one line."""
    left, right = str(local_name(left)), str(local_name(right))
    pair = Pair(name_of(left, right), left, right)
    return PairSource(f"{left} and {right}", lambda: iter((pair,)))


def read_pairs(stream: BinaryIO, described: str, base: str) -> Iterator[Pair]:
    """The pairs of a list, line by line; see `listed_pairs`."""
    columns: tuple[str, ...] | None = None
    for number, line in enumerate(_lines(stream, described), start=1):
        where = f"{described}, line {number}"
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = _cells(line, where)
        if columns is None:
            columns = _header(cells)
            if columns is not None:
                continue
            columns = _COLUMNS
        row = dict(zip(columns, cells, strict=False))
        left, right, name = (row.get(column, "") for column in _COLUMNS)
        if not left or not right or len(cells) > len(columns):
            raise InputError(
                f"{where}: '{shortened(line.strip())}' is not {shortened(','.join(columns))}",
                EXPECTED,
            )
        if name.lower().endswith(MAP_SUFFIXES):
            raise InputError(
                f"{where}: the name '{shortened(name)}' ends as a map does",
                "Leave out the suffix, which every output gets; if the third column is the truth,"
                " begin the list with a line left,right,disparity",
            )
        name = checked_name(name, where) if name else name_of(left, right, base)
        paths = joined(base, left), joined(base, right)
        for path in paths:  # once, before the work, and not with every pair
            check_reachable(path)
        yield Pair(name, *paths)


def _lines(stream: BinaryIO, described: str) -> Iterator[str]:
    """Lines as text.  Names of files may hold any bytes, and come out again as they were."""
    number = 0
    while data := stream.readline(_LONGEST_LINE):
        number += 1
        if b"\0" in data or (len(data) == _LONGEST_LINE and not data.endswith(b"\n")):
            raise InputError(f"{described}, line {number} is not a line of a text file", EXPECTED)
        text = data.decode("utf-8", "surrogateescape").rstrip("\r\n")
        yield text.removeprefix("\ufeff") if number == 1 else text


def _cells(line: str, where: str) -> list[str]:
    """The cells of a line; at its tabs, if it has any."""
    try:
        reader = csv.reader([line], delimiter="\t" if "\t" in line else ",", skipinitialspace=True)
        return [cell.strip() for cell in next(reader)]
    except csv.Error as error:
        raise InputError(f"{where}: {error}", EXPECTED) from error


def _header(cells: list[str]) -> tuple[str, ...] | None:
    """The columns if a line names them, else None."""
    names = tuple(cell.lower() for cell in cells)
    return names if {"left", "right"} <= set(names) and len(set(names)) == len(names) else None
