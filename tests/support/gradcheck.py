"""Float64 central differences: the derivative that every backward pass has to agree with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def numeric_gradient(
    function: Callable[[], float], array: np.ndarray, indices: list[tuple], step: float = 1e-5
) -> np.ndarray:
    """Derivatives of ``function()`` w.r.t. single entries of ``array``, which is restored."""
    gradient = []
    for index in indices:
        kept = array[index]
        array[index] = kept + step
        above = function()
        array[index] = kept - step
        below = function()
        array[index] = kept
        gradient.append((above - below) / (2 * step))
    return np.array(gradient)


def some_indices(rng: np.random.Generator, array: np.ndarray, count: int = 6) -> list[tuple]:
    """A few random entries of an array (all of a small one)."""
    chosen = rng.permutation(array.size)[:count]
    return [tuple(int(i) for i in np.unravel_index(flat, array.shape)) for flat in chosen]


def assert_gradients(
    function: Callable[[], float],
    parameters: dict[str, np.ndarray],
    gradients: dict[str, np.ndarray],
    rng: np.random.Generator,
    rtol: float = 1e-5,
    atol: float = 1e-9,
) -> None:
    """Compare analytic gradients with central differences at random entries."""
    for name, gradient in gradients.items():
        indices = some_indices(rng, parameters[name])
        numeric = numeric_gradient(function, parameters[name], indices)
        analytic = np.array([gradient[index] for index in indices])
        np.testing.assert_allclose(analytic, numeric, rtol=rtol, atol=atol, err_msg=name)
