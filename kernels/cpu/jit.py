"""`compiled`, which every kernel of the CPU is decorated with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite
from numba import config, njit
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from ..diskcache import KernelCache

__all__ = ["compiled"]


class _CpuCache(KernelCache):
    """Keeps what Numba compiles for the CPU."""

    def reduce(self, compiled: Any) -> Any:
        """Object code, types and environments; None if it holds addresses of this process."""
        return None if compiled.library.has_dynamic_globals else compiled._reduce()

    def rebuild(self, target_context: Any, reduced: Any) -> Any:
        """Link the object code into this process."""
        return CompileResult._rebuild(target_context, *reduced)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is called, and keep it for other processes.

    Parameters
    ----------
    options
        Those of `numba.njit`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        if not config.DISABLE_JIT:  # else it is the function itself
            dispatcher._cache = _CpuCache(function, dumps, f"llvmlite {llvmlite.__version__}")
        return dispatcher

    return decorate
