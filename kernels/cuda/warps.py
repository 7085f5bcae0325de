"""What the lanes of a warp find out together."""

from __future__ import annotations

from typing import Any

from .cudalib import device_function

__all__ = ["warp_max", "warp_sum"]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_ALL_LANES = 0xFFFFFFFF


@device_function
def warp_sum(value: Any) -> Any:
    """The sum over the lanes of a warp, in all of them."""
    for distance in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(_ALL_LANES, value, distance)
    return value


@device_function
def warp_max(value: Any) -> Any:
    """The largest value of a warp, in all its lanes."""
    for distance in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(_ALL_LANES, value, distance))
    return value
