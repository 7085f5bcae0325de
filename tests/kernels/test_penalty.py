"""rho and its derivatives, in Python and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from hybridstereo.kernels.penalty import rho, rho_slopes

P1, P2 = 0.15, 0.6


@njit
def compiled(jump, p1, p2):
    return rho(jump, p1, p2), rho_slopes(jump)


@pytest.mark.parametrize("jump", [0, 1, 2, 7])
def test_rho_is_what_its_slopes_say(jump):
    """rho is linear in p1 and p2, which is what the gradients of training rely on."""
    slopes = rho_slopes(jump)
    assert rho(jump, P1, P2) == P1 * slopes[0] + P2 * slopes[1] == (0, P1, P2, P2)[min(jump, 3)]
    assert compiled(jump, P1, P2) == (rho(jump, P1, P2), slopes)


def test_slopes_of_arrays():
    first, second = rho_slopes(np.arange(4))
    np.testing.assert_array_equal(first, [False, True, False, False])
    np.testing.assert_array_equal(second, [False, False, True, True])
