"""Random layers and the tolerance that rounding deserves."""

from __future__ import annotations

import numpy as np


def layer(rng, size, channels, kernel, dtype=np.float32):
    """Input whose output has the given size, kernels, biases, and a gradient of the output."""
    (inputs, outputs), (kh, kw) = channels, kernel
    x = rng.uniform(-1, 1, (size[0] + kh - 1, size[1] + kw - 1, inputs))
    weight = rng.standard_normal((outputs, inputs, kh, kw)) / np.sqrt(inputs * kh * kw)
    bias, dy = rng.standard_normal(outputs), rng.standard_normal((*size, outputs))
    return tuple(array.astype(dtype) for array in (x, weight, bias, dy))


def assert_close(actual, expected, units):
    """Equal up to so many times the rounding unit of the actual dtype at the largest value."""
    assert actual.shape == expected.shape
    tolerance = units * np.finfo(actual.dtype).eps * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def network(rng, shapes, dtype=np.float32):
    return [
        (
            (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(dtype),
            rng.standard_normal(shape[0]).astype(dtype) if biased else None,
        )
        for shape, biased in shapes
    ]
