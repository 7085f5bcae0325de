"""Unary volume + edge weights -> labelling, lower bound and energy (paper, sec. 4; SPEC 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .kernels import Backend


@dataclass(frozen=True)
class EdgeWeights:
    """Weights (H, W) of the edges to the right (``wx``) and to the lower neighbour (``wy``)."""

    wx: np.ndarray
    wy: np.ndarray


@dataclass(frozen=True)
class Penalties:
    """Penalty of a jump by one label (``p1``) and by more than one (``p2``), 0 <= p1 <= p2."""

    p1: float
    p2: float


@dataclass(frozen=True)
class CrfSolution:
    """What Dual_MM gives.

    Attributes
    ----------
    labels
        int32 (H, W), read out of the minorant.
    minorant
        (H, W, K), the minorant of the last column sweep.
    bounds
        Lower bound on the energy after every sweep, rows and columns alternating.
    energy
        Energy of ``labels``.
    """

    labels: np.ndarray
    minorant: np.ndarray
    bounds: np.ndarray
    energy: float


def solve(
    backend: Backend, volume: np.ndarray, edges: EdgeWeights, penalties: Penalties, iterations: int
) -> CrfSolution:
    """Minimise the CRF with ``iterations`` row and column sweeps of Dual_MM."""
    p1, p2 = penalties.p1, penalties.p2
    minorant, bounds = backend.dual_mm(volume, edges.wx, edges.wy, p1, p2, iterations)
    labels = backend.read_out(minorant)
    energy = backend.energy(volume, edges.wx, edges.wy, p1, p2, labels)
    return CrfSolution(labels, minorant, bounds, energy)
