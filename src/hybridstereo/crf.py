"""Matching costs + edge weights -> labelling and lower bound (paper, sec. 4; docs/model.md 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .edges import EdgeWeights
from .kernels import Array, Backend, fixed_point_problem
from .labels import LabelRange


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


class WarmStart:
    """Dual variables that one problem leaves for the next, similar one (docs/model.md 6.8).

    Attributes
    ----------
    share
        How much of what the columns withheld they keep in the next problem: 1 if nothing changes
        from one to the next, 0 for a cold start.
    """

    def __init__(self) -> None:
        self.share = 1.0
        self._labels: LabelRange | None = None
        self._costs: Array = None
        self._minorant: Array = None

    @property
    def kept_bytes(self) -> int:
        """What it holds in the memory of the device between two problems."""
        if self._costs is None:
            return 0
        return 2 * int(self._costs.size) * int(self._costs.dtype.itemsize)

    def clear(self) -> None:
        """Forget the problem before: the next one starts cold."""
        self._labels = self._costs = self._minorant = None

    def begin(self, backend: Backend, costs: Array, labels: LabelRange) -> Array:
        """Working costs to start with, where nothing suits those of the problem (H, W, K)."""
        suits = self._labels == labels and self._costs.shape == costs.shape
        working = self._costs if suits else backend.empty(costs.shape, costs.dtype)
        minorant = self._minorant if suits else working
        self.clear()  # frees the old minorant for the new one
        backend.carry_into(working, costs, minorant, self.share if suits else 0.0)
        return working

    def keep(self, working: Array, minorant: Array, labels: LabelRange) -> None:
        """Take what Dual_MM left."""
        self._costs, self._minorant, self._labels = working, minorant, labels


def solve(
    backend: Backend,
    costs: Array,
    edges: EdgeWeights,
    penalties: Penalties,
    iterations: int,
    with_rows: bool = False,
    working: Array | None = None,
) -> CrfSolution:
    """Minimise the CRF with ``iterations`` row and column sweeps of Dual_MM.

    ``costs`` (H, W, K) may be matching costs or, in training, loss-augmented ones.  ``with_rows``
    asks for the labelling of the rows as well: where it differs from that of the columns, the
    relaxation is not tight.  ``working`` are the costs of a `WarmStart`, which change.
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
        costs=working,
    )
    return CrfSolution(backend.read_out(minorant), minorant, bounds, rows)


class HalfPrecisionCrf:
    """A CRF whose costs are rounded to 16 bits (docs/model.md 6.9); on the CPU.

    Parameters
    ----------
    costs
        float32 (H, W, K); their memory is taken over, so that they are lost.
    edges, penalties
        As for `solve`.
    """

    def __init__(self, costs: Array, edges: EdgeWeights, penalties: Penalties) -> None:
        self._problem = fixed_point_problem(
            costs, wx=edges.wx, wy=edges.wy, p1=penalties.p1, p2=penalties.p2
        )

    @property
    def lowest_costs(self) -> np.ndarray:
        """(H,), of the pixels of each row, summed up: finite numbers, if all costs were."""
        return self._problem.row_minima

    def solve(self, iterations: int, with_rows: bool = False) -> CrfSolution:
        """As the function `solve`; the minorant reads like an array, in slices of rows."""
        shape = self._problem.costs.shape
        rows = np.empty(shape[:2], np.int32) if with_rows else None
        bounds = self._problem.solve(iterations, rows)
        return CrfSolution(self._problem.read_out(), self._problem.minorant, bounds, rows)

    def energy(self, label_map: np.ndarray) -> float:
        """Energy of a labelling with the rounded costs."""
        return float(self._problem.energy(label_map))

    def refine(self, label_map: np.ndarray, step: float) -> np.ndarray:
        """Sub-label offsets (H, W) in pixels (docs/model.md 7)."""
        return self._problem.refine(label_map, step)


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
