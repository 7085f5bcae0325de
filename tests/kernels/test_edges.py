from __future__ import annotations

import naive
import numpy as np
import pytest


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (8, 1), (2, 2), (7, 11)])
def test_weights_equal_naive(backend, rng, shape):
    image = rng.random((*shape, 3)).astype(np.float32)
    wx, wy = backend.contrast_weights(image, 0.2, 20.0, 0.9)
    expected_wx, expected_wy = naive.contrast_weights(image, 0.2, 20.0, 0.9)
    np.testing.assert_allclose(wx, expected_wx, atol=2e-6)
    np.testing.assert_allclose(wy, expected_wy, atol=2e-6)


def test_weight_never_falls_below_the_floor(backend):
    image = np.zeros((4, 20, 3), np.float32)
    image[:, 10:] = 1
    wx, _ = backend.contrast_weights(image, 0.2, 400.0, 0.9)
    assert wx[:, :-1].min() == np.float32(1e-6)
    assert wx[0, 0] == np.float32(0.2)
