"""A CUDA backend that takes and gives NumPy arrays, for tests that know nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from hybridstereo.kernels import Backend
from hybridstereo.kernels.cuda import cudalib


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
