"""Array kernels: arrays in, arrays out; no files, no models, nothing compiled at import.

`select` gives the table of operations of a device.  The CPU and the CUDA version of an operation
stand in twin files (``conv_cpu.py``, ``conv_cuda.py``) with the same names, arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

Array = np.ndarray


class DeviceUnavailableError(RuntimeError):
    """The requested device cannot be used; ``fix`` says what would help."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True)
class Backend:
    """The operations of one device, in the order in which the model uses them."""

    name: str
    conv_forward: Callable[[Array, Array, Array | None, bool], Array]
    network_forward: Callable[[Array, list[tuple[Array, Array | None]], bool], Array]
    conv_backward: Callable[..., tuple[Array | None, Array, Array]]
    correlation_forward: Callable[[Array, Array, Array], Array]
    softmax_backward: Callable[[Array, Array], Array]
    scores_backward: Callable[[Array, Array, Array, Array], tuple[Array, Array]]
    contrast_weights: Callable[[Array, float, float, float], tuple[Array, Array]]
    dual_mm: Callable[..., tuple[Array, Array]]
    argmin: Callable[[Array], Array]
    read_out: Callable[[Array], Array]
    energy: Callable[[Array, Array, Array, float, float, Array], float]
    refine: Callable[[Array, Array, float], Array]


@cache
def _cpu() -> Backend:
    from . import contrast_cpu, conv_cpu, correlation_cpu, dualmm_cpu

    return Backend(
        name="cpu",
        conv_forward=conv_cpu.conv_forward,
        network_forward=conv_cpu.network_forward,
        conv_backward=conv_cpu.conv_backward,
        correlation_forward=correlation_cpu.correlation_forward,
        softmax_backward=correlation_cpu.softmax_backward,
        scores_backward=correlation_cpu.scores_backward,
        contrast_weights=contrast_cpu.contrast_weights,
        dual_mm=dualmm_cpu.dual_mm,
        argmin=dualmm_cpu.argmin,
        read_out=dualmm_cpu.read_out,
        energy=dualmm_cpu.energy,
        refine=dualmm_cpu.refine,
    )


def select(device: str) -> Backend:
    """The operations of ``"cpu"``, ``"cuda"`` or the better one that works (``"auto"``).

    Raises
    ------
    DeviceUnavailableError
        If ``"cuda"`` is asked for and cannot be used.
    """
    if device in ("auto", "cpu"):
        return _cpu()
    if device == "cuda":
        from .cudalib import probe

        status = probe()
        raise DeviceUnavailableError(status.reason, status.fix)
    raise ValueError(f"unknown device {device!r}")


def set_threads(count: int) -> None:
    """Use ``count`` threads for all CPU kernels called from this thread."""
    import numba

    numba.set_num_threads(count)


def max_threads() -> int:
    """The largest count that `set_threads` accepts."""
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)
