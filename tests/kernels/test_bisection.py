"""The list of operations that make the minorant of a chain, done one after the other."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from hybridstereo.kernels.bisection import PASS, REPLY, SPLIT, bisection

P1, P2 = 0.15, 0.6


@pytest.mark.parametrize("nodes", [*range(1, 34), 63, 64, 65, 100])
def test_operations_give_the_minorant(rng, nodes):
    costs, weights = -rng.random((nodes, 3)), 0.5 * rng.random(nodes)
    operations, shares, minorants, row_count = bisection(nodes)
    rows = np.full((row_count, 3), np.nan)
    rows[:nodes] = costs
    for (kind, edge, source, base, target, negated), share in zip(operations, shares, strict=True):
        assert np.isnan(rows[target]).all()  # written once, and below read afterwards only
        message = naive.message(rows[source], P1 * weights[edge], P2 * weights[edge])
        if kind == SPLIT:
            rows[target] = share * (message + rows[base]) - message
        else:
            rows[target] = rows[base] + message
        assert (negated == target + 1) == (kind == REPLY)
        if kind == REPLY:
            rows[negated] = -message
        else:
            assert negated == -1
    expected = naive.chain_minorant(costs, weights[: nodes - 1], P1, P2)
    np.testing.assert_allclose(rows[minorants], expected, atol=1e-13)
    assert not np.isnan(rows).any()


@pytest.mark.parametrize("nodes", [2, 3, 17, 64, 100])
def test_every_row_but_the_minorants_is_read(nodes):
    operations, shares, minorants, row_count = bisection(nodes)
    read = set(operations[:, 2]) | set(operations[:, 3])
    assert read | set(minorants) == set(range(row_count))
    assert not read & set(minorants)
    assert set(operations[:, 0]) == {PASS, SPLIT, REPLY}
    assert ((shares > 0) == (operations[:, 0] == SPLIT)).all()
