"""Weights of `hybridstereo.confidence`, written by ``tools/fit_confidence.py``.

Two each: for pixels that the other view confirms, and for those that it does not.
Fitted to 23 maps of general.
"""

INTERCEPTS = (-2.3726, 2.367)

WEIGHTS = {
    "margin, 0 to 0.02": (2.2601, 0.926),
    "margin, 0.02 to 0.05": (0.0, 0.0),
    "margin, 0.05 to 0.1": (0.6004, 0.0928),
    "margin, 0.1 to 0.2": (0.7358, 0.0),
    "margin, 0.2 to 0.4": (0.8999, 0.0),
    "margin, 0.4 to 1": (1.1371, 0.0),
    "views differ, 0 to 1": (-0.5661, 0.0),
    "the other view sees something nearer": (0.0, -0.1061),
    "the other view sees something farther": (0.0, -1.0609),
    "outside the other view": (0.0, 1.167),
    "not the background, 0 to 1": (0.0, 0.0),
    "not the background, 1 to 3": (0.0, -3.4918),
    "rows and columns contradict": (0.0, -0.2157),
    "views contradict within 8 px": (-0.1154, -0.4651),
    "rows and columns contradict within 8 px": (0.0, 0.0),
    "disparities vary within 8 px, 0 to 1": (0.0, 0.0),
    "disparities vary within 8 px, 1 to 4": (0.0, 0.0),
    "views contradict within 48 px": (-1.6193, -3.5091),
    "rows and columns contradict within 48 px": (-4.7736, 0.0),
    "disparities vary within 48 px, 0 to 1": (-0.4502, 0.0),
    "disparities vary within 48 px, 1 to 4": (0.0, 0.0),
    "margin within 8 px, 0 to 0.05": (1.0816, 0.0),
    "margin within 8 px, 0.05 to 0.15": (0.0, 0.0),
    "margin within 8 px, 0.15 to 0.4": (0.3315, 0.0),
    "distance to a depth edge, 0 to 2": (1.4728, 0.091),
    "distance to a depth edge, 2 to 10": (0.8118, 0.0),
}
"""By the names of the terms, in their order."""
