"""Middlebury's ``calib.txt``: the disparity range and the cameras of a scene."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from hybridstereo.errors import InputError, shortened
from hybridstereo.io.files import read_file
from hybridstereo.limits import COUNT

Matrix = tuple[tuple[float, float, float], ...]

_HINT = "A line looks like ndisp=64 or cam0=[f 0 cx; 0 f cy; 0 0 1]"
_MOST_BYTES = 1 << 16
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
"""A decimal number, as calibration files of all kinds write it."""


@dataclass(frozen=True)
class Calibration:
    """What a ``calib.txt`` states; None for a key that it does not contain.

    Parameters
    ----------
    cam0, cam1
        3x3 camera matrices ``[f 0 cx; 0 f cy; 0 0 1]`` of the left and the right view, in pixels.
    doffs
        Difference of the principal points in x: ``cx1 - cx0``. Depth is
        ``baseline * f / (disparity + doffs)``.
    baseline
        Distance of the cameras, in millimetres.
    width, height
        Size of the images in pixels.
    ndisp
        A conservative bound: all disparities lie in [0, ndisp).
    isint
        Whether the true disparities are whole numbers.
    vmin, vmax
        A tight range of the disparities, meant for colour maps.

    """

    cam0: Matrix | None = None
    cam1: Matrix | None = None
    doffs: float | None = None
    baseline: float | None = None
    width: int | None = None
    height: int | None = None
    ndisp: int | None = None
    isint: bool | None = None
    vmin: float | None = None
    vmax: float | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the images, if both are stated."""
        if self.width is None or self.height is None:
            return None
        return self.width, self.height

    @property
    def disparity_range(self) -> tuple[int, int] | None:
        """The first and the last whole disparity to search: the tight range, else the bound."""
        if self.vmin is not None and self.vmax is not None and self.vmin <= self.vmax:
            return math.floor(self.vmin), math.ceil(self.vmax)
        return None if self.ndisp is None else (0, self.ndisp - 1)


def read_calibration(path: str | Path) -> Calibration:
    """Read a ``calib.txt``.

    Real files are untidy: spaces around ``=`` and at both ends of a line, keys in any order, empty
    lines. Keys that `Calibration` does not list (``dyavg``, ``dymax``) are ignored.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    InputError
        If the file cannot be read, a line is not ``key=value``, a key appears twice, or the value
        of a key that we use is not what it should be.

    """
    try:
        text = read_file(path, _MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file", hint=_HINT) from error
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise InputError(
                f"{path}, line {number}: '{shortened(line.strip())}' is not key=value", _HINT
            )
        if key in values:
            raise InputError(f"{path}, line {number}: {shortened(key)} is given a second time")
        values[key] = value
    return _Reader(str(path), values).calibration()


def calibration_text(calibration: Calibration) -> str:
    """The contents of a ``calib.txt`` with everything that is not None.

    Pixels have six decimals; ``read_calibration`` reads it back.
    """
    values = {
        key: _value_text(value) for key, value in vars(calibration).items() if value is not None
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _value_text(value: Matrix | float) -> str:
    if not isinstance(value, tuple):
        return f"{float(value):.9g}"
    rows = [" ".join(_entry_text(x) for x in row) for row in value]
    return f"[{'; '.join(rows)}]"


def _entry_text(value: float) -> str:
    return str(int(value)) if value in (0, 1) else f"{value:.6f}"


@dataclass(frozen=True)
class _Reader:
    """The values of a file as text, and what to call the file in an error message."""

    name: str
    values: dict[str, str]

    def calibration(self) -> Calibration:
        return Calibration(
            cam0=self._matrix("cam0"),
            cam1=self._matrix("cam1"),
            doffs=self._number("doffs"),
            baseline=self._number("baseline"),
            width=self._whole("width"),
            height=self._whole("height"),
            ndisp=self._whole("ndisp"),
            isint=self._flag("isint"),
            vmin=self._number("vmin"),
            vmax=self._number("vmax"),
        )

    def _numbers(self, key: str, text: str) -> list[float]:
        words = text.split()
        if not all(NUMBER.fullmatch(word) for word in words):
            raise self._error(key, "numbers")
        numbers = [float(word) for word in words]
        if not all(map(math.isfinite, numbers)):  # 1e999
            raise self._error(key, "finite numbers")
        return numbers

    def _number(self, key: str) -> float | None:
        if key not in self.values:
            return None
        numbers = self._numbers(key, self.values[key])
        if len(numbers) != 1:
            raise self._error(key, "a number")
        return numbers[0]

    def _whole(self, key: str) -> int | None:
        number = self._number(key)
        if number is None:
            return None
        if number != int(number) or int(number) not in COUNT:
            raise self._error(key, str(COUNT))
        return int(number)

    def _flag(self, key: str) -> bool | None:
        number = self._number(key)
        if number not in (None, 0.0, 1.0):
            raise self._error(key, "0 or 1")
        return None if number is None else bool(number)

    def _matrix(self, key: str) -> Matrix | None:
        if key not in self.values:
            return None
        text = self.values[key]
        if not (text.startswith("[") and text.endswith("]")):
            raise self._error(key, "a matrix in square brackets")
        rows = [self._numbers(key, row) for row in text[1:-1].split(";")]
        if [len(row) for row in rows] != [3, 3, 3]:
            raise self._error(key, "three rows of three numbers")
        if min(rows[0][0], rows[1][1]) <= 0 or rows[2] != [0, 0, 1]:
            raise self._error(key, "a camera matrix")
        return tuple((a, b, c) for a, b, c in rows)

    def _error(self, key: str, expected: str) -> InputError:
        stated = shortened(self.values[key])
        return InputError(f"{self.name}: {key}={stated} is not {expected}", hint=_HINT)
