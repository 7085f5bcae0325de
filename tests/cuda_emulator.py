"""A device for tests without a GPU: the PTX emulator; and backends that take NumPy arrays.

`EmulatedDevice` takes the place of a GPU in `cudalib`: the wrappers of ``*_cuda.py`` choose grids
and buffers as always, but every kernel is compiled to PTX and executed by ``ptxemu`` on NumPy
arrays, with its checkers on.  ``cuda_simulator.py`` is about Numba's simulator.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridstereo.kernels import Backend, cudalib

PTXEMU = Path(__file__).resolve().parents[2] / "shared" / "tools" / "ptxemu.py"
# Any architecture will do for checking; this one has no tensor instructions to be tempted by.
ARCHITECTURE = (7, 5)


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


class EmulatedDevice(cudalib.Device):
    """Runs kernels in the emulator and keeps the statistics of every launch.

    Parameters
    ----------
    options
        Of `ptxemu.Kernel.launch`, such as ``timing=False`` or ``reverse=True``.
    """

    name = "emulated"

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.launches: list[tuple[cudalib.Kernel, Any]] = []
        self.downloads: list[int] = []  # elements of each
        self.uploads: list[np.ndarray] = []
        self._options = options

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
        stats = compiled(function).launch(grid, block, arguments, **self._options)
        stats.assert_clean()
        self.launches.append((function, stats))


@contextmanager
def emulated(**options: Any) -> Iterator[EmulatedDevice]:
    """Run everything on an `EmulatedDevice`."""
    device = EmulatedDevice(**options)
    with cudalib.use(device):
        yield device


# ---------------------------------------------------------------- backends for tests


def _on_device(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return cudalib.to_device(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_on_device(x) for x in value)
    return value


def _on_host(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_on_host, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_on_host, value))
    return cudalib.to_host(value)


def _effort(name: str, arguments: tuple) -> int:
    """Elements of the arrays; Dual_MM goes through them again and again."""
    repeats = arguments[5] if name == "dual_mm" else 1
    return repeats * sum(x.size for x in arguments if isinstance(x, np.ndarray))


def hosted(backend: Backend, most: int | None = None) -> Backend:
    """A CUDA backend for tests that know nothing but NumPy.

    Every operation takes NumPy arrays to the device and its results back, arrays that it changes
    included.  With ``most`` a test that needs more than so many elements is skipped.
    """

    def wrap(name: str, operation: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if most is not None and _effort(name, arguments) > most:
                pytest.skip("too large for the simulator")
            moved = [_on_device(x) for x in arguments]
            result = operation(*moved)
            for given, there in zip(arguments, moved, strict=True):
                if isinstance(given, np.ndarray) and given.flags.writeable:
                    given[...] = cudalib.to_host(there)
            return _on_host(result)

        return call

    kept = ("name", "to_device", "to_host", "empty", "synchronize", "free_memory")
    wrapped = {
        field.name: wrap(field.name, getattr(backend, field.name))
        for field in dataclasses.fields(backend)
        if field.name not in kept
    }
    moves = {"to_device": lambda x: x, "to_host": lambda x: x, "empty": np.empty}
    return dataclasses.replace(backend, **wrapped, **moves)
