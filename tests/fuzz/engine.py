"""A small fuzzer that is guided by coverage: inputs that reach new lines of ours are kept.

It needs nothing but Python.  Lines are counted by `sys.settrace`, in our own sources only: what
OpenCV and HDF5 do inside is seen by their answers, so a new kind of refusal counts as well.
"""

from __future__ import annotations

import faulthandler
import json
import re
import resource
import sys
import time
import traceback
import warnings
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

import hybridstereo

from .mutate import mutated
from .targets import TARGETS, Target, attempt

_SOURCE = str(Path(hybridstereo.__file__).parent)
_MEMORY = 6 << 30
"""Bytes of address space; an input that needs more is a finding."""
_SLOW = 5.0
"""Seconds of computing; an input that needs more, twice, is a finding."""
_HANGS = 60
"""Seconds after which the process is ended."""


class Coverage:
    """The lines of our sources that were reached."""

    def __init__(self) -> None:
        self.lines: set[tuple[CodeType, int]] = set()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_SOURCE) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.lines.add((frame.f_code, frame.f_lineno))
        return self._line


@dataclass
class Tally:
    """What a campaign has done so far."""

    target: str
    executions: int = 0
    refused: int = 0
    seconds: float = 0.0
    lines: int = 0
    kept: int = 0
    findings: dict[str, str] = field(default_factory=dict)


def _signature(error: BaseException) -> str:
    """Which findings count as one: the kind, and where in our sources it began."""
    ours = [x for x in traceback.extract_tb(error.__traceback__) if _SOURCE in x.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "outside"
    return f"{type(error).__name__} at {where}"


class Campaign:
    """Mutates inputs of a target and keeps what is new.

    Parameters
    ----------
    name
        Of `TARGETS`.
    random
        What decides.
    folder
        Receives a file for each finding, and the input that is being tried; None: nothing.
    """

    def __init__(self, name: str, random: Random, folder: Path | None = None) -> None:
        self._target: Target = TARGETS[name]
        self._random = random
        self._folder = folder
        self._coverage = Coverage()
        self._answers: set[str] = set()
        self._inputs: list[bytes] = []
        self.tally = Tally(name)

    def run(self, seconds: float = float("inf"), executions: float = float("inf")) -> Tally:
        """Try the seeds, then mutations, until the time or the number is used up."""
        begin = saved = time.monotonic()
        seeds = self._target.seeds()
        for seed in seeds:
            self._try(seed)
        while self.tally.executions < executions and time.monotonic() - begin < seconds:
            pool = self._inputs or seeds
            data = mutated(self._random.choice(pool), self._random, pool)
            if self._target.seal is not None and self._random.random() < 0.7:
                data = self._target.seal(data)
            self._try(data)
            if time.monotonic() - saved > 1:
                saved = time.monotonic()
                self._save(saved - begin)
        self._save(time.monotonic() - begin)
        return self.tally

    def _try(self, data: bytes) -> None:
        if self._folder is not None:
            (self._folder / f"{self.tally.target}.input").write_bytes(data)
        before = len(self._coverage.lines)
        begin = time.process_time()
        answer = None
        tracer = sys.gettrace()
        sys.settrace(self._coverage)
        try:
            answer = attempt(self._target.run, data)
            if time.process_time() - begin > _SLOW:
                # Once more: the first time may have paid for imports and compilation.
                begin = time.process_time()
                attempt(self._target.run, data)
                if time.process_time() - begin > _SLOW:
                    raise TimeoutError(f"{time.process_time() - begin:.1f} s")
        except Exception as error:
            sys.settrace(tracer)
            self._found(data, error)
        finally:
            sys.settrace(tracer)
        self.tally.executions += 1
        self.tally.refused += answer is not None
        kind = "" if answer is None else re.sub(r"[0-9'\"].*", "", answer.rpartition("/")[2])
        if len(self._coverage.lines) > before or kind not in self._answers:
            self._answers.add(kind)
            self._inputs.append(data)

    def _found(self, data: bytes, error: BaseException) -> None:
        signature = _signature(error)
        if signature in self.tally.findings:
            return
        name = f"{self.tally.target}-{sha256(data).hexdigest()[:12]}"
        self.tally.findings[signature] = name
        if self._folder is not None:
            (self._folder / name).write_bytes(data)
            said = "".join(traceback.format_exception(error))
            (self._folder / f"{name}.txt").write_text(said, errors="backslashreplace")

    def _save(self, seconds: float) -> None:
        self.tally.seconds = round(seconds, 1)
        self.tally.lines = len(self._coverage.lines)
        self.tally.kept = len(self._inputs)
        if self._folder is not None:
            path = self._folder / f"{self.tally.target}.json"
            path.write_text(json.dumps(asdict(self.tally), indent=1))


def run_alone(name: str, seconds: float, seed: int, folder: Path) -> None:
    """A campaign in a process of its own, which an input may end."""
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds + _HANGS, exit=True)
    Campaign(name, Random(seed), folder).run(seconds)
