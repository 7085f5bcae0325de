"""Random augmentation of training pairs that keeps their stereo geometry consistent.

Every function returns a new pair and does not modify its argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridstereo.datasets.pair import Disparity, FloatImage, Mask, StereoPair
from hybridstereo.datasets.shadows import shadows
from hybridstereo.errors import InputError
from hybridstereo.features import Window
from hybridstereo.opencv import cv2
from hybridstereo.pyramid import level_statistics

Change = Callable[[NDArray[Any]], NDArray[Any]]

_CROP_ATTEMPTS = 10
_ABOVE_ONE = math.nextafter(1.0, 2.0)
_LIGHTS = 3  # lighting is interpolated from a grid of this many values along each side
_HAZES = 4  # likewise the contrast
_DETAIL = 16  # pixels; coarser structures keep their contrast
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of R, G, B
_QUANTILE_STEP = 4  # every so many rows and columns tell the levels of a view
# Options that are numbers from 0 to below this.
_RANGES = {
    "min_valid": _ABOVE_ONE,
    "vertical_flip": _ABOVE_ONE,
    "horizontal_flip": _ABOVE_ONE,
    "disturbed": _ABOVE_ONE,
    "gain": 1.0,
    "colour": 1.0,
    "gamma": math.inf,
    "lighting": 1.0,
    "noise": math.inf,
    "grey": _ABOVE_ONE,
    "contrast": 1.0,
    "shadowed": _ABOVE_ONE,
    "shadow": 1.0,
    "clipped": _ABOVE_ONE,
    "clipping": 0.5,
    "misaligned": _ABOVE_ONE,
    "misalignment": math.inf,
}
_PHOTOMETRIC = (
    "gain",
    "colour",
    "gamma",
    "lighting",
    "noise",
    "grey",
    "contrast",
    "shadow",
    "clipping",
)


@dataclass(frozen=True)
class AugmentOptions:
    """How strongly to change a pair; the defaults change nothing.

    Parameters
    ----------
    crop
        (height, width) of a random crop, at most the size of the image; None: no crop.
    min_valid
        The fraction of valid pixels that a crop should have; if none of a few random places has
        that many, the best one is used.
    vertical_flip, horizontal_flip
        Probabilities. The horizontal flip also swaps the views, so that disparities stay positive;
        pairs without truth for the right view are not flipped.
    min_scale, max_scale
        Range of the factor by which both views are resized, log-uniform.
    misaligned, misalignment
        The probability that the right view is moved up or down, as by an imperfect rectification,
        and by how many pixels at most; each corner by another fraction of a pixel.
    disturbed
        The probability of any photometric change, that is, of all that follows.
    gain
        Each view is multiplied by a factor in ``1 ± gain``, below 1.
    colour
        Each channel of each view is multiplied by a factor in ``1 ± colour``, below 1.
    gamma
        Each view is raised to a power in ``[1 / (1 + gamma), 1 + gamma]``.
    lighting
        Each view is multiplied by a smooth field with values in ``1 ± lighting``, as if the lamps
        had been moved between the two exposures.
    noise
        Largest standard deviation of the noise added to each view, 1 being full brightness.
    grey
        The probability that both views lose their colour.
    contrast
        Fine structures of both views are multiplied by a smooth field with values in
        ``1 ± contrast``, below 1: haze, wear and dirt belong to the scene. The noise does not
        fade with them.
    shadowed, shadow
        The probability of shadows on the scene, and how much light the deepest takes away, below
        1. They lie on the same points in both views, see `hybridstereo.datasets.shadows`.
    clipped, clipping
        The probability that the range of the camera is too small, and the largest share of the
        pixels that become black, and white; below 0.5.

    """

    crop: tuple[int, int] | None = None
    min_valid: float = 0.1
    vertical_flip: float = 0.0
    horizontal_flip: float = 0.0
    min_scale: float = 1.0
    max_scale: float = 1.0
    misaligned: float = 1.0
    misalignment: float = 0.0
    disturbed: float = 1.0
    gain: float = 0.0
    colour: float = 0.0
    gamma: float = 0.0
    lighting: float = 0.0
    noise: float = 0.0
    grey: float = 0.0
    contrast: float = 0.0
    shadowed: float = 1.0
    shadow: float = 0.0
    clipped: float = 1.0
    clipping: float = 0.0

    def __post_init__(self) -> None:
        if self.crop is not None and min(self.crop) < 1:
            raise InputError(f"the crop is {self.crop[0]}x{self.crop[1]}", hint="Give HxW pixels")
        for name, below in _RANGES.items():
            value = getattr(self, name)
            if not 0.0 <= value < below:
                limit = "at most 1" if below == _ABOVE_ONE else f"less than {below:g}"
                raise InputError(f"{name} is {value:g}", hint=f"Give 0 or more, but {limit}")
        if not 0.0 < self.min_scale <= self.max_scale:
            raise InputError(
                f"the scale goes from {self.min_scale:g} to {self.max_scale:g}",
                hint="Give two positive numbers, the smaller one first",
            )


def augment(pair: StereoPair, options: AugmentOptions, rng: np.random.Generator) -> StereoPair:
    """Change a pair at random.

    Parameters
    ----------
    pair
        The original.
    options
        How strongly.
    rng
        The only source of randomness: the same state gives the same result.

    """
    if options.min_scale != 1.0 or options.max_scale != 1.0:
        pair = scale(pair, math.exp(rng.uniform(*np.log([options.min_scale, options.max_scale]))))
    if rng.random() < options.vertical_flip:
        pair = flip_vertically(pair)
    if rng.random() < options.horizontal_flip and pair.right_disparity is not None:
        pair = flip_horizontally(pair)
    if options.misalignment > 0.0 and rng.random() < options.misaligned:
        pair = misalign(pair, options.misalignment * _random_corners(rng))
    if rng.random() < options.disturbed:
        pair = disturb(pair, options, rng)
    if options.crop is not None:
        # Last, because a crop keeps the statistics of the view it is cut from.
        pair = random_crop(pair, options.crop, options.min_valid, rng)
    return pair


def flip_vertically(pair: StereoPair) -> StereoPair:
    """Turn both views upside down."""
    if (window := pair.window) is not None:
        top = window.height - window.top - pair.height
        pair = replace(pair, window=replace(window, top=top))
    return _rearranged(pair, lambda values: values[::-1])


def flip_horizontally(pair: StereoPair) -> StereoPair:
    """Mirror both views and swap them.

    The mirrored right view is the left view of the mirrored world, with the same disparities.

    Parameters
    ----------
    pair
        With truth for the right view.

    """
    if pair.right_disparity is None or pair.right_valid is None:
        raise ValueError("flipping horizontally needs the truth for the right view")
    window = pair.window
    if window is not None:
        window = replace(window, left=window.width - window.left - pair.width)
    swapped = replace(
        pair,
        window=window,
        left=pair.right,
        right=pair.left,
        disparity=pair.right_disparity,
        valid=pair.right_valid,
        right_disparity=pair.disparity,
        right_valid=pair.valid,
        left_statistics=pair.right_statistics,
        right_statistics=pair.left_statistics,
    )
    return _rearranged(swapped, lambda values: values[:, ::-1])


def crop(pair: StereoPair, top: int, left: int, height: int, width: int) -> StereoPair:
    """Cut the same window out of both views.

    Disparities stay as they are. Pixels whose match is cut off are no longer valid.

    Parameters
    ----------
    pair
        The original.
    top, left, height, width
        The window, inside the image.

    """
    bottom, end = top + height, left + width
    if not (0 <= top < bottom <= pair.height and 0 <= left < end <= pair.width):
        raise ValueError(f"a window of {height}x{width} at ({top}, {left}) leaves the image")
    part = _rearranged(pair, lambda values: values[top:bottom, left:end])
    whole = pair.window or Window(0, 0, pair.height, pair.width)
    part = replace(part, window=replace(whole, top=whole.top + top, left=whole.left + left))
    valid = part.valid & _match_inside(part.disparity, -1)
    if part.right_disparity is None or part.right_valid is None:
        return replace(part, valid=valid)
    right_valid = part.right_valid & _match_inside(part.right_disparity, 1)
    return replace(part, valid=valid, right_valid=right_valid)


def random_crop(
    pair: StereoPair, size: tuple[int, int], min_valid: float, rng: np.random.Generator
) -> StereoPair:
    """Cut out a window at a random place where enough pixels are valid.

    The crop keeps the statistics of its view, so that a low-contrast region stays low in contrast,
    as it is when the whole pair is matched.

    Parameters
    ----------
    pair
        The original.
    size
        (height, width); a side that is longer than the image's is shortened.
    min_valid
        The fraction of pixels that should be valid; the best of a few places if none has it.
    rng
        Picks the places.

    """
    height, width = min(size[0], pair.height), min(size[1], pair.width)
    best, best_share = pair, -1.0
    for _ in range(_CROP_ATTEMPTS):
        top = int(rng.integers(pair.height - height + 1))
        left = int(rng.integers(pair.width - width + 1))
        part = crop(pair, top, left, height, width)
        share = float(part.valid.mean())
        if share > best_share:
            best, best_share = part, share
        if share >= min_valid:
            break
    return replace(
        best,
        left_statistics=pair.left_statistics or level_statistics(pair.left),
        right_statistics=pair.right_statistics or level_statistics(pair.right),
    )


def scale(pair: StereoPair, factor: float) -> StereoPair:
    """Resize both views by the same factor; disparities are multiplied by the horizontal one.

    Disparities and masks take the nearest pixel: a value between two surfaces would be neither's.

    Parameters
    ----------
    pair
        The original.
    factor
        Positive; the sides are rounded to whole pixels.

    """
    height, width = (max(round(factor * side), 1) for side in (pair.height, pair.width))
    horizontal = width / pair.width
    # Centres of the new pixels in the old image.
    rows = ((np.arange(height) + 0.5) * (pair.height / height)).astype(np.intp)
    columns = ((np.arange(width) + 0.5) * (pair.width / width)).astype(np.intp)

    def image(values: FloatImage) -> FloatImage:
        method = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
        resized = cv2.resize(values, (width, height), interpolation=method)
        return np.clip(np.asarray(resized, np.float32), 0.0, 1.0)  # rounding may exceed 1

    def disparity(values: Disparity) -> Disparity:
        return values[np.ix_(rows, columns)] * np.float32(horizontal)

    def mask(values: Mask) -> Mask:
        return values[np.ix_(rows, columns)]

    return replace(
        _with_arrays(pair, image, disparity, mask),
        ndisp=None if pair.ndisp is None else max(math.ceil(horizontal * pair.ndisp), 1),
        isint=False,
    )


def misalign(pair: StereoPair, corners: NDArray[Any]) -> StereoPair:
    """Move the right view up and down, as an imperfect rectification does.

    The left view and its truth stay; the right view's truth takes the nearest pixel.

    Parameters
    ----------
    pair
        The original.
    corners
        (2, 2), by how many pixels the content of the right view's corners moves up, and
        everything between them by interpolation; a constant, a tilt and a stretch.

    """
    height, width = pair.height, pair.width
    down, across = np.linspace(0.0, 1.0, height), np.linspace(0.0, 1.0, width)
    (upper_left, upper_right), (lower_left, lower_right) = np.asarray(corners, np.float64)
    upper = upper_left + across * (upper_right - upper_left)
    lower = lower_left + across * (lower_right - lower_left)
    rows = np.arange(height)[:, np.newaxis] + upper + down[:, np.newaxis] * (lower - upper)
    right = _between_rows(pair.right, rows)
    if pair.right_disparity is None or pair.right_valid is None:
        return replace(pair, right=right)
    nearest = np.clip(np.rint(rows), 0, height - 1).astype(np.intp)
    return replace(
        pair,
        right=right,
        right_disparity=np.take_along_axis(pair.right_disparity, nearest, axis=0),
        right_valid=np.take_along_axis(pair.right_valid, nearest, axis=0),
    )


def _between_rows(view: FloatImage, rows: NDArray[np.float64]) -> FloatImage:
    """The values of a view at its columns and at the given rows (H, W), by Catmull-Rom splines.

    Linear interpolation would blur one view alone; OpenCV's cubic one is off by up to 0.05 px.
    """
    base = np.floor(rows)
    t = (rows - base).astype(np.float32)
    weights = (
        t * (-0.5 + t * (1.0 - 0.5 * t)),
        1.0 + t * t * (-2.5 + 1.5 * t),
        t * (0.5 + t * (2.0 - 1.5 * t)),
        t * t * (-0.5 + 0.5 * t),
    )
    total = np.zeros_like(view)
    for offset, weight in zip(range(-1, 3), weights, strict=True):
        row = np.clip(base + offset, 0, len(view) - 1).astype(np.intp)
        taps = np.take_along_axis(view, row[..., np.newaxis], axis=0)
        total += weight[..., np.newaxis] * taps
    return np.clip(total, 0.0, 1.0)


def _random_corners(rng: np.random.Generator) -> NDArray[np.float64]:
    """Values (2, 2) in [-1, 1] that have something in common."""
    common = rng.uniform(-1.0, 1.0)
    return np.asarray(common + (1.0 - abs(common)) * rng.uniform(-1.0, 1.0, (2, 2)))


def disturb(pair: StereoPair, options: AugmentOptions, rng: np.random.Generator) -> StereoPair:
    """Change the values of both views: first what belongs to the scene, then the cameras.

    Shadows and contrast change alike in both views; then gain, colour, gamma, lighting and noise of
    each view by itself; at last both may lose their colour and what exceeds the cameras' range.
    For complete views: statistics of views that these are crops of are discarded.

    Parameters
    ----------
    pair
        The original.
    options
        The strengths.
    rng
        Draws the changes.

    """
    if not any(getattr(options, name) for name in _PHOTOMETRIC):
        return pair
    views = [pair.left, pair.right]
    if options.shadow > 0.0 and rng.random() < options.shadowed:
        fields = shadows(pair, options.shadow, rng)
        views = [view * field[..., np.newaxis] for view, field in zip(views, fields, strict=True)]
    if options.contrast > 0.0:
        grid = 1.0 + options.contrast * rng.uniform(-1.0, 1.0, (_HAZES, _HAZES))
        views = [_with_contrast(view, grid) for view in views]
    views = [_disturbed(view, options, rng) for view in views]
    if options.grey > 0.0 and rng.random() < options.grey:
        views = [_grey(view) for view in views]
    if options.clipping > 0.0 and rng.random() < options.clipped:
        views = _clipped(views, options.clipping * rng.uniform(size=2))
    left, right = views
    return replace(pair, left=left, right=right, left_statistics=None, right_statistics=None)


def _grey(view: FloatImage) -> FloatImage:
    return np.repeat((view @ _LUMA)[..., np.newaxis], 3, axis=2)


def _with_contrast(view: FloatImage, grid: NDArray[np.float64]) -> FloatImage:
    """The view with its fine structures multiplied by a field, interpolated from a grid."""
    height, width, _ = view.shape
    small = (max(width // _DETAIL, 1), max(height // _DETAIL, 1))
    means = cv2.resize(view, small, interpolation=cv2.INTER_AREA)
    coarse = np.asarray(cv2.resize(means, (width, height), interpolation=cv2.INTER_LINEAR))
    field = np.asarray(cv2.resize(grid.astype(np.float32), (width, height)))
    changed = coarse + field[..., np.newaxis] * (view - coarse)
    return np.clip(changed, 0.0, 1.0)


def _clipped(views: list[FloatImage], shares: NDArray[np.float64]) -> list[FloatImage]:
    """Stretch both views alike so that at most these shares become black and white."""
    seen = [view[::_QUANTILE_STEP, ::_QUANTILE_STEP] for view in views]
    black = min(float(np.quantile(view, shares[0])) for view in seen)
    white = max(float(np.quantile(view, 1.0 - shares[1])) for view in seen)
    if white - black < 1.0 / 255:  # nothing to see
        return views
    scale = np.float32(1.0 / (white - black))
    return [np.clip((view - np.float32(black)) * scale, 0.0, 1.0) for view in views]


def _disturbed(view: FloatImage, options: AugmentOptions, rng: np.random.Generator) -> FloatImage:
    gain = 1.0 + options.gain * rng.uniform(-1.0, 1.0)
    colour = 1.0 + options.colour * rng.uniform(-1.0, 1.0, 3)
    gamma = (1.0 + options.gamma) ** rng.uniform(-1.0, 1.0)
    level = options.noise * rng.uniform()
    changed = np.power(view, np.float32(gamma)) * (gain * colour).astype(np.float32)
    if options.lighting > 0.0:
        lights = 1.0 + options.lighting * rng.uniform(-1.0, 1.0, (_LIGHTS, _LIGHTS))
        height, width, _ = view.shape
        field = cv2.resize(lights.astype(np.float32), (width, height))
        changed *= np.asarray(field)[..., np.newaxis]
    if level > 0.0:
        changed += np.float32(level) * rng.standard_normal(view.shape, np.float32)
    return np.clip(changed, 0.0, 1.0)


def _rearranged(pair: StereoPair, change: Change) -> StereoPair:
    """Crop or mirror all arrays of a pair; the results are copies."""

    def applied(values: NDArray[Any]) -> NDArray[Any]:
        return change(values).copy()

    return _with_arrays(pair, applied, applied, applied)


def _with_arrays(pair: StereoPair, image: Change, disparity: Change, mask: Change) -> StereoPair:
    """The pair with each of its arrays changed according to what it is."""
    right_disparity, right_valid = pair.right_disparity, pair.right_valid
    return replace(
        pair,
        left=image(pair.left),
        right=image(pair.right),
        disparity=disparity(pair.disparity),
        valid=mask(pair.valid),
        right_disparity=None if right_disparity is None else disparity(right_disparity),
        right_valid=None if right_valid is None else mask(right_valid),
    )


def _match_inside(disparity: Disparity, direction: int) -> Mask:
    """Where the matching point, rounded to a pixel, lies in the other view."""
    width = disparity.shape[1]
    match = np.arange(width) + np.float32(direction) * disparity
    return (match >= -0.5) & (match <= width - 0.5)
