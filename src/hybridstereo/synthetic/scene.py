"""The generator of synthetic scenes: a seed and options in, a stereo pair with exact truth out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import count
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError
from hybridstereo.limits import SCENE_DISPARITY, SCENE_OBJECTS, SCENE_SIDE
from hybridstereo.opencv import cv2
from hybridstereo.synthetic.layout import build_plain_world, build_world
from hybridstereo.synthetic.render import render
from hybridstereo.synthetic.surfaces import Geometry

FloatImage = NDArray[np.float32]

_DEPTH_RATIO = 12.0  # of the farthest to the nearest point, at most
_FEWER_OBJECTS = 4  # a plain scene has one for so many
# Streams of random numbers that must not depend on each other.
_STREAM, _PHOTOMETRIC_STREAM, _PLAIN_STREAM = range(3)
_NOT_WHITE = 0.9  # share of a plain scene's left view that is kept from highlights
_BRIGHTNESS = 0.36, 0.56  # range of the left view's mean, before highlights are limited


@dataclass(frozen=True)
class Photometric:
    """Largest photometric differences between the views; each scene draws its own within them.

    Parameters
    ----------
    gain
        Each channel of the right view is multiplied by a factor in ``1 ± gain``, below 1.
    gamma
        The right view is raised to a power in ``[1 / (1 + gamma), 1 + gamma]``.
    noise
        Standard deviation of independent noise in both views, 1 being full brightness.
    blur
        Standard deviation in pixels of the blur of one of the views.

    """

    gain: float = 0.15
    gamma: float = 0.15
    noise: float = 0.015
    blur: float = 0.8

    def __post_init__(self) -> None:
        for strength in fields(self):
            value = getattr(self, strength.name)
            if not 0.0 <= value < math.inf:
                raise InputError(
                    f"the photometric strength {strength.name} is {value}",
                    hint="Give a number of at least 0, where 0 means no difference",
                )
        if self.gain >= 1.0:
            raise InputError(f"the gain is {self.gain}", hint="Give a number below 1")


@dataclass(frozen=True)
class SceneOptions:
    """What kind of scene to generate.

    Parameters
    ----------
    height, width
        Size of the views in pixels, 1 to 4096.
    max_disparity
        No disparity, in either view, is larger. The default suits 64 labels from 0.
    min_disparity
        No disparity, in either view, is smaller. It may be negative.
    objects
        How many objects to try to place; those that do not fit are skipped.
    photometric
        Differences between the views; None: each point has the same colour in both.
    plain
        Large, nearly plain, slanted surfaces under shadows, such as streets, with a quarter of
        the objects: another family of scenes, unrelated to the ordinary ones of the same seeds.

    """

    height: int = 384
    width: int = 512
    max_disparity: float = 63.0
    min_disparity: float = 2.0
    objects: int = 16
    photometric: Photometric | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        SCENE_SIDE.check(self.height, "the height is")
        SCENE_SIDE.check(self.width, "the width is")
        SCENE_OBJECTS.check(self.objects, "the number of objects is")
        limits = self.min_disparity, self.max_disparity
        if any(x not in SCENE_DISPARITY for x in limits) or limits[0] >= limits[1]:
            raise InputError(
                f"the disparity range {limits[0]} to {limits[1]} cannot be used",
                hint=f"The minimum must be below the maximum, both {SCENE_DISPARITY}",
            )
        if limits[1] - limits[0] < 1.0:
            raise InputError(
                f"the disparity range {limits[0]:g} to {limits[1]:g} is too narrow for a scene",
                hint="Leave at least one pixel between minimum and maximum",
            )


@dataclass(frozen=True, eq=False)
class StereoScene:
    """A rectified stereo pair with its truth.

    Parameters
    ----------
    left, right
        The views, (H, W, 3) float32 RGB in [0, 1].
    disparity, right_disparity
        Exact disparities of the left and right view's pixel centres, (H, W) float32: left pixel x
        and right pixel ``x - disparity`` show the same point, as do right pixel x and left pixel
        ``x + right_disparity``.
    occlusion
        (H, W) bool, True where the right view does not see the left pixel's point, because
        something is in front of it or because it lies outside the image.
    seed, options
        What `generate_scene` was called with.
    geometry
        Focal length, principal points and so on.

    """

    left: FloatImage
    right: FloatImage
    disparity: FloatImage
    right_disparity: FloatImage
    occlusion: NDArray[np.bool_]
    seed: int
    options: SceneOptions
    geometry: Geometry = field(repr=False)


def generate_scene(seed: int, options: SceneOptions | None = None) -> StereoScene:
    """Generate a scene; the same seed and options give the same bytes.

    The photometric options change the images only: the geometry, and the colours before the
    change, depend on the seed and the other options.

    Parameters
    ----------
    seed
        A non-negative integer.
    options
        Size, disparity range and so on; None: the defaults.

    Raises
    ------
    InputError
        If the seed is not a non-negative integer.

    """
    return next(generate_sequence(seed, options))


def generate_sequence(
    seed: int, options: SceneOptions | None = None, travel: float = 0.0
) -> Iterator[StereoScene]:
    """Frames of the scene of `generate_scene` while the cameras move to the right, without end.

    Parameters
    ----------
    seed, options
        As for `generate_scene`, which gives the first frame.
    travel
        How far the cameras move from frame to frame, in baselines: a point of disparity d moves by
        ``travel * d`` pixels.  What comes into view later may exceed the disparity range a little.
        Noise differs from frame to frame, other photometric differences do not.

    """
    options = options or SceneOptions()
    if not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"the seed is {seed}", hint="Give an integer of at least 0")
    layout_rng = np.random.default_rng([int(seed), _PLAIN_STREAM if options.plain else _STREAM])
    geometry = _random_geometry(layout_rng, options)
    if options.plain:
        world = build_plain_world(layout_rng, geometry, options.objects // _FEWER_OBJECTS)
    else:
        world = build_world(layout_rng, geometry, options.objects)
    views = render(world)
    exposure = layout_rng.uniform(*_BRIGHTNESS) / max(float(views.left.mean()), 1e-6)
    if options.plain:  # a sunny street beside dark walls is not to turn white
        exposure = min(exposure, 1.0 / max(float(np.quantile(views.left, _NOT_WHITE)), 1e-6))
    for frame in count():
        if frame:
            views = render(world, frame * travel)
        left, right = (_developed(view * exposure) for view in (views.left, views.right))
        if options.photometric is not None:
            rng = np.random.default_rng([int(seed), _PHOTOMETRIC_STREAM])
            # The first frame's noise comes from the same stream as the other differences.
            noise = np.random.default_rng([int(seed), _PHOTOMETRIC_STREAM, frame]) if frame else rng
            left, right = _disturbed(rng, noise, left, right, options.photometric)
        yield StereoScene(
            left,
            right,
            views.disparity.astype(np.float32),
            views.right_disparity.astype(np.float32),
            views.occlusion,
            int(seed),
            options,
            geometry,
        )


def _random_geometry(rng: np.random.Generator, options: SceneOptions) -> Geometry:
    """Cameras with an ordinary field of view whose range of depth is finite.

    A range that starts at or below 0 would include points at infinity and beyond; the principal
    points then differ (``doffs``), as with real cameras that converge.
    """
    low, high = options.min_disparity, options.max_disparity
    doffs = max(0.0, (high - _DEPTH_RATIO * low) / (_DEPTH_RATIO - 1.0))
    focal = max(options.width, options.height) * rng.uniform(0.8, 1.3)
    return Geometry(options.width, options.height, focal, doffs, low, high)


def _developed(view: FloatImage) -> FloatImage:
    """Limit to [0, 1] with a soft shoulder instead of clipped highlights."""
    shoulder = 0.75
    excess = np.maximum(view - shoulder, 0.0) / (1.0 - shoulder)
    return np.minimum(view, shoulder) + (1.0 - shoulder) * np.tanh(excess)


def _disturbed(
    rng: np.random.Generator,
    noise: np.random.Generator,
    left: FloatImage,
    right: FloatImage,
    strengths: Photometric,
) -> tuple[FloatImage, FloatImage]:
    """Blur one view, change the right view's gain and gamma, add noise to both."""
    sigma = strengths.blur * rng.uniform()
    blurred = int(rng.integers(2))
    gain = 1.0 + strengths.gain * rng.uniform(-1.0, 1.0, 3)
    gamma = (1.0 + strengths.gamma) ** rng.uniform(-1.0, 1.0)
    views = [left, right]
    if sigma > 0.05:  # below, the kernel is a single tap
        soft = cv2.GaussianBlur(views[blurred], (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)
        views[blurred] = np.asarray(soft, np.float32)
    views[1] = gain * views[1] ** gamma
    level = strengths.noise * rng.uniform(0.3, 1.0)
    noisy = [view + level * noise.standard_normal(view.shape) for view in views]
    first, second = (np.clip(view, 0.0, 1.0).astype(np.float32) for view in noisy)
    return first, second


def quantised(view: FloatImage) -> NDArray[np.uint8]:
    """The 8-bit version of a view in [0, 1]."""
    return np.rint(255.0 * view).astype(np.uint8)
