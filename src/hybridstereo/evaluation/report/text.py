"""Figures in words: what a reader of the report sees for ``bad1`` or ``d1_noc``."""

from __future__ import annotations

import re

_FIXED = {
    "d1": ("D1", "Error over 3 px and over 5 % of the truth"),
    "avgerr": ("avg. error", "Mean absolute error, the end-point error (EPE)"),
    "rms": ("RMS", "Root of the mean squared error"),
    "invalid": ("invalid", "Pixels without an estimate"),
    "ausc": ("AUSC", "Area under the sparsification curve, most confident pixels first"),
    "density1": ("density", "Most confident pixels that can be kept with 1 % of bad ones"),
}
_REGIONS = {
    "noc": ("non-occ.", "non-occluded pixels"),
    "all": ("all", "all pixels with known truth"),
    "pooled": ("pooled", "all images pooled"),
    "unfilled": ("unfilled", "before the left-right check or filling"),
    "best": ("best", "with the best possible order"),
}

MAIN_GROUP = "main"
"""The group of the figures that a benchmark ranks by."""


def group(name: str) -> str:
    """Which figures belong together: ``main``, ``all``, ``pooled`` or ``all-pooled``."""
    parts = name.split("_")
    return "-".join(part for part in ("all", "pooled") if part in parts) or MAIN_GROUP


def short_label(name: str) -> str:
    """A heading without the region, such as ``D1`` for ``d1_noc``."""
    base, *regions = name.split("_")
    kept = [_REGIONS[part][0] for part in regions if part in ("unfilled", "best")]
    return " ".join([_base(base)[0], *kept])


def is_percentage(name: str) -> bool:
    """Whether a figure is a percentage of pixels; the others are errors in pixels."""
    return re.match(r"(bad[\d.]+|d1|invalid|ausc|density1)(_|$)", name) is not None


def more_is_better(name: str) -> bool:
    """Whether a figure is no error."""
    return name.startswith("density")


def label(name: str) -> str:
    """A short heading, such as ``D1 non-occ.`` for ``d1_noc``."""
    base, *regions = name.split("_")
    return " ".join([_base(base)[0], *(_REGIONS.get(part, (part, part))[0] for part in regions)])


def meaning(name: str) -> str:
    """One line that says what a figure is."""
    base, *regions = name.split("_")
    words = [_base(base)[1], *(_REGIONS.get(part, (part, part))[1] for part in regions)]
    return "; ".join(words) + (" (%)" if is_percentage(name) else " (px)")


def number(value: float) -> str:
    """A figure with two decimals."""
    return f"{value:.2f}"


def duration(seconds: float) -> str:
    """Seconds with two decimals, or three below one second."""
    return f"{seconds:.2f}" if seconds >= 1 else f"{seconds:.3f}"


def plural(count: int, noun: str) -> str:
    """``1 scene``, ``2 scenes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _base(base: str) -> tuple[str, str]:
    """Heading and meaning of a figure's name without the region."""
    if base in _FIXED:
        return _FIXED[base]
    if match := re.fullmatch(r"bad([\d.]+)", base):
        return f"bad {match[1]}", f"Error over {match[1]} px"
    if match := re.fullmatch(r"a(\d+)", base):
        return f"A{match[1]}", f"Error that {match[1]} % of the pixels do not exceed"
    return base, base
