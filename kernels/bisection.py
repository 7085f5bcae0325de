"""The bisection of a chain (docs/model.md 6.4) as a list of operations, for its backward pass.

Both engines carry them out.  All chains of a length have the same bisection, so the list is made
once.  Every operation reads rows of K numbers and writes new ones; nothing is overwritten, since
the backward pass needs what the messages were made of.  Rows 0 to N - 1 are the costs of the nodes.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

__all__ = ["PASS", "REPLY", "SPLIT", "Bisection", "bisection"]

# target = base + msg(source)
PASS = 0
# target = share * (msg(source) + base) - msg(source)
SPLIT = 1
# target = base + msg(source), negated = -msg(source)
REPLY = 2


class Bisection(NamedTuple):
    """What makes the minorant of a chain of N nodes.

    Attributes
    ----------
    operations
        int32 (M, 6), in the order in which they can be done: kind, the edge of the message (from
        its node to the next one), and the rows source, base, target, negated (-1 unless `REPLY`).
    shares
        float64 (M,), of the operations that split a min-marginal; 0 elsewhere.
    minorants
        int32 (N,), the row that holds F of each node in the end.
    rows
        How many rows there are.
    """

    operations: np.ndarray
    shares: np.ndarray
    minorants: np.ndarray
    rows: int


class _Recorder:
    """Follows the recursion of docs/model.md 6.4, where a node's row is the one written last."""

    def __init__(self, nodes: int) -> None:
        self.operations: list[tuple[int, ...]] = []
        self.shares: list[float] = []
        self.latest = list(range(nodes))
        self.rows = nodes

    def record(self, kind: int, edge: int, source: int, base: int, share: float = 0.0) -> int:
        """Append an operation; the row that it writes (the negated one follows it)."""
        target = self.rows
        negated = target + 1 if kind == REPLY else -1
        self.rows += 2 if kind == REPLY else 1
        self.operations.append((kind, edge, source, base, target, negated))
        self.shares.append(share)
        return target

    def walk(self, nodes: range) -> None:
        """Pass messages on from the first node to the last."""
        for before, node in pairwise(nodes):
            self.latest[node] = self.record(PASS, min(before, node), self.latest[before], node)

    def cut(self, near: range, far: range) -> None:
        """Cut the edge between near[0] and far[0]; each part is solved from there."""
        a, b = near[0], far[0]
        edge, share = min(a, b), len(near) / (len(near) + len(far))
        split = self.record(SPLIT, edge, self.latest[a], self.latest[b], share)
        # A part of one node is finished: its row holds all other messages.
        base = self.latest[a] if len(near) == 1 else a
        self.latest[a] = self.record(REPLY, edge, split, base)
        base = self.latest[b] if len(far) == 1 else b
        self.latest[b] = self.record(PASS, edge, self.latest[a] + 1, base)


@cache
def bisection(nodes: int) -> Bisection:
    """The operations for chains of ``nodes`` nodes."""
    recorder = _Recorder(nodes)
    middle = (nodes + 1) // 2
    intervals: list[range] = []
    if nodes > 1:
        left, right = range(middle), range(middle, nodes)
        recorder.walk(left)
        recorder.walk(right[::-1])
        recorder.cut(left[::-1], right)
        intervals = [right, left[::-1]]
    while intervals:
        interval = intervals.pop()  # from its fresh end to its far end
        if len(interval) == 1:
            continue
        half = (len(interval) + 1) // 2
        near, far = interval[:half], interval[half:]
        recorder.walk(near)
        recorder.cut(near[::-1], far)
        intervals += [far, near[::-1]]
    return Bisection(
        np.array(recorder.operations, np.int32).reshape(-1, 6),
        np.array(recorder.shares, np.float64),
        np.array(recorder.latest, np.int32),
        recorder.rows,
    )
