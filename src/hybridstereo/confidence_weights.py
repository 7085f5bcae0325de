"""Weights of `hybridstereo.confidence`, written by ``tools/fit_confidence.py``."""

INTERCEPT = 0.0

WEIGHTS: dict[str, float] = {}
"""By the names of the terms, in their order."""
