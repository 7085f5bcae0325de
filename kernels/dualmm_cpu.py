"""Dual_MM on the CPU: sweeps over all chains, lower bound, read-out, energy, refinement.

The CRF energy of a label map ``x`` on the 4-connected grid is (paper, eq. 1)

    E(x) = sum_i f_i(x_i) + sum_ij w_ij * rho(|x_i - x_j|),   rho = 0, P1, P2 for 0, 1, >= 2.

Dual_MM (paper, sec. 4.2 and algorithm 1) splits it into horizontal and vertical chains and
alternately moves a *minorant* of one family to the other.  One thread processes a few neighbouring
chains at a time, each in a lane of its vectors (`chains`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .backend import CrfGradients
from .constants import SMALLEST_CURVATURE
from .cpu import buffers
from .cpu.chain_gradients import chain_gradients
from .cpu.jit import compiled
from .cpu.pixels import lowest_of, read_out_rows, row_energies
from .cpu.sweeps import sweep
from .cpu.workers import run_rows


def dual_mm(
    f: np.ndarray,
    wx: np.ndarray,
    wy: np.ndarray,
    p1: float,
    p2: float,
    iterations: int,
    row_label_map: np.ndarray | None = None,
    costs: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise the CRF by Dual_MM (paper, algorithm 1).

    Parameters
    ----------
    f
        Unary costs (H, W, K), left unchanged.
    wx, wy
        Edge weights (H, W) to the right and to the lower neighbour; the last column of ``wx``
        and the last row of ``wy`` are not used.
    p1, p2
        Penalties of a jump by one label and by more, ``0 <= p1 <= p2``.
    iterations
        Number of row + column sweeps, at least 1.
    row_label_map
        If given, an int32 array (H, W) that receives the argmin (the lowest on ties) of the
        minorant of the last row sweep; where it differs from the solution, the two families of
        chains disagree.
    costs
        If given, the working costs ``C`` (H, W, K) of the rows in the first sweep, contiguous and
        of the type of ``f`` (docs/model.md 6.8); it then receives those of the last column sweep.
        By default the rows start with ``f``.

    Returns
    -------
    minorant
        ``F`` (H, W, K) of the last column sweep; its argmin is the solution.
    bounds
        Lower bound on the minimal energy after each of the ``2*iterations`` sweeps; with ``costs``
        the first is -inf, since the columns may be worth less than 0 until they are swept.
    """
    height, width, label_count = f.shape
    flat_f = np.ascontiguousarray(f).reshape(-1, label_count)
    flat_wx = np.ascontiguousarray(wx, f.dtype).reshape(-1)
    flat_wy = np.ascontiguousarray(wy, f.dtype).reshape(-1)
    penalties = f.dtype.type(p1), f.dtype.type(p2)
    rows, columns = (height, width, width, 1), (width, height, 1, width)
    minorant = buffers.empty(f.shape, f.dtype)
    flat_minorant = minorant.reshape(-1, label_count)
    working = flat_minorant if costs is None else costs.reshape(-1, label_count)
    no_winners = np.empty(0, np.int32)
    bounds = np.empty(2 * iterations, np.float64)
    for i in range(iterations):
        cold, last = i == 0 and costs is None, i == iterations - 1
        winners = row_label_map.reshape(-1) if last and row_label_map is not None else no_winners
        # The costs start as f, and f - f + F is F: the first sweep needs no copy of the volume.
        bounds[2 * i] = sweep(
            flat_f, flat_f if cold else working, working, flat_wx, winners, rows, penalties, cold
        )
        out = flat_minorant if last else working
        bounds[2 * i + 1] = sweep(
            flat_f, working, out, flat_wy, no_winners, columns, penalties, last
        )
    if costs is not None:
        bounds[0] = -np.inf
    return minorant, bounds


def dual_mm_backward(
    f: np.ndarray,
    wx: np.ndarray,
    wy: np.ndarray,
    p1: float,
    p2: float,
    iterations: int,
    dminorant: np.ndarray,
) -> CrfGradients:
    """Gradients of all that a cold `dual_mm` depends on from that of its minorant.

    The minorant is linear in pieces; where pieces meet, this is the gradient of one of them.  With
    the costs C of every sweep, ``C' = f - C + F(C)`` (docs/model.md 6.2) gives
    ``dC = J^T dC' - dC'`` and adds ``dC'`` to the gradient of f, J being that of `chain_gradients`.

    Parameters
    ----------
    f, wx, wy, p1, p2, iterations
        As for `dual_mm`.
    dminorant
        Gradient (H, W, K) of the minorant.
    """
    height, width, label_count = f.shape
    flat_f = np.ascontiguousarray(f).reshape(-1, label_count)
    weights = [np.ascontiguousarray(w, f.dtype).reshape(-1) for w in (wx, wy)]
    penalties = f.dtype.type(p1), f.dtype.type(p2)
    grids = (height, width, width, 1), (width, height, 1, width)
    no_winners = np.empty(0, np.int32)
    costs = [flat_f]  # at the beginning of every sweep
    for i in range(2 * iterations - 1):
        following = buffers.empty(flat_f.shape, f.dtype)
        sweep(
            flat_f, costs[-1], following, weights[i % 2], no_winners, grids[i % 2], penalties,
            i == 0,
        )  # fmt: skip
        costs.append(following)
    df = np.zeros_like(flat_f)
    dsteps, djumps = (np.zeros((2, height * width), f.dtype) for _ in range(2))
    gradient = np.ascontiguousarray(dminorant, f.dtype).reshape(-1, label_count)
    for i in reversed(range(2 * iterations)):
        last = i == 2 * iterations - 1
        dcosts, dstep, djump = chain_gradients(
            costs.pop(), weights[i % 2], gradient, grids[i % 2], penalties
        )
        dsteps[i % 2] += dstep
        djumps[i % 2] += djump
        if not last:
            df += gradient
            dcosts -= gradient
        gradient = dcosts
    df += gradient
    dwx, dwy = (
        (penalties[0] * dsteps[i] + penalties[1] * djumps[i]).reshape(height, width)
        for i in range(2)
    )
    # Not np.dot: BLAS adds in an order that depends on the number of threads.
    dp1, dp2 = (
        float(sum((w.astype(np.float64) * d).sum() for w, d in zip(weights, parts, strict=True)))
        for parts in (dsteps, djumps)
    )
    return CrfGradients(df.reshape(f.shape), dwx, dwy, dp1, dp2)


# Pixels whose numbers stay in cache while NumPy makes several passes over them.
_CACHED_COSTS, _CACHED_PIXELS = 256, 1 << 13


def _carry_rows(
    first: int, last: int, costs: np.ndarray, f: np.ndarray, minorant: np.ndarray, share: Any
) -> None:
    """costs[i] = f[i] + share * (minorant[i] - costs[i]); all (N, K)."""
    changed = costs[first:last]
    np.subtract(minorant[first:last], changed, out=changed)
    changed *= share
    changed += f[first:last]


def carry_into(costs: np.ndarray, f: np.ndarray, minorant: np.ndarray, share: float) -> None:
    """Make the working costs of one problem a start for another one (docs/model.md 6.8).

    The columns keep ``share`` of what they withheld, ``costs - minorant``; the rows start with the
    rest of ``f``.

    Parameters
    ----------
    costs
        Of the last column sweep, as `dual_mm` leaves them; they change, and are then what `dual_mm`
        takes.  All arrays are contiguous (H, W, K).
    f
        Unary costs of the other problem.
    minorant
        Of that column sweep.
    share
        From 0, which gives ``f`` whatever the other arrays hold, to 1.
    """
    if share == 0:
        np.copyto(costs, f)
        return
    labels = f.shape[2]
    flat = [x.reshape(-1, labels) for x in (costs, f, minorant)]
    run_rows(_carry_rows, len(flat[0]), *flat, f.dtype.type(share), at_once=_CACHED_COSTS)


@compiled(nogil=True)
def _argmin_rows(first: int, last: int, volume: Any, label_map: Any) -> None:
    """label_map[i] = argmin_k volume[i, k], the lowest label on ties; volume: (N, K)."""
    for i in range(first, last):
        row = volume[i]
        lowest = lowest_of(row)
        best = 0
        # Not !=, which is always true of NaN; and never past the row, whatever a minimum of NaN is.
        while row[best] > lowest and best < row.size - 1:
            best += 1
        label_map[i] = best


def argmin(volume: np.ndarray) -> np.ndarray:
    """The label of smallest cost, the lowest on ties: (H, W, K) -> int32 (H, W)."""
    label_map = np.empty(volume.shape[:2], np.int32)
    rows = volume.reshape(-1, volume.shape[2])
    run_rows(_argmin_rows, len(rows), rows, label_map.reshape(-1))
    return label_map


def read_out(minorant: np.ndarray) -> np.ndarray:
    """The solution that Dual_MM's minorant stands for: (H, W, K) -> int32 (H, W).

    The smallest cost wins.  Costs equal to it up to rounding are ties, which are frequent where
    the image has no texture.  The tie-break is that of the published program (docs/model.md 6.3):
    the first block of eight labels that contains a tied one, and in it the highest tied label.
    """
    label_map = np.empty(minorant.shape[:2], np.int32)
    rows = minorant.reshape(-1, minorant.shape[2])
    run_rows(read_out_rows, len(rows), rows, label_map.reshape(-1))
    return label_map


def energy(
    f: np.ndarray, wx: np.ndarray, wy: np.ndarray, p1: float, p2: float, label_map: np.ndarray
) -> float:
    """Energy (paper, eq. 1) of a label map, accumulated in float64; arguments as `dual_mm`."""
    rows = np.empty(f.shape[0], np.float64)
    terms = f, 1.0, wx, wy, float(p1), float(p2)
    run_rows(row_energies, len(rows), *terms, label_map, rows)
    return float(rows.sum())


def _refine_rows(
    first: int, last: int, volume: np.ndarray, label_map: np.ndarray, step: float, offsets: Any
) -> None:
    """offsets[i] = sub-label shift in pixels; volume: (N, K); label_map, offsets: (N,).

    NumPy: three costs of a pixel are too little to be worth compiling anything.
    """
    label_count = volume.shape[1]
    labels = label_map[first:last]
    inner = np.flatnonzero((labels > 0) & (labels < label_count - 1))
    at = (inner + first) * label_count + labels[inner]
    costs = volume.reshape(-1)
    before, here, after = costs[at - 1], costs[at], costs[at + 1]
    slope = (before - after) / np.float64(2.0 * step)
    curvature = (before - 2.0 * here.astype(np.float64) + after) / (step * step)
    shift = slope / np.maximum(SMALLEST_CURVATURE, curvature)
    offsets[first:last] = 0
    offsets[first + inner] = np.minimum(np.maximum(shift, -step), step)


def refine(volume: np.ndarray, label_map: np.ndarray, step: float) -> np.ndarray:
    """Sub-label refinement by a parabola through three costs (paper, eq. 13; docs/model.md 7).

    Parameters
    ----------
    volume
        Costs (H, W, K): the minorant of `dual_mm`.
    label_map
        Its read-out, int32 (H, W).
    step
        Disparity between neighbouring labels, in pixels.

    Returns
    -------
    offsets
        What to add to the disparity of each pixel, in pixels, float32 (H, W); 0 at the first and
        the last label, elsewhere at most ``step``, so that it stays within the labels.
    """
    offsets = np.empty(label_map.shape, np.float32)
    rows = np.ascontiguousarray(volume).reshape(-1, volume.shape[2])
    flat = label_map.reshape(-1), float(step), offsets.reshape(-1)
    run_rows(_refine_rows, len(rows), rows, *flat, at_once=_CACHED_PIXELS)
    return offsets
