"""A SIMD register as a type of Numba, with what is needed to compute with it.

Numba has no vectors, and what LLVM's vectoriser makes of a loop depends on much; with `Vector` the
instructions are those that stand there.  ``lanes.py`` has a type of its own for the chains of the
CRF, whose lanes are neighbouring chains instead of neighbouring numbers of an array.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from .registers import AVX2_BYTES, REGISTER_BYTES

__all__ = [
    "Vector",
    "first_address",
    "fused_multiply_add",
    "is_flat",
    "load",
    "load_if",
    "numbers_per_vector",
    "scaled",
    "scaled_sum",
    "splat_of",
    "store",
    "vector_address",
    "vector_lanes",
    "widest_vectors",
]  # fmt: skip


def numbers_per_vector(dtype: np.dtype) -> int:
    """Numbers of a NumPy type per vector."""
    return REGISTER_BYTES // dtype.itemsize


class Vector(types.Type):
    """A SIMD register, inside compiled functions only."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.lanes = REGISTER_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype} x {self.lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        scalar = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(scalar, vector.lanes))


# ---------------------------------------------------------------- for other intrinsics


def is_flat(array: Any) -> bool:
    """Whether an array type may be read as one run of numbers; else Numba reports a type error."""
    return isinstance(array, types.Array) and array.layout == "C"


def first_address(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Address of the first number of an array."""
    return context.make_array(array_type)(context, builder, array).data


def vector_address(builder: Any, first: Any, index: Any, kind: Any) -> Any:
    """Address of the vector of type ``kind`` that begins ``index`` numbers after ``first``."""
    return builder.bitcast(builder.gep(first, [index]), kind.as_pointer())


def splat_of(builder: Any, number: Any, kind: Any) -> Any:
    """The vector of type ``kind`` that holds a number in every lane."""
    blank = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(blank, number, ir.Constant(ir.IntType(32), 0))
    lane = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None)
    return builder.shuffle_vector(first, blank, lane)


def fused_multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of vectors, in one instruction where there is one."""
    kind = a.type
    bits = 32 if isinstance(kind.element, ir.FloatType) else 64
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fmuladd.v{kind.count}f{bits}"
    )
    return builder.call(function, [a, b, c])


# ---------------------------------------------------------------- for compiled functions


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """The vector ``array[index : index + lanes]`` of a contiguous array, flattened."""
    if not is_flat(array):
        return None
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = first_address(context, builder, signature.args[0], args[0])
        address = vector_address(builder, first, args[1], context.get_value_type(vector))
        return builder.load(address, align=array.dtype.bitwidth // 8)

    return vector(array, types.intp), codegen


@intrinsic
def load_if(typingctx: Any, condition: Any, array: Any, index: Any) -> Any:
    """`load` where the condition holds, else zeros; the vector must exist in either case."""
    if not is_flat(array):
        return None
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(vector)
        first = first_address(context, builder, signature.args[1], args[1])
        address = vector_address(builder, first, args[2], kind)
        values = builder.load(address, align=array.dtype.bitwidth // 8)
        return builder.select(args[0], values, ir.Constant(kind, None))

    return vector(types.boolean, array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """``array[index : index + lanes] = vector`` in a contiguous array, flattened."""
    if not is_flat(array) or vector != Vector(array.dtype):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = first_address(context, builder, signature.args[0], args[0])
        address = vector_address(builder, first, args[1], args[2].type)
        builder.store(args[2], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def vector_lanes(typingctx: Any, array: Any) -> Any:
    """Numbers of the array's dtype per vector; a constant in compiled code."""
    count = Vector(array.dtype).lanes

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, count)

    return types.intp(array), codegen


@intrinsic
def widest_vectors(typingctx: Any) -> Any:
    """Let LLVM, too, use vectors of this width in the loops of the calling function.

    It prefers those of 32 bytes where wider ones lower the clock of early CPUs with AVX-512, which
    our own have done by then.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if REGISTER_BYTES > AVX2_BYTES:
            # llvmlite lists the attributes that it knows; it passes on others all the same.
            width = f'"prefer-vector-width"="{8 * REGISTER_BYTES}"'
            set.add(builder.function.attributes, width)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def scaled_sum(typingctx: Any, factor: Any, a: Any, b: Any) -> Any:
    """``factor * a + b`` of two vectors and a number, which should be a constant."""
    if not isinstance(a, Vector) or a != b:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factors = splat_of(builder, args[0], args[1].type)
        return fused_multiply_add(builder, factors, args[1], args[2])

    return a(a.dtype, a, a), codegen


@intrinsic
def scaled(typingctx: Any, factor: Any, a: Any) -> Any:
    """``factor * a`` of a vector and a number, which should be a constant."""
    if not isinstance(a, Vector):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fmul(splat_of(builder, args[0], args[1].type), args[1])

    return a(a.dtype, a), codegen


def _define_operator(function: Any, instruction: str) -> None:
    @intrinsic
    def apply(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(*args)

        return a(a, a), codegen

    @overload(function)
    def choose(a: Any, b: Any) -> Any:
        def implementation(a: Any, b: Any) -> Any:
            return apply(a, b)

        return implementation if isinstance(a, Vector) and a == b else None


_define_operator(operator.add, "fadd")
_define_operator(operator.sub, "fsub")
