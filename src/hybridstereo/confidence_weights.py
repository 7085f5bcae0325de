"""Weights of `hybridstereo.confidence`, written by ``tools/fit_confidence.py``.

Two each: for pixels that the other view confirms, and for those that it does not.
Fitted to 92 maps of general, general-fast, kitti, middlebury.
"""

INTERCEPTS = (-2.7271, 2.3697)

WEIGHTS = {
    "margin, 0 to 0.02": (2.6034, 0.7234),
    "margin, 0.02 to 0.05": (0.0, 0.0),
    "margin, 0.05 to 0.1": (0.3349, 0.0522),
    "margin, 0.1 to 0.2": (0.7208, 0.0),
    "margin, 0.2 to 0.4": (0.7864, 0.0),
    "margin, 0.4 to 1": (0.6472, 0.0),
    "views differ, 0 to 1": (-0.6731, 0.0),
    "the other view sees something nearer": (0.0, -0.0932),
    "the other view sees something farther": (0.0, -1.1004),
    "outside the other view": (0.0, 1.1936),
    "not the background, 0 to 1": (0.0, 0.0),
    "not the background, 1 to 3": (0.0, -3.5002),
    "rows and columns contradict": (0.0, -0.1615),
    "views contradict within 8 px": (-0.5736, -0.3882),
    "rows and columns contradict within 8 px": (0.0, 0.0),
    "disparities vary within 8 px, 0 to 1": (0.0, 0.0),
    "disparities vary within 8 px, 1 to 4": (0.0, 0.0),
    "views contradict within 48 px": (-1.328, -3.6258),
    "rows and columns contradict within 48 px": (-3.9172, 0.0),
    "disparities vary within 48 px, 0 to 1": (0.0, 0.0),
    "disparities vary within 48 px, 1 to 4": (0.0, 0.0),
    "margin within 8 px, 0 to 0.05": (1.0846, 0.0905),
    "margin within 8 px, 0.05 to 0.15": (0.0, 0.0),
    "margin within 8 px, 0.15 to 0.4": (0.4625, 0.0),
    "distance to a depth edge, 0 to 2": (1.6246, 0.0875),
    "distance to a depth edge, 2 to 10": (0.64, 0.0),
}
"""By the names of the terms, in their order."""
