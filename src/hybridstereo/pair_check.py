"""Is this a rectified pair?  What is wrong with two views, measured before they are matched.

docs/messages.md has every finding with its cause and its cure.  Points that both views show tell by
how much the rows differ, which way things move, and whether the views belong together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from .opencv import cv2
from .pair_rows import FEWEST, RowPlane, fitted_rows, pixels_per_pixel, row_matches
from .rectification import correctable_rows
from .search_range import CoarseMatch, belong_together

Code = Literal[
    "blank", "identical", "unrelated", "swapped", "vertical-offset", "rotation", "scale", "exposure"
]
"""What can be found; these names stay."""

Look = Callable[[np.ndarray, np.ndarray, int], CoarseMatch]
"""Two views -> a coarse match of them; the number: how often they are halved once more."""

# A first look at views that are reduced by so much more takes a third of the time, or less.  It may
# only say that all is well.
_QUICKLY = 2.0
# What is worth a word.  Of 95 pairs of KITTI and Middlebury none has rows that differ by more than
# 0.8 px at the centre, or views that are turned by more than 0.1 degrees or larger by 0.6 %.
_OFFSET, _ROTATION, _SCALE = 1.0, math.radians(0.15), 0.01
# Of the points that move sideways by more than half a pixel: so many to the wrong side.
_SIDEWAYS, _SWAPPED = 0.5, 0.9
# Three of four points of an image and of a compressed copy of it are closer than so many pixels of
# the reduced views; so are views without any depth.
_SAME = 0.5
# Of the range of values, with sensor noise averaged away: 2.5 of 255 grey levels.  Small views have
# smaller areas: of a single one, the values would span nothing.
_BLANK, _AVERAGED, _AREAS = 0.01, 8, 8
# Ratio of the mean brightness; the shipped models were measured up to this (docs/results.md).
_EXPOSURE = 3.0
# Views of two scenes agree by chance at 7 to 31 % of the pixels (44 pairs); of one scene, where
# points do not match, at 40 % and more, but plain ones in the dark at 27 to 40 %.  Smaller views
# say too little.
_UNRELATED, _SMALLEST = 0.32, 128
# So many times as many pixels agree the other way round.
_REVERSED = 1.5
# Correlation of a view with itself, shifted: at most 0.38 in 40 views, 0.94 and more of wallpapers
# (tools/check_campaign.py).  Structures coarser than _FINE pixels are shades, and closer is itself.
_REPEATED, _FINE = 0.65, 4


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a pair.

    Attributes
    ----------
    code
        What it is.
    figure, unit
        How much of it was measured.
    message, hint
        A sentence each, without the full stop; arguments in backticks, as in `errors`.
    correctable
        Whether ``rectify`` takes care of it.
    """

    code: Code
    figure: float
    unit: str
    message: str
    hint: str
    correctable: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def describe(self) -> str:
        """Both sentences."""
        return f"{self.message}. {self.hint}."


def check_pair(left: np.ndarray, right: np.ndarray, look: Look) -> list[Finding]:
    """What is wrong with a pair, the worst first; nothing where the views tell too little.

    Never fails on images, and finds the same with any number of threads.

    Parameters
    ----------
    left, right
        (H, W, 3) RGB in [0, 1], of one size.
    look
        Asked only if too few points match.
    """
    tones = _Tones.of(left), _Tones.of(right)
    blank = _blank(*tones)
    if blank is not None:
        return [blank]
    if np.array_equal(left, right):
        return [_identical(0.0)]
    rows = _seen_rows(left, right, tones, _QUICKLY)
    if rows is None or not _is_clearly_fine(rows):
        rows = _seen_rows(left, right, tones, 1.0)
    if rows is None:
        findings = _dense_findings(left, right, look)
    elif rows.moved < _SAME * rows.pixel:
        findings = [_identical(rows.moved)]
    else:
        findings = _row_findings(rows)
    if any(finding.code in ("identical", "unrelated") for finding in findings):
        return findings
    exposure = _exposure(*tones)
    return findings if exposure is None else [*findings, exposure]


@dataclass(frozen=True)
class _Tones:
    """Brightness of a view.

    Attributes
    ----------
    low, high
        Between these are all small areas but a hundredth; averaging takes sensor noise away.
    mean, deviation
        Of the areas.
    """

    low: float
    high: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, view: np.ndarray) -> _Tones:
        """Those of a view (H, W, 3)."""
        factor = min(max(min(view.shape[:2]) / _AREAS, 1.0), _AVERAGED)
        areas = _reduced(view, factor).mean(axis=2)
        low, high = np.quantile(areas, [0.005, 0.995])
        return cls(float(low), float(high), float(areas.mean()), float(areas.std()))

    @property
    def contrast(self) -> float:
        """What is between, as a share of the range of values."""
        return self.high - self.low


def _reduced(view: np.ndarray, factor: float) -> np.ndarray:
    """The view with so many times fewer pixels in each direction, averaged."""
    height, width, _ = view.shape
    size = max(round(width / factor), 1), max(round(height / factor), 1)
    return cv2.resize(view.astype(np.float32, copy=False), size, interpolation=cv2.INTER_AREA)


def _seen_rows(
    left: np.ndarray, right: np.ndarray, tones: tuple[_Tones, _Tones], reduction: float
) -> RowPlane | None:
    """How rows and points lie, in views reduced by so much more than they need to be.

    Dark and pale views are stretched to full contrast.
    """
    height, width, _ = left.shape
    pixel = reduction * pixels_per_pixel(height, width)
    first, second = (
        (_reduced(view, pixel) - tone.low) / tone.contrast
        for view, tone in zip((left, right), tones, strict=True)
    )
    return fitted_rows(row_matches(first, second, height, width), height, width, pixel)


def _is_clearly_fine(rows: RowPlane) -> bool:
    """Whether a quick look is so far from all findings that a thorough one would have none."""
    height, width = rows.size
    sideways = rows.disparities[np.abs(rows.disparities) > _SIDEWAYS]
    return bool(
        len(rows.disparities) >= 2 * FEWEST
        and rows.moved > 2 * _SAME * rows.pixel
        and rows.stays_below(0, _OFFSET, 1.0)
        and rows.stays_below(1, _ROTATION, width / 2)
        and rows.stays_below(2, _SCALE, height / 2)
        and sideways.size >= FEWEST
        and np.mean(sideways < 0) < 0.5 * _SWAPPED
    )


def _row_findings(rows: RowPlane) -> list[Finding]:
    """What the matches say: the order of the views, and how the right one lies."""
    findings = []
    sideways = rows.disparities[np.abs(rows.disparities) > _SIDEWAYS]
    if sideways.size >= FEWEST and np.mean(sideways < 0) > _SWAPPED:
        findings.append(_swapped(float(np.median(rows.disparities)), "px"))
    height, width = rows.size
    lower, turned, slope = map(float, rows.plane)
    scaled = rows.exceeds(2, _SCALE, height / 2)
    apart = abs(lower) + abs(turned) * width / 2
    correctable = apart < correctable_rows(height) and not scaled
    by_calibration = "Rectify the pair with its calibration first"
    if rows.exceeds(0, _OFFSET, 1.0):
        message = f"The right view is {abs(lower):.1f} px too {'low' if lower > 0 else 'high'}"
        hint = "Correct it with `rectify=True`" if correctable else by_calibration
        findings.append(Finding("vertical-offset", lower, "px", message, hint, correctable))
    if rows.exceeds(1, _ROTATION, width / 2):
        degrees = math.degrees(math.atan(turned))
        direction = "clockwise" if degrees > 0 else "counterclockwise"
        message = f"The right view is turned by {abs(degrees):.2f} degrees {direction}"
        hint = "Align its rows with `rectify=True`" if correctable else by_calibration
        findings.append(Finding("rotation", degrees, "degrees", message, hint, correctable))
    if scaled:
        times = 1 / (1 - slope)  # rows were measured in the right view
        word = "larger" if times > 1 else "smaller"
        message = f"The right view is {100 * abs(times - 1):.1f} % {word} than the left one"
        hint = "Both need one focal length: rectify the pair with its calibration first"
        findings.append(Finding("scale", times, "times", message, hint))
    return findings


def _dense_findings(left: np.ndarray, right: np.ndarray, look: Look) -> list[Finding]:
    """What a coarse map says where points do not."""
    if min(left.shape[:2]) < _SMALLEST or (_repeats(left) and _repeats(right)):
        return []
    seen = look(left, right, 0)
    if belong_together(seen.mask):
        believed = seen.disparity[seen.mask]
        sideways = believed[np.abs(believed) > _SIDEWAYS]
        if sideways.size and np.mean(sideways < 0) > _SWAPPED:
            return [_swapped(100 * float(np.mean(sideways < 0)), "%")]
        return []
    # Mostly positive disparities are searched: views that are swapped can look unrelated.  Half as
    # many pixels tell that, too, in an eighth of the time.
    share = float(np.mean(seen.mask))
    reverse = look(right, left, 1).mask
    if belong_together(reverse) and np.mean(reverse) > _REVERSED * share:
        return [_swapped(100 * float(np.mean(reverse)), "%")]
    if share > _UNRELATED:
        return []
    return [
        Finding(
            "unrelated",
            100 * share,
            "%",
            f"The views do not seem to show the same scene: they agree at {100 * share:.0f} % of"
            " the pixels",
            "Give the left and the right view of one pair",
        )
    ]


def _repeats(view: np.ndarray) -> bool:
    """Whether a view is one pattern over and over, of which any part matches any other."""
    grey = _reduced(view, pixels_per_pixel(*view.shape[:2])).mean(axis=2)
    grey -= cv2.GaussianBlur(grey, (0, 0), _FINE)
    spectrum = np.fft.rfft2(grey - grey.mean())
    likeness = np.fft.irfft2(np.abs(spectrum) ** 2, s=grey.shape)
    near = np.s_[: 2 * _FINE + 1, : 2 * _FINE + 1]
    own = likeness[0, 0]
    likeness = np.roll(likeness, (_FINE, _FINE), axis=(0, 1))
    likeness[near] = 0
    return bool(likeness.max() > _REPEATED * own)


def _swapped(figure: float, unit: str) -> Finding:
    measured = (
        f"points move by {figure:.1f} px (median), to the wrong side"
        if unit == "px"
        else "they match the other way round"
    )
    return Finding(
        "swapped",
        figure,
        unit,
        f"The views seem to be swapped: {measured}",
        "Give the left one first",
    )


def _identical(moved: float) -> Finding:
    return Finding(
        "identical",
        moved,
        "px",
        f"Both views are the same image: most points move by at most {moved:.2f} px",
        "Give the left and the right view of one pair",
    )


def _blank(left: _Tones, right: _Tones) -> Finding | None:
    """Views that are one plain area."""
    plain = [name for name, x in (("left", left), ("right", right)) if x.contrast < _BLANK]
    if not plain:
        return None
    contrast = 100 * min(left.contrast, right.contrast)
    what = "Both views are" if len(plain) == 2 else f"The {plain[0]} view is"
    return Finding(
        "blank",
        contrast,
        "%",
        f"{what} blank: the values span {contrast:.1f} % of the range",
        "Check the camera and the file",
    )


def _exposure(left: _Tones, right: _Tones) -> Finding | None:
    """Views of very different brightness, of which contrast is a part: fog is no exposure."""
    ratio = right.mean / left.mean  # which is not 0: views that are black are blank
    darker, brighter = (left, right) if ratio > 1 else (right, left)
    if min(brighter.mean / darker.mean, brighter.deviation / darker.deviation) < _EXPOSURE:
        return None
    times, word = (ratio, "brighter") if ratio > 1 else (1 / ratio, "darker")
    return Finding(
        "exposure",
        ratio,
        "times",
        f"The right view is {times:.1f} times {word} than the left one",
        "Record both with one exposure",
    )
