"""Matching costs + edge weights -> labelling and lower bound (paper, sec. 4; docs/model.md 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .edges import EdgeWeights
from .kernels import Array, Backend


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
    label_map
        int32 (H, W), read out of the minorant.
    minorant
        (H, W, K), the minorant of the last column sweep.
    bounds
        Lower bound on the energy after every sweep, rows and columns alternating.
    row_label_map
        int32 (H, W), read out of the last row sweep; None unless asked for.
    """

    label_map: Array
    minorant: Array
    bounds: np.ndarray
    row_label_map: Array | None = None


def solve(
    backend: Backend,
    costs: Array,
    edges: EdgeWeights,
    penalties: Penalties,
    iterations: int,
    with_rows: bool = False,
) -> CrfSolution:
    """Minimise the CRF with ``iterations`` row and column sweeps of Dual_MM.

    ``costs`` (H, W, K) may be matching costs or, in training, loss-augmented ones.  ``with_rows``
    asks for the labelling of the rows as well: where it differs from that of the columns, the
    relaxation is not tight.
    """
    rows = backend.empty(costs.shape[:2], np.int32) if with_rows else None
    minorant, bounds = backend.dual_mm(
        costs,
        wx=edges.wx,
        wy=edges.wy,
        p1=penalties.p1,
        p2=penalties.p2,
        iterations=iterations,
        row_label_map=rows,
    )
    return CrfSolution(backend.read_out(minorant), minorant, bounds, rows)


def total_cost(backend: Backend, costs: Array, label_map: Array) -> float:
    """Sum of the costs (H, W, K) of a labelling: its energy without any edge."""
    none = backend.to_device(np.zeros(costs.shape[:2], np.float32))
    return energy(backend, costs, EdgeWeights(none, none), Penalties(0.0, 0.0), label_map)


def energy(
    backend: Backend, costs: Array, edges: EdgeWeights, penalties: Penalties, label_map: Array
) -> float:
    """Energy of a labelling: its costs and the penalties of its jumps (docs/model.md 5c)."""
    return backend.energy(
        costs,
        wx=edges.wx,
        wy=edges.wy,
        p1=penalties.p1,
        p2=penalties.p2,
        label_map=label_map,
    )
