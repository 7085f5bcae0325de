"""The log of a run: one JSON object per line, one line per step and per validation.

Nothing but curves is made from it, so damage may cost lines, but never the run.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InputError
from ..io.atomic import atomic_write, write_error
from ..models.zoo import STAGES

_KINDS = ("step", "validation")
_LONGEST_LINE = 1 << 16  # ours have some 500 bytes
_LARGEST = 1 << 53  # whole numbers that a float holds exactly


class RunLog:
    """The file of the log.

    Parameters
    ----------
    path
        Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def clear(self) -> None:
        """Begin an empty log."""
        with atomic_write(self.path):
            pass

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a line.

        Raises
        ------
        OutputError
            If it cannot be written, or only in part: `cut_back` drops that part.
        """
        line = memoryview(json.dumps(entry).encode() + b"\n")
        with self._descriptor(os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
            while line:
                line = line[os.write(descriptor, line) :]

    def sync(self) -> None:
        """Force all lines to disk, so that a checkpoint never knows of steps that the log lost."""
        with self._descriptor(os.O_WRONLY) as descriptor:
            os.fsync(descriptor)

    def entries(self) -> list[dict[str, Any]]:
        """All lines that are whole and make sense."""
        return [entry for _, entry in self._lines() if entry is not None]

    def cut_back(self, stage: str, step: int) -> list[str]:
        """Remove what lies behind a checkpoint, which will be done again, and what is damaged.

        Parameters
        ----------
        stage, step
            Where the run goes on, as in `runfolder.Position`.

        Returns
        -------
        list of str
            What is to be said about damage.
        """
        damaged = behind = steps = 0
        kept = []
        for line, entry in self._lines():
            if entry is None:
                damaged += 1
            elif _is_behind(entry, stage, step):
                behind += 1
            else:
                kept.append(line)
                steps += entry["kind"] == "step" and entry["stage"] == stage
        if damaged or behind or not self.path.exists():
            with atomic_write(self.path) as temporary:
                temporary.write_bytes(b"".join(kept))
        messages = []
        if damaged:
            messages.append(f"{self.path}: {_counted(damaged, 'damaged line')} dropped")
        if stage and steps < step:
            messages.append(f"{self.path} lacks {_counted(step - steps, 'step')} of {step}")
        return messages

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
        """Every line with what it says; None if it is damaged."""
        try:
            with self._opened() as file:
                while line := file.readline(_LONGEST_LINE):
                    yield line, _parsed(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be read: {error.strerror}", "Check the file's permissions"
            ) from error

    def _opened(self) -> BinaryIO:
        if not stat.S_ISREG(os.stat(self.path).st_mode):  # a pipe would block for ever
            raise InputError(f"{self.path} is not a file", "Remove it and resume")
        return open(self.path, "rb")

    @contextmanager
    def _descriptor(self, flags: int) -> Iterator[int]:
        try:
            descriptor = os.open(self.path, flags, 0o666)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            raise write_error(self.path, error) from error


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The entry of a line; None if it is not one that a run could have written."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not line.endswith(b"\n") or not isinstance(entry, dict):
        return None
    numbers = {name: x for name, x in entry.items() if name not in ("kind", "stage", "loss")}
    sensible = (
        entry.get("kind") in _KINDS
        and entry.get("stage") in STAGES
        and isinstance(entry.get("step"), int)
        and entry["step"] >= 0
        and ("loss" not in entry or entry["loss"] in list(numbers))
        and all(_is_number(x) for x in numbers.values())
    )
    return entry if sensible else None


def _is_number(value: object) -> bool:
    """Whether a value is a number that can be drawn, or NaN for a figure that does not exist."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value != value or abs(value) <= _LARGEST


def _is_behind(entry: Mapping[str, Any], stage: str, step: int) -> bool:
    """Whether a run that goes on at a step of a stage will write this entry (again)."""
    if not stage:  # the run is finished
        return False
    if entry["stage"] != stage:
        return STAGES.index(entry["stage"]) > STAGES.index(stage)
    # A step is logged before it is counted, and a validation after; the one before the first step
    # follows the checkpoint that begins the stage.
    return entry["step"] >= step if entry["kind"] == "step" or step == 0 else entry["step"] > step


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
