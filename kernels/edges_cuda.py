"""Edge weights from the outputs of the Pairwise-CNN on the GPU: the twin of ``edges_cpu.py``."""

from __future__ import annotations

from typing import Any

from numba import uint32

from .cuda import cudalib
from .cuda.cudalib import Kernel, blocks_for, kernel, kernel_family, launch

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_THREADS = 128


@kernel_family(("float32",))
def _forward_kernel(dtype: str) -> Kernel:
    """Even elements of the (H, W, 2) array go to wx, odd ones to wy."""

    @kernel(f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}, int32", _THREADS)
    def magnitude_forward(linear: Any, wx: Any, wy: Any, scale: Any, size: Any) -> None:
        i = uint32(cuda.grid(1))
        if i < size:
            weight = abs(linear[i]) * scale
            if i & 1:
                wy[i >> 1] = weight
            else:
                wx[i >> 1] = weight

    return magnitude_forward


@kernel_family(("float32",))
def _backward_kernel(dtype: str) -> Kernel:
    @kernel(f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}, {dtype}[::1], int32", _THREADS)
    def magnitude_backward(
        dwx: Any, dwy: Any, linear: Any, scale: Any, dlinear: Any, size: Any
    ) -> None:
        i = uint32(cuda.grid(1))
        if i < size:
            gradient = (dwy[i >> 1] if i & 1 else dwx[i >> 1]) * scale
            value = linear[i]
            if value < 0:
                gradient = -gradient
            elif value == 0:
                gradient = 0 * gradient
            dlinear[i] = gradient

    return magnitude_backward


def magnitude_forward(linear: Any, scale: float) -> tuple[Any, Any]:
    """Weights of the edges to the right and to the lower neighbour: (H, W, 2) -> two (H, W)."""
    linear = cudalib.to_device(linear)
    wx, wy = (cudalib.empty(linear.shape[:2], linear.dtype) for _ in range(2))
    launch(
        _forward_kernel(str(linear.dtype)), blocks_for(linear.size, _THREADS), _THREADS,
        linear.reshape(-1), wx.reshape(-1), wy.reshape(-1), scale, linear.size,
    )  # fmt: skip
    return wx, wy


def magnitude_backward(dwx: Any, dwy: Any, linear: Any, scale: float) -> Any:
    """Gradient with respect to ``linear`` from those of the weights; zero where it is zero."""
    linear = cudalib.to_device(linear)
    dlinear = cudalib.empty(linear.shape, linear.dtype)
    launch(
        _backward_kernel(str(linear.dtype)), blocks_for(linear.size, _THREADS), _THREADS,
        *(cudalib.to_device(x, linear.dtype).reshape(-1) for x in (dwx, dwy)),
        linear.reshape(-1), scale, dlinear.reshape(-1), linear.size,
    )  # fmt: skip
    return dlinear
