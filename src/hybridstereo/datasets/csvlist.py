"""Your own pairs: a CSV file with one ``left,right,disparity[,mask]`` per line."""

from __future__ import annotations

import csv
import os
from functools import partial
from pathlib import Path

from hybridstereo.datasets.pair import StereoPair, build_pair
from hybridstereo.datasets.samples import Sample
from hybridstereo.errors import InputError, shortened
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.files import read_file
from hybridstereo.io.images import read_pair
from hybridstereo.io.mask import read_mask

EXPECTED = (
    "Expected is a file with a line left,right,disparity or left,right,disparity,mask for each "
    "pair, with paths relative to the file; see data/README.md"
)

_MOST_BYTES = 1 << 26  # a million pairs with long names
_LONGEST_PATH = 200  # in a message
_COLUMNS = ("left", "right", "disparity", "mask")
_REQUIRED = _COLUMNS[:3]
_HEADER_COLUMNS = (*_COLUMNS, "scene")


def find_samples(root: Path) -> tuple[list[Sample], list[str]]:
    """List the pairs of a CSV file.

    Blank lines and lines that start with ``#`` are skipped. The first line may name the columns,
    in any order and with an extra column ``scene``: pairs of one scene stay on the same side of a
    split. Without it every pair is a scene of its own.

    Parameters
    ----------
    root
        The file, or a folder with exactly one file ``*.csv``.

    Returns
    -------
    samples
        Of the pairs whose files exist.
    warnings
        What is missing, one sentence for each incomplete pair.

    Raises
    ------
    InputError
        If the file cannot be read or a line has the wrong number of columns.

    """
    path = _csv_file(root)
    samples: list[Sample] = []
    warnings: list[str] = []
    for line, row in _rows(path):
        files = {name: path.parent / row[name] for name in _COLUMNS if row.get(name)}
        missing = [
            shortened(str(file), _LONGEST_PATH)
            for file in files.values()
            if not os.path.isfile(file)
        ]
        if missing:
            warnings.append(f"{path}, line {line} is left out: {', '.join(missing)} missing")
            continue
        samples.append(
            Sample(
                name=f"line {line}: {row['left']}",
                scene=f"csv/{row.get('scene') or f'{path} line {line}'}",
                source="csv",
                files=tuple(files.values()),
                read=partial(
                    _read, files["left"], files["right"], files["disparity"], files.get("mask")
                ),
                keys=(files["left"].stem,),
            )
        )
    return samples, warnings


def _csv_file(root: Path) -> Path:
    if not os.path.isdir(root):
        return root
    found = sorted(root.glob("*.csv"))
    if len(found) != 1:
        raise InputError(f"{root} holds {len(found)} CSV files", hint="Name the file itself")
    return found[0]


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The number and the cells, by column, of every line that describes a pair."""
    try:
        text = read_file(path, _MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file", hint=EXPECTED) from error
    if "\0" in text:  # which the csv module of Python 3.10 does not take, and later ones do
        raise InputError(f"{path} is not a text file", hint=EXPECTED)
    columns: tuple[str, ...] | None = None
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
        except csv.Error as error:  # a cell too long
            raise InputError(f"{path}, line {number}: {error}", hint=EXPECTED) from error
        if columns is None:
            columns = _header(cells)
            if columns is not None:
                continue
            columns = _COLUMNS
        # Only a trailing mask may be omitted.
        row = dict(zip(columns, cells, strict=False))
        if len(cells) > len(columns) or not all(row.get(name) for name in _REQUIRED):
            raise InputError(
                f"{path}, line {number}: '{shortened(line.strip())}' is not {','.join(columns)}",
                hint="Write the paths of the left image, the right image and the disparity map",
            )
        rows.append((number, row))
    return rows


def _header(cells: list[str]) -> tuple[str, ...] | None:
    """The columns if the line names them, else None."""
    names = tuple(cell.lower() for cell in cells)
    known = set(names) <= set(_HEADER_COLUMNS) and len(set(names)) == len(names)
    return names if known and set(_REQUIRED) <= set(names) else None


def _read(left: Path, right: Path, disparity: Path, mask: Path | None) -> StereoPair:
    return build_pair(
        str(left),
        *read_pair(left, right),
        read_disparity(disparity),
        visible=None if mask is None else read_mask(mask),
    )
