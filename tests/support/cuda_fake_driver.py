"""A CUDA driver without a GPU: ``pytest -p support.cuda_fake_driver -m gpu``.

Everything of numba-cuda is real: contexts, streams, compilation to machine code, arguments of
launches.  Only ``libcuda`` is not: memory is the host's, and kernels run in the PTX emulator.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import cuda_emulator
import numpy as np

from hybridstereo.kernels.cuda import cudalib

_SOURCE = Path(__file__).with_name("fake_libcuda.c")
_WORDS_OF_ARRAY = 5  # meminfo, parent, items, bytes of an item, address; then shape and strides


class _Launching(threading.local):
    """The kernel that a thread launches, and what went wrong: ctypes swallows exceptions."""

    kernel: cudalib.Kernel
    error: Exception | None = None


_launching = _Launching()


def _load() -> ctypes.CDLL:
    """Build the driver and load it.

    Whoever asks for a library of its name from now on gets it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "libcuda.so.1")
        command = ["gcc", "-shared", "-fPIC", "-w", "-O1", "-Wl,-soname,libcuda.so.1"]
        subprocess.run([*command, str(_SOURCE), "-o", path], check=True)
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def _word(address: int, kind: Any) -> Any:
    return kind.from_address(address).value


def _array(kind: Any, words: list[int]) -> np.ndarray:
    """The array that a kernel of this signature would see."""
    from numba.np.numpy_support import as_dtype

    dtype = as_dtype(kind.dtype)
    _, _, items, item_size, address = words[:_WORDS_OF_ARRAY]
    shape, strides = np.split(np.array(words[_WORDS_OF_ARRAY:]), 2)
    assert item_size == dtype.itemsize
    assert items == np.prod(shape)
    assert address % 16 == 0
    memory = (ctypes.c_char * (items * item_size)).from_address(address)
    array = np.frombuffer(memoryview(memory), dtype).reshape(shape)
    assert array.strides == tuple(strides) or not items
    return array


def _arguments(function: cudalib.Kernel, parameters: Any) -> list[Any]:
    from numba import types
    from numba.core import sigutils

    kinds, _ = sigutils.normalize_signature(f"void({function.signature})")
    addresses = iter(range(2**31))
    arguments = []
    for kind in kinds:
        if isinstance(kind, types.Array):
            count = _WORDS_OF_ARRAY + 2 * kind.ndim
            words = [_word(parameters[next(addresses)], ctypes.c_int64) for _ in range(count)]
            arguments.append(_array(kind, words))
        else:
            ctype = {"int32": ctypes.c_int32, "float32": ctypes.c_float}.get(str(kind))
            arguments.append(_word(parameters[next(addresses)], ctype or ctypes.c_double))
    return arguments


@ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_void_p),
)
def _on_launch(grid: Any, block: Any, parameters: Any) -> None:
    try:
        arguments = _arguments(_launching.kernel, parameters)
        shape = tuple(grid[:3]), tuple(block[:3])
        cuda_emulator.run_kernel(_launching.kernel, *shape, arguments, timing=False)
    except Exception as error:
        _launching.error = error


_run = cudalib.CudaDevice.run


def _run_in_emulator(self: cudalib.CudaDevice, function: cudalib.Kernel, *arguments: Any) -> None:
    _launching.kernel = function
    _run(self, function, *arguments)
    if _launching.error is not None:
        error, _launching.error = _launching.error, None
        raise error


_driver = _load()
_driver.fake_on_launch(_on_launch)
cudalib.CudaDevice.run = _run_in_emulator
