"""Scalar building blocks that LLVM turns into vector instructions inside Numba loops.

Numba's own ``min``, ``exp`` and ``tanh`` do not vectorise: ``min`` keeps NaN semantics, so a
reduction over it stays scalar (``vminss``), and ``exp`` and ``tanh`` are calls into libm.  The
three functions here inline to straight-line code.  ``minimum`` assumes that no argument is NaN;
``exp`` and ``tanh`` of NaN are NaN, so that one that a network makes is found at the end.

``exp`` and ``tanh`` are approximations in float32 (relative error below 3e-7, checked by the
tests) and the exact library functions in float64, which the gradient checks use.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import float32, int32, types
from numba.extending import intrinsic, overload

from .jit import part_or_python

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


@intrinsic
def _float_from_bits(typingctx: Any, bits: Any) -> Any:
    """Reinterpret an int32 as a float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@part_or_python
def _clamp(x: Any, low: Any, high: Any) -> Any:
    """x within [low, high], or NaN: written so that it becomes a plain vector min and max."""
    x = high if x > high else x
    return low if x < low else x


# exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 is split in two so that
# r keeps all its bits; the polynomial is Cephes' expf.
_LOG2_E = float32(1.44269504088896341)
_LN2_HIGH = float32(0.693359375)
_LN2_LOW = float32(-2.12194440e-4)
_ROUND_MAGIC = float32(12582912.0)  # 1.5 * 2^23: adding it rounds to the nearest integer
_EXP_LOWEST = float32(-87.0)  # exp(-87) = 1.6e-38, the last normal number
_EXP_HIGHEST = float32(88.0)


@part_or_python
def _exp_float32(x: Any) -> Any:
    x = _clamp(x, _EXP_LOWEST, _EXP_HIGHEST)
    n = (x * _LOG2_E + _ROUND_MAGIC) - _ROUND_MAGIC
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = float32(1.9875691500e-4)
    p = p * r + float32(1.3981999507e-3)
    p = p * r + float32(8.3334519073e-3)
    p = p * r + float32(4.1665795894e-2)
    p = p * r + float32(1.6666665459e-1)
    p = p * r + float32(5.0000001201e-1)
    p = p * r * r + r + float32(1.0)
    return p * _float_from_bits(int32((int32(n) + int32(127)) << int32(23)))


# tanh(x) = x * P(x^2) / Q(x^2), the minimax rational function used by Eigen and XLA;
# float32 tanh is 1 beyond the clamp.
_TANH_CLAMP = float32(7.90531110763549805)


@part_or_python
def _tanh_float32(x: Any) -> Any:
    x = _clamp(x, -_TANH_CLAMP, _TANH_CLAMP)
    z = x * x
    p = float32(-2.76076847742355e-16)
    p = p * z + float32(2.00018790482477e-13)
    p = p * z + float32(-8.60467152213735e-11)
    p = p * z + float32(5.12229709037114e-08)
    p = p * z + float32(1.48572235717979e-05)
    p = p * z + float32(6.37261928875436e-04)
    p = p * z + float32(4.89352455891786e-03)
    q = float32(1.19825839466702e-06)
    q = q * z + float32(1.18534705686654e-04)
    q = q * z + float32(2.26843463243900e-03)
    q = q * z + float32(4.89352518554385e-03)
    return x * p / q


def exp(x: Any) -> Any:
    """The exponential function, for use inside Numba loops."""
    return math.exp(x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent, for use inside Numba loops."""
    return math.tanh(x)


@overload(exp)
def _choose_exp(x: Any) -> Any:
    return _exp_float32 if x == types.float32 else exp


@overload(tanh)
def _choose_tanh(x: Any) -> Any:
    return _tanh_float32 if x == types.float32 else tanh
