"""Vectors that hold one number of each of several chains, for Numba functions.

A `Lanes` is a vector register of `chains_per_vector` numbers, floats or 16-bit fixed point. It is
added, subtracted, multiplied and negated with the usual operators, and it is read from and written
to memory that has the lanes as its last axis. A `LaneTile` is as many of them, a square that can be
transposed, or a few such squares side by side, whose rows are whole cache lines: that is how
numbers come from volumes, which have the labels as their last axis, and return there.

Fixed point numbers are int16 in units that the caller chooses.  Sums and differences stop at the
largest and the smallest number.  The operands of a product are read as unsigned, and the second
one as a fraction of 65536: ``a * b`` is ``a*b // 65536``.

What is written in this way compiles to the vector instructions that it says, on every machine;
nothing depends on what LLVM's vectoriser makes of a loop.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from .pointers import prefetch_line
from .registers import AVX2_BYTES, REGISTER_BYTES
from .transposes import (
    halves_interleaved,
    lane_numbers,
    quarters_interleaved,
    squares_exchanged,
)

__all__ = [
    "LINE_BYTES", "above", "at_most", "chains_per_vector", "fused_sum", "is_fixed", "lane_count",
    "line_count", "load_lanes", "load_line", "load_tile", "load_vectors", "lower", "prefetch_tile",
    "prefetch_tile_surely", "splat", "store_lanes", "store_tile", "store_vectors", "stream_tile",
    "transposed", "where_less",
]  # fmt: skip

LINE_BYTES = 64  # of the caches

# Of int16 a register of AVX2 is full.  One of AVX-512 has room for twice as many, but Intel takes
# minima and sums that saturate in one port where it has two for AVX2: nothing would be gained for
# twice the memory.
_FIXED_LANES = 16

_NUMBER = ir.IntType(32)


def chains_per_vector(dtype: Any) -> int:
    """How many chains a vector has; of a NumPy or a Numba type.

    As many floats as a register holds, 8 or 16, and as many doubles, which only tests need.
    """
    name = getattr(dtype, "name", None) or np.dtype(dtype).name
    return _FIXED_LANES if name == "int16" else REGISTER_BYTES // 4


def _squares_per_line(dtype: Any) -> int:
    """Squares side by side that make rows of a cache line, or longer ones."""
    return max(1, LINE_BYTES * 8 // (chains_per_vector(dtype) * dtype.bitwidth))


class Lanes(types.Type):
    """The type of a vector that has a number of every chain."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.count = chains_per_vector(dtype)
        super().__init__(f"Lanes({dtype})")


class LaneTile(types.Type):
    """The type of as many vectors as each has lanes, or of several such squares side by side."""

    def __init__(self, dtype: Any, squares: int = 1) -> None:
        self.dtype = dtype
        self.count = chains_per_vector(dtype)
        self.squares = squares
        super().__init__(f"LaneTile({dtype} x {squares})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, kind.count))


@register_model(LaneTile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        vector = ir.VectorType(element, kind.count)
        super().__init__(manager, kind, ir.ArrayType(vector, kind.squares * kind.count))


def _is_fixed(vector: Any) -> bool:
    return isinstance(vector.type.element, ir.IntType)


def _call(builder: Any, name: str, *vectors: Any, **options: Any) -> Any:
    """A call of an intrinsic of LLVM; llvmlite knows the names of those for scalars only."""
    kind = vectors[0].type
    element = f"i{kind.element.width}" if _is_fixed(vectors[0]) else kind.element.intrinsic_name
    function = get_or_insert_function(
        builder.module,
        ir.FunctionType(kind, [kind] * len(vectors)),
        f"llvm.{name}.v{kind.count}{element}",
    )
    return builder.call(function, vectors, **options)


def _high_product(builder: Any, a: Any, b: Any) -> Any:
    """The upper halves of unsigned products, which is one instruction where there are vectors."""
    wide = ir.VectorType(ir.IntType(2 * a.type.element.width), a.type.count)
    product = builder.mul(builder.zext(a, wide), builder.zext(b, wide))
    shift = ir.Constant(wide, [a.type.element.width] * a.type.count)
    return builder.trunc(builder.lshr(product, shift), a.type)


def _sum(builder: Any, a: Any, b: Any) -> Any:
    return _call(builder, "sadd.sat", a, b) if _is_fixed(a) else builder.fadd(a, b)


def _difference(builder: Any, a: Any, b: Any) -> Any:
    return _call(builder, "ssub.sat", a, b) if _is_fixed(a) else builder.fsub(a, b)


def _product(builder: Any, a: Any, b: Any) -> Any:
    return _high_product(builder, a, b) if _is_fixed(a) else builder.fmul(a, b)


def _negated(builder: Any, a: Any) -> Any:
    return builder.neg(a) if _is_fixed(a) else builder.fneg(a)


def _define(operation: Any, instruction: Any, operands: int) -> None:
    """Let ``operation`` of `Lanes` or of `LaneTile` be what ``instruction`` emits."""

    @infer_global(operation)
    class _Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            known = isinstance(args[0], Lanes | LaneTile) and len(args) == operands
            return signature(args[0], *args) if known and len(set(args)) == 1 else None

    @lower_builtin(operation, *[Lanes] * operands)
    def _lower_lanes(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return instruction(builder, *args)

    @lower_builtin(operation, *[LaneTile] * operands)
    def _lower_tiles(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows = zip(*(_rows(builder, tile) for tile in args), strict=True)
        return _tile(builder, [instruction(builder, *row) for row in rows])


_define(operator.add, _sum, 2)
_define(operator.sub, _difference, 2)
_define(operator.mul, _product, 2)
_define(operator.neg, _negated, 1)


def _rows(builder: Any, tile: Any) -> list[Any]:
    return [builder.extract_value(tile, i) for i in range(tile.type.count)]


def _tile(builder: Any, rows: list[Any]) -> Any:
    tile = ir.Constant(ir.ArrayType(rows[0].type, len(rows)), ir.Undefined)
    for i, row in enumerate(rows):
        tile = builder.insert_value(tile, row, i)
    return tile


@intrinsic
def lane_count(typingctx: Any, pointer: Any) -> Any:
    """`chains_per_vector` the numbers at a pointer, known when the function is compiled."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.get_constant(types.intp, chains_per_vector(sig.args[0].dtype))

    return types.intp(pointer), codegen


@intrinsic
def line_count(typingctx: Any, pointer: Any) -> Any:
    """Numbers in a row of `load_line`, known when the function is compiled."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        dtype = sig.args[0].dtype
        return context.get_constant(types.intp, _squares_per_line(dtype) * chains_per_vector(dtype))

    return types.intp(pointer), codegen


@intrinsic
def is_fixed(typingctx: Any, pointer: Any) -> Any:
    """Whether the numbers at a pointer are fixed point, known when the function is compiled."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.get_constant(types.boolean, isinstance(pointer.dtype, types.Integer))

    return types.boolean(pointer), codegen


@intrinsic
def fused_sum(typingctx: Any, a: Any, b: Any, one: Any) -> Any:
    """a + b, of floats computed as ``a * one + b``, which is the same number to the last bit.

    Zen 4 has two pipes for additions and minima and two others for multiply-adds: where there are
    many minima, this uses all four.  ``one`` must come from memory, or LLVM would remove it.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _is_fixed(args[0]):
            return _sum(builder, *args[:2])
        product = builder.fmul(args[0], args[2], flags=("contract",))
        return builder.fadd(product, args[1], flags=("contract",))

    return a(a, b, one), codegen


@intrinsic
def lower(typingctx: Any, a: Any, b: Any) -> Any:
    """The smaller number of each lane; none of them may be NaN."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _is_fixed(args[0]):
            return _call(builder, "smin", *args)
        return _call(builder, "minnum", *args, fastmath=("nnan", "nsz"))

    return a(a, b), codegen


def _of_fixed(name: str) -> Any:
    """An intrinsic's code: of fixed point ``name`` with a second vector, of floats nothing."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, other = args
        if not isinstance(sig.args[0].dtype, types.Integer):
            return value
        if isinstance(sig.args[0], Lanes):
            return _call(builder, name, value, other)
        return _tile(builder, [_call(builder, name, row, other) for row in _rows(builder, value)])

    return codegen


@intrinsic
def above(typingctx: Any, value: Any, low: Any) -> Any:
    """``value - low`` of fixed point, whose range is small; floats stay what they are."""
    return value(value, low), _of_fixed("ssub.sat")


@intrinsic
def at_most(typingctx: Any, value: Any, limit: Any) -> Any:
    """``min(value, limit)`` of fixed point; floats stay what they are."""
    return value(value, limit), _of_fixed("smin")


@intrinsic
def where_less(typingctx: Any, a: Any, b: Any, chosen: Any, other: Any) -> Any:
    """``chosen`` in the lanes where a < b, else ``other``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        less = builder.icmp_signed if _is_fixed(args[0]) else builder.fcmp_ordered
        return builder.select(less("<", *args[:2]), *args[2:])

    return chosen(a, b, chosen, other), codegen


@intrinsic
def splat(typingctx: Any, number: Any) -> Any:
    """The same number in all lanes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        count = sig.return_type.count
        nothing = ir.Constant(ir.VectorType(args[0].type, count), ir.Undefined)
        first = builder.insert_element(nothing, args[0], _NUMBER(0))
        return builder.shuffle_vector(first, nothing, lane_numbers([0] * count))

    return Lanes(number)(number), codegen


def _address(builder: Any, kind: Any, pointer: Any, index: Any) -> Any:
    """The address of the `Lanes` or of the row of a `LaneTile` that begin with an element."""
    vector = ir.VectorType(pointer.type.pointee, kind.count)
    return builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())


def _read(builder: Any, kind: Any, pointer: Any, index: Any) -> Any:
    return builder.load(_address(builder, kind, pointer, index), align=_bytes(kind))


def _write(builder: Any, kind: Any, pointer: Any, index: Any, value: Any) -> None:
    builder.store(value, _address(builder, kind, pointer, index), align=_bytes(kind))


def _bytes(kind: Any) -> int:
    """Of one number."""
    return kind.dtype.bitwidth // 8


@intrinsic
def load_lanes(typingctx: Any, pointer: Any, index: Any) -> Any:
    """The lanes that begin at ``pointer[index * lane_count(pointer)]``."""
    kind = Lanes(pointer.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _read(builder, kind, args[0], builder.mul(args[1], args[1].type(kind.count)))

    return kind(pointer, types.intp), codegen


@intrinsic
def store_lanes(typingctx: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Write lanes to where ``pointer[index * lane_count(pointer)]`` begins."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        begin = builder.mul(args[1], args[1].type(value.count))
        _write(builder, value, args[0], begin, args[2])
        return context.get_dummy_value()

    return types.void(pointer, types.intp, value), codegen


def _row_offsets(builder: Any, count: int, step: Any, last: Any) -> list[Any]:
    """Where the rows of a tile begin; those beyond ``last`` repeat it."""
    numbers = [last.type(i) for i in range(count)]
    within = [builder.icmp_signed("<", number, last) for number in numbers]
    return [
        builder.mul(builder.select(inside, number, last), step)
        for inside, number in zip(within, numbers, strict=True)
    ]


def _row_parts(builder: Any, kind: LaneTile, step: Any, last: Any) -> list[list[Any]]:
    """Where the parts of every row of a tile begin, one in each square."""
    return [
        [builder.add(offset, offset.type(i * kind.count)) for i in range(kind.squares)]
        for offset in _row_offsets(builder, kind.count, step, last)
    ]


def _load_rows(kind: LaneTile) -> Any:
    """An intrinsic's code that reads a tile of rows."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        squares = zip(*_row_parts(builder, kind, *args[1:]), strict=True)
        begins = [begin for square in squares for begin in square]
        return _tile(builder, [_read(builder, kind, args[0], begin) for begin in begins])

    return codegen


@intrinsic
def load_tile(typingctx: Any, pointer: Any, step: Any, last: Any) -> Any:
    """The square whose row i begins at ``pointer[min(i, last) * step]``."""
    kind = LaneTile(pointer.dtype)
    return kind(pointer, types.intp, types.intp), _load_rows(kind)


@intrinsic
def load_line(typingctx: Any, pointer: Any, step: Any, last: Any) -> Any:
    """The tile of `line_count` columns whose row i begins at ``pointer[min(i, last) * step]``."""
    kind = LaneTile(pointer.dtype, _squares_per_line(pointer.dtype))
    return kind(pointer, types.intp, types.intp), _load_rows(kind)


@intrinsic
def store_tile(typingctx: Any, pointer: Any, step: Any, last: Any, tile: Any) -> Any:
    """Write row i of a tile to where ``pointer[min(i, last) * step]`` begins."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        squares = zip(*_row_parts(builder, tile, *args[1:3]), strict=True)
        begins = [begin for square in squares for begin in square]
        for begin, row in zip(begins, _rows(builder, args[3]), strict=True):
            _write(builder, tile, args[0], begin, row)
        return context.get_dummy_value()

    return types.void(pointer, types.intp, types.intp, tile), codegen


@intrinsic
def stream_tile(typingctx: Any, pointer: Any, step: Any, last: Any, tile: Any) -> Any:
    """Write a tile like `store_tile`, past the caches, one whole row after the other.

    Rows must begin at multiples of their size, and should be whole cache lines.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = tile.count * _bytes(tile)
        past_caches = builder.module.add_metadata([_NUMBER(1)])
        rows = _rows(builder, args[3])
        for i, parts in enumerate(_row_parts(builder, tile, *args[1:3])):
            for begin, part in zip(parts, rows[i :: tile.count], strict=True):
                written = builder.store(part, _address(builder, tile, args[0], begin), align=size)
                written.set_metadata("nontemporal", past_caches)
        return context.get_dummy_value()

    return types.void(pointer, types.intp, types.intp, tile), codegen


@intrinsic
def load_vectors(typingctx: Any, pointer: Any) -> Any:
    """As many vectors one after the other as `load_line` has columns: its transposed tile."""
    kind = LaneTile(pointer.dtype, _squares_per_line(pointer.dtype))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        begins = [_NUMBER(i * kind.count) for i in range(kind.squares * kind.count)]
        return _tile(builder, [_read(builder, kind, args[0], begin) for begin in begins])

    return kind(pointer), codegen


@intrinsic
def store_vectors(typingctx: Any, pointer: Any, tile: Any) -> Any:
    """Write the vectors of a tile one after the other."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for i, vector in enumerate(_rows(builder, args[1])):
            _write(builder, tile, args[0], _NUMBER(i * tile.count), vector)
        return context.get_dummy_value()

    return types.void(pointer, tile), codegen


def _prefetch_rows(surely: bool) -> Any:
    """An intrinsic's code that fetches the cache lines in which the rows of a tile begin."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for offset in _row_offsets(builder, chains_per_vector(sig.args[0].dtype), *args[1:]):
            prefetch_line(builder, builder.gep(args[0], [offset]), surely)
        return context.get_dummy_value()

    return codegen


@intrinsic
def prefetch_tile(typingctx: Any, pointer: Any, step: Any, last: Any) -> Any:
    """Fetch the cache lines in which the rows of a tile begin; any address will do."""
    return types.void(pointer, types.intp, types.intp), _prefetch_rows(surely=False)


@intrinsic
def prefetch_tile_surely(typingctx: Any, pointer: Any, step: Any, last: Any) -> Any:
    """`prefetch_tile`, as `prefetch_surely` does it."""
    return types.void(pointer, types.intp, types.intp), _prefetch_rows(surely=True)


@intrinsic
def transposed(typingctx: Any, tile: Any) -> Any:
    """The tile with each of its squares transposed, of floats or of fixed point."""
    if tile.count * _bytes(tile) == REGISTER_BYTES > AVX2_BYTES:
        exchange = quarters_interleaved
    elif isinstance(tile.dtype, types.Integer):
        exchange = halves_interleaved
    else:
        exchange = squares_exchanged

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows = _rows(builder, args[0])
        squares = [rows[i : i + tile.count] for i in range(0, len(rows), tile.count)]
        return _tile(builder, [row for square in squares for row in exchange(builder, square)])

    return tile(tile), codegen
