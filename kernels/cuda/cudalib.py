"""The only file that imports ``numba.cuda``: kernels compiled on first use, and GPUs.

What a ``*_cuda.py`` file needs to know:

* `kernel` and `device_function` mark plain Python functions.  Nothing is imported or compiled
  before the first launch, when the module's placeholder ``cuda: Any = None`` becomes
  ``numba.cuda``.  Hence every such file can be imported without CUDA.
* `empty`, `to_device`, `to_host` and `launch` are those of ``devices.py``, for the current device.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from typing import Any

import numpy as np

from ..diskcache import KernelCache
from .devices import (
    Device,
    DeviceArray,
    current,
    empty,
    free_memory,
    launch,
    own_queue,
    set_current,
    synchronize,
    to_device,
    to_host,
    work_on,
)

__all__ = [
    "SHARED_BYTES",
    "CudaDevice",
    "CudaStatus",
    "Device",
    "DeviceArray",
    "Kernel",
    "blocks_for",
    "current",
    "device_function",
    "driver_installed",
    "empty",
    "free_memory",
    "kernel",
    "kernel_family",
    "launch",
    "open_device",
    "own_queue",
    "probe",
    "registered_kernels",
    "round_up",
    "set_current",
    "synchronize",
    "to_device",
    "to_host",
    "work_on",
]

SHARED_BYTES = 48 << 10  # shared memory that a block may use on every GPU

# ---------------------------------------------------------------- kernels

# Names are bound and kernels compiled by one thread at a time: another would find them half bound.
_COMPILING = threading.RLock()


@cache
def _cuda() -> Any:
    from numba import cuda

    # Numba has a CUDA target of its own, which does not know aligned shared memory.
    if not _simulated() and find_spec("numba_cuda") is None:
        raise ImportError("numba-cuda is not installed")
    return cuda


def _bind(function: Callable[..., None]) -> None:
    """Give a function the real ``cuda`` and the compiled versions of its device functions.

    They are replaced in its globals and its closure, which is where Numba looks them up.
    """
    scope = function.__globals__
    scope["cuda"] = _cuda()
    for name, value in list(scope.items()):
        if isinstance(value, _DeviceFunction):
            scope[name] = value.compiled
    for cell in function.__closure__ or ():
        if isinstance(cell.cell_contents, _DeviceFunction):
            cell.cell_contents = cell.cell_contents.compiled


class _DeviceFunction:
    """A function that kernels call; compiled together with the first of them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._compiled: Any = None

    @property
    def compiled(self) -> Any:
        """The dispatcher of ``numba.cuda``, which compiles when a kernel does."""
        if self._compiled is None:
            # Set before its own names are bound, which may recurse to here.
            self._compiled = _cuda().jit(device=True)(self._function)
            _bind(self._function)
        return self._compiled


def device_function(function: Callable[..., Any]) -> Any:
    """Mark a function that kernels call, if need be those of other files.

    If it uses ``cuda``, its file has the placeholder, too.
    """
    return _DeviceFunction(function)


class _CudaCache(KernelCache):
    """Keeps what numba-cuda compiles."""

    def __init__(self, function: Callable[..., None]) -> None:
        compiler = f"numba-cuda {version('numba-cuda')}"
        super().__init__(function, _cuda().serialize.dumps, compiler)

    def reduce(self, compiled: Any) -> Any:
        """The code of one architecture; None if it holds for one shape of grid only."""
        sensitive = getattr(compiled, "launch_config_sensitive", False)
        return None if sensitive else compiled._reduce_states()

    def rebuild(self, target_context: Any, reduced: Any) -> Any:
        """A kernel that the driver loads at its first launch."""
        return _cuda().dispatcher._Kernel._rebuild(**reduced)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """As `KernelCache`, with the names that functions of CUDA have inside kernels."""
        from numba.core.target_extension import target_override

        with target_override("cuda"):
            return super().load_overload(signature, target_context)


class Kernel:
    """A kernel with the types of its arguments; see `kernel`."""

    def __init__(self, function: Callable[..., None], signature: str, threads: int) -> None:
        self._function = function
        self.name = function.__name__
        self.module = function.__module__.rpartition(".")[2]
        self.signature = signature
        self.threads = threads
        self.variant = ""  # of a family: the constants it was built from
        self._compiled: Any = None

    @cached_property
    def py_func(self) -> Callable[..., None]:
        """The plain function, ready for the compiler, the simulator or the emulator."""
        with _COMPILING:
            _bind(self._function)
        return self._function

    @property
    def compiled(self) -> Any:
        """The dispatcher of ``numba.cuda``: compiled for the current device, or found on disk."""
        if self._compiled is None:
            with _COMPILING:
                self._compiled = self._compiled or self._compile()
        return self._compiled

    def _compile(self) -> Any:
        signature = f"void({self.signature})"
        if _simulated():
            return _cuda().jit(signature)(self.py_func)
        # With link-time optimisation it would not be the code that emulator and ptxas checked.
        dispatcher = _cuda().jit(self.py_func, lto=False)
        dispatcher._cache = _CudaCache(self.py_func)
        dispatcher.compile(signature)
        dispatcher._specialized = True  # as if decorated with the signature, before it has a cache
        dispatcher.disable_compile()
        return dispatcher

    def __repr__(self) -> str:
        return f"<kernel {self.module}.{self.name}({self.signature})>"


_KERNELS: list[Kernel] = []
_FAMILIES: list[tuple[Callable[..., Kernel], Sequence[tuple[Any, ...]]]] = []


def kernel(signature: str, threads: int) -> Callable[[Callable[..., None]], Kernel]:
    """Make a function a kernel.

    Parameters
    ----------
    signature
        The types of all arguments, such as ``"float32[:, ::1], int32"``.
    threads
        The largest block that it is launched with.
    """

    def decorate(function: Callable[..., None]) -> Kernel:
        made = Kernel(function, signature, threads)
        if "<locals>" not in function.__qualname__:
            _KERNELS.append(made)
        return made

    return decorate


def kernel_family(
    *examples: tuple[Any, ...],
) -> Callable[[Callable[..., Kernel]], Callable[..., Kernel]]:
    """Make a function that builds kernels from constants build each of them only once.

    Parameters
    ----------
    examples
        Arguments of typical members, for `registered_kernels`.
    """

    def decorate(build: Callable[..., Kernel]) -> Callable[..., Kernel]:
        @cache
        def cached(*constants: Any) -> Kernel:
            made = build(*constants)
            made.variant = ", ".join(map(str, constants))
            return made

        _FAMILIES.append((cached, examples))
        return cached

    return decorate


def registered_kernels() -> list[Kernel]:
    """All kernels of the files imported so far, of each family the typical members."""
    members = [build(*example) for build, examples in _FAMILIES for example in examples]
    return sorted([*_KERNELS, *members], key=lambda x: (x.module, x.name, x.signature))


def blocks_for(items: int, per_block: int) -> int:
    """How many blocks cover ``items``; at least one, since an empty grid is an error."""
    return max(-(-items // per_block), 1)


def round_up(n: int, of: int) -> int:
    """The smallest multiple of ``of`` that is at least n."""
    return -(-n // of) * of


# ---------------------------------------------------------------- GPUs


class CudaDevice(Device):
    """A stream of a GPU (or of the simulator); parameters as for `Device`."""

    def __init__(self, index: int, first: CudaDevice | None = None) -> None:
        super().__init__(first)
        self._index = index
        self.name = f"cuda:{index}" if index else "cuda"
        # Small images lead to small grids, which are no mistake.
        warnings.filterwarnings("ignore", message=".*Grid size .* under-utilization")
        cuda = _cuda()
        # CUDA's current GPU is per thread, and others may have been opened since: hence all work
        # is done inside ``with self._gpu``.
        self._gpu = cuda.gpus[index]
        with self._gpu:
            self._stream = cuda.stream()
        self._in_flight: dict[int, np.ndarray] = {}
        self._upload_numbers = count()

    def another(self) -> CudaDevice:
        """A further stream."""
        return CudaDevice(self._index, self)

    def wait_for(self, other: Device) -> None:
        """Let the stream wait for an event that the other one has now."""
        assert isinstance(other, CudaDevice)
        with self._gpu:
            event = _cuda().event()
            event.record(other._stream)
            event.wait(self._stream)

    def allocate(self, size: int, dtype: np.dtype) -> Any:
        """Allocate; an exhausted GPU is a MemoryError."""
        try:
            with self._gpu:
                return _cuda().device_array(size, dtype, stream=self._stream)
        except Exception as error:  # the driver's exception types differ between its versions
            if _exhausted(error):
                raise MemoryError(f"{self.name} has no {size * dtype.itemsize} bytes") from error
            raise

    def upload(self, host: np.ndarray, flat: Any) -> None:
        """Copy to the device."""
        # A GPU that reads host memory directly may do so later.
        self._in_flight[next(self._upload_numbers)] = host
        with self._gpu:
            flat.copy_to_device(host, stream=self._stream)

    def download(self, flat: Any) -> np.ndarray:
        """Wait and copy to the host."""
        host = np.empty(flat.size, flat.dtype)
        with self._gpu:
            flat.copy_to_host(host, stream=self._stream)
        self.synchronize()
        return host

    def run(
        self, function: Kernel, grid: tuple[int, ...], block: tuple[int, ...], arguments: list
    ) -> None:
        """Queue a kernel; if there is no memory for its code, free the pool and try again."""
        for last_try in (False, True):
            try:
                with self._gpu:
                    function.compiled[grid, block, self._stream](*arguments)
                return
            except Exception as error:
                if not _exhausted(error):
                    raise
                if last_try:
                    raise MemoryError(f"{self.name} has no memory for {function!r}") from error
            self.trim()

    def synchronize(self) -> None:
        """Wait for the stream."""
        uploads = list(self._in_flight)  # other threads may begin more meanwhile
        with self._gpu:
            self._stream.synchronize()
        for number in uploads:
            self._in_flight.pop(number, None)

    def free_memory(self) -> int | None:
        """What the driver reports plus what the pool holds."""
        with self._gpu:
            free = _cuda().current_context().get_memory_info()[0]
        return int(free) + self.pooled_bytes() if math.isfinite(free) else None


def _exhausted(error: Exception) -> bool:
    """Whether a GPU has run out of memory."""
    return "OUT_OF_MEMORY" in str(error) or isinstance(error, MemoryError)


@cache
def open_device(index: int) -> CudaDevice:
    """The GPU with this index, opened once."""
    return CudaDevice(index)


# ---------------------------------------------------------------- what the machine offers


@dataclass(frozen=True)
class CudaStatus:
    """What CUDA can do here: the devices found, and if it is unusable the reason and the fix."""

    usable: bool
    reason: str
    fix: str
    devices: list[str] = field(default_factory=list)


_USE_CPU = "Use `device=cpu`, which needs no GPU"
_OLDEST_OF_CUDA_13 = (7, 5)  # Turing; drivers of CUDA 13 still run older GPUs
_EXTRAS = "pip install 'hybridstereo[cu12]' (or [cu13], as nvidia-smi shows the CUDA version)"


def _simulated() -> bool:
    from numba import config

    return bool(config.ENABLE_CUDASIM)


def driver_installed() -> bool:
    """Whether there is an NVIDIA driver at all: quick, and without ``numba.cuda``."""
    if _simulated():
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True


def probe() -> CudaStatus:
    """Look for CUDA devices; never raises."""
    try:
        cuda = _cuda()
    except Exception as error:  # missing, or a version incompatible with numba
        return CudaStatus(
            False,
            f"numba's CUDA support cannot be imported ({_detail(error)})",
            f"Install it with {_EXTRAS}. {_USE_CPU}",
        )
    if _simulated():
        return CudaStatus(True, "", "", ["Numba's CUDA simulator"])
    try:
        found = [(_text(x.name), tuple(x.compute_capability)) for x in cuda.list_devices()]
    except Exception as error:  # the driver wrapper raises many types, some private
        return CudaStatus(
            False,
            f"the CUDA driver does not answer ({_detail(error)})",
            f"Install an NVIDIA driver and check that nvidia-smi lists the GPU. {_USE_CPU}",
        )
    if not found:
        return CudaStatus(False, "the CUDA driver reports no GPU", _USE_CPU)
    devices = [f"{name} (compute capability {major}.{minor})" for name, (major, minor) in found]
    try:
        toolkit = _toolkit_version(cuda)
        complaint = _mismatch(_driver_version(cuda), toolkit)
    except Exception as error:  # no toolkit, or one that cannot be loaded
        return CudaStatus(
            False,
            f"the CUDA toolkit cannot be loaded ({_detail(error)})",
            f"Install it with {_EXTRAS}. {_USE_CPU}",
            devices,
        )
    if complaint:
        return CudaStatus(False, complaint, f"Update the driver, or {_EXTRAS}. {_USE_CPU}", devices)
    if toolkit[0] >= 13 and all(capability < _OLDEST_OF_CUDA_13 for _, capability in found):
        return CudaStatus(
            False,
            f"CUDA {toolkit[0]} does not know GPUs as old as {devices[0]}",
            f"In a fresh environment, pip install 'hybridstereo[cu12]'. {_USE_CPU}",
            devices,
        )
    return CudaStatus(True, "", "", devices)


def _driver_version(cuda: Any) -> tuple[int, int]:
    """The newest CUDA version that the driver supports."""
    return tuple(cuda.cudadrv.driver.driver.get_version())


def _toolkit_version(cuda: Any) -> tuple[int, int]:
    """The version of the installed compiler and runtime."""
    return tuple(cuda.runtime.get_version())


def _mismatch(driver: tuple[int, int], toolkit: tuple[int, int]) -> str:
    """Why a driver cannot run the code of a toolkit; empty if it can.

    Within a major version, drivers run the code of newer toolkits.
    """
    if driver[0] >= toolkit[0]:
        return ""
    known, needed = (".".join(map(str, version)) for version in (driver, toolkit))
    return f"the driver knows CUDA up to {known} but the installed toolkit is CUDA {needed}"


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _detail(error: Exception) -> str:
    """The first two lines of the driver's complaint; the rest are instructions for Numba users."""
    lines = [line.strip(" :.") for line in str(error).splitlines()]
    return ": ".join([line for line in lines if line][:2]) or type(error).__name__
