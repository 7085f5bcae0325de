"""`compiled`, which every kernel of the CPU is decorated with, and `part` for what they call."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import llvmlite
from numba import config, njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.serialize import dumps
from numba.core.types.misc import unliteral
from numba.extending import register_jitable

from ..diskcache import KernelCache

__all__ = ["compiled", "part", "part_or_python"]

# Divisions give inf or NaN, as those of NumPy do, and have no branch that raises.  Numba compiles a
# function once for each way of treating errors that its callers have, so all kernels have this one.
# Nor does anything here call a kernel through a pointer of C.
_DEFAULTS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


class _PartLibrary(JITCodeLibrary):
    """The code of a function that only kernels call.

    Numba would optimise it, make machine code of it, and do both again in every kernel that calls
    it.  Here it waits for these.
    """

    def _optimize_final_module(self) -> None:
        """Nothing yet."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """None: Python cannot call it."""
        return 0

    @property
    def codegen(self) -> Any:
        """That of the kernels, for which this function has no address."""
        return _WithoutAddresses(self._codegen)


class _WithoutAddresses:
    """A code generator that is not told where a function keeps its Python objects: it has none."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing."""


class _PartCompiler(Compiler):
    """Numba's compiler for functions that only kernels call."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *args: Any) -> None:
        library = library or _PartLibrary(targetctx.codegen(), "part")
        super().__init__(typingctx, targetctx, library, *args)


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
            dispatcher.compile = _without_detours(dispatcher.compile)
        return dispatcher

    return decorate


def part(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that Python never calls with the kernels that call it, and keep it there.

    Options as for `compiled`.
    """
    flags = {**_DEFAULTS, "no_cpython_wrapper": True, "pipeline_class": _PartCompiler, **options}

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**flags)(function)
        if not config.DISABLE_JIT:
            _ignore_literals(dispatcher)
        return dispatcher

    return decorate


part_or_python = register_jitable(pipeline_class=_PartCompiler)
"""Let kernels call a function as a `part`, and Python call it as it is."""


def _ignore_literals(dispatcher: Any) -> None:
    """Let kernels that call this one with a constant, such as 4, share the version for variables.

    Numba would compile one more for each constant.
    """
    by_types = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        plain = [unliteral(x) for x in args]
        return by_types(plain, {name: unliteral(x) for name, x in kws.items()})

    dispatcher.get_call_template = get_call_template


# Numbers for which a call has room: half of a block of 1 MB, which leaves the rest to those below.
_ROOM = 1 << 16


def _without_detours(compile_it: Callable[..., Any]) -> Callable[..., Any]:
    """Spare Numba two detours of Python, which take a tenth of the time in which it compiles.

    CPython keeps the variables of calls in blocks of 16 kB, and gives a block back to the system as
    soon as the first call in it returns.  Numba crosses such a border 88,000 times for the kernels
    of `infer`.  A call that claims much room gets a large block, and all calls below find room in
    the rest of it; memory that nobody touches is not taken.  Nor is there much garbage to
    collect among the objects of a function that is being compiled.
    """

    def compile_here(*args: Any) -> Any:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return compile_it(*args)
        finally:
            if collecting:
                gc.enable()

    compile_here.__code__ = compile_here.__code__.replace(co_stacksize=_ROOM)
    return compile_here
