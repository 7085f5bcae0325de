"""Vectors that hold one number of each of several chains, for Numba functions.

A `Lanes` is ``LANES`` floats in a vector register.  It is added, subtracted, multiplied and negated
with the usual operators, and it is read from and written to memory that has the lanes as its last
axis.  A `LaneTile` is ``LANES`` of them, a square that can be transposed: that is how numbers come
from volumes, which have the labels as their last axis, and return there.

What is written in this way compiles to the vector instructions that it says, on every machine;
nothing depends on what LLVM's vectoriser makes of a loop.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from .pointers import prefetch_line

__all__ = [
    "LANES", "fused_sum", "load_lanes", "load_tile", "lower", "prefetch_tile", "splat",
    "store_lanes", "store_tile", "stream_tiles", "transposed", "where_less",
]  # fmt: skip

# A vector of AVX.  16 lanes, as AVX-512 has, would double the memory of a block, which with 8 is
# 5 MB for rows of 1242 pixels and 128 labels; Zen 4 does no more operations in a cycle with them.
LANES = 8

_NUMBER = ir.IntType(32)


class Lanes(types.Type):
    """The type of `LANES` floats."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"Lanes({dtype})")


class LaneTile(types.Type):
    """The type of `LANES` times `LANES` floats."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"LaneTile({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


@register_model(LaneTile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.ArrayType(ir.VectorType(element, LANES), LANES))


def _define(operation: Any, instruction: str, operands: int) -> None:
    """Let ``operation`` of `Lanes` or of `LaneTile` be an instruction of LLVM."""

    @infer_global(operation)
    class _Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            known = isinstance(args[0], Lanes | LaneTile) and len(args) == operands
            return signature(args[0], *args) if known and len(set(args)) == 1 else None

    @lower_builtin(operation, *[Lanes] * operands)
    def _lower_lanes(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args)

    @lower_builtin(operation, *[LaneTile] * operands)
    def _lower_tiles(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows = zip(*(_rows(builder, tile) for tile in args), strict=True)
        return _tile(builder, [getattr(builder, instruction)(*row) for row in rows])


_define(operator.add, "fadd", 2)
_define(operator.sub, "fsub", 2)
_define(operator.mul, "fmul", 2)
_define(operator.neg, "fneg", 1)


def _rows(builder: Any, tile: Any) -> list[Any]:
    return [builder.extract_value(tile, i) for i in range(LANES)]


def _tile(builder: Any, rows: list[Any]) -> Any:
    tile = ir.Constant(ir.ArrayType(rows[0].type, LANES), ir.Undefined)
    for i, row in enumerate(rows):
        tile = builder.insert_value(tile, row, i)
    return tile


@intrinsic
def fused_sum(typingctx: Any, a: Any, b: Any, one: Any) -> Any:
    """a + b, computed as ``a * one + b``, which is the same number to the last bit.

    Zen 4 has two pipes for additions and minima and two others for multiply-adds: where there are
    many minima, this uses all four.  ``one`` must come from memory, or LLVM would remove it.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        product = builder.fmul(args[0], args[2], flags=("contract",))
        return builder.fadd(product, args[1], flags=("contract",))

    return a(a, b, one), codegen


@intrinsic
def lower(typingctx: Any, a: Any, b: Any) -> Any:
    """The smaller number of each lane; none of them may be NaN."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = args[0].type
        # llvmlite knows the names of intrinsics for scalars only.
        function = get_or_insert_function(
            builder.module,
            ir.FunctionType(kind, [kind, kind]),
            f"llvm.minnum.v{LANES}{kind.element.intrinsic_name}",
        )
        return builder.call(function, args, fastmath=("nnan", "nsz"))

    return a(a, b), codegen


@intrinsic
def where_less(typingctx: Any, a: Any, b: Any, chosen: Any, other: Any) -> Any:
    """``chosen`` in the lanes where a < b, else ``other``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *args[:2]), *args[2:])

    return chosen(a, b, chosen, other), codegen


@intrinsic
def splat(typingctx: Any, number: Any) -> Any:
    """The same number in all lanes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        nothing = ir.Constant(ir.VectorType(args[0].type, LANES), ir.Undefined)
        first = builder.insert_element(nothing, args[0], _NUMBER(0))
        return builder.shuffle_vector(first, nothing, _lane_numbers([0] * LANES))

    return Lanes(number)(number), codegen


def _lane_numbers(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_NUMBER, LANES), numbers)


def _address(builder: Any, pointer: Any, index: Any) -> Any:
    """The address of the vector that begins with element ``index``."""
    kind = ir.VectorType(pointer.type.pointee, LANES)
    return builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())


def _read(builder: Any, pointer: Any, index: Any) -> Any:
    address = _address(builder, pointer, index)
    return builder.load(address, align=4)


def _write(builder: Any, pointer: Any, index: Any, value: Any) -> None:
    builder.store(value, _address(builder, pointer, index), align=4)


@intrinsic
def load_lanes(typingctx: Any, pointer: Any, index: Any) -> Any:
    """The lanes that begin at ``pointer[index * LANES]``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _read(builder, args[0], builder.mul(args[1], args[1].type(LANES)))

    return Lanes(pointer.dtype)(pointer, types.intp), codegen


@intrinsic
def store_lanes(typingctx: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Write lanes to where ``pointer[index * LANES]`` begins."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _write(builder, args[0], builder.mul(args[1], args[1].type(LANES)), args[2])
        return context.get_dummy_value()

    return types.void(pointer, types.intp, value), codegen


def _row_offsets(builder: Any, step: Any, last: Any) -> list[Any]:
    """Where the rows of a tile begin; those beyond ``last`` repeat it."""
    numbers = [last.type(i) for i in range(LANES)]
    within = [builder.icmp_signed("<", number, last) for number in numbers]
    return [
        builder.mul(builder.select(inside, number, last), step)
        for inside, number in zip(within, numbers, strict=True)
    ]


@intrinsic
def load_tile(typingctx: Any, pointer: Any, step: Any, last: Any) -> Any:
    """The tile whose row i begins at ``pointer[min(i, last) * step]``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        offsets = _row_offsets(builder, *args[1:])
        return _tile(builder, [_read(builder, args[0], offset) for offset in offsets])

    return LaneTile(pointer.dtype)(pointer, types.intp, types.intp), codegen


@intrinsic
def store_tile(typingctx: Any, pointer: Any, step: Any, last: Any, tile: Any) -> Any:
    """Write row i of a tile to where ``pointer[min(i, last) * step]`` begins."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        offsets = _row_offsets(builder, *args[1:3])
        for offset, row in zip(offsets, _rows(builder, args[3]), strict=True):
            _write(builder, args[0], offset, row)
        return context.get_dummy_value()

    return types.void(pointer, types.intp, types.intp, tile), codegen


@intrinsic
def stream_tiles(typingctx: Any, pointer: Any, step: Any, last: Any, low: Any, high: Any) -> Any:
    """Write two tiles side by side, like `store_tile`, past the caches.

    Rows must begin at multiples of their size, and should be whole cache lines.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer, step, last = args[:3]
        size = LANES * sig.args[0].dtype.bitwidth // 8
        past_caches = builder.module.add_metadata([_NUMBER(1)])
        tiles = zip(*(_rows(builder, tile) for tile in args[3:]), strict=True)
        for offset, halves in zip(_row_offsets(builder, step, last), tiles, strict=True):
            for i, half in enumerate(halves):
                begin = builder.add(offset, offset.type(i * LANES))
                written = builder.store(half, _address(builder, pointer, begin), align=size)
                written.set_metadata("nontemporal", past_caches)
        return context.get_dummy_value()

    return types.void(pointer, types.intp, types.intp, low, high), codegen


@intrinsic
def prefetch_tile(typingctx: Any, pointer: Any, step: Any, last: Any) -> Any:
    """Fetch the cache lines in which the rows of a tile begin; any address will do."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for offset in _row_offsets(builder, *args[1:]):
            prefetch_line(builder, builder.gep(args[0], [offset]))
        return context.get_dummy_value()

    return types.void(pointer, types.intp, types.intp), codegen


@intrinsic
def transposed(typingctx: Any, tile: Any) -> Any:
    """The transposed tile: its squares of 1, 2 and 4 lanes are exchanged, three shuffles a row."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows = _rows(builder, args[0])
        width = 1
        while width < LANES:
            for i in (i for i in range(LANES) if not i & width):
                a, b = rows[i], rows[i + width]
                # Lane t of both results comes from a, or from b in the second half of a square.
                own = [(t & ~width) + (LANES if t & width else 0) for t in range(LANES)]
                rows[i] = builder.shuffle_vector(a, b, _lane_numbers(own))
                others = _lane_numbers([t + width for t in own])
                rows[i + width] = builder.shuffle_vector(a, b, others)
            width *= 2
        return _tile(builder, rows)

    return tile(tile), codegen
