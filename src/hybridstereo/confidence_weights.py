"""Weights of `hybridstereo.confidence`, written by ``tools/fit_confidence.py``.

Two each: for pixels that the other view confirms, and for those that it does not.
Fitted to 15 maps of general.
"""

INTERCEPTS = (-2.2971, 1.9941)

WEIGHTS = {
    "margin, 0 to 0.02": (2.4849, 1.2204),
    "margin, 0.02 to 0.05": (0.0, 0.0),
    "margin, 0.05 to 0.1": (0.5642, 0.0),
    "margin, 0.1 to 0.2": (0.4809, 0.1565),
    "margin, 0.2 to 0.4": (1.1382, 0.0),
    "margin, 0.4 to 1": (0.899, 0.0),
    "views differ, 0 to 1": (-0.6678, 0.0),
    "the other view sees something nearer": (0.0, -0.4683),
    "the other view sees something farther": (0.0, -1.3915),
    "outside the other view": (0.0, 1.8598),
    "not the background, 0 to 1": (0.0, 0.0),
    "not the background, 1 to 3": (0.0, -3.2843),
    "rows and columns contradict": (0.0, -0.1011),
    "views contradict within 8 px": (0.0, -0.2001),
    "rows and columns contradict within 8 px": (0.0, 0.0),
    "disparities vary within 8 px, 0 to 1": (0.0, 0.0),
    "disparities vary within 8 px, 1 to 4": (0.0, 0.0),
    "views contradict within 48 px": (-1.9805, -4.77),
    "rows and columns contradict within 48 px": (-6.6875, 0.0),
    "disparities vary within 48 px, 0 to 1": (-0.3387, 0.0),
    "disparities vary within 48 px, 1 to 4": (0.0, 0.0),
    "margin within 8 px, 0 to 0.05": (0.7739, 0.0907),
    "margin within 8 px, 0.05 to 0.15": (0.0, 0.4118),
    "margin within 8 px, 0.15 to 0.4": (0.4157, 0.0),
    "distance to a depth edge, 0 to 2": (1.345, 0.0),
    "distance to a depth edge, 2 to 10": (0.8074, 0.0),
}
"""By the names of the terms, in their order."""
