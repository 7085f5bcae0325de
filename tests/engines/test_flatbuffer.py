"""The buffer that ranks exchange: what goes in comes out, summed in the order of the ranks."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.engines.flatbuffer import FlatBuffer


def arrays_of(rank: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rank)
    return [
        rng.standard_normal((5, 3)).astype(np.float32),
        rng.standard_normal(1),
        rng.standard_normal((7,)).astype(np.float32),
        np.empty((0, 2), np.float32),
        rng.standard_normal(4),
    ]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_sums_are_those_of_one_after_the_other(ranks):
    """To the bit, and in every part, as all ranks exchange them."""
    everybody = [arrays_of(rank) for rank in range(ranks)]
    flat = FlatBuffer(everybody[0], ranks)
    packed = [flat.packed(arrays) for arrays in everybody]
    sums = [flat.summed_part(np.stack([x[part] for x in packed])) for part in range(ranks)]
    found = flat.unpacked(np.stack(sums))
    for index, total in enumerate(found):
        expected = everybody[0][index].copy()
        for arrays in everybody[1:]:
            expected += arrays[index]
        assert total.dtype == expected.dtype
        np.testing.assert_array_equal(total, expected)


def test_the_buffer_is_little_larger_than_the_arrays():
    arrays = [np.ones(275_000, np.float32), np.ones(3)]
    size = FlatBuffer(arrays, 7).packed(arrays).nbytes
    assert sum(x.nbytes for x in arrays) <= size <= sum(x.nbytes for x in arrays) + 7 * 24
