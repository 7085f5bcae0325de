"""Array arithmetic of an optimiser on the CPU: arrays of any shape, updated in place."""

from __future__ import annotations

import numpy as np


def squared_norm(array: np.ndarray) -> float:
    """Sum of the squares, accumulated in float64."""
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
    number = parameter.dtype.type
    if weight_decay:
        gradient = gradient + number(weight_decay) * parameter
    velocity *= number(momentum)
    velocity += gradient
    direction = velocity
    if nesterov:
        direction = gradient + number(momentum) * velocity
    parameter -= number(lr) * direction
