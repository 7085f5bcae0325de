"""Messages of Dual_MM (docs/model.md 6.4) between nodes of several chains at once, CPU.

All pointers are to K labels of every chain, (K, lanes).  A ``source`` has one more label, K, which
is +inf or the largest number, so that the stencil needs no special case at the first and last
label; ``low`` are the minima of the source.  A target may be the source or the base of the same
call.

    msg(a)(t) = min(a(t), P1 + min(a(t-1), a(t+1)), P2 + min_s a(s))

Every kernel returns the minima of what it wrote, which the next message needs.  The order of the
operations is that of docs/model.md 6.4, to the last bit.  In fixed point a message is taken
relative to the minimum of its source (`above`), as it has no room for sums over a chain: what is
left out is a constant of the chain (docs/model.md 6.9).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .jit import part
from .lanes import above, fused_sum, load_lanes, lower, store_lanes
from .pointers import never_inline

__all__ = ["Edge", "copy_row", "inner", "pass_on", "reply", "split_marginal"]

inner = part()


class Edge(NamedTuple):
    """The penalties of an edge of every chain, as `Lanes`."""

    p1: Any
    p2: Any
    one: Any  # 1, for `fused_sum`


@inner
def _msg(before: Any, here: Any, after: Any, edge: Edge, jump: Any) -> Any:
    """msg of a label and its neighbours, where ``jump`` is P2 + the minimum of all."""
    return lower(lower(here, fused_sum(lower(before, after), edge.p1, edge.one)), jump)


@inner
def copy_row(source: Any, target: Any, label_count: int) -> Any:
    """target = source, which needs no label K; the target has it."""
    never_inline()
    lowest = load_lanes(target, label_count)
    for k in range(label_count):
        value = load_lanes(source, k)
        store_lanes(target, k, value)
        lowest = lower(lowest, value)
    return lowest


@inner
def pass_on(source: Any, low: Any, edge: Edge, base: Any, target: Any, label_count: int) -> Any:
    """target = base + msg(source)."""
    jump = edge.p2 + low
    here, after = load_lanes(source, label_count), load_lanes(source, 0)
    lowest = previous = here
    for k in range(label_count):
        before, here, after = here, after, load_lanes(source, k + 1)
        message = above(_msg(before, here, after, edge, jump), low)
        value = fused_sum(message, load_lanes(base, k), edge.one)
        store_lanes(target, k, value)
        lowest, previous = lower(previous, value), lowest
    return lower(lowest, previous)


@inner
def split_marginal(
    source: Any,
    low: Any,
    edge: Edge,
    r: Any,
    other: Any,
    other_low: Any,
    target: Any,
    label_count: int,
) -> Any:
    """target = r*(m1 + other) - m1 with m1 = msg(source).

    ``m1 + other`` is the min-marginal of the edge, ``r`` the share that the source's side gets;
    ``other_low`` are the minima of ``other``.
    """
    never_inline()
    jump = edge.p2 + low
    here, after = load_lanes(source, label_count), load_lanes(source, 0)
    lowest = previous = here
    for k in range(label_count):
        before, here, after = here, after, load_lanes(source, k + 1)
        m1 = above(_msg(before, here, after, edge, jump), low)
        marginal = fused_sum(m1, above(load_lanes(other, k), other_low), edge.one)
        value = marginal * r - m1
        store_lanes(target, k, value)
        lowest, previous = lower(previous, value), lowest
    return lower(lowest, previous)


@inner
def reply(
    source: Any, low: Any, edge: Edge, base: Any, target: Any, negated: Any, label_count: int
) -> Any:
    """m = msg(source), target = base + m, negated = -m; returns the minima of both."""
    never_inline()
    jump = edge.p2 + low
    here, after = load_lanes(source, label_count), load_lanes(source, 0)
    lowest = lowest_negated = here
    for k in range(label_count):
        before, here, after = here, after, load_lanes(source, k + 1)
        m = above(_msg(before, here, after, edge, jump), low)
        value = fused_sum(m, load_lanes(base, k), edge.one)
        store_lanes(target, k, value)
        store_lanes(negated, k, -m)
        lowest = lower(lowest, value)
        lowest_negated = lower(lowest_negated, -m)
    return lowest, lowest_negated
