"""Costs of a coarse level of the pyramid on the GPU: the twin of ``pyramid_cpu.py``."""

from __future__ import annotations

from typing import Any

import numba
from numba import int32, uint32

from .cuda import cudalib
from .cuda.cudalib import Kernel, device_function, kernel, kernel_family, launch
from .cuda.sums import sum_of

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_THREADS = 64  # labels of one pixel


@device_function
def _beside(position: Any, size: Any) -> Any:
    """The coarse pixel beyond the nearest one, that the fine pixel reads too; within the image."""
    near = int32(position // 2)
    return int32(min(max(near - 1 if position % 2 == 0 else near + 1, 0), size - 1))


@kernel_family(("float32",))
def _add_kernel(dtype: str) -> Kernel:
    """total (H, W, K) = fine + coarse (H', W', K'), all flat; a block for every fine pixel."""
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
        x = int32(cuda.blockIdx.x)
        y = int32(cuda.blockIdx.y)
        pitch = int32(columns * coarse_count)
        near_row = int32((y // 2) * pitch)
        far_row = int32(_beside(y, rows) * pitch)
        near = int32((x // 2) * coarse_count)
        far = int32(_beside(x, columns) * coarse_count)
        first = int32((y * width + x) * label_count)
        for k in range(int32(cuda.threadIdx.x), label_count, _THREADS):
            below = int32(k // 2)
            cost = mixed(coarse, near_row, far_row, near, far, below)
            if k % 2 == 1:
                above = mixed(coarse, near_row, far_row, near, far, int32(below + 1))
                cost = number(0.5) * (cost + above)
            i = uint32(first + k)
            total[i] = fine[i] + weight * cost

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

    A block for every coarse pixel: it gathers from the up to 4x4 fine pixels that read it.
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
        column = int32(cuda.blockIdx.x)
        row = int32(cuda.blockIdx.y)
        for k in range(int32(cuda.threadIdx.x), coarse_count, _THREADS):
            total = number(0)
            for y in range(int32(max(2 * row - 1, 0)), int32(min(2 * row + 3, height))):
                for x in range(int32(max(2 * column - 1, 0)), int32(min(2 * column + 3, width))):
                    first = int32((y * width + x) * label_count)
                    at = int32(2 * k)
                    moved = number(0)
                    if at < label_count:
                        moved += dfine[uint32(first + at)]
                    if 0 < at <= label_count:
                        moved += number(0.5) * dfine[uint32(first + at - 1)]
                    if at + 1 < label_count:
                        moved += number(0.5) * dfine[uint32(first + at + 1)]
                    total += share(y, row, rows) * share(x, column, columns) * moved
            i = uint32((row * columns + column) * coarse_count + k)
            dcoarse[i] = weight * total
            products[i] = total * coarse[i]

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
