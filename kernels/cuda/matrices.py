"""Products of small matrices on a GPU, for the optimiser.

Matrices are kept with zeros around them, up to whole tiles: so no product has to look where its
matrices end, and rows begin at multiples of 32 bytes, the sectors in which memory is read.  A block
of threads computes one tile of the product, an element per thread, and goes through tiles of both
factors in shared memory in a fixed order: the same bits on every run.
"""

from __future__ import annotations

from typing import Any

from numba import float32, float64, uint32

from . import cudalib
from .cudalib import Kernel, blocks_for, kernel, kernel_family, launch, round_up

__all__ = ["multiply", "padded"]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_TILE = 16  # rows and columns
_THREADS = _TILE * _TILE


@kernel_family(("float32",))
def _pad_kernel(dtype: str) -> Kernel:
    @kernel(f"{dtype}[::1], {dtype}[::1], {dtype}, int32, int32, int32, int32", _THREADS)
    def pad(
        matrix: Any, result: Any, divisor: Any, rows: Any, columns: Any, pitch: Any, size: Any
    ) -> None:
        # matrix: (rows, columns); result: (whole tiles, pitch), of ``size`` elements.
        i = uint32(cuda.grid(1))
        if i < size:
            row, column = uint32(i // pitch), uint32(i % pitch)
            inside = row < rows and column < columns
            result[i] = matrix[uint32(row * columns + column)] / divisor if inside else 0

    return pad


def padded(matrix: Any, divisor: float) -> Any:
    """The matrix (m, n), divided by a number, with zeros up to whole tiles."""
    rows, columns = matrix.shape
    shape = round_up(rows, _TILE), round_up(columns, _TILE)
    result = cudalib.empty(shape, matrix.dtype)
    launch(
        _pad_kernel(str(matrix.dtype)), blocks_for(result.size, _THREADS), _THREADS,
        matrix.reshape(-1), result.reshape(-1), divisor, rows, columns, shape[1], result.size,
    )  # fmt: skip
    return result


@kernel_family(("float32", False), ("float32", True))
def _multiply_kernel(dtype: str, transposed: bool) -> Kernel:
    real = float32 if dtype == "float32" else float64
    # Bank conflicts: of the transposed factor, neighbouring threads read neighbouring rows.
    pitch = _TILE + 1 if transposed else _TILE
    right_places = _TILE * pitch
    array = f"{dtype}[::1]"

    @kernel(f"{array}, {array}, {array}, {array}, {dtype}, {dtype}, int32, int32", _THREADS)
    def multiply(
        left: Any, right: Any, added: Any, result: Any, factor: Any, added_factor: Any,
        columns: Any, inner: Any,
    ) -> None:  # fmt: skip
        # left: (rows, inner); right: (inner, columns), or transposed; added, result: (rows,
        # columns).  Grid: (tiles of columns, tiles of rows).
        lefts = cuda.shared.array(_THREADS, real)
        rights = cuda.shared.array(right_places, real)
        thread = uint32(cuda.threadIdx.x)
        x, y = uint32(thread % _TILE), uint32(thread // _TILE)
        first_column = uint32(cuda.blockIdx.x * _TILE)
        row = uint32(cuda.blockIdx.y * _TILE + y)
        total = real(0)
        k = uint32(0)
        while k < inner:
            lefts[thread] = left[uint32(row * inner + k + x)]
            if transposed:
                at = uint32((first_column + y) * inner + k + x)
            else:
                at = uint32((k + y) * columns + first_column + x)
            rights[uint32(y * pitch + x)] = right[at]
            cuda.syncthreads()
            for i in range(_TILE):
                if transposed:
                    total += lefts[uint32(y * _TILE + i)] * rights[uint32(x * pitch + i)]
                else:
                    total += lefts[uint32(y * _TILE + i)] * rights[uint32(i * pitch + x)]
            cuda.syncthreads()
            k = uint32(k + _TILE)
        at = uint32(row * columns + first_column + x)
        total *= factor
        if added_factor != 0:
            total += added_factor * added[at]
        result[at] = total

    return multiply


def multiply(
    left: Any,
    right: Any,
    *,
    transposed: bool = False,
    factor: float = 1.0,
    added: Any = None,
    added_factor: float = 0.0,
) -> Any:
    """``factor * left @ right + added_factor * added``, all of them `padded`.

    Parameters
    ----------
    left, right
        (m, k) and (k, n); ``right`` is (n, k) if ``transposed`` says so.
    transposed
        Take the transpose of ``right``.
    factor, added, added_factor
        What to multiply the product by, and a matrix (m, n) to add.
    """
    rows, inner = left.shape
    columns = right.shape[0 if transposed else 1]
    result = cudalib.empty((rows, columns), left.dtype)
    launch(
        _multiply_kernel(str(left.dtype), transposed), (columns // _TILE, rows // _TILE), _THREADS,
        left.reshape(-1), right.reshape(-1), (left if added is None else added).reshape(-1),
        result.reshape(-1), factor, 0.0 if added is None else added_factor, columns, inner,
    )  # fmt: skip
    return result
