"""What both engines share, and the one of them that needs nothing but Python.

An engine decides which bytes are tried next; `Trials` runs the target on them and judges the end.
`Campaign` is guided by coverage: inputs that reach new lines of ours are kept.  Lines are counted
by `sys.settrace`, in our own sources only: what OpenCV and HDF5 do inside is seen by their answers,
so a new kind of refusal counts as well.  The other engine is libFuzzer, in `libfuzzer.py`.
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
    """What a campaign has done so far.

    ``reached`` counts lines of our sources, or what libFuzzer counts: edges of their bytecode.
    """

    target: str
    executions: int = 0
    refused: int = 0
    seconds: float = 0.0
    reached: int = 0
    findings: dict[str, str] = field(default_factory=dict)


def _signature(error: BaseException) -> str:
    """Which findings count as one: the kind, and where in our sources it began."""
    ours = [x for x in traceback.extract_tb(error.__traceback__) if _SOURCE in x.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "outside"
    return f"{type(error).__name__} at {where}"


class Trials:
    """Runs a target on one input after another and keeps what it should not have done.

    Parameters
    ----------
    name
        Of `TARGETS`.
    folder
        Receives a file for each finding, and the input that is being tried; None: nothing.
    tracer
        For `sys.settrace`, while the target runs.
    """

    def __init__(self, name: str, folder: Path | None, tracer: Any = None) -> None:
        self.target: Target = TARGETS[name]
        self.tally = Tally(name)
        self._folder = folder
        self._tracer = tracer
        self._answers: set[str] = set()
        self._begin = self._saved = time.monotonic()

    def is_new(self, data: bytes) -> bool:
        """Try an input; returns whether the target gave an answer of a new kind."""
        if self._folder is not None:
            (self._folder / f"{self.tally.target}.input").write_bytes(data)
        answer = None
        before = sys.gettrace()
        if self._tracer is not None:
            sys.settrace(self._tracer)
        try:
            answer = self._timed(data)
        except Exception as error:
            sys.settrace(before)
            self._found(data, error)
        finally:
            sys.settrace(before)
        self.tally.executions += 1
        self.tally.refused += answer is not None
        if time.monotonic() - self._saved > 1:
            self.save()
        kind = "" if answer is None else re.sub(r"[0-9'\"].*", "", answer.rpartition("/")[2])
        if kind in self._answers:
            return False
        self._answers.add(kind)
        return True

    def _timed(self, data: bytes) -> str | None:
        begin = time.process_time()
        answer = attempt(self.target.run, data)
        if time.process_time() - begin > _SLOW:
            # Once more: the first time may have paid for imports and compilation.
            begin = time.process_time()
            attempt(self.target.run, data)
            if time.process_time() - begin > _SLOW:
                raise TimeoutError(f"{time.process_time() - begin:.1f} s")
        return answer

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

    def save(self) -> None:
        """Write the tally."""
        self._saved = time.monotonic()
        self.tally.seconds = round(self._saved - self._begin, 1)
        if self._folder is not None:
            path = self._folder / f"{self.tally.target}.json"
            path.write_text(json.dumps(asdict(self.tally), indent=1))


def sealed(target: Target, data: bytes, random: Random) -> bytes:
    """The input, mostly with its checksums put right where it has any."""
    return target.seal(data) if target.seal is not None and random.random() < 0.7 else data


class Campaign:
    """Mutates inputs of a target and keeps what reaches new lines.

    Parameters
    ----------
    name, folder
        As of `Trials`.
    random
        What decides.
    """

    def __init__(self, name: str, random: Random, folder: Path | None = None) -> None:
        self._random = random
        self._coverage = Coverage()
        self._trials = Trials(name, folder, self._coverage)
        self._inputs: list[bytes] = []

    def run(self, seconds: float = float("inf"), executions: float = float("inf")) -> Tally:
        """Try the seeds, then mutations, until the time or the number is used up."""
        begin = time.monotonic()
        target, tally = self._trials.target, self._trials.tally
        seeds = target.seeds()
        for seed in seeds:
            self._try(seed)
        while tally.executions < executions and time.monotonic() - begin < seconds:
            pool = self._inputs or seeds
            data = mutated(self._random.choice(pool), self._random, pool)
            self._try(sealed(target, data, self._random))
        self._trials.save()
        return tally

    def _try(self, data: bytes) -> None:
        before = len(self._coverage.lines)
        if self._trials.is_new(data) or len(self._coverage.lines) > before:
            self._inputs.append(data)
        self._trials.tally.reached = len(self._coverage.lines)


def limit_process(seconds: float) -> None:
    """Keep a campaign's process within its memory and its time; warnings count as errors."""
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds + _HANGS, exit=True)


def run_alone(name: str, seconds: float, seed: int, folder: Path) -> None:
    """A campaign in a process of its own, which an input may end."""
    limit_process(seconds)
    Campaign(name, Random(seed), folder).run(seconds)
