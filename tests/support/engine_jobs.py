"""Jobs for workers, which find this module where the tests do."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from hybridstereo.errors import InputError


class Where:
    """Says where each task is done, and waits so that all workers get some."""

    def prepare(self, placement):
        return placement

    def call(self, prepared, task):
        time.sleep(0.2)
        return prepared

    def describe(self, task):
        return f"number {task}"

    def known(self, task):
        return None

    def is_final(self, result):
        return True

    def failed(self, task, error):
        raise error


@dataclass(frozen=True)
class Square:
    """Squares numbers; some take their worker with them, fail, or take long.

    Attributes
    ----------
    folder
        Where each call leaves a file, so that calls can be counted.
    killers, failing, slow
        Numbers that kill the worker, raise an exception, or take a while.
    survivors
        Killers that kill only once.
    """

    folder: str
    killers: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()
    failing: tuple[int, ...] = ()
    slow: tuple[int, ...] = ()
    unprepared: bool = False

    def prepare(self, placement):
        if self.unprepared:
            raise InputError("There is no model")
        Path(self.folder, f"prepared-{os.getpid()}").touch(exist_ok=False)
        return placement

    def call(self, prepared, task):
        calls = len(list(Path(self.folder).glob(f"call-{task}-*")))
        Path(self.folder, f"call-{task}-{time.monotonic_ns()}").touch()
        if task in self.killers or (task in self.survivors and calls == 0):
            os.kill(os.getpid(), signal.SIGKILL)
        if task in self.failing:
            raise ZeroDivisionError("a bug")
        if task in self.slow:
            time.sleep(12)
        return task * task

    def describe(self, task):
        return f"number {task}"

    def known(self, task):
        return 0 if task == 0 else None

    def is_final(self, result):
        return True

    def failed(self, task, error):
        return error
