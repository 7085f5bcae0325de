"""SGD with momentum, written out; parameters are updated in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SgdOptions:
    """Optimiser settings.

    Attributes
    ----------
    lr, momentum, nesterov
        Learning rate and momentum, in Nesterov's variant or not.
    weight_decay
        Factor of the parameter added to its gradient; not applied to biases and penalties.
    clip_norm
        The gradient of all parameters together is scaled down to this norm; 0 switches it off.
    schedule
        ``constant``; ``cosine`` from ``lr`` to zero; ``step``: a tenth after 60 % and 85 %.
    """

    lr: float = 0.05
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    clip_norm: float = 5.0
    schedule: str = "cosine"


def learning_rate(options: SgdOptions, progress: float) -> float:
    """The rate at ``progress`` in [0, 1] of a stage."""
    if options.schedule == "cosine":
        return options.lr * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
    if options.schedule == "step":
        return options.lr * (1.0 if progress < 0.6 else 0.1 if progress < 0.85 else 0.01)
    return options.lr


def gradient_norm(gradients: Mapping[str, np.ndarray]) -> float:
    """Euclidean norm of all gradients together, accumulated in float64."""
    return math.sqrt(sum(float(np.vdot(g, g.astype(np.float64))) for g in gradients.values()))


def clip_gradients(gradients: Mapping[str, np.ndarray], limit: float) -> float:
    """Scale gradients in place so that their norm is at most ``limit``; returns the norm before."""
    norm = gradient_norm(gradients)
    if limit > 0 and norm > limit:
        for gradient in gradients.values():
            gradient *= gradient.dtype.type(limit / norm)
    return norm


class Sgd:
    """SGD with momentum over named parameters.

    Parameters
    ----------
    parameters
        Arrays that `step` updates in place.
    options
        Settings.
    rates
        Factors of the learning rate of single parameters; 1 for those not named.
    """

    def __init__(
        self,
        parameters: Mapping[str, np.ndarray],
        options: SgdOptions,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.parameters = parameters
        self.options = options
        self.momentum = {name: np.zeros_like(array) for name, array in parameters.items()}
        self._rates = dict(rates or {})

    def step(self, gradients: Mapping[str, np.ndarray], lr: float) -> None:
        """One update of all parameters that have a gradient."""
        options = self.options
        for name, gradient in gradients.items():
            parameter, velocity = self.parameters[name], self.momentum[name]
            number = parameter.dtype.type
            if options.weight_decay and name.endswith("/weight"):
                gradient = gradient + number(options.weight_decay) * parameter
            velocity *= number(options.momentum)
            velocity += gradient
            direction = velocity
            if options.nesterov:
                direction = gradient + number(options.momentum) * velocity
            parameter -= number(lr * self._rates.get(name, 1.0)) * direction
