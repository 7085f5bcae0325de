"""Array kernels: arrays in, arrays out; no files, no models, nothing compiled at import.

`select` returns the `Backend` of a device.  The CPU and the CUDA version of an operation are in
twin files (``conv_cpu.py``, ``conv_cuda.py``) and have the same names, arguments and results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
from typing import Any

import numpy as np

from .backend import Array, Backend, build, table

__all__ = [
    "Array",
    "Backend",
    "DeviceUnavailableError",
    "bound_backend",
    "chain_scratch",
    "cuda_backend",
    "explain_choice",
    "fixed_point_problem",
    "gpu_count",
    "gradient_scratch",
    "is_device",
    "max_threads",
    "network_passes",
    "network_scratch",
    "release_memory",
    "reusable_memory",
    "select",
    "set_threads",
]


class DeviceUnavailableError(RuntimeError):
    """The requested device cannot be used; ``fix`` says what would help."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


def _unchanged(array: Any) -> Any:
    return array


def _nothing() -> None:
    """The CPU queues no work and does not report its memory."""


def _one_by_one(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """One item is enough to keep a GPU busy."""
    return [function(item) for item in items]


def _one_call(item_count: int) -> int:
    """How many calls `_one_by_one` makes concurrently."""
    return 1


def _all_rows(height: int, weights: Sequence[Any]) -> list[tuple[int, int]]:
    """A network's results at once: launches for few rows would leave a GPU idle."""
    return [(0, height)]


# While one pair is computed, the images of another go up and its map comes down, and small kernels
# of one fill what those of the other leave free.  Each more would take volumes of its own.
_CUDA_QUEUES = 2


@cache
def _cpu() -> Backend:
    from .cpu import buffers
    from .cpu.streaming import network_bands
    from .cpu.workers import calls_at_once, side_by_side

    runtime = {
        "name": "cpu",
        "to_device": _unchanged,
        "to_host": _unchanged,
        "empty": buffers.empty,
        "synchronize": _nothing,
        "free_memory": _nothing,
        "side_by_side": side_by_side,
        "calls_at_once": calls_at_once,
        "queues": 1,
        "own_queue": nullcontext,
        "network_bands": network_bands,
    }
    return build("cpu", runtime)


@cache
def cuda_backend(name: str) -> Backend:
    """The CUDA operations, on whatever `cudalib.current` is when they are called."""
    from .cuda import cudalib

    runtime = {
        "name": name,
        "to_device": cudalib.to_device,
        "to_host": cudalib.to_host,
        "empty": cudalib.empty,
        "synchronize": cudalib.synchronize,
        "free_memory": cudalib.free_memory,
        "side_by_side": _one_by_one,
        "calls_at_once": _one_call,
        "queues": _CUDA_QUEUES,
        "own_queue": cudalib.own_queue,
        "network_bands": _all_rows,
    }
    return build("cuda", runtime)


def _gpu(index: int) -> Backend:
    """The backend of a GPU, which becomes the current device."""
    from .cuda import cudalib

    status = cudalib.probe()
    if not status.usable:
        raise DeviceUnavailableError(status.reason, status.fix)
    if index >= len(status.devices):
        raise DeviceUnavailableError(
            f"there is no GPU {index}",
            f"Use `device=cuda:0` to `device=cuda:{len(status.devices) - 1}`",
        )
    device = cudalib.open_device(index)
    cudalib.set_current(device)
    return bound_backend(device)


@cache
def bound_backend(device: Any) -> Backend:
    """The CUDA operations on one GPU, which every call makes the current device of its thread.

    So the arrays of several GPUs can be used in turn, and from any thread.
    """
    from .cuda import cudalib

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            cudalib.work_on(device)
            return function(*arguments, **named)

        return call

    members = vars(cuda_backend(device.name))
    return table({name: bound(x) if callable(x) else x for name, x in members.items()})


def is_device(name: str) -> bool:
    """Whether `select` knows such a device: cpu, auto, cuda or cuda:N."""
    return re.fullmatch(r"auto|cpu|cuda(:\d+)?", name) is not None


def select(device: str) -> Backend:
    """The backend of ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or with ``"auto"`` the best that works.

    Raises
    ------
    DeviceUnavailableError
        If a GPU is requested and cannot be used.
    """
    if not is_device(device):
        raise ValueError(f"unknown device {device!r}")
    if device == "cpu":
        return _cpu()
    if device == "auto":
        from .cuda import cudalib

        usable = cudalib.driver_installed() and cudalib.probe().usable
        return _gpu(0) if usable else _cpu()
    return _gpu(int(device.partition(":")[2] or 0))


def gpu_count() -> int:
    """How many GPUs can be used."""
    from .cuda import cudalib

    if not cudalib.driver_installed():
        return 0
    status = cudalib.probe()
    return len(status.devices) if status.usable else 0


def explain_choice(backend: Backend) -> str:
    """Which device ``"auto"`` chose, and why not a GPU; empty where there is no NVIDIA driver."""
    from .cuda import cudalib

    if not cudalib.driver_installed():
        return ""
    status = cudalib.probe()
    if backend.name != "cpu":
        return f"device: {backend.name}, {status.devices[0]}"
    return f"device: cpu, since CUDA cannot be used: {status.reason}"


def network_scratch(width: int, weights: Sequence[np.ndarray]) -> int:
    """Bytes that every thread of the CPU's `network_forward` needs for an image of this width."""
    from .cpu.streaming import memory_per_thread

    return memory_per_thread(width, weights)


def network_passes(height: int, threads: int) -> int:
    """How many `network_bands` the CPU has for so many rows."""
    from .cpu.streaming import passes

    return passes(height, threads)


def chain_scratch(nodes: int, label_count: int, fixed_point: bool = False) -> int:
    """Bytes that every thread of the CPU's `dual_mm` needs for chains of ``nodes`` pixels."""
    from .cpu.chains import scratch_bytes

    return scratch_bytes(nodes, label_count, "int16" if fixed_point else "float32")


def gradient_scratch(height: int, width: int, label_count: int, on_device: bool) -> int:
    """Bytes that `dual_mm_backward` needs beside its volumes, for all threads or on a GPU."""
    if on_device:
        from .cuda.chain_gradients import kept_rows_bytes

        return max(
            kept_rows_bytes(height, width, label_count), kept_rows_bytes(width, height, label_count)
        )
    from .cpu import chain_gradients

    return max_threads() * chain_gradients.kept_rows_bytes(max(height, width), label_count)


def fixed_point_problem(
    costs: np.ndarray, wx: np.ndarray, wy: np.ndarray, p1: float, p2: float
) -> Any:
    """A CRF in 16-bit fixed point on the CPU, a `FixedPointProblem`; the costs are lost."""
    from .cpu.fixed_point import FixedPointProblem

    return FixedPointProblem(costs, wx, wy, p1, p2)


def reusable_memory() -> int:
    """Bytes of main memory that the CPU kernels keep for their next arrays."""
    from .cpu import buffers

    return buffers.kept()


def release_memory() -> None:
    """Give back main memory that the CPU kernels keep for their next arrays."""
    from .cpu import buffers

    buffers.release()


def set_threads(count: int) -> None:
    """Use ``count`` threads for all CPU kernels called from this thread."""
    import numba

    numba.set_num_threads(count)


@contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Use ``count`` threads inside the block, as `set_threads`; None changes nothing.

    BLAS runs on one thread there in any case, since its sums depend on how many it has.
    """
    import numba

    from .cpu.workers import one_blas_thread

    before = numba.get_num_threads()
    with one_blas_thread():
        set_threads(before if count is None else count)
        try:
            yield
        finally:
            set_threads(before)


def max_threads() -> int:
    """The largest count that `set_threads` accepts."""
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)
