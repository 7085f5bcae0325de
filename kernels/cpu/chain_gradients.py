"""The gradient of the minorants of chains (docs/training.md), CPU.

A chain's bisection (`bisection`) is done once more, every row of it is kept, and then the
operations are taken in reverse.  A message takes each label from one of four places,

    msg(a)(t) = min(a(t), P1 + a(t-1), P1 + a(t+1), P2 + min_s a(s)),

and gives the gradient back to that place and to its penalty; the first of equal ones counts.
One thread processes one chain at a time, its labels in the lanes of the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..bisection import PASS, SPLIT, bisection
from . import buffers
from .jit import compiled, part
from .pointers import advance, pointer_to, restrict_arguments
from .workers import run_tiles

__all__ = ["chain_gradients", "kept_rows_bytes"]

# Before and after the labels of a row: +inf, so that no message comes from there.
_MARGIN = 16

_inner = part(fastmath={"nnan", "nsz", "reassoc"})


@_inner
def _lowest(row: Any, label_count: int) -> Any:
    low = row[0]
    for k in range(label_count):  # from 0 on: whole vectors
        low = min(low, row[k])
    return low


@_inner
def _first_of(row: Any, low: Any, label_count: int) -> Any:
    """The first label that costs no more; without branches, which a search would mispredict."""
    last = np.int32(label_count - 1)
    best = last
    for k in range(label_count):
        found = np.int32(k) if row[k] <= low else last
        best = found if found < best else best
    return best


@_inner
def _msg(source: Any, k: int, p1: Any, jump: Any) -> Any:
    """msg(source)(k), where ``jump`` is P2 + the minimum of the source."""
    return min(min(source[k], p1 + min(source[k - 1], source[k + 1])), jump)


@_inner
def _pass(source: Any, base: Any, target: Any, p1: Any, jump: Any, label_count: int) -> None:
    """target = base + msg(source)."""
    restrict_arguments()
    for k in range(label_count):
        target[k] = base[k] + _msg(source, k, p1, jump)


@_inner
def _reply(
    source: Any, base: Any, target: Any, negated: Any, p1: Any, jump: Any, label_count: int
) -> None:
    """target = base + msg(source), negated = -msg(source)."""
    restrict_arguments()
    for k in range(label_count):
        m = _msg(source, k, p1, jump)
        target[k] = base[k] + m
        negated[k] = -m


@_inner
def _split(
    source: Any, base: Any, target: Any, share: Any, p1: Any, jump: Any, label_count: int
) -> None:
    """target = share * (msg(source) + base) - msg(source)."""
    restrict_arguments()
    for k in range(label_count):
        m = _msg(source, k, p1, jump)
        target[k] = share * (m + base[k]) - m


@_inner
def _add_scaled(target: Any, source: Any, factor: Any, label_count: int) -> None:
    """target += factor * source."""
    restrict_arguments()
    for k in range(label_count):
        target[k] += factor * source[k]


@_inner
def _scaled_difference(
    target: Any, a: Any, factor: Any, b: Any, other: Any, label_count: int
) -> None:
    """target = factor * a - other * b."""
    restrict_arguments()
    for k in range(label_count):
        target[k] = factor * a[k] - other * b[k]


@_inner
def _message_back(
    source: Any,
    low: Any,
    p1: Any,
    p2: Any,
    dmessage: Any,
    dsource: Any,
    below: Any,
    above: Any,
    label_count: int,
) -> tuple[Any, Any]:
    """Add the gradient of msg(source) to that of the source; returns those of P1 and P2.

    below, above: rows for what comes from the label below and the label above.
    """
    restrict_arguments()
    jump, zero = p2 + low, type(p1)(0)
    dbeside = djump = zero
    for k in range(label_count):
        before, here, after, g = source[k - 1], source[k], source[k + 1], dmessage[k]
        beside = p1 + min(before, after)
        stays = g if here <= min(beside, jump) else zero
        jumps = g - stays if beside > jump else zero
        steps = g - stays - jumps
        down = steps if before <= after else zero
        dsource[k] += stays
        below[k] = down
        above[k] = steps - down
        dbeside += steps
        djump += jumps
    for k in range(label_count):
        dsource[k] += below[k + 1] + above[k - 1]
    if djump != zero:
        dsource[_first_of(source, low, label_count)] += djump
    return dbeside, djump


@_inner
def _row(rows: Any, row: int, label_count: int) -> Any:
    return advance(rows, row * (label_count + _MARGIN) + _MARGIN)


@compiled()
def _backward_chain(
    costs: Any,
    weights: Any,
    dminorant: Any,
    dcosts: Any,
    dsteps: Any,
    djumps: Any,
    first: int,
    node_step: int,
    p1: Any,
    p2: Any,
    operations: Any,
    shares: Any,
    minorants: Any,
    rows: Any,
    drows: Any,
    spare: Any,
    lows: Any,
) -> None:
    """Gradients of one chain, whose nodes are ``node_step`` pixels apart from pixel ``first`` on.

    costs, dminorant, dcosts: (H*W, K), `dcosts` receives the gradient of the costs; weights: (H*W,)
    of the edges to the next node; dsteps, djumps: (H*W,), receive those of P1 and P2 of every edge;
    operations: (M, 6); rows, drows: (rows, K + margin); spare: (3, K + margin); lows: (M,).
    """
    label_count, nodes = costs.shape[1], minorants.size
    row, drow, spare_row = pointer_to(rows), pointer_to(drows), pointer_to(spare)
    dmessage, below = _row(spare_row, 0, label_count), _row(spare_row, 1, label_count)
    above = _row(spare_row, 2, label_count)
    drows[:] = 0
    for node in range(nodes):
        pixel = first + node * node_step
        rows[node, _MARGIN:] = costs[pixel]
        drows[minorants[node], _MARGIN:] = dminorant[pixel]
    for i in range(operations.shape[0]):
        kind, edge, source_row, base, target, negated = operations[i]
        weight = weights[first + edge * node_step]
        source = _row(row, source_row, label_count)
        low = _lowest(source, label_count)
        lows[i] = low
        step, jump = p1 * weight, p2 * weight + low
        base_row, target_row = _row(row, base, label_count), _row(row, target, label_count)
        if kind == PASS:
            _pass(source, base_row, target_row, step, jump, label_count)
        elif kind == SPLIT:
            _split(source, base_row, target_row, shares[i], step, jump, label_count)
        else:
            negated_row = _row(row, negated, label_count)
            _reply(source, base_row, target_row, negated_row, step, jump, label_count)
    one = type(p1)(1)
    for i in range(operations.shape[0] - 1, -1, -1):
        kind, edge, source_row, base, target, negated = operations[i]
        pixel = first + edge * node_step
        weight = weights[pixel]
        source, dsource = _row(row, source_row, label_count), _row(drow, source_row, label_count)
        dbase, dtarget = _row(drow, base, label_count), _row(drow, target, label_count)
        if kind == PASS:
            _add_scaled(dbase, dtarget, one, label_count)
            dm = dtarget
        elif kind == SPLIT:
            share = shares[i]
            _add_scaled(dbase, dtarget, share, label_count)
            _scaled_difference(dmessage, dtarget, share, dtarget, one, label_count)
            dm = dmessage
        else:
            _add_scaled(dbase, dtarget, one, label_count)
            dnegated = _row(drow, negated, label_count)
            _scaled_difference(dmessage, dtarget, one, dnegated, one, label_count)
            dm = dmessage
        dstep, djump = _message_back(
            source, lows[i], p1 * weight, p2 * weight, dm, dsource, below, above, label_count
        )
        dsteps[pixel] += dstep
        djumps[pixel] += djump
    for node in range(nodes):
        dcosts[first + node * node_step] = drows[node, _MARGIN:]


def kept_rows_bytes(nodes: int, label_count: int) -> int:
    """Bytes of the rows and their gradients that every thread needs, in single precision."""
    return 2 * 4 * bisection(nodes).rows * (label_count + _MARGIN)


def chain_gradients(
    costs: np.ndarray,
    weights: np.ndarray,
    dminorant: np.ndarray,
    grid: tuple[int, int, int, int],
    penalties: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of the costs (H*W, K), and of P1 and P2 of every edge (H*W,), from those of F.

    costs, dminorant: (H*W, K); weights: (H*W,) of the edges to the next node; grid: number of
    chains, their length, pixels from chain to chain and from node to node.
    """
    chains, nodes, chain_step, node_step = grid
    pixels, label_count = costs.shape
    dtype = costs.dtype
    operations, shares, minorants, rows = bisection(nodes)
    dcosts = buffers.empty(costs.shape, dtype)
    dsteps, djumps = np.zeros(pixels, dtype), np.zeros(pixels, dtype)
    p1, p2 = (dtype.type(x) for x in penalties)
    typed_shares = shares.astype(dtype)

    def worker(tiles: Iterator[int]) -> None:
        # One margin more behind the last row.
        count = rows * (label_count + _MARGIN) + _MARGIN
        memory = [buffers.empty((count,), dtype) for _ in range(2)]
        spare_memory = np.zeros(3 * (label_count + _MARGIN) + _MARGIN, dtype)
        memory[0][:] = np.inf
        kept, dkept, spare = (
            x[:-_MARGIN].reshape(-1, label_count + _MARGIN) for x in (*memory, spare_memory)
        )
        lows = np.empty(len(operations), dtype)
        for chain in tiles:
            _backward_chain(
                costs, weights, dminorant, dcosts, dsteps, djumps, chain * chain_step, node_step,
                p1, p2, operations, typed_shares, minorants, kept, dkept, spare, lows,
            )  # fmt: skip

    run_tiles(worker, range(chains))
    return dcosts, dsteps, djumps
