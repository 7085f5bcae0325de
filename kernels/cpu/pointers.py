"""Pointers for Numba functions that call small kernels millions of times.

An array argument costs more than it seems: every row view that is handed to another function
counts references with two atomic instructions, which threads working on the same array even
contend for, and a vector loop over several arrays first compares all their addresses.  Around a
loop over 128 labels that doubles the time.  A pointer is one register.

``pointer[k]`` reads and writes like an array, without bounds and with negative ``k`` meaning
what it says.  A pointer does not keep its array alive, and Numba releases an array after the last
line that mentions it: take pointers to arguments, which the caller holds, not to arrays that were
made in the same function.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .registers import FETCHES_INTO_FIRST_LEVEL

__all__ = [
    "advance", "never_inline", "pointer_to", "prefetch", "prefetch_surely", "restrict_arguments",
]  # fmt: skip

# As LLVM counts the levels of the caches, from memory up.
_FIRST_LEVEL, _SECOND_LEVEL = 3, 2


@intrinsic
def pointer_to(typingctx: Any, array: Any) -> Any:
    """The address of the first element of a C-contiguous array."""
    if not isinstance(array, types.Array) or array.layout != "C":
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic
def advance(typingctx: Any, pointer: Any, count: Any) -> Any:
    """The address ``count`` elements further."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), codegen


def prefetch_line(builder: Any, pointer: Any, surely: bool = False) -> None:
    """Emit the instruction that fetches the cache line of an address into the second level.

    ``surely``: or into the first, if this kind of CPU may leave it where it is otherwise.  Only the
    CRF does so, since nothing else was measured yet.
    """
    number = ir.IntType(32)
    address = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    function = builder.module.declare_intrinsic(
        "llvm.prefetch",
        [address.type],
        ir.FunctionType(ir.VoidType(), [address.type, number, number, number]),
    )
    read, data = number(0), number(1)
    level = number(_FIRST_LEVEL if surely and FETCHES_INTO_FIRST_LEVEL else _SECOND_LEVEL)
    builder.call(function, [address, read, level, data])


@intrinsic
def prefetch(typingctx: Any, pointer: Any, index: Any) -> Any:
    """Fetch the cache line of ``pointer[index]`` into the second level; any address will do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        prefetch_line(builder, builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(pointer, types.intp), codegen


@intrinsic
def prefetch_surely(typingctx: Any, pointer: Any, index: Any) -> Any:
    """`prefetch` into the first level, if this kind of CPU may leave the line otherwise."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        prefetch_line(builder, builder.gep(args[0], [args[1]]), surely=True)
        return context.get_dummy_value()

    return types.void(pointer, types.intp), codegen


@intrinsic
def restrict_arguments(typingctx: Any) -> Any:
    """Promise that no two pointer arguments of the calling function overlap (C's ``restrict``).

    The vectoriser then needs neither the comparison of addresses nor the scalar loop beside it.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def never_inline(typingctx: Any) -> Any:
    """Keep the calling function a function, for LLVM would copy it to wherever it is called.

    Numba optimises a function again with each one that calls it: copies cost time to compile.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen
