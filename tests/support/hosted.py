"""A CUDA backend that takes and returns NumPy arrays, for tests that know nothing else."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from hybridstereo.kernels import Backend
from hybridstereo.kernels.backend import operations, table
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


def _effort(arguments: dict[str, Any]) -> int:
    """Elements of the arrays; Dual_MM goes through them again in every iteration."""
    repeats = arguments.get("iterations", 1)
    return repeats * sum(x.size for x in arguments.values() if isinstance(x, np.ndarray))


def hosted(backend: Backend, most: int | None = None) -> Backend:
    """A CUDA backend for tests that know nothing but NumPy.

    Every operation copies NumPy arrays to the device and its results back, including arrays that
    it changes.  With ``most``, a test that needs more elements is skipped.
    """

    def wrap(operation: Any) -> Any:
        signature = inspect.signature(operation)

        def call(*arguments: Any, **named: Any) -> Any:
            given = signature.bind(*arguments, **named).arguments
            if most is not None and _effort(given) > most:
                pytest.skip("too large for the simulator")
            moved = {name: _on_device(x) for name, x in given.items()}
            result = operation(**moved)
            for name, array in given.items():
                if isinstance(array, np.ndarray) and array.flags.writeable:
                    array[...] = cudalib.to_host(moved[name])
            return _on_host(result)

        return call

    wrapped = {name: wrap(getattr(backend, name)) for name in operations()}
    moves = {"to_device": lambda x: x, "to_host": lambda x: x, "empty": np.empty}
    return table(vars(backend) | wrapped | moves)
