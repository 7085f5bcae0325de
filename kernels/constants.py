"""Numbers that the kernels of both engines share.

Numba caches compiled functions by the date of their own file: after a change here, delete
``kernels/__pycache__``.
"""

from __future__ import annotations

# ---------------------------------------------------------------- both views' softmax

# A right pixel's softmax divides by at least so much, beside the largest such sum of its row: the
# exponential function of 32 bits ends a little further.  The scores of our networks differ by 25
# at most.
SMALLEST_SUM = 1e-30

# ---------------------------------------------------------------- edge weights

LUMA = (0.2989, 0.5870, 0.1140)  # weights of red, green and blue
SMOOTHING_SIGMA = 0.7
SMOOTHING_RADIUS = 3
SMALLEST_WEIGHT = 1e-6

# ---------------------------------------------------------------- read-out and refinement

# Labels tied in the read-out: relative tolerance, and labels per GPU thread of the original.
TIE_TOLERANCE = 1e-6
TIE_BLOCK = 8

SMALLEST_CURVATURE = 1e-3

# ---------------------------------------------------------------- losses

SMALLEST_PROBABILITY = 1e-37  # keeps the logarithm finite

# ---------------------------------------------------------------- optimiser

# The orthogonal factor of a matrix: X <- a X + (b A + c A A) X with A = X X^T, so many times.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
