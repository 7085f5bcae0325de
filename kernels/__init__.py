"""Array kernels: arrays in, arrays out; no files, no models, nothing compiled at import.

`select` gives the table of operations of a device.  The CPU and the CUDA version of an operation
stand in twin files (``conv_cpu.py``, ``conv_cuda.py``) with the same names, arguments and results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .losses_cpu import HingeGradients

# A NumPy array on the CPU, a `cudalib.DeviceArray` on a GPU.
Array = Any


class DeviceUnavailableError(RuntimeError):
    """The requested device cannot be used; ``fix`` says what would help."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True)
class Backend:
    """The operations of one device, in the order in which the model and its training use them.

    Arrays stay on the device between operations: `to_device` brings them there, `to_host` back.
    On the CPU both return what they are given.  `side_by_side` calls a function of independent
    items, several at once where that is faster; `calls_at_once` says how many of so many items.
    """

    name: str
    to_device: Callable[..., Array]
    to_host: Callable[[Array], np.ndarray]
    empty: Callable[..., Array]
    synchronize: Callable[[], None]
    free_memory: Callable[[], int | None]
    side_by_side: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
    calls_at_once: Callable[[int], int]
    conv_forward: Callable[[Array, Array, Array | None, bool], Array]
    network_forward: Callable[[Array, list[tuple[Array, Array | None]], bool], Array]
    conv_backward: Callable[..., tuple[Array | None, Array, Array]]
    correlation_forward: Callable[[Array, Array, np.ndarray], Array]
    softmax_backward: Callable[[Array, Array], Array]
    scores_backward: Callable[[Array, Array, Array, np.ndarray], tuple[Array, Array]]
    contrast_weights: Callable[[Array, float, float, float], tuple[Array, Array]]
    magnitude_forward: Callable[[Array, float], tuple[Array, Array]]
    magnitude_backward: Callable[[Array, Array, Array, float], Array]
    dual_mm: Callable[..., tuple[Array, np.ndarray]]
    argmin: Callable[[Array], Array]
    read_out: Callable[[Array], Array]
    energy: Callable[[Array, Array, Array, float, float, Array], float]
    refine: Callable[[Array, Array, float], Array]
    cross_entropy: Callable[..., tuple[float, Array]]
    augment_costs: Callable[[Array, Array, Array, float, float], Array]
    task_loss: Callable[[Array, Array, Array, float], float]
    count_bad_labels: Callable[[Array, Array, Array, float], int]
    count_different: Callable[[Array, Array], int]
    complete_truth: Callable[[Array, Array, Array], Array]
    hinge_gradients: Callable[..., HingeGradients]
    squared_norm: Callable[[Array], float]
    scale_by: Callable[[Array, float], None]
    divide_by: Callable[[Array, float], None]
    add_to: Callable[[Array, Array], None]
    sgd_update: Callable[..., None]


# The operations of a backend that are not about moving arrays, by the files that hold them.
_OPERATIONS = {
    "conv": ("conv_forward", "network_forward", "conv_backward"),
    "correlation": ("correlation_forward", "softmax_backward", "scores_backward"),
    "contrast": ("contrast_weights",),
    "edges": ("magnitude_forward", "magnitude_backward"),
    "dualmm": ("dual_mm", "argmin", "read_out", "energy", "refine"),
    "losses": (
        "cross_entropy",
        "augment_costs",
        "task_loss",
        "count_bad_labels",
        "count_different",
        "complete_truth",
        "hinge_gradients",
    ),
    "optim": ("squared_norm", "scale_by", "divide_by", "add_to", "sgd_update"),
}


def _operations(engine: str) -> dict[str, Any]:
    """All operations of the files ``*_<engine>.py`` by name."""
    return {
        name: getattr(import_module(f".{stem}_{engine}", __name__), name)
        for stem, names in _OPERATIONS.items()
        for name in names
    }


def _unchanged(array: Any) -> Any:
    return array


def _nothing() -> None:
    """Waiting for the CPU and asking it for its memory: nothing to do, nothing to tell."""


def _one_by_one(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """A GPU is kept busy by each item alone."""
    return [function(item) for item in items]


def _one_call(items: int) -> int:
    """What `_one_by_one` makes at the same time."""
    return 1


@cache
def _cpu() -> Backend:
    from .cpu.workers import calls_at_once, side_by_side

    return Backend(
        name="cpu",
        to_device=_unchanged,
        to_host=_unchanged,
        empty=np.empty,
        synchronize=_nothing,
        free_memory=_nothing,
        side_by_side=side_by_side,
        calls_at_once=calls_at_once,
        **_operations("cpu"),
    )


@cache
def cuda_backend(name: str) -> Backend:
    """The CUDA operations, on whatever `cudalib.current` is when they are called."""
    from .cuda import cudalib

    return Backend(
        name=name,
        to_device=cudalib.to_device,
        to_host=cudalib.to_host,
        empty=cudalib.empty,
        synchronize=cudalib.synchronize,
        free_memory=cudalib.free_memory,
        side_by_side=_one_by_one,
        calls_at_once=_one_call,
        **_operations("cuda"),
    )


def _cuda(index: int) -> Backend:
    """The operations of a GPU, which becomes the current device."""
    from .cuda import cudalib

    status = cudalib.probe()
    if not status.usable:
        raise DeviceUnavailableError(status.reason, status.fix)
    if index >= len(status.devices):
        raise DeviceUnavailableError(
            f"there is no GPU {index}", f"Use --device cuda:0 to cuda:{len(status.devices) - 1}"
        )
    device = cudalib.open_device(index)
    cudalib.set_current(device)
    return cuda_backend(device.name)


def is_device(name: str) -> bool:
    """Whether `select` knows such a device: cpu, auto, cuda or cuda:N."""
    return re.fullmatch(r"auto|cpu|cuda(:\d+)?", name) is not None


def select(device: str) -> Backend:
    """The operations of ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or the best that works (``"auto"``).

    Raises
    ------
    DeviceUnavailableError
        If a GPU is asked for and cannot be used.
    """
    if not is_device(device):
        raise ValueError(f"unknown device {device!r}")
    if device == "cpu":
        return _cpu()
    if device == "auto":
        from .cuda import cudalib

        usable = cudalib.driver_installed() and cudalib.probe().usable
        return _cuda(0) if usable else _cpu()
    return _cuda(int(device.partition(":")[2] or 0))


def explain_choice(backend: Backend) -> str:
    """Which device ``"auto"`` took, and why not a GPU; empty where nobody expects one."""
    from .cuda import cudalib

    if not cudalib.driver_installed():
        return ""
    status = cudalib.probe()
    if backend.name != "cpu":
        return f"device: {backend.name}, {status.devices[0]}"
    return f"device: cpu, since CUDA cannot be used: {status.reason}"


def reusable_memory() -> int:
    """Bytes of the machine that CPU kernels keep for their next arrays."""
    from .cpu import buffers

    return buffers.kept()


def set_threads(count: int) -> None:
    """Use ``count`` threads for all CPU kernels called from this thread."""
    import numba

    numba.set_num_threads(count)


def max_threads() -> int:
    """The largest count that `set_threads` accepts."""
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)
