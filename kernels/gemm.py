"""Matrix products of a cache-resident tile, blocked for the processor's vector registers.

The convolutions multiply thousands of small matrices by the same kernels.  BLAS copies both
factors into an order of its own on every call, which costs a fifth of the time at these sizes;
here the kernels are brought into that order once (`pack`) and the tile is read where it lies.

A block of the product stays in twelve registers while the loop runs over the inner dimension:
4 rows by 3 vectors where that many columns are left, 12 rows by 1 vector for the rest.  Numba
has no vector type, and LLVM does not find such a blocking by itself, hence the small `Vector`
type at the top.  Its width is fixed at 32 bytes (AVX2); LLVM splits it where registers are
narrower.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_jitable, register_model

__all__ = [
    "lanes",
    "load",
    "multiply",
    "multiply_transposed",
    "pack",
    "padded",
    "store",
    "vector_lanes",
]

_REGISTER_BYTES = 32
# A block has 12 sums: enough to hide the latency of the multiply-add, few enough to leave
# registers for the factors.  100 columns are 4 * 24 + 4, so a wide block of 4 x 24 leaves the
# least unused lanes in the layers of the paper.
_WIDE_ROWS, _WIDE_VECTORS = 4, 3
_NARROW_ROWS = 12


def lanes(dtype: np.dtype) -> int:
    """Numbers per vector register."""
    return _REGISTER_BYTES // dtype.itemsize


def padded(size: int, multiple: int) -> int:
    """The next multiple of ``multiple``."""
    return -(-size // multiple) * multiple


# ---------------------------------------------------------------- the vector type


class Vector(types.Type):
    """A register full of numbers, inside compiled functions only."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.lanes = _REGISTER_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype} x {self.lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        scalar = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(scalar, vector.lanes))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Address of ``array[index]``, without wraparound or bounds check."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """The vector ``array[index : index + lanes]`` of a contiguous array, flattened."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(vector).as_pointer()
        address = _pointer(context, builder, signature.args[0], *args)
        return builder.load(builder.bitcast(address, kind), align=array.dtype.bitwidth // 8)

    return vector(array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """``array[index : index + lanes] = vector`` in a contiguous array, flattened."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _pointer(context, builder, signature.args[0], *args[:2])
        target = builder.bitcast(address, args[2].type.as_pointer())
        builder.store(args[2], target, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def _broadcast(typingctx: Any, array: Any, index: Any) -> Any:
    """The vector that holds ``array[index]`` in every lane."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(vector)
        number = builder.load(_pointer(context, builder, signature.args[0], *args))
        blank = ir.Constant(kind, ir.Undefined)
        first = builder.insert_element(blank, number, ir.Constant(ir.IntType(32), 0))
        lane = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None)
        return builder.shuffle_vector(first, blank, lane)

    return vector(array, types.intp), codegen


@intrinsic
def vector_lanes(typingctx: Any, array: Any) -> Any:
    """`lanes` of the array's dtype, as a constant in compiled code."""
    count = Vector(array.dtype).lanes

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, count)

    return types.intp(array), codegen


@intrinsic
def _zero(typingctx: Any, array: Any) -> Any:
    """The vector of zeros of the array's dtype."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(vector), None)

    return vector(array), codegen


@intrinsic
def _madd(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, in one instruction where there is one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        name = f"llvm.fmuladd.v{kind.count}f{a.dtype.bitwidth}"
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind] * 3), name
        )
        return builder.call(function, args)

    return a(a, a, a), codegen


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


# ---------------------------------------------------------------- blocks in registers


@register_jitable
def _put(total: Any, c: Any, at: int, accumulate: bool) -> None:
    store(c, at, load(c, at) + total if accumulate else total)


@register_jitable
def _wide_block(
    a: Any, at: int, row: int, step: int, b: Any, start: int, line: int, depth: int,
    c: Any, to: int, pitch: int, accumulate: bool,
) -> None:  # fmt: skip
    """4 rows by 3 vectors of ``c[r, l] (+)= sum_k a[r, k] * b[k, l]``.

    Arrays are flat: ``a[r, k]`` is at ``at + r*row + k*step``, ``b[k, l]`` at
    ``start + k*line + l`` and ``c[r, l]`` at ``to + r*pitch + l``.
    """
    lanes = vector_lanes(c)
    s00 = s01 = s02 = s10 = s11 = s12 = s20 = s21 = s22 = s30 = s31 = s32 = _zero(c)
    for _ in range(depth):
        b0, b1, b2 = load(b, start), load(b, start + lanes), load(b, start + 2 * lanes)
        x = _broadcast(a, at)
        s00, s01, s02 = _madd(x, b0, s00), _madd(x, b1, s01), _madd(x, b2, s02)
        x = _broadcast(a, at + row)
        s10, s11, s12 = _madd(x, b0, s10), _madd(x, b1, s11), _madd(x, b2, s12)
        x = _broadcast(a, at + 2 * row)
        s20, s21, s22 = _madd(x, b0, s20), _madd(x, b1, s21), _madd(x, b2, s22)
        x = _broadcast(a, at + 3 * row)
        s30, s31, s32 = _madd(x, b0, s30), _madd(x, b1, s31), _madd(x, b2, s32)
        at += step
        start += line
    sums = ((s00, s01, s02), (s10, s11, s12), (s20, s21, s22), (s30, s31, s32))
    for r, vectors in enumerate(sums):
        for v, total in enumerate(vectors):
            _put(total, c, to + r * pitch + v * lanes, accumulate)


@register_jitable
def _narrow_block(
    a: Any, at: int, row: int, step: int, b: Any, start: int, line: int, depth: int,
    c: Any, to: int, pitch: int, accumulate: bool,
) -> None:  # fmt: skip
    """12 rows by 1 vector of the same product."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = s9 = s10 = s11 = _zero(c)
    for _ in range(depth):
        x = load(b, start)
        s0, s1 = _madd(_broadcast(a, at), x, s0), _madd(_broadcast(a, at + row), x, s1)
        s2 = _madd(_broadcast(a, at + 2 * row), x, s2)
        s3 = _madd(_broadcast(a, at + 3 * row), x, s3)
        s4 = _madd(_broadcast(a, at + 4 * row), x, s4)
        s5 = _madd(_broadcast(a, at + 5 * row), x, s5)
        s6 = _madd(_broadcast(a, at + 6 * row), x, s6)
        s7 = _madd(_broadcast(a, at + 7 * row), x, s7)
        s8 = _madd(_broadcast(a, at + 8 * row), x, s8)
        s9 = _madd(_broadcast(a, at + 9 * row), x, s9)
        s10 = _madd(_broadcast(a, at + 10 * row), x, s10)
        s11 = _madd(_broadcast(a, at + 11 * row), x, s11)
        at += step
        start += line
    for r, total in enumerate((s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11)):
        _put(total, c, to + r * pitch, accumulate)


# ---------------------------------------------------------------- products


def pack(matrices: np.ndarray) -> np.ndarray:
    """Bring the right-hand factors (..., depth, N) of `multiply` into the order of its loops.

    Returns
    -------
    panels
        (..., depth * padded_columns(N)): for every block of columns, wide ones first, its rows.
    """
    depth, columns = matrices.shape[-2:]
    width = lanes(matrices.dtype)
    wide = _WIDE_VECTORS * width
    filled = np.zeros((*matrices.shape[:-1], padded(columns, width)), matrices.dtype)
    filled[..., :columns] = matrices
    rest = filled.shape[-1] // wide * wide
    starts = [*range(0, rest, wide), *range(rest, filled.shape[-1], width)]
    blocks = np.split(filled, starts[1:], axis=-1)
    flat = [block.reshape(*matrices.shape[:-2], -1) for block in blocks]
    return np.ascontiguousarray(np.concatenate(flat, axis=-1))


@register_jitable
def multiply(
    a: Any, at: int, rows: int, depth: int, panels: Any, start: int, c: Any, to: int, columns: int
) -> None:
    """``c = a @ b`` for row-major a (rows, depth) at ``at`` and c (rows, columns) at ``to``.

    ``panels`` holds `pack` (b) from ``start`` on.  ``columns`` is a multiple of the lanes, and
    both a and c have room for the next multiple of 12 rows, whose values do not matter.
    """
    lanes = vector_lanes(c)
    wide = _WIDE_VECTORS * lanes
    column = 0
    while columns - column >= wide:
        for r in range(0, rows, _WIDE_ROWS):
            _wide_block(
                a, at + r * depth, depth, 1, panels, start + column * depth, wide, depth,
                c, to + r * columns + column, columns, False,
            )  # fmt: skip
        column += wide
    while column < columns:
        for r in range(0, rows, _NARROW_ROWS):
            _narrow_block(
                a, at + r * depth, depth, 1, panels, start + column * depth, lanes, depth,
                c, to + r * columns + column, columns, False,
            )  # fmt: skip
        column += lanes


@register_jitable
def multiply_transposed(
    a: Any, at: int, rows: int, depth: int, b: Any, start: int, c: Any, to: int, columns: int
) -> None:
    """``c += a.T @ b`` for row-major a (depth, rows), b (depth, columns) and c (rows, columns).

    The same conditions as in `multiply` hold for ``columns`` and for the rows of c; a is read up
    to 11 numbers past its end.
    """
    lanes = vector_lanes(c)
    wide = _WIDE_VECTORS * lanes
    column = 0
    while columns - column >= wide:
        for r in range(0, rows, _WIDE_ROWS):
            _wide_block(
                a, at + r, 1, rows, b, start + column, columns, depth,
                c, to + r * columns + column, columns, True,
            )  # fmt: skip
        column += wide
    while column < columns:
        for r in range(0, rows, _NARROW_ROWS):
            _narrow_block(
                a, at + r, 1, rows, b, start + column, columns, depth,
                c, to + r * columns + column, columns, True,
            )  # fmt: skip
        column += lanes
