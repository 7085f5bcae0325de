"""What Numba's CUDA simulator lacks: shuffles, barriers without polling, several files."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_WARP = 32
_PATIENCE = 120.0  # seconds until a thread that nobody meets gives up

# A thread of the simulator is a thread of Python: arrays must be tiny.
MOST_ELEMENTS = 350


class Meeting:
    """A barrier for a number of threads that shrinks when one of them leaves for good."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._lock = threading.Lock()
        self._gates: list[Any] = []
        self._broken = False

    def wait(self) -> None:
        """Wait for all the others."""
        with self._lock:
            if len(self._gates) + 1 >= self._parties:
                self._open()
                return
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)
        if not gate.acquire(timeout=_PATIENCE) or self._broken:
            raise RuntimeError("the other threads did not come to this barrier")

    def leave(self, broken: bool) -> None:
        """Never come again; ``broken`` sends all the others home as well."""
        with self._lock:
            self._parties -= 1
            self._broken |= broken
            if self._gates and (self._broken or len(self._gates) >= self._parties):
                self._open()

    def _open(self) -> None:
        gates, self._gates = self._gates, []
        for gate in gates:
            gate.release()


class Warp:
    """Where the threads of a warp exchange values; two slots take turns."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.meeting = Meeting(lanes)
        self.slots: list[list[Any]] = [[None] * _WARP, [None] * _WARP]


def _exchange(value: Any, source: Callable[[int], int]) -> Any:
    """What the lane ``source(own lane)`` passes as its value; its own, if there is no such lane."""
    thread: Any = threading.current_thread()
    number, lane = divmod(thread.thread_id, _WARP)
    warp = thread._manager.warps[number]
    thread.turn = 1 - getattr(thread, "turn", 0)
    slot = warp.slots[thread.turn]
    slot[lane] = value
    warp.meeting.wait()
    wanted = source(lane)
    return slot[wanted] if 0 <= wanted < warp.lanes else value


_allocating = threading.Lock()


def _shared_array(self: Any, shape: Any, dtype: Any, alignment: int | None = None) -> np.ndarray:
    """Shared memory, told apart by the line that asks for it; the alignment does not matter."""
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno
    with _allocating:
        if place not in self._allocations:
            self._allocations[place] = np.empty(shape, np.dtype(str(dtype)))
        return self._allocations[place]


@contextmanager
def _swapped_in_all_files(function: Callable[..., Any], fake: Any) -> Iterator[None]:
    """While a kernel runs, ``cuda`` is the simulator's in all files that its functions may be from.

    Numba's own does that whenever a function of another file is called, and threads that leave
    theirs take the name away from those that are still inside.
    """
    from numba import cuda

    scopes = []
    if function.__globals__.get("cuda") is cuda:  # else a kernel is calling a device function
        files = [vars(x) for name, x in sys.modules.items() if "hybridstereo.kernels" in name]
        scopes = [x for x in (function.__globals__, *files) if x.get("cuda") is cuda]
    for scope in scopes:
        scope["cuda"] = fake
    try:
        yield
    finally:
        for scope in scopes:
            scope["cuda"] = cuda


def extend_simulator() -> None:
    """Add warp operations to the simulator and replace its polling by barriers.

    Functions of several files can work together in a kernel, too.
    """
    from numba.cuda.simulator import kernel
    from numba.cuda.simulator.kernelapi import FakeCUDAModule, FakeCUDAShared

    FakeCUDAShared.array = _shared_array

    class Thread(kernel.BlockThread):
        def run(self) -> None:
            super().run()
            broken = self.exception is not None
            self._manager.meeting.leave(broken)
            self._manager.warps[self.thread_id // _WARP].meeting.leave(broken)

        def syncthreads(self) -> None:
            self._manager.meeting.wait()

    class Manager(kernel.BlockManager):
        def run(self, grid_point: tuple, *arguments: Any) -> None:
            size = int(np.prod(self._block_dim))
            self.meeting = Meeting(size)
            self.warps = [Warp(min(size - i, _WARP)) for i in range(0, size, _WARP)]
            threads = [
                Thread(lambda: self._f(*arguments), self, grid_point, point, self._debug)
                for point in np.ndindex(*self._block_dim)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            failures = [thread.exception for thread in threads if thread.exception]
            if failures:
                raise failures[0][0].with_traceback(failures[0][1])

    kernel.BlockManager = Manager
    kernel.swapped_cuda_module = _swapped_in_all_files
    operations = {
        "shfl_sync": lambda self, mask, value, lane: _exchange(value, lambda own: lane % _WARP),
        "shfl_xor_sync": lambda self, mask, value, bits: _exchange(value, lambda own: own ^ bits),
        "shfl_up_sync": lambda self, mask, value, delta: _exchange(value, lambda own: own - delta),
        "shfl_down_sync": lambda self, mask, value, delta: _exchange(
            value, lambda own: own + delta
        ),
        "syncwarp": lambda self, mask=None: _exchange(None, lambda own: own),
    }
    for name, operation in operations.items():
        setattr(FakeCUDAModule, name, operation)
