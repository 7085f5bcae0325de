"""Scalar building blocks that LLVM turns into vector instructions inside Numba loops.

Numba's own ``min``, ``exp`` and ``tanh`` do not vectorise: ``min`` keeps NaN semantics, so a
reduction over it stays scalar (``vminss``), and ``exp`` and ``tanh`` are calls into libm.  The
three functions here inline to straight-line code.  ``minimum`` assumes that no argument is NaN;
``exp`` and ``tanh`` of NaN are NaN, so that one that a network makes is found at the end.

``exp`` and ``tanh`` are approximations in float32 (relative error below 3e-7, checked by the
tests) and the exact library functions in float64, which the gradient checks use.  They take a
`Vector` of float32, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

__all__ = ["exp", "minimum", "tanh"]


@intrinsic
def minimum(typingctx: Any, a: Any, b: Any) -> Any:
    """The smaller of two numbers, as an instruction that reductions can be vectorised over."""
    if a != b or not isinstance(a, types.Float | types.Integer):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        if isinstance(kind, ir.IntType):
            return builder.select(builder.icmp_signed("<", *args), *args)
        function = builder.module.declare_intrinsic(
            "llvm.minnum", [kind], ir.FunctionType(kind, [kind, kind])
        )
        # "nnan nsz" is what lets LLVM's vectoriser treat the running minimum as a reduction.
        return builder.call(function, args, fastmath=("nnan", "nsz"))

    return a(a, b), codegen


# ---------------------------------------------------------------- exp and tanh of float32

# Written in the terms of LLVM, so that they serve a number, for LLVM to make vectors of, as well as
# a `Vector`, all of whose instructions are known.  Sums of products are multiply-adds where there
# are such; that none of these has other roundings than the others keeps the bits the same.
_CONTRACT = ("contract",)


def _all(kind: Any, value: float) -> Any:
    """A constant number, in every lane if the type is a vector."""
    lanes = isinstance(kind, ir.VectorType)
    return ir.Constant(kind, [value] * kind.count if lanes else value)


def _sum_of_product(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``."""
    return builder.fadd(builder.fmul(a, b, flags=_CONTRACT), c, flags=_CONTRACT)


def _minus_product(builder: Any, c: Any, a: Any, b: Any) -> Any:
    """``c - a * b``."""
    return builder.fsub(c, builder.fmul(a, b, flags=_CONTRACT), flags=_CONTRACT)


def _polynomial(builder: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """The polynomial whose coefficients begin with that of the highest power, by Horner's rule."""
    total = _all(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        total = _sum_of_product(builder, total, x, _all(x.type, coefficient))
    return total


def _clamp(builder: Any, x: Any, low: float, high: float) -> Any:
    """x within [low, high], or NaN: written so that it becomes a plain vector min and max."""
    least, most = _all(x.type, low), _all(x.type, high)
    x = builder.select(builder.fcmp_ordered(">", x, most), most, x)
    return builder.select(builder.fcmp_ordered("<", x, least), least, x)


# exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 is split in two so that
# r keeps all its bits; the polynomial is Cephes' expf.
_LOG2_E = 1.44269504088896341
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_ROUND_MAGIC = 12582912.0  # 1.5 * 2^23: adding it rounds to the nearest integer
_EXP_LOWEST = -87.0  # exp(-87) = 1.6e-38, the last normal number
_EXP_HIGHEST = 88.0
_EXP_COEFFICIENTS = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip
_EXPONENT_BIAS, _MANTISSA_BITS = 127, 23


def _emit_exp(builder: Any, x: Any) -> Any:
    kind = x.type
    whole = ir.IntType(32)
    if isinstance(kind, ir.VectorType):
        whole = ir.VectorType(whole, kind.count)
    x = _clamp(builder, x, _EXP_LOWEST, _EXP_HIGHEST)
    magic = _all(kind, _ROUND_MAGIC)
    n = builder.fsub(_sum_of_product(builder, x, _all(kind, _LOG2_E), magic), magic)
    r = _minus_product(builder, x, n, _all(kind, _LN2_HIGH))
    r = _minus_product(builder, r, n, _all(kind, _LN2_LOW))
    p = builder.fmul(_polynomial(builder, r, _EXP_COEFFICIENTS), r, flags=_CONTRACT)
    p = builder.fadd(_sum_of_product(builder, p, r, r), _all(kind, 1.0))
    exponent = builder.add(builder.fptosi(n, whole), _all(whole, _EXPONENT_BIAS))
    power = builder.bitcast(builder.shl(exponent, _all(whole, _MANTISSA_BITS)), kind)
    return builder.fmul(p, power)


# tanh(x) = x * P(x^2) / Q(x^2), the minimax rational function used by Eigen and XLA;
# float32 tanh is 1 beyond the clamp.
_TANH_CLAMP = 7.90531110763549805
_TANH_P = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_Q = (
    1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03
)  # fmt: skip


def _emit_tanh(builder: Any, x: Any) -> Any:
    x = _clamp(builder, x, -_TANH_CLAMP, _TANH_CLAMP)
    square = builder.fmul(x, x)
    numerator = builder.fmul(x, _polynomial(builder, square, _TANH_P))
    return builder.fdiv(numerator, _polynomial(builder, square, _TANH_Q))


def exp(x: Any) -> Any:
    """The exponential function, for use inside Numba loops."""
    return math.exp(x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent, for use inside Numba loops."""
    return math.tanh(x)


def _define(function: Any, emit: Any) -> None:
    """Let ``function`` of float32 be what ``emit`` makes of it, that of float64 the library's."""

    @intrinsic
    def approximate(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(builder, args[0])

        return x(x), codegen

    def of_float32(x: Any) -> Any:
        return approximate(x)

    @overload(function)
    def choose(x: Any) -> Any:
        return function if x == types.float64 else of_float32


_define(exp, _emit_exp)
_define(tanh, _emit_tanh)
