"""`compiled`, which every kernel of the CPU is decorated with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite
from numba import config, njit
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.core.types.misc import unliteral

from ..diskcache import KernelCache

__all__ = ["compiled", "only_called_by_kernels"]

# Divisions give inf or NaN, as those of NumPy do, and have no branch that raises.  Numba compiles a
# function once for each way of treating errors that its callers have, so all kernels have this one.
# Nor does anything here call a kernel through a pointer of C.
_DEFAULTS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

only_called_by_kernels = {"nogil": True, "no_cpython_wrapper": True}
"""Options of functions that Python never calls: Numba need not make versions for it."""


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

    It runs without the GIL, which no kernel needs: other threads may match other pairs, or read
    and write files.

    Parameters
    ----------
    options
        Those of `numba.njit`; divisions are NumPy's.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**{**_DEFAULTS, **options})(function)
        if not config.DISABLE_JIT:  # else it is the function itself
            dispatcher._cache = _CpuCache(function, dumps, f"llvmlite {llvmlite.__version__}")
            _ignore_literals(dispatcher)
        return dispatcher

    return decorate


def _ignore_literals(dispatcher: Any) -> None:
    """Let kernels that call this one with a constant, such as 4, share the version for variables.

    Numba would compile one more for each constant.
    """
    by_types = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        plain = [unliteral(x) for x in args]
        return by_types(plain, {name: unliteral(x) for name, x in kws.items()})

    dispatcher.get_call_template = get_call_template
