"""Dual_MM on the CPU: chain messages, minorants, sweeps, lower bound, read-out, energy.

The CRF energy of a labelling ``x`` on the 4-connected grid is (paper, eq. 1)

    E(x) = sum_i f_i(x_i) + sum_ij w_ij * rho(|x_i - x_j|),   rho = 0, P1, P2 for 0, 1, >= 2.

Dual_MM (paper, sec. 4.2 and algorithm 1) splits it into horizontal and vertical chains and
alternately moves a *minorant* of one family to the other.  One thread processes one chain at a
time; labels are the contiguous axis, so that every inner loop is a vector loop over labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from .simd import minimum

# Rows of the scratch buffers carry +inf on both sides of the labels, so that the three-tap
# stencil needs no special case at the first and last label.
_MARGIN = 8

# Chains per scheduling unit: enough to amortise the scratch buffers, few enough to balance.
_CHAINS_PER_BLOCK = 8

# Labels tied in the read-out: relative tolerance, and labels per GPU thread of the original.
_TIE_TOLERANCE = 1e-6
_TIE_BLOCK = 8

# Bisection halves intervals: 64 levels cover every chain that an index can address.
_STACK_DEPTH = 64


@njit(nogil=True, cache=True, error_model="numpy")
def _message_pass(source: Any, source_min: Any, p1: Any, p2: Any, base: Any, target: Any) -> Any:
    """target = base + msg(source), eq. in SPEC 6.4; returns the minimum of the target.

    source, target: (K + 2*_MARGIN,) padded rows; base: (K,).
    ``msg(a)(t) = min(a(t), P1 + min(a(t-1), a(t+1)), P2 + min_s a(s))``
    """
    labels = source.size - 2 * _MARGIN
    jump = p2 + source_min
    lowest = source.dtype.type(np.inf)
    for k in range(labels):
        near = p1 + minimum(source[_MARGIN + k - 1], source[_MARGIN + k + 1])
        value = base[k] + minimum(minimum(source[_MARGIN + k], near), jump)
        target[_MARGIN + k] = value
        lowest = minimum(lowest, value)
    return lowest


@njit(nogil=True, cache=True, error_model="numpy")
def _split_min_marginal(
    costs_a: Any, min_a: Any, costs_b: Any, r: Any, p1: Any, p2: Any, split: Any
) -> Any:
    """split = r*(m1 + B) - m1 with m1 = msg(A): the share of the min-marginal that a gets.

    All rows (K + 2*_MARGIN,) padded; returns the minimum of ``split``.
    """
    labels = costs_a.size - 2 * _MARGIN
    jump = p2 + min_a
    lowest = costs_a.dtype.type(np.inf)
    for k in range(labels):
        near = p1 + minimum(costs_a[_MARGIN + k - 1], costs_a[_MARGIN + k + 1])
        m1 = minimum(minimum(costs_a[_MARGIN + k], near), jump)
        value = r * (m1 + costs_b[_MARGIN + k]) - m1
        split[_MARGIN + k] = value
        lowest = minimum(lowest, value)
    return lowest


@njit(nogil=True, cache=True, error_model="numpy")
def _reply(
    split: Any,
    split_min: Any,
    p1: Any,
    p2: Any,
    base: Any,
    target: Any,
    negated: Any,
) -> Any:
    """m = msg(split); target = base + m and negated = -m; returns the two minima."""
    labels = split.size - 2 * _MARGIN
    jump = p2 + split_min
    lowest = split.dtype.type(np.inf)
    lowest_negated = split.dtype.type(np.inf)
    for k in range(labels):
        near = p1 + minimum(split[_MARGIN + k - 1], split[_MARGIN + k + 1])
        m = minimum(minimum(split[_MARGIN + k], near), jump)
        value = base[k] + m
        target[_MARGIN + k] = value
        negated[_MARGIN + k] = -m
        lowest = minimum(lowest, value)
        lowest_negated = minimum(lowest_negated, -m)
    return lowest, lowest_negated


@njit(nogil=True, cache=True, error_model="numpy")
def _emit(row: Any, f: Any, cost: Any, last: bool) -> None:
    """cost <- f - cost + F, or F in the last sweep (SPEC 6.2); row: padded F; f, cost: (K,)."""
    if last:
        for k in range(cost.size):
            cost[k] = row[_MARGIN + k]
    else:
        for k in range(cost.size):
            cost[k] = f[k] - cost[k] + row[_MARGIN + k]


@njit(nogil=True, cache=True, error_model="numpy")
def _first_equal(row: Any, value: Any) -> int:
    """The first label whose cost is ``value``, which the row contains; row: padded."""
    label = 0
    while row[_MARGIN + label] != value:
        label += 1
    return label


@njit(nogil=True, cache=True, error_model="numpy")
def _chain(
    f: Any,
    costs: Any,
    weights: Any,
    first: int,
    step: int,
    nodes: int,
    p1: Any,
    p2: Any,
    last: bool,
    winners: Any,
    M: Any,
    minima: Any,
    scratch: Any,
    stack: Any,
) -> float:
    """Minorant of one chain by recursive bisection (SPEC 6.4), moved to the other family.

    f, costs: (H*W, K); weights: (H*W,), the edge from a pixel to the next of its chain; the
    chain's node i is pixel ``first + i*step``.  winners: (H*W,) receives the argmin of F, or (0,)
    if nobody asks.  M: (nodes, K + 2*_MARGIN) accumulated costs,
    minima: (nodes,) of its rows; scratch: (2, K + 2*_MARGIN); stack: (_STACK_DEPTH, 2).
    Returns the sum of the minima of F, i.e. the optimum of the chain.
    """
    labels = costs.shape[1]
    split, negated = scratch[0], scratch[1]
    number = costs.dtype.type

    for end in (0, nodes - 1):
        lowest = number(np.inf)
        row = costs[first + end * step]
        for k in range(labels):
            M[end, _MARGIN + k] = row[k]
            lowest = minimum(lowest, row[k])
        minima[end] = lowest
    if nodes == 1:
        _emit(M[0], f[first], costs[first], last)
        if winners.size > 0:
            winners[first] = _first_equal(M[0], minima[0])
        return float(minima[0])

    # The top level starts with both halves "fresh": the right half first receives its messages
    # from the far end, which is what every later interval finds already in M.
    middle = (nodes - 1) // 2 + 1
    for i in range(nodes - 2, middle - 1, -1):
        w = weights[first + i * step]
        minima[i] = _message_pass(
            M[i + 1], minima[i + 1], p1 * w, p2 * w, costs[first + i * step], M[i]
        )

    bound = 0.0
    stack[0, 0] = 0
    stack[0, 1] = nodes - 1
    depth = 1
    while depth > 0:
        depth -= 1
        fresh, far = stack[depth, 0], stack[depth, 1]
        way = 1 if far > fresh else -1
        size = (far - fresh) * way + 1
        near_size = (size + 1) // 2
        a = fresh + way * (near_size - 1)
        b = a + way

        i = fresh
        while i != a:
            w = weights[first + min(i, i + way) * step]
            i += way
            minima[i] = _message_pass(
                M[i - way], minima[i - way], p1 * w, p2 * w, costs[first + i * step], M[i]
            )

        w = weights[first + min(a, b) * step]
        edge_p1, edge_p2 = p1 * w, p2 * w
        r = number(near_size) / number(size)
        split_min = _split_min_marginal(M[a], minima[a], M[b], r, edge_p1, edge_p2, split)

        # A part of one node is finished: M holds what came from outside, so m is added to M.
        # A larger part starts anew from the node's own cost, its fresh end now at the cut.
        if near_size == 1:
            minima[a], negated_min = _reply(
                split, split_min, edge_p1, edge_p2, M[a][_MARGIN : _MARGIN + labels], M[a], negated
            )
            _emit(M[a], f[first + a * step], costs[first + a * step], last)
            bound += minima[a]
            if winners.size > 0:
                winners[first + a * step] = _first_equal(M[a], minima[a])
        else:
            minima[a], negated_min = _reply(
                split, split_min, edge_p1, edge_p2, costs[first + a * step], M[a], negated
            )
        if b == far:
            minima[b] = _message_pass(
                negated, negated_min, edge_p1, edge_p2, M[b][_MARGIN : _MARGIN + labels], M[b]
            )
            _emit(M[b], f[first + b * step], costs[first + b * step], last)
            bound += minima[b]
            if winners.size > 0:
                winners[first + b * step] = _first_equal(M[b], minima[b])
        else:
            minima[b] = _message_pass(
                negated, negated_min, edge_p1, edge_p2, costs[first + b * step], M[b]
            )
            stack[depth, 0], stack[depth, 1] = b, far
            depth += 1
        if near_size > 1:
            stack[depth, 0], stack[depth, 1] = a, fresh
            depth += 1
    return bound


@njit(parallel=True, cache=True, error_model="numpy")
def _sweep(
    f: Any,
    costs: Any,
    weights: Any,
    chains: int,
    nodes: int,
    chain_step: int,
    node_step: int,
    p1: Any,
    p2: Any,
    last: bool,
    winners: Any,
) -> float:
    """All chains of one orientation: costs <- f - costs + F (SPEC 6.2); returns the bound.

    f, costs: (H*W, K); weights: (H*W,); winners: (H*W,) or (0,), see `_chain`.  Chain j starts at
    pixel ``j*chain_step``.
    """
    labels = costs.shape[1]
    bounds = np.empty(chains, np.float64)
    blocks = (chains + _CHAINS_PER_BLOCK - 1) // _CHAINS_PER_BLOCK
    for block in prange(blocks):
        M = np.full((nodes, labels + 2 * _MARGIN), np.inf, costs.dtype)
        minima = np.empty(nodes, costs.dtype)
        scratch = np.full((2, labels + 2 * _MARGIN), np.inf, costs.dtype)
        stack = np.empty((_STACK_DEPTH, 2), np.int64)
        begin = block * _CHAINS_PER_BLOCK
        for chain in range(begin, min(begin + _CHAINS_PER_BLOCK, chains)):
            bounds[chain] = _chain(
                f,
                costs,
                weights,
                chain * chain_step,
                node_step,
                nodes,
                p1,
                p2,
                last,
                winners,
                M,
                minima,
                scratch,
                stack,
            )
    # Summed in chain order, so the bound does not depend on the scheduling.
    total = 0.0
    for chain in range(chains):
        total += bounds[chain]
    return total


def dual_mm(
    f: np.ndarray,
    wx: np.ndarray,
    wy: np.ndarray,
    p1: float,
    p2: float,
    iterations: int,
    row_labels: np.ndarray | None = None,
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
        Number of row + column sweeps.
    row_labels
        If given, an int32 array (H, W) that receives the argmin (the lowest on ties) of the
        minorant of the last row sweep; where it differs from the solution, the two families of
        chains disagree.

    Returns
    -------
    minorant
        ``F`` (H, W, K) of the last column sweep; its argmin is the solution.
    bounds
        Lower bound on the minimal energy after each of the ``2*iterations`` sweeps.
    """
    height, width, labels = f.shape
    number = f.dtype.type
    flat_f = f.reshape(-1, labels)
    costs = f.copy()
    flat_costs = costs.reshape(-1, labels)
    flat_wx = np.ascontiguousarray(wx, f.dtype).reshape(-1)
    flat_wy = np.ascontiguousarray(wy, f.dtype).reshape(-1)
    bounds = np.empty(2 * iterations, np.float64)
    penalties = number(p1), number(p2)
    nobody_asks = np.empty(0, np.int32)
    for i in range(iterations):
        last = i == iterations - 1
        winners = row_labels.reshape(-1) if last and row_labels is not None else nobody_asks
        bounds[2 * i] = _sweep(
            flat_f, flat_costs, flat_wx, height, width, width, 1, *penalties, False, winners
        )
        bounds[2 * i + 1] = _sweep(
            flat_f, flat_costs, flat_wy, width, height, 1, width, *penalties, last, nobody_asks
        )
    return costs, bounds


@njit(nogil=True, cache=True, error_model="numpy")
def _minimum_of(row: Any) -> Any:
    lowest = row.dtype.type(np.inf)
    for k in range(row.size):
        lowest = minimum(lowest, row[k])
    return lowest


@njit(parallel=True, cache=True, error_model="numpy")
def _argmin_rows(volume: Any, labels: Any) -> None:
    """labels[i] = argmin_k volume[i, k], the lowest label on ties; volume: (N, K)."""
    for i in prange(volume.shape[0]):
        row = volume[i]
        lowest = _minimum_of(row)
        best = 0
        while row[best] != lowest:
            best += 1
        labels[i] = best


@njit(parallel=True, cache=True, error_model="numpy")
def _read_out_rows(minorant: Any, labels: Any) -> None:
    """labels[i] = the label that `read_out` takes for pixel i; minorant: (N, K)."""
    tolerance = minorant.dtype.type(_TIE_TOLERANCE)
    for i in prange(minorant.shape[0]):
        row = minorant[i]
        lowest = _minimum_of(row)
        limit = lowest + tolerance * abs(lowest)
        first = 0
        while row[first] > limit:
            first += 1
        block_end = min((first // _TIE_BLOCK + 1) * _TIE_BLOCK, row.size)
        best = first
        for k in range(first + 1, block_end):
            if row[k] <= limit:
                best = k
        labels[i] = best


def argmin(volume: np.ndarray) -> np.ndarray:
    """The label of smallest cost, the lowest on ties: (H, W, K) -> int32 (H, W)."""
    labels = np.empty(volume.shape[:2], np.int32)
    _argmin_rows(volume.reshape(-1, volume.shape[2]), labels.reshape(-1))
    return labels


def read_out(minorant: np.ndarray) -> np.ndarray:
    """The labelling that Dual_MM's minorant stands for: (H, W, K) -> int32 (H, W).

    The smallest cost wins.  Costs that equal it up to rounding are ties, which are frequent where
    the image has no texture; they are broken as the published program does (SPEC 6.3): the first
    block of eight labels that holds a tied one, and in it the highest tied label.
    """
    labels = np.empty(minorant.shape[:2], np.int32)
    _read_out_rows(minorant.reshape(-1, minorant.shape[2]), labels.reshape(-1))
    return labels


@njit(parallel=True, cache=True, error_model="numpy")
def _row_energies(f: Any, wx: Any, wy: Any, p1: float, p2: float, labels: Any, rows: Any) -> None:
    """rows[y] = the terms of E(labels) that row y owns; f: (H, W, K); the rest (H, W)."""
    height, width = labels.shape
    for y in prange(height):
        total = 0.0
        for x in range(width):
            label = labels[y, x]
            total += f[y, x, label]
            if x + 1 < width:
                jump = abs(label - labels[y, x + 1])
                total += wx[y, x] * (0.0 if jump == 0 else p1 if jump == 1 else p2)
            if y + 1 < height:
                jump = abs(label - labels[y + 1, x])
                total += wy[y, x] * (0.0 if jump == 0 else p1 if jump == 1 else p2)
        rows[y] = total


def energy(
    f: np.ndarray, wx: np.ndarray, wy: np.ndarray, p1: float, p2: float, labels: np.ndarray
) -> float:
    """Energy (paper, eq. 1) of a labelling, accumulated in float64; arguments as `dual_mm`."""
    rows = np.empty(f.shape[0], np.float64)
    _row_energies(f, wx, wy, float(p1), float(p2), labels, rows)
    return float(rows.sum())


@njit(parallel=True, cache=True, error_model="numpy")
def _refine_rows(volume: Any, labels: Any, step: float, offsets: Any) -> None:
    """offsets[i] = sub-label shift in pixels; volume: (N, K); labels, offsets: (N,)."""
    top = volume.shape[1] - 1
    for i in prange(volume.shape[0]):
        z = labels[i]
        shift = 0.0
        if 0 < z < top:
            before, here, after = volume[i, z - 1], volume[i, z], volume[i, z + 1]
            slope = (before - after) / (2.0 * step)
            curvature = (before - 2.0 * here + after) / (step * step)
            shift = slope / max(1e-3, curvature)
        offsets[i] = shift


def refine(volume: np.ndarray, labels: np.ndarray, step: float) -> np.ndarray:
    """Sub-label refinement by a parabola through three costs (paper, eq. 13; SPEC 7).

    Parameters
    ----------
    volume
        Costs (H, W, K): the minorant of `dual_mm`.
    labels
        Its read-out (H, W).
    step
        Disparity between neighbouring labels, in pixels.

    Returns
    -------
    offsets
        What to add to the disparity of each pixel, in pixels, float32 (H, W); 0 at the first and
        the last label.
    """
    offsets = np.empty(labels.shape, np.float32)
    _refine_rows(
        volume.reshape(-1, volume.shape[2]), labels.reshape(-1), float(step), offsets.reshape(-1)
    )
    return offsets
