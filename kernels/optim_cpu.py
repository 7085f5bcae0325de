"""Array arithmetic of an optimiser on the CPU: arrays of any shape, updated in place."""

from __future__ import annotations

import math

import numpy as np

from .constants import NEWTON_SCHULZ, NEWTON_SCHULZ_STEPS
from .cpu.workers import one_blas_thread


def squared_norm(array: np.ndarray) -> float:
    """Sum of the squares, accumulated in float64."""
    with one_blas_thread():
        return float(np.vdot(array, array.astype(np.float64)))


def scale_by(array: np.ndarray, factor: float) -> None:
    """``array *= factor``."""
    array *= array.dtype.type(factor)


def divide_by(array: np.ndarray, divisor: float) -> None:
    """``array /= divisor``."""
    array /= array.dtype.type(divisor)


def add_to(target: np.ndarray, source: np.ndarray) -> None:
    """``target += source``."""
    target += source


def _advance(
    parameter: np.ndarray,
    velocity: np.ndarray,
    gradient: np.ndarray,
    momentum: float,
    nesterov: bool,
    weight_decay: float = 0.0,
) -> np.ndarray:
    """Update the velocity, ``V <- momentum V + G``; returns the direction of the step.

    That is V, or with Nesterov's variant ``G + momentum V``.  G includes the weight decay.
    """
    number = parameter.dtype.type
    if weight_decay:
        gradient = gradient + number(weight_decay) * parameter
    velocity *= number(momentum)
    velocity += gradient
    if nesterov:
        return gradient + number(momentum) * velocity
    return velocity


def sgd_update(
    parameter: np.ndarray,
    velocity: np.ndarray,
    gradient: np.ndarray,
    lr: float,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
) -> None:
    """One step of SGD with momentum; ``parameter`` and ``velocity`` change."""
    direction = _advance(parameter, velocity, gradient, momentum, nesterov, weight_decay)
    parameter -= parameter.dtype.type(lr) * direction


def muon_update(
    parameter: np.ndarray,
    velocity: np.ndarray,
    gradient: np.ndarray,
    lr: float,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
) -> None:
    """`sgd_update` of kernels along the orthogonal factor of the direction ("Muon").

    Kernels (O, I, kh, kw) count as a matrix (O, n) with n = I * kh * kw.  With the direction N of
    `sgd_update`, ``W <- W - lr sqrt(max(1, O / n)) X``, where X is N with all its singular values
    brought close to 1.  A direction of zeros has no such factor, and W stays.
    """
    direction = _advance(parameter, velocity, gradient, momentum, nesterov, weight_decay)
    matrix = direction.reshape(len(direction), -1)
    rows, columns = matrix.shape
    norm = math.sqrt(squared_norm(matrix))
    if norm > 0:
        step = lr * math.sqrt(max(1.0, rows / columns))
        with one_blas_thread():
            factor = _orthogonal_factor(matrix, norm).reshape(parameter.shape)
        parameter -= parameter.dtype.type(step) * factor


def _orthogonal_factor(matrix: np.ndarray, norm: float) -> np.ndarray:
    """The matrix (m, n) with singular values close to 1, by Newton-Schulz steps.

    ``X <- a X + (b A + c A A) X`` with ``A = X X^T``, from X divided by its Frobenius norm: each
    step takes a singular value s to ``a s + b s^3 + c s^5``.
    """
    a, b, c = map(matrix.dtype.type, NEWTON_SCHULZ)
    x = matrix / matrix.dtype.type(norm)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x


def normalised_update(
    parameter: np.ndarray,
    velocity: np.ndarray,
    gradient: np.ndarray,
    lr: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """`sgd_update` along the direction n divided by its root mean square: ``- lr n / rms(n)``.

    A direction of zeros changes nothing.
    """
    direction = _advance(parameter, velocity, gradient, momentum, nesterov)
    rms = math.sqrt(squared_norm(direction) / direction.size)
    if rms > 0:
        parameter -= parameter.dtype.type(lr / rms) * direction
