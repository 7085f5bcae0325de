"""Gradients of a row of scores: blocks of every kind, bands that leave the image."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from hybridstereo.kernels.cpu import correlation_gradient
from hybridstereo.kernels.label_positions import label_positions


# Two, three and four vectors of eight numbers, 2 and 3 of these together, and the paper's number.
@pytest.mark.parametrize("channels", [1, 16, 17, 24, 32, 40, 100])
@pytest.mark.parametrize("disparities", [np.arange(30.0), np.arange(-8, 3.0), np.arange(9) / 4])
def test_equals_naive(rng, channels, disparities):
    width = 53
    left, right = rng.standard_normal((2, 2, width, channels)).astype(np.float32)
    ds = rng.standard_normal((2, width, disparities.size)).astype(np.float32)
    expected = naive.scores_backward(left, right, disparities, ds)
    positions = label_positions(disparities, np.float32)
    scratch = correlation_gradient.band_scratch((width, width), channels, positions, left.dtype)
    for y in range(2):  # with what the row before left in the scratch
        found = np.full((2, width, channels), np.nan, np.float32)
        correlation_gradient.row_gradients(ds[y], left[y], right[y], positions, scratch, *found)
        for part, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(part, wanted[y], atol=3e-5)


def test_scratch_begins_with_a_cache_line():
    positions = label_positions(np.arange(5.0), np.float32)
    for array in correlation_gradient.band_scratch((9, 9), 3, positions, np.dtype(np.float32)):
        assert array.ctypes.data % 64 == 0
        assert not array.any()
