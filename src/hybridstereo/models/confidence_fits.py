"""The numbers behind `hybridstereo.confidence`: for each shipped model, and joint ones for others.

``confidence.json`` beside the model files holds them by the fingerprints of the models, so that no
model ever uses those of another one; ``tools/fit_confidence.py`` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..confidence import KINDS, ConfidenceFit, term_names
from ..errors import ModelError
from .zoo import SHIPPED

FITS_FILE = SHIPPED / "confidence.json"

JOINT = "joint"
"""The key of the fit for models that have none of their own."""


def confidence_fit(fingerprint: str) -> ConfidenceFit:
    """That of a shipped model, by `hybridstereo.model.fingerprint`; the joint one of others."""
    fits = read_fits(FITS_FILE)
    return fits.get(fingerprint, fits[JOINT])


@cache
def read_fits(path: Path) -> Mapping[str, ConfidenceFit]:
    """All fits of a file by fingerprint, the joint one under `JOINT`.

    Raises
    ------
    ModelError
        If the file is not what ``tools/fit_confidence.py`` writes for this version.
    """
    try:
        fits = {key: _fit(**stored) for key, stored in json.loads(path.read_bytes()).items()}
        if JOINT not in fits:
            raise ValueError("there is no joint fit")
    except (OSError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"The weights of the confidence cannot be used: {error}", "Install the package again"
        ) from error
    return fits


def _fit(
    model: Any, intercepts: Any, weights: Any, knots: Any, calibration: Any, steps: Any
) -> ConfidenceFit:
    """A fit as it is stored, checked."""
    if not isinstance(model, str):
        raise ValueError("a fit has no model")
    if list(weights) != term_names():
        raise ValueError(f"the fit of {model} has other terms")
    before, after = steps
    fit = ConfidenceFit(
        model,
        _numbers(intercepts, len(KINDS)),
        {name: _numbers(values, len(KINDS)) for name, values in weights.items()},
        _numbers(knots, len(knots)),
        tuple(_numbers(values, len(knots)) for values in calibration),
        (_numbers(before, len(before)), _numbers(after, len(before))),
    )
    lines = (fit.knots, *fit.calibration, *fit.steps)
    if len(fit.calibration) != len(KINDS) or not all(a < b for x in lines for a, b in pairwise(x)):
        raise ValueError(f"the calibration of {model} does not rise")
    if not 0 <= fit.steps[1][0] <= fit.steps[1][-1] <= 1:
        raise ValueError(f"the steps of {model} are no probabilities")
    return fit


def _numbers(values: Any, count: int) -> tuple[float, ...]:
    if len(values) != count or not all(isinstance(x, int | float) for x in values):
        raise ValueError(f"{count} numbers are missing")
    return tuple(map(float, values))
