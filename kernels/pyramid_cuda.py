"""Costs of a coarse level of the pyramid on the GPU: the twin of ``pyramid_cpu.py``."""

from __future__ import annotations

from typing import Any

import numba
from numba import int32, uint32

from .cuda import cudalib
from .cuda.cudalib import Kernel, device_function, kernel, kernel_family, launch
from .cuda.sums import sum_of

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_THREADS = 64  # a block goes through the labels of a pixel in chunks of so many coarse ones
_FINE = 2 * _THREADS  # fine labels of a chunk
# Sizes of shared arrays have to be plain constants.
_COARSE_AND_NEXT = _THREADS + 1
# Even labels first, then odd ones, half a warp off, so that both halves of a warp find free banks.
_ODD = _THREADS + 16
_EVEN_AND_ODD = _ODD + _THREADS


@device_function
def _beside(position: Any, size: Any) -> Any:
    """The coarse pixel beyond the nearest one, that the fine pixel reads too; within the image."""
    near = int32(position // 2)
    return int32(min(max(near - 1 if position % 2 == 0 else near + 1, 0), size - 1))


@kernel_family(("float32",))
def _add_kernel(dtype: str) -> Kernel:
    """total (H, W, K) = fine + coarse (H', W', K'), all flat; a block for every fine pixel.

    The costs between four coarse pixels are computed once and shared by the labels that lie
    between them.
    """
    number = getattr(numba, dtype)

    @device_function
    def mixed(coarse: Any, near_row: Any, far_row: Any, near: Any, far: Any, k: Any) -> Any:
        """The cost between four coarse pixels, which lie where their labels begin."""
        corners = coarse[uint32(near_row + far + k)] + coarse[uint32(far_row + near + k)]
        return (
            number(0.5625) * coarse[uint32(near_row + near + k)]
            + number(0.1875) * corners
            + number(0.0625) * coarse[uint32(far_row + far + k)]
        )

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}, int32, int32, int32, int32, int32",
        _THREADS,
    )
    def add_upsampled(
        total: Any, fine: Any, coarse: Any, weight: Any, width: Any, label_count: Any,
        rows: Any, columns: Any, coarse_count: Any,
    ) -> None:  # fmt: skip
        between = cuda.shared.array(_COARSE_AND_NEXT, number)
        thread = int32(cuda.threadIdx.x)
        x = int32(cuda.blockIdx.x)
        y = int32(cuda.blockIdx.y)
        pitch = int32(columns * coarse_count)
        near_row = int32((y // 2) * pitch)
        far_row = int32(_beside(y, rows) * pitch)
        near = int32((x // 2) * coarse_count)
        far = int32(_beside(x, columns) * coarse_count)
        first = int32((y * width + x) * label_count)
        for begin in range(int32(0), label_count, _FINE):
            k = int32(begin // 2 + thread)
            if k < coarse_count:
                between[thread] = mixed(coarse, near_row, far_row, near, far, k)
            k = int32(begin // 2 + _THREADS)
            if thread == 0 and k < coarse_count:
                between[_THREADS] = mixed(coarse, near_row, far_row, near, far, k)
            cuda.syncthreads()
            for half in range(2):
                local = int32(half * _THREADS + thread)
                if begin + local < label_count:
                    below = int32(local // 2)
                    # An even label lies on a coarse one, an odd one between two.
                    cost = number(0.5) * (between[below] + between[below + local % 2])
                    i = uint32(first + begin + local)
                    total[i] = fine[i] + weight * cost
            cuda.syncthreads()

    return add_upsampled


def upsample_forward(fine: Any, coarse: Any, weight: float, in_place: bool = True) -> Any:
    """``fine + weight * up(coarse)``; arguments as `pyramid_cpu.upsample_forward`'s."""
    height, width, label_count = fine.shape
    total = fine if in_place else cudalib.empty(fine.shape, fine.dtype)
    launch(
        _add_kernel(str(fine.dtype)), (width, height), _THREADS,
        total.reshape(-1), fine.reshape(-1), coarse.reshape(-1), weight, width, label_count,
        *coarse.shape,
    )  # fmt: skip
    return total


@kernel_family(("float32",))
def _gather_kernel(dtype: str) -> Kernel:
    """dfine (H, W, K) -> dcoarse (H', W', K') and its product with coarse, all flat.

    A block for every coarse pixel: it adds up the gradients of the up to 4x4 fine pixels that read
    it, label by label, and then those of the labels that lie beside each coarse one.
    """
    number = getattr(numba, dtype)

    @device_function
    def share(position: Any, near: Any, size: Any) -> Any:
        """How much a fine pixel reads of a coarse one; the border counts twice."""
        total = number(0)
        if position // 2 == near:
            total += number(0.75)
        if _beside(position, size) == near:
            total += number(0.25)
        return total

    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}, {dtype}[::1], {dtype}[::1],"
        " int32, int32, int32, int32, int32, int32",
        _THREADS,
    )
    def gather_upsampled(
        dfine: Any, coarse: Any, weight: Any, dcoarse: Any, products: Any,
        height: Any, width: Any, label_count: Any, rows: Any, columns: Any, coarse_count: Any,
    ) -> None:  # fmt: skip
        # The chunk's fine labels 2k are at k, 2k + 1 at _ODD + k; that before them at _ODD - 1.
        sums = cuda.shared.array(_EVEN_AND_ODD, number)
        thread = int32(cuda.threadIdx.x)
        column = int32(cuda.blockIdx.x)
        row = int32(cuda.blockIdx.y)
        pixel = int32((row * columns + column) * coarse_count)
        before = number(0)
        for begin in range(int32(0), label_count, _FINE):
            low = number(0)
            high = number(0)
            k = int32(begin + thread)
            for y in range(int32(max(2 * row - 1, 0)), int32(min(2 * row + 3, height))):
                for x in range(int32(max(2 * column - 1, 0)), int32(min(2 * column + 3, width))):
                    part = share(y, row, rows) * share(x, column, columns)
                    at = int32((y * width + x) * label_count + k)
                    if k < label_count:
                        low += part * dfine[uint32(at)]
                    if k + _THREADS < label_count:
                        high += part * dfine[uint32(at + _THREADS)]
            place = int32(thread // 2 + (_ODD if thread % 2 else 0))
            sums[place] = low
            sums[place + _THREADS // 2] = high
            if thread == 0:
                sums[_ODD - 1] = before
            cuda.syncthreads()
            before = sums[_EVEN_AND_ODD - 1]
            # The last chunk has one more coarse label, if the number of fine ones is even.
            for coarse_label in range(thread, _THREADS + 1, _THREADS):
                j = int32(begin // 2 + coarse_label)
                if j < coarse_count and (coarse_label < _THREADS or j == coarse_count - 1):
                    beside = sums[_ODD - 1 + coarse_label]
                    moved = number(0)
                    if coarse_label < _THREADS:
                        moved = sums[coarse_label]
                        beside += sums[_ODD + coarse_label]
                    moved += number(0.5) * beside
                    i = uint32(pixel + j)
                    dcoarse[i] = weight * moved
                    products[i] = moved * coarse[i]
            cuda.syncthreads()

    return gather_upsampled


def upsample_backward(dfine: Any, coarse: Any, weight: float) -> tuple[Any, float]:
    """Gradients of the coarse costs (H', W', K') and of their weight from that of the sum."""
    rows, columns, _ = coarse.shape
    dcoarse = cudalib.empty(coarse.shape, coarse.dtype)
    products = cudalib.empty(coarse.shape, coarse.dtype)
    launch(
        _gather_kernel(str(dfine.dtype)), (columns, rows), _THREADS,
        dfine.reshape(-1), coarse.reshape(-1), weight, dcoarse.reshape(-1), products.reshape(-1),
        *dfine.shape, *coarse.shape,
    )  # fmt: skip
    return dcoarse, sum_of(products)
