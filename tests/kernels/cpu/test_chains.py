"""Minorants of single chains against the naive recursion, for every shape of the bisection."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from hybridstereo.kernels.cpu import buffers
from hybridstereo.kernels.cpu.chains import move_minorants, scratch_arrays, scratch_bytes
from hybridstereo.kernels.cpu.lanes import chains_per_vector

P1, P2 = 0.15, 0.6
ROOM = 8


def minorant_of_chain(costs, weights, spare_rows=0):
    """F, its optimum and the scratch rows, of which there are ``spare_rows`` too many."""
    nodes, labels = costs.shape
    lane_costs, weights_of_edges, rows, minima, *rest = scratch_arrays(nodes, labels, costs.dtype)
    rows = np.pad(rows, [(0, spare_rows), (0, 0), (0, 0)], constant_values=np.inf)
    minima = np.pad(minima, [(0, spare_rows), (0, 0)])
    out, optimum = np.full_like(costs, np.nan), np.empty(1)
    number = costs.dtype.type
    move_minorants(
        costs, costs, out, weights, np.empty(0, np.int32), 0, 1, -1, nodes, nodes, 1,
        number(P1), number(P2), number(0), True, lane_costs, weights_of_edges, rows, minima, *rest,
        optimum,
    )  # fmt: skip
    return out, optimum[0], rows


@pytest.mark.parametrize("nodes", [*range(1, 41), 63, 64, 65, 100])
@pytest.mark.parametrize("labels", [1, 3, 17])
def test_minorant_equals_naive_recursion(rng, nodes, labels):
    costs, weights = -rng.random((nodes, labels)), 0.5 * rng.random(nodes)
    found, optimum, _ = minorant_of_chain(costs, weights)
    expected = naive.chain_minorant(costs, weights[:-1], P1, P2)
    np.testing.assert_allclose(found, expected, atol=1e-13)
    assert optimum == pytest.approx(expected.min(axis=1).sum(), rel=1e-13)


@pytest.mark.parametrize("nodes", [1, 2, 3, 127, 128, 129, 1023, 1024, 1025, 1242, 2049])
def test_bisection_stays_within_its_scratch_rows(rng, nodes):
    costs, weights = -rng.random((nodes, 2)), 0.5 * rng.random(nodes)
    _, optimum, rows = minorant_of_chain(costs, weights, spare_rows=ROOM)
    assert np.isinf(rows[-ROOM:]).all()
    # What the stencil reads beside the first and last label.
    assert np.isinf(rows[:, -1]).all()
    assert optimum == pytest.approx(naive.viterbi_chain(costs, weights[:-1], P1, P2)[1], rel=1e-12)


def test_other_chains_are_left_alone(rng):
    """Chains [1, 3) of five columns; what lies between them belongs to others."""
    f = -rng.random((4 * 5, 3))
    out, optima = np.full_like(f, np.nan), np.full(5, np.nan)
    move_minorants(
        f, f, out, np.full(20, 0.3), np.empty(0, np.int32), 1, 3, -1, 4, 1, 5,
        np.float64(P1), np.float64(P2), np.float64(0), True, *scratch_arrays(4, 3, f.dtype), optima,
    )  # fmt: skip
    written = ~np.isnan(out.reshape(4, 5, 3)).any(axis=2)
    np.testing.assert_array_equal(written, np.tile([False, True, True, False, False], (4, 1)))
    np.testing.assert_array_equal(~np.isnan(optima), written[0])
    column = np.ascontiguousarray(f.reshape(4, 5, 3)[:, 2])
    expected = naive.chain_minorant(column, np.full(3, 0.3), P1, P2)
    np.testing.assert_allclose(out.reshape(4, 5, 3)[:, 2], expected, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
@pytest.mark.parametrize(("nodes", "labels"), [(375, 128), (1242, 16)])
def test_memory_of_a_thread_is_that_of_its_scratch_arrays(nodes, labels, dtype):
    allocated = sum(x.nbytes for x in scratch_arrays(nodes, labels, dtype))
    assert scratch_bytes(nodes, labels, dtype) == pytest.approx(allocated, rel=0.1)


@pytest.mark.parametrize("labels", [7, 15, 16, 17, 32])
@pytest.mark.parametrize("chains", range(1, chains_per_vector(np.float64) + 1))
@pytest.mark.parametrize("plain", [False, True])
def test_a_block_of_chains_gives_what_each_gives_alone(rng, chains, labels, plain):
    """Any number of lanes in use; fewer labels than a tile has, tiles that overlap, whole lines."""
    nodes = 5
    f, weights = -rng.random((chains * nodes, labels)), 0.5 * rng.random(chains * nodes)
    costs = buffers.empty(f.shape, f.dtype)  # its memory begins with a cache line
    costs[:] = f + rng.random(f.shape)
    expected = costs.copy()
    winners, optima = np.full(chains * nodes, -1, np.int32), np.empty(chains)
    scratch = scratch_arrays(nodes, labels, f.dtype)
    for chain in range(chains):
        of_chain = slice(chain * nodes, (chain + 1) * nodes)
        minorant, optimum, _ = minorant_of_chain(
            expected[of_chain].copy(), np.ascontiguousarray(weights[of_chain])
        )
        given = minorant if plain else f[of_chain] + (minorant - expected[of_chain])
        expected[of_chain], optima[chain] = given, optimum
        winners[of_chain] = minorant.argmin(axis=1)
    found_winners, found_optima = np.full_like(winners, -1), np.full_like(optima, np.nan)
    move_minorants(
        f, costs, costs, weights, found_winners, 0, chains, -1, nodes, nodes, 1, np.float64(P1),
        np.float64(P2), np.float64(0), plain, *scratch, found_optima,
    )  # fmt: skip
    assert costs.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(found_winners, winners)
    np.testing.assert_array_equal(found_optima, optima)


@pytest.mark.parametrize("labels", [7, 16, 20, 32])
@pytest.mark.parametrize("nodes", [1, 2, 9])
@pytest.mark.parametrize("chains", [9, 16, 19])
@pytest.mark.parametrize("plain", [False, True])
def test_costs_that_a_block_brings_for_the_next_are_those_of_the_next(
    rng, chains, nodes, labels, plain
):
    """Blocks of columns whose costs come with the block before, or are brought by their own."""
    f, weights = -rng.random((chains * nodes, labels)), 0.5 * rng.random(chains * nodes)
    costs, lanes = f + rng.random(f.shape), chains_per_vector(f.dtype)
    results = []
    for ahead in (False, True):
        scratch = scratch_arrays(nodes, labels, f.dtype)
        out, optima = costs.copy(), np.full(chains, np.nan)  # in place, as `dual_mm` does it
        for begin in range(0, chains, lanes):
            following = begin + lanes if ahead and begin + lanes < chains else -1
            move_minorants(
                f, out, out, weights, np.empty(0, np.int32), begin, min(begin + lanes, chains),
                following, nodes, 1, chains, np.float64(P1), np.float64(P2), np.float64(0), plain,
                *scratch, optima,
            )  # fmt: skip
        results.append((out.tobytes(), optima.tobytes()))
    assert results[0] == results[1]


@pytest.mark.parametrize("nodes", [*range(1, 20), 375])
def test_every_node_is_fetched_once(nodes):
    *_, order, _ = scratch_arrays(nodes, 2, np.float64)
    assert sorted(order) == list(range(nodes))


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
@pytest.mark.parametrize("labels", [1, 2, 9, 40])
@pytest.mark.parametrize("unknown", ["all", "first", "last", "but one"])
def test_winners_of_nan_costs_are_labels(nodes, labels, unknown):
    """A winner is looked for inside the row only, even if no cost is a number."""
    costs = np.zeros((nodes, labels), np.float32)
    if unknown == "all":
        costs[:] = np.nan
    elif unknown == "but one":
        costs[:, : labels - 1] = np.nan
    else:
        costs[:, 0 if unknown == "first" else -1] = np.nan
    # What lies behind the last row would end a search that leaves it only by chance.
    guarded = np.full((nodes + 64, labels), np.nan, np.float32)
    guarded[:nodes] = costs
    winners = np.full(nodes + 64, -1, np.int32)
    number = np.float32
    move_minorants(
        guarded, guarded, guarded.copy(), np.full(nodes + 64, number(0.3)), winners, 0, 1, -1,
        nodes, nodes, 1, number(P1), number(P2), number(0), True,
        *scratch_arrays(nodes, labels, costs.dtype), np.empty(1),
    )  # fmt: skip
    assert ((winners[:nodes] >= 0) & (winners[:nodes] < labels)).all()
    assert (winners[nodes:] == -1).all()
