"""SGD with momentum, in the plain metric and in Muon's; parameters are updated in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..kernels import Backend, select
from ..limits import TRAINING

SCHEDULES = ("constant", "cosine", "step")
"""How the learning rate can fall."""

_BIAS_RATE = 0.1  # of Muon's biases, as a factor of the learning rate


@dataclass(frozen=True)
class OptimiserOptions:
    """Optimiser settings.

    Attributes
    ----------
    kind
        One of `OPTIMISERS`.
    lr, momentum, nesterov
        Learning rate and momentum, in Nesterov's variant or not.
    weight_decay
        Factor of the parameter added to its gradient; not applied to biases and penalties.
    clip_norm
        The gradient of all parameters together is scaled down to this norm; 0 switches it off.
    schedule
        ``constant``; ``cosine`` from ``lr`` to zero; ``step``: a tenth after 60 % and 85 %.
    """

    kind: str = "sgd"
    lr: float = 0.05
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    clip_norm: float = 5.0
    schedule: str = "cosine"

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "weight_decay", "clip_norm"):
            TRAINING[name].check(getattr(self, name), f"`{name}` is")


def learning_rate(options: OptimiserOptions, progress: float) -> float:
    """The rate at ``progress`` in [0, 1] of a stage."""
    if options.schedule == "cosine":
        return options.lr * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
    if options.schedule == "step":
        return options.lr * (1.0 if progress < 0.6 else 0.1 if progress < 0.85 else 0.01)
    return options.lr


def gradient_norm(gradients: Mapping[str, np.ndarray], backend: Backend | None = None) -> float:
    """Euclidean norm of all gradients together, accumulated in float64."""
    device = backend or select("cpu")
    return math.sqrt(sum(device.squared_norm(g) for g in gradients.values()))


def clip_gradients(
    gradients: Mapping[str, np.ndarray], limit: float, backend: Backend | None = None
) -> float:
    """Scale gradients in place so that their norm is at most ``limit``; returns the norm before."""
    device = backend or select("cpu")
    norm = gradient_norm(gradients, device)
    if limit > 0 and norm > limit:
        for gradient in gradients.values():
            device.scale_by(gradient, limit / norm)
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
    backend
        Where the parameters and their gradients are; by default the CPU.
    """

    def __init__(
        self,
        parameters: Mapping[str, np.ndarray],
        options: OptimiserOptions,
        rates: Mapping[str, float] | None = None,
        backend: Backend | None = None,
    ) -> None:
        self.parameters = parameters
        self.options = options
        self._backend = backend or select("cpu")
        self._rates = dict(rates or {})
        self.momentum: dict[str, np.ndarray] = {}
        self.restore_momentum({x: np.zeros(a.shape, a.dtype) for x, a in parameters.items()})

    def restore_momentum(self, momentum: Mapping[str, np.ndarray]) -> None:
        """Take over the momentum of an earlier run, given as NumPy arrays."""
        for name, velocity in momentum.items():
            # What is on the host, such as the penalties, is updated there.
            on_host = isinstance(self.parameters[name], np.ndarray)
            self.momentum[name] = velocity if on_host else self._backend.to_device(velocity)

    def step(self, gradients: Mapping[str, np.ndarray], lr: float) -> None:
        """One update of all parameters that have a gradient."""
        for name, gradient in gradients.items():
            self._update(name, gradient, lr * self._rates.get(name, 1.0))

    def _update(self, name: str, gradient: np.ndarray, lr: float) -> None:
        """One update of one parameter with its own rate."""
        decays = name.endswith("/weight")
        self._backend.sgd_update(
            self.parameters[name],
            velocity=self.momentum[name],
            gradient=gradient,
            lr=lr,
            momentum=self.options.momentum,
            nesterov=self.options.nesterov,
            weight_decay=self.options.weight_decay if decays else 0.0,
        )


class Muon(Sgd):
    """SGD with momentum in another metric: the steps of kernels are orthogonal matrices.

    Kernels (out, in, kh, kw) count as a matrix W (out, in*kh*kw).  With the gradient G, the
    momentum ``V <- 0.9 V + G`` and Nesterov's ``N = G + 0.9 V``,

        W <- W - lr sqrt(max(1, out / (in*kh*kw))) X,

    X being N with its singular values brought close to 1.  So all directions that the gradients
    agree upon are learnt at one speed, however long the gradient is.  Biases (out,) move by
    ``b <- b - 0.1 lr n / rms(n)`` with their own ``n = g + 0.9 v``.  All other parameters,
    single numbers such as the penalties, follow SGD.
    """

    def _update(self, name: str, gradient: np.ndarray, lr: float) -> None:
        """One update of one parameter with its own rate."""
        parameter, velocity, options = self.parameters[name], self.momentum[name], self.options
        if name.endswith("/weight"):
            self._backend.muon_update(
                parameter,
                velocity=velocity,
                gradient=gradient,
                lr=lr,
                momentum=options.momentum,
                nesterov=options.nesterov,
                weight_decay=options.weight_decay,
            )
        elif name.endswith("/bias"):
            self._backend.normalised_update(
                parameter,
                velocity=velocity,
                gradient=gradient,
                lr=_BIAS_RATE * lr,
                momentum=options.momentum,
                nesterov=options.nesterov,
            )
        else:
            super()._update(name, gradient, lr)


OPTIMISERS: dict[str, type[Sgd]] = {"sgd": Sgd, "muon": Muon}
