"""Sums of whole arrays on the GPU, in float64 and always in the same order: no atomics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int32, uint32

from . import cudalib
from .cudalib import Kernel, blocks_for, kernel, kernel_family, launch

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_THREADS = 128
_MOST_BLOCKS = 64  # each writes one partial sum; the host adds them


def _make(dtype: str, squares: bool) -> Kernel:
    @kernel(f"{dtype}[::1], float64[::1], int32, int32", _THREADS)
    def sum_partially(values: Any, partial: Any, size: Any, stride: Any) -> None:
        terms = cuda.shared.array(_THREADS, float64)
        thread = int32(cuda.threadIdx.x)
        mine = 0.0
        for i in range(int32(cuda.grid(1)), size, stride):
            value = float64(values[uint32(i)])
            mine += value * value if squares else value
        terms[thread] = mine
        width = int32(_THREADS // 2)
        while width > 0:
            cuda.syncthreads()
            if thread < width:
                terms[thread] += terms[thread + width]
            width = int32(width // 2)
        if thread == 0:
            partial[cuda.blockIdx.x] = terms[0]

    return sum_partially


@kernel_family(("float32",), ("float64",), ("int32",))
def _sum_kernel(dtype: str) -> Kernel:
    return _make(dtype, squares=False)


@kernel_family(("float32",))
def _square_sum_kernel(dtype: str) -> Kernel:
    return _make(dtype, squares=True)


def _partial_sums(kernel_of_type: Kernel, values: Any) -> Any:
    blocks = min(blocks_for(values.size, _THREADS), _MOST_BLOCKS)
    partial = cudalib.empty((blocks,), np.float64)
    stride = blocks * _THREADS
    flat = values.reshape(-1)
    launch(kernel_of_type, blocks, _THREADS, flat, partial, values.size, stride)
    return partial


def add_up(values: Any) -> Any:
    """Queue the partial sums of an array, for `total`; does not wait."""
    return _partial_sums(_sum_kernel(str(values.dtype)), values)


def total(sums: Any) -> float:
    """Wait for partial sums and add them."""
    return float(cudalib.to_host(sums).sum())


def sum_of(values: Any) -> float:
    """The sum of an array."""
    return total(add_up(values))


def square_sum_of(values: Any) -> float:
    """The sum of the squares of an array."""
    return total(_partial_sums(_square_sum_kernel(str(values.dtype)), values))
