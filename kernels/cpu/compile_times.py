"""How long Numba takes to compile each kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import local
from typing import Any

from numba.core import event

__all__ = ["CompiledKernel", "timed_compiling"]


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel that Python called and that had to be compiled.

    Attributes
    ----------
    name
        Its module and function.
    seconds
        Of one core, with all functions that were compiled because it calls them.
    functions
        How many that were, itself included.
    """

    name: str
    seconds: float
    functions: int


class _Watch(event.Listener):
    """Hears when a function begins and ends to be compiled, in whatever thread."""

    def __init__(self) -> None:
        self.kernels: list[CompiledKernel] = []
        self._thread = local()

    def on_start(self, event: Any) -> None:
        if not getattr(self._thread, "begun", None):
            self._thread.begun, self._thread.functions = [], 0
        self._thread.begun.append(time.thread_time())
        self._thread.functions += 1

    def on_end(self, event: Any) -> None:
        seconds = time.thread_time() - self._thread.begun.pop()
        if not self._thread.begun:  # else a kernel that calls it is still being compiled
            function = event.data["dispatcher"].py_func
            name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
            self.kernels.append(CompiledKernel(name, seconds, self._thread.functions))


@contextmanager
def timed_compiling() -> Iterator[list[CompiledKernel]]:
    """A list that grows by every kernel that is compiled inside the block."""
    watch = _Watch()
    with event.install_listener("numba:compile", watch):
        yield watch.kernels
