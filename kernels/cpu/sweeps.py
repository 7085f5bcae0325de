"""A sweep of Dual_MM over all chains of one orientation (docs/model.md 6.2), CPU.

One thread processes a few neighbouring chains at a time, each in a lane of its vectors (`chains`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np

from .chains import move_minorants, scratch_arrays
from .lanes import chains_per_vector
from .transfers import hides_memory
from .workers import run_tiles

__all__ = ["sweep"]


def sweep(
    f: np.ndarray,
    costs: np.ndarray,
    out: np.ndarray,
    weights: np.ndarray,
    winners: np.ndarray,
    grid: tuple[int, int, int, int],
    penalties: tuple[Any, Any],
    plain: bool,
    limit: Any = None,
) -> float:
    """All chains of one orientation: out = f + (F - costs) (docs/model.md 6.2), or F.

    Returns the sum of the chains' optima: the lower bound, but for constants in fixed point.

    Arrays as in `move_minorants`; grid: number of chains, their length, pixels from chain to chain
    and from node to node; limit: of fixed point numbers.
    """
    chains, nodes, *_ = grid
    lanes = chains_per_vector(f.dtype)
    optima = np.empty(chains, np.float64)

    # A block that a thread knows of beforehand is for this thread only.  So the last ones, which
    # decide how evenly the work is divided, are not handed out ahead.
    shared = 2 * (numba.get_num_threads() - 1) * lanes
    ahead = hides_memory(lanes, f.shape[1])

    def worker(blocks: Iterator[int]) -> None:
        scratch = scratch_arrays(nodes, f.shape[1], f.dtype)
        begin = next(blocks, None)
        while begin is not None:
            following = next(blocks, None) if ahead and begin + shared < chains else None
            move_minorants(
                f, costs, out, weights, winners, begin, min(begin + lanes, chains),
                -1 if following is None else following, *grid[1:], *penalties,
                penalties[1] if limit is None else limit, plain,
                *scratch, optima,
            )  # fmt: skip
            begin = next(blocks, None) if following is None else following

    run_tiles(worker, range(0, chains, lanes))
    return float(optima.sum())
