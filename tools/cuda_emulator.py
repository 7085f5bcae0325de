"""A device for machines without a GPU: the PTX emulator.

`EmulatedDevice` takes the place of a GPU in `cudalib`: the wrappers of ``*_cuda.py`` choose grids
and buffers as always, but every kernel is compiled to PTX and executed by ``ptxemu`` on NumPy
arrays, with its checkers on.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hybridstereo.kernels.cuda import cudalib

PTXEMU = Path(__file__).resolve().parents[2] / "shared" / "tools" / "ptxemu.py"
# Any architecture will do for checking; this one has no tensor instructions to be tempted by.
ARCHITECTURE = (7, 5)

AnyDevice = TypeVar("AnyDevice", bound=cudalib.Device)

_LAUNCHING = threading.Lock()  # the emulator runs one kernel at a time


@cache
def load_ptxemu() -> Any:
    """The emulator as a module; its engine, built once, is kept where we may write."""
    os.environ.setdefault("PTXEMU_CACHE", str(Path(tempfile.gettempdir()) / "hybridstereo-ptxemu"))
    spec = importlib.util.spec_from_file_location("ptxemu", PTXEMU)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ptxemu"] = module
    spec.loader.exec_module(module)
    return module


def why_not() -> str:
    """The reason why the emulator cannot be used here; empty if it can."""
    if not PTXEMU.is_file():
        return "needs ../shared/tools/ptxemu.py"
    if importlib.util.find_spec("numba_cuda") is None:
        return "needs numba-cuda[cu12] or numba-cuda[cu13]"
    if in_simulator():
        return "the simulator is on"
    return ""


def in_simulator() -> bool:
    """Whether ``NUMBA_ENABLE_CUDASIM=1``."""
    from numba import config

    return bool(config.ENABLE_CUDASIM)


@cache
def compiled(function: cudalib.Kernel, architecture: tuple[int, int] = ARCHITECTURE) -> Any:
    """The kernel as the emulator runs it, compiled once per process."""
    signature = f"void({function.signature})"
    emulator = load_ptxemu()
    try:
        # With the lines of the source, which messages about faults then name.
        return emulator.compile(function.py_func, signature, cc=architecture, lineinfo=True)
    except Exception:  # NVVM rejects the line information of some kernels, not the kernels
        return emulator.compile(function.py_func, signature, cc=architecture)


def run_kernel(
    function: cudalib.Kernel,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    arguments: list,
    **options: Any,
) -> Any:
    """Execute a kernel on NumPy arrays; its statistics.  Complains of what the checkers found."""
    with _LAUNCHING:
        stats = compiled(function).launch(grid, block, arguments, **options)
    stats.assert_clean()
    return stats


class EmulatedDevice(cudalib.Device):
    """Runs kernels in the emulator and keeps the statistics of every launch.

    Parameters
    ----------
    options
        Of `ptxemu.Kernel.launch`, such as ``timing=False`` or ``reverse=True``.
    """

    name = "emulated"

    def __init__(self, first: EmulatedDevice | None = None, **options: Any) -> None:
        super().__init__(first)
        self.launches: list[tuple[cudalib.Kernel, Any]] = []
        self.downloads: list[int] = []  # elements of each
        self.uploads: list[np.ndarray] = []
        self._options = options

    def another(self) -> EmulatedDevice:
        return type(self)(self, **self._options)

    def wait_for(self, other: cudalib.Device) -> None:
        """All work is done at once."""

    def allocate(self, size: int, dtype: np.dtype) -> np.ndarray:
        # NaN, or a large integer: what is read before it is written shows in the results.
        fresh = np.empty(size, dtype)
        fresh.view(np.uint8)[...] = 0xFF
        return fresh

    def upload(self, host: np.ndarray, flat: np.ndarray) -> None:
        self.uploads.append(host)
        flat[...] = host

    def download(self, flat: np.ndarray) -> np.ndarray:
        self.downloads.append(flat.size)
        return flat.copy()

    def run(
        self,
        function: cudalib.Kernel,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: list,
    ) -> None:
        stats = run_kernel(function, grid, block, arguments, **self._options)
        self.launches.append((function, stats))


@contextmanager
def use(device: AnyDevice) -> Iterator[AnyDevice]:
    """Make a device the current one within a ``with`` block."""
    previous = cudalib.set_current(device)
    try:
        yield device
    finally:
        cudalib.set_current(previous)


@contextmanager
def emulated(**options: Any) -> Iterator[EmulatedDevice]:
    """Run everything on an `EmulatedDevice`."""
    with use(EmulatedDevice(**options)) as device:
        yield device
