"""Tiles of a convolution: cut them out, multiply them by the kernels, apply tanh.

Shared by the direct (``direct.py``) and the Winograd convolution (``winograd.py``).  Both
multiply thousands of small matrices by the same kernels.  BLAS copies both factors into an order
of its own in every call, which costs a fifth of the time at these sizes; here the kernels are
brought into that order once (`pack`) and the tile is read in place.

A block of the product stays in twelve registers while the loop runs over the inner dimension:
4 rows by 3 vectors where that many columns are left, 12 rows by 1 vector for the rest.  Numba
has no vectors, and LLVM does not find such a blocking by itself, hence the small `Vector` type.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_jitable, register_model

from . import simd
from .jit import compiled

__all__ = [
    "TILE_ROWS",
    "Plan",
    "cut_strip",
    "finish",
    "load",
    "multiply",
    "multiply_transposed",
    "pack",
    "padded_columns",
    "padded_rows",
    "store",
    "vector_lanes",
]

# AVX2; where registers are narrower LLVM splits the vectors.
_REGISTER_BYTES = 32

# A block has 12 sums: enough to hide the latency of the multiply-add, few enough to leave
# registers for the factors.  100 columns are 4 * 24 + 4, so that wide blocks of 24 columns leave
# few lanes unused in the layers of the paper.
_WIDE_ROWS, _WIDE_VECTORS = 4, 3
_NARROW_ROWS = 12

TILE_ROWS = _NARROW_ROWS  # the matrices of a tile have room for a multiple of this many rows


class Plan(NamedTuple):
    """The parameters of a convolution, brought into the order of the loops."""

    taps: tuple[int, int, int, int]  # kh, kw, I, O
    panels: np.ndarray
    bias: np.ndarray
    activate: bool


# ---------------------------------------------------------------- strips of an image


@compiled(nogil=True, fastmath={"contract"})
def cut_strip(
    image: Any, y: Any, derivative: bool, top: int, left: int, rows: int, columns: int, strip: Any
) -> None:
    """strip[r, c] = image[top + r, left + c], 0 outside the image.

    Parameters
    ----------
    image, y
        (H, W, C).  With ``derivative``, the image is a gradient with respect to y = tanh(z),
        and the strip becomes the gradient with respect to z; otherwise y is not read.
    strip
        Flat, with room for ``rows * columns * C``.
    """
    height, width, channels = image.shape
    one = strip.dtype.type(1)  # a plain 1 would make the arithmetic double precision
    first = min(max(0, -left), columns) * channels
    last = max(min(columns, width - left) * channels, first)
    for r in range(rows):
        target = strip[r * columns * channels : (r + 1) * columns * channels]
        if top + r < 0 or top + r >= height or first == last:
            target[:] = 0
            continue
        target[:first] = 0
        target[last:] = 0
        inside = target[first:last]
        begin = left * channels + first
        source = image[top + r].reshape(-1)[begin : begin + inside.size]
        if derivative:
            value = y[top + r].reshape(-1)[begin : begin + inside.size]
            for j in range(inside.size):
                inside[j] = source[j] * (one - value[j] * value[j])
        else:
            for j in range(inside.size):  # compiles thirty times faster than inside[:] = source
                inside[j] = source[j]


# Without error_model="numpy" the division in tanh could raise, which rules out vector instructions.
@compiled(nogil=True, error_model="numpy", fastmath={"contract"})
def finish(source: Any, activate: bool, target: Any) -> None:
    """``target[: source.size]`` = tanh(source) or source; two flat arrays that do not overlap."""
    if activate:
        for j in range(source.size):
            target[j] = simd.tanh(source[j])
    else:
        for j in range(source.size):
            target[j] = source[j]


# ---------------------------------------------------------------- the vector type


class Vector(types.Type):
    """A SIMD register, inside compiled functions only."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.lanes = _REGISTER_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype} x {self.lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        scalar = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(scalar, vector.lanes))


def _is_flat(array: Any) -> bool:
    """Whether an array type may be read as one run of numbers; else Numba reports a type error."""
    return isinstance(array, types.Array) and array.layout == "C"


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Address of ``array[index]``, without wraparound or bounds check."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """The vector ``array[index : index + lanes]`` of a contiguous array, flattened."""
    if not _is_flat(array):
        return None
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(vector).as_pointer()
        address = _pointer(context, builder, signature.args[0], *args)
        return builder.load(builder.bitcast(address, kind), align=array.dtype.bitwidth // 8)

    return vector(array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """``array[index : index + lanes] = vector`` in a contiguous array, flattened."""
    if not _is_flat(array) or vector != Vector(array.dtype):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _pointer(context, builder, signature.args[0], *args[:2])
        target = builder.bitcast(address, args[2].type.as_pointer())
        builder.store(args[2], target, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def _broadcast(typingctx: Any, array: Any, index: Any) -> Any:
    """The vector that holds ``array[index]`` in every lane."""
    if not _is_flat(array):
        return None
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
    """Numbers of the array's dtype per vector; a constant in compiled code."""
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
    if not isinstance(a, Vector) or not a == b == c:
        return None

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
    c: Any, to: int, accumulate: bool,
) -> None:  # fmt: skip
    """4 rows by 3 vectors of ``c[r, l] (+)= sum_k a[r, k] * b[k, l]``.

    Arrays are flat: ``a[r, k]`` is at ``at + r*row + k*step``, ``b[k, l]`` at
    ``start + k*line + l`` and ``c[r, l]`` at ``to + r*columns + l``.
    """
    lanes, columns = vector_lanes(c), c.shape[1]
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
            _put(total, c, to + r * columns + v * lanes, accumulate)


@register_jitable
def _narrow_block(
    a: Any, at: int, row: int, step: int, b: Any, start: int, line: int, depth: int,
    c: Any, to: int, accumulate: bool,
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
        _put(total, c, to + r * c.shape[1], accumulate)


# ---------------------------------------------------------------- products


def padded_columns(columns: int, dtype: np.dtype) -> int:
    """Columns of a product: the next multiple of a vector's lanes."""
    lanes = _REGISTER_BYTES // dtype.itemsize
    return -(-columns // lanes) * lanes


def padded_rows(rows: int) -> int:
    """Rows of a product: the next multiple of `TILE_ROWS`."""
    return -(-rows // TILE_ROWS) * TILE_ROWS


def pack(matrices: np.ndarray) -> np.ndarray:
    """Bring the right-hand factors (..., depth, N) of `multiply` into the order of its loops.

    Returns
    -------
    panels
        (..., depth * padded_columns(N)): for every block of columns, wide ones first, its rows.
    """
    *batch, depth, columns = matrices.shape
    filled = np.zeros((*batch, depth, padded_columns(columns, matrices.dtype)), matrices.dtype)
    filled[..., :columns] = matrices
    lanes = _REGISTER_BYTES // matrices.dtype.itemsize
    wide = _WIDE_VECTORS * lanes
    edge = filled.shape[-1] // wide * wide
    starts = [*range(0, edge, wide), *range(edge, filled.shape[-1], lanes)]
    blocks = np.split(filled, starts[1:], axis=-1)
    return np.concatenate([block.reshape(*batch, -1) for block in blocks], axis=-1)


@register_jitable
def _multiply_blocks(
    a: Any, row: int, step: int, b: Any, packed: bool, rows: int, depth: int, c: Any
) -> None:
    """Compute c (rows, columns) block by block; the strides are those of `_wide_block`."""
    lanes, columns = vector_lanes(c), c.shape[1]
    column = 0
    while column < columns:
        wide = columns - column >= _WIDE_VECTORS * lanes
        width = _WIDE_VECTORS * lanes if wide else lanes
        start = column * depth if packed else column
        line = width if packed else columns
        if wide:
            for r in range(0, rows, _WIDE_ROWS):
                to = r * columns + column
                _wide_block(a, r * row, row, step, b, start, line, depth, c, to, not packed)
        else:
            for r in range(0, rows, _NARROW_ROWS):
                to = r * columns + column
                _narrow_block(a, r * row, row, step, b, start, line, depth, c, to, not packed)
        column += width


@register_jitable
def multiply(a: Any, rows: int, panels: Any, c: Any) -> None:
    """``c[:rows] = a[:rows] @ b``.

    Parameters
    ----------
    a
        (R, depth), R >= rows a multiple of `TILE_ROWS`.
    panels
        b (depth, N) after `pack`.
    c
        (R, padded_columns(N)); its further rows and columns are overwritten as well.
    """
    depth = a.shape[1]
    _multiply_blocks(a, depth, 1, panels, True, rows, depth, c)


@register_jitable
def multiply_transposed(a: Any, depth: int, b: Any, c: Any) -> None:
    """``c += a[:depth].T @ b[:depth]``.

    Parameters
    ----------
    a
        (D, rows); numbers up to `TILE_ROWS` past the end of ``a[:depth]`` are read, too.
    b
        (D, columns), columns a multiple of `vector_lanes`.
    c
        (R, columns), R >= rows a multiple of `TILE_ROWS`; its further rows are overwritten.
    """
    rows = a.shape[1]
    _multiply_blocks(a, 1, rows, b, False, rows, depth, c)
