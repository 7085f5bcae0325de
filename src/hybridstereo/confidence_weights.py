"""Weights of `hybridstereo.confidence`, written by ``tools/fit_confidence.py``.

Fitted to 12 maps of general.
"""

INTERCEPT = -1.0471

WEIGHTS = {
    "margin, 0 to 0.02": 2.2609,
    "margin, 0.02 to 0.05": 0.0,
    "margin, 0.05 to 0.1": 0.4376,
    "margin, 0.1 to 0.2": 0.7751,
    "margin, 0.2 to 0.4": 1.335,
    "margin, 0.4 to 1": 1.024,
    "views differ, 0 to 1": -0.3198,
    "views differ, 1 to 3": 0.0,
    "views contradict": 0.0,
    "the other view sees something nearer": 1.7099,
    "outside the other view": 4.029,
    "not the background, 0 to 1": 0.0,
    "not the background, 1 to 3": -4.0832,
    "rows and columns contradict": 0.0,
    "views contradict within 8 px": -0.551,
    "rows and columns contradict within 8 px": 0.0,
    "disparities vary within 8 px, 0 to 1": 0.0,
    "disparities vary within 8 px, 1 to 4": 0.0,
    "views contradict within 48 px": -3.1447,
    "rows and columns contradict within 48 px": -1.4094,
    "disparities vary within 48 px, 0 to 1": -0.4601,
    "disparities vary within 48 px, 1 to 4": 0.0,
    "margin within 8 px, 0 to 0.05": 0.4725,
    "margin within 8 px, 0.05 to 0.15": 0.0,
    "margin within 8 px, 0.15 to 0.4": 0.3387,
    "distance to a depth edge, 0 to 2": 0.9558,
    "distance to a depth edge, 2 to 10": 0.0195,
}
"""By the names of the terms, in their order."""
