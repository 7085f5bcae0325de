"""Vectors of several chains, one number each, for Numba functions.

A `Lanes` value is ``LANES`` floats in vector registers.  It can be added, subtracted, multiplied and
compared by `lower`, and it is read from and written to memory that has the lanes as its last axis.
What is written lane by lane in this way compiles to exactly the vector instructions it says, on
every machine: nothing depends on what LLVM's vectoriser makes of a loop.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

__all__ = ["LANES", "fused_sum", "load", "lower", "splat", "store", "transpose", "where_less"]

# Half of an AVX-512 register.  With 16 lanes the costs of a block of rows no longer fit the caches,
# and today's processors do as many operations a cycle in two halves.
LANES = 8


class Lanes(types.Type):  # type: ignore[misc]
    """The type of `LANES` floats, one of each chain."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


def _define(operation: Any, instruction: str) -> None:
    """Let ``operation`` of two `Lanes` be an instruction of LLVM."""

    @infer_global(operation)
    class _Typing(AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], Lanes) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    @lower_builtin(operation, Lanes, Lanes)
    def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args)


@infer_global(operator.neg)
class _Negation(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(args[0], args[0]) if isinstance(args[0], Lanes) else None


@lower_builtin(operator.neg, Lanes)
def _negate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fneg(args[0])


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")


@intrinsic
def fused_sum(typingctx: Any, a: Any, b: Any, one: Any) -> Any:
    """a + b, computed as ``a * one + b``, which is the same number to the last bit.

    Zen 4 has two pipes for additions and minima and two for multiply-adds: where there are many
    minima, this uses all four.  ``one`` must come from memory, or LLVM would remove it.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        product = builder.fmul(args[0], args[2], flags=("contract",))
        return builder.fadd(product, args[1], flags=("contract",))

    return a(a, b, one), codegen


def _address(builder: Any, pointer: Any, index: Any) -> Any:
    """The address of a vector that begins at element ``index``."""
    kind = ir.VectorType(pointer.type.pointee, LANES)
    return builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())


def _read(builder: Any, pointer: Any, index: Any) -> Any:
    return builder.load(_address(builder, pointer, index), align=4)


def _write(builder: Any, pointer: Any, index: Any, value: Any) -> None:
    builder.store(value, _address(builder, pointer, index), align=4)


@intrinsic
def load(typingctx: Any, pointer: Any, index: Any) -> Any:
    """The lanes at ``pointer[index * LANES]``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        index = builder.mul(args[1], ir.Constant(args[1].type, LANES))
        return _read(builder, args[0], index)

    return Lanes(pointer.dtype)(pointer, types.intp), codegen


@intrinsic
def store(typingctx: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Write lanes to ``pointer[index * LANES]``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        index = builder.mul(args[1], ir.Constant(args[1].type, LANES))
        _write(builder, args[0], index, args[2])
        return context.get_dummy_value()

    return types.void(pointer, types.intp, value), codegen


@intrinsic
def splat(typingctx: Any, number: Any) -> Any:
    """The same number in all lanes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.VectorType(args[0].type, LANES)
        one = builder.insert_element(ir.Constant(kind, ir.Undefined), args[0], ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)

    return Lanes(number)(number), codegen


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
def transpose(
    typingctx: Any, source: Any, step: Any, last: Any, target: Any, target_step: Any,
    target_last: Any,
) -> Any:  # fmt: skip
    """``target[min(j, target_last) * target_step + i] = source[min(i, last) * step + j]``.

    i and j run over the lanes.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, step, last, target, target_step, target_last = args

        def offset(i: int, last: Any, step: Any) -> Any:
            number = ir.Constant(last.type, i)
            within = builder.icmp_signed("<", number, last)
            return builder.mul(builder.select(within, number, last), step)

        rows = [_read(builder, source, offset(i, last, step)) for i in range(LANES)]
        # log2(LANES) rounds: each exchanges halves, quarters, ... between pairs of vectors.
        width = 1
        while width < LANES:
            rows = _exchanged(builder, rows, width)
            width *= 2
        for j, row in enumerate(rows):
            _write(builder, target, offset(j, target_last, target_step), row)
        return context.get_dummy_value()

    index = types.intp
    return types.void(source, index, index, target, index, index), codegen


def _exchanged(builder: Any, rows: list[Any], width: int) -> list[Any]:
    """Exchange the off-diagonal squares of ``width`` lanes between rows that are ``width`` apart."""
    result = list(rows)
    number = ir.IntType(32)
    for i in range(LANES):
        if i & width:
            continue
        a, b = rows[i], rows[i + width]
        for row, shift in ((i, 0), (i + width, width)):
            # Lane t of the result: of a where t lies in the first half of its square, else of b.
            lanes = [
                (t & ~width) + shift + (LANES if t & width else 0) for t in range(LANES)
            ]
            mask = ir.Constant(ir.VectorType(number, LANES), lanes)
            result[row] = builder.shuffle_vector(a, b, mask)
    return result
