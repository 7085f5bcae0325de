"""Array arithmetic of an optimiser on the GPU: the twin of ``optim_cpu.py``.

Single numbers such as the CRF's penalties stay on the host: NumPy arrays are passed to the twin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import uint32

from . import optim_cpu
from .constants import NEWTON_SCHULZ, NEWTON_SCHULZ_STEPS
from .cuda import cudalib
from .cuda.cudalib import Kernel, blocks_for, device_function, kernel, kernel_family, launch
from .cuda.matrices import multiply, padded
from .cuda.sums import square_sum_of

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_THREADS = 128


def _for_each(kernel_of_type: Callable[[str], Kernel], array: Any, *arguments: Any) -> None:
    """Launch a kernel with a thread for every element of ``array``, its first argument."""
    launch(
        kernel_of_type(str(array.dtype)), blocks_for(array.size, _THREADS), _THREADS,
        array.reshape(-1), *arguments, array.size,
    )  # fmt: skip


def squared_norm(array: Any) -> float:
    """Sum of the squares, accumulated in float64."""
    if isinstance(array, np.ndarray):
        return optim_cpu.squared_norm(array)
    return square_sum_of(array)


@kernel_family(("float32", False), ("float32", True))
def _scale_kernel(dtype: str, divides: bool) -> Kernel:
    @kernel(f"{dtype}[::1], {dtype}, int32", _THREADS)
    def scale_by(array: Any, number: Any, size: Any) -> None:
        i = uint32(cuda.grid(1))
        if i < size:
            if divides:
                array[i] /= number
            else:
                array[i] *= number

    return scale_by


def scale_by(array: Any, factor: float) -> None:
    """``array *= factor``."""
    if isinstance(array, np.ndarray):
        optim_cpu.scale_by(array, factor)
    else:
        _for_each(lambda dtype: _scale_kernel(dtype, False), array, factor)


def divide_by(array: Any, divisor: float) -> None:
    """``array /= divisor``."""
    if isinstance(array, np.ndarray):
        optim_cpu.divide_by(array, divisor)
    else:
        _for_each(lambda dtype: _scale_kernel(dtype, True), array, divisor)


@kernel_family(("float32",))
def _add_kernel(dtype: str) -> Kernel:
    @kernel(f"{dtype}[::1], {dtype}[::1], int32", _THREADS)
    def add_to(target: Any, source: Any, size: Any) -> None:
        i = uint32(cuda.grid(1))
        if i < size:
            target[i] += source[i]

    return add_to


def add_to(target: Any, source: Any) -> None:
    """``target += source``."""
    if isinstance(target, np.ndarray):
        optim_cpu.add_to(target, source)
        return
    _for_each(_add_kernel, target, source.reshape(-1))


@device_function
def _moved(
    parameter: Any, velocity: Any, gradient: Any, momentum: Any, nesterov: Any, weight_decay: Any,
    i: Any,
) -> Any:  # fmt: skip
    """Update element i of the velocity and return the direction of its step."""
    slope = gradient[i] + weight_decay * parameter[i]
    speed = momentum * velocity[i] + slope
    velocity[i] = speed
    return slope + momentum * speed if nesterov else speed


@kernel_family(("float32",))
def _sgd_kernel(dtype: str) -> Kernel:
    @kernel(
        f"{dtype}[::1], {dtype}[::1], {dtype}[::1], {dtype}, {dtype}, int32, {dtype}, int32",
        _THREADS,
    )
    def sgd_update(
        parameter: Any, velocity: Any, gradient: Any, lr: Any, momentum: Any, nesterov: Any,
        weight_decay: Any, size: Any,
    ) -> None:  # fmt: skip
        i = uint32(cuda.grid(1))
        if i < size:
            parameter[i] -= lr * _moved(
                parameter, velocity, gradient, momentum, nesterov, weight_decay, i
            )

    return sgd_update


def sgd_update(
    parameter: Any,
    velocity: Any,
    gradient: Any,
    lr: float,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
) -> None:
    """One step of SGD with momentum; ``parameter`` and ``velocity`` change."""
    if isinstance(parameter, np.ndarray):
        optim_cpu.sgd_update(parameter, velocity, gradient, lr, momentum, nesterov, weight_decay)
        return
    _for_each(
        _sgd_kernel, parameter, velocity.reshape(-1), gradient.reshape(-1),
        lr, momentum, nesterov, weight_decay,
    )  # fmt: skip


@kernel_family(("float32",))
def _advance_kernel(dtype: str) -> Kernel:
    array = f"{dtype}[::1]"

    @kernel(
        f"{array}, {array}, {array}, {array}, {dtype}, int32, {dtype}, int32",
        _THREADS,
    )
    def advance(
        parameter: Any, velocity: Any, gradient: Any, direction: Any, momentum: Any, nesterov: Any,
        weight_decay: Any, size: Any,
    ) -> None:  # fmt: skip
        i = uint32(cuda.grid(1))
        if i < size:
            direction[i] = _moved(
                parameter, velocity, gradient, momentum, nesterov, weight_decay, i
            )

    return advance


def _advance(
    parameter: Any,
    velocity: Any,
    gradient: Any,
    momentum: float,
    nesterov: bool,
    weight_decay: float = 0.0,
) -> Any:
    """Update the velocity and return the direction of the step, in the parameter's shape."""
    direction = cudalib.empty(parameter.shape, parameter.dtype)
    _for_each(
        _advance_kernel, parameter, velocity.reshape(-1), gradient.reshape(-1),
        direction.reshape(-1), momentum, nesterov, weight_decay,
    )  # fmt: skip
    return direction


@kernel_family(("float32",))
def _descend_kernel(dtype: str) -> Kernel:
    @kernel(f"{dtype}[::1], {dtype}[::1], {dtype}, int32, int32, int32", _THREADS)
    def descend(
        parameter: Any, direction: Any, step: Any, columns: Any, pitch: Any, size: Any
    ) -> None:
        # parameter: (size / columns, columns); direction: (at least as many rows, pitch)
        i = uint32(cuda.grid(1))
        if i < size:
            at = uint32(uint32(i // columns) * pitch + uint32(i % columns))
            parameter[i] -= step * direction[at]

    return descend


def muon_update(
    parameter: Any,
    velocity: Any,
    gradient: Any,
    lr: float,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
) -> None:
    """`sgd_update` of kernels (O, I, kh, kw) along the orthogonal factor of the direction."""
    if isinstance(parameter, np.ndarray):
        optim_cpu.muon_update(parameter, velocity, gradient, lr, momentum, nesterov, weight_decay)
        return
    direction = _advance(parameter, velocity, gradient, momentum, nesterov, weight_decay)
    norm = math.sqrt(square_sum_of(direction))
    if norm == 0:
        return
    matrix = direction.reshape(direction.shape[0], -1)
    rows, columns = matrix.shape
    factor = _orthogonal_factor(matrix, norm)
    step = lr * math.sqrt(max(1.0, rows / columns))
    _for_each(_descend_kernel, parameter, factor.reshape(-1), step, columns, factor.shape[1])


def _orthogonal_factor(matrix: Any, norm: float) -> Any:
    """The matrix (m, n) with singular values close to 1, by Newton-Schulz steps; `padded`."""
    a, b, c = NEWTON_SCHULZ
    x = padded(matrix, norm)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = multiply(x, x, transposed=True)
        polynomial = multiply(gram, gram, factor=c, added=gram, added_factor=b)
        x = multiply(polynomial, x, added=x, added_factor=a)
    return x


def normalised_update(
    parameter: Any,
    velocity: Any,
    gradient: Any,
    lr: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """`sgd_update` along the direction divided by its root mean square."""
    if isinstance(parameter, np.ndarray):
        optim_cpu.normalised_update(parameter, velocity, gradient, lr, momentum, nesterov)
        return
    direction = _advance(parameter, velocity, gradient, momentum, nesterov)
    rms = math.sqrt(square_sum_of(direction) / direction.size)
    if rms > 0:
        size = direction.size
        _for_each(_descend_kernel, parameter, direction.reshape(-1), lr / rms, size, size)
