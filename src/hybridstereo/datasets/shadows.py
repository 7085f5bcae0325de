"""Shadows thrown onto the scene of a pair after the fact, at the same points in both views.

A shadow lies on surfaces, so its edge has the disparity of the surface that it falls on: an edge
that is drawn into each view by itself would be texture with a wrong disparity. The light is assumed
to stand somewhere on the line through both cameras. Then the rows keep their shadows to themselves,
and a point is in shadow or not by where it appears from the light: at the column ``x - t d`` for
the left view's pixel x of disparity d, with ``t = 0`` for a light in the left camera and 1 in the
right one. Beyond that the edges break where the depth does, as those of real shadows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridstereo.datasets.pair import Disparity, StereoPair
from hybridstereo.opencv import cv2

Field = NDArray[np.float32]

_LIGHT = -1.0, 2.0  # range of t
_MOST = 3  # shadows in a view
_BAND_SHARE = 0.5  # of the first ones: of a pole, a beam; the others cover all of one side
_NARROWEST_BAND = 4.0  # pixels
_SOFTNESS = 0.8, 20.0  # width of the edges in pixels, log-uniform
_KNOTS = 9  # corners of an edge
_ROUGHNESS = 0.06  # of the view's width: how far the corners may lie off a straight line
_LIGHTEST = 0.3  # the lightest shadow, of the deepest
_FADES = (
    16.0,
    48.0,
)  # pixels from known truth: up to there a shadow is whole, and from there on none


@dataclass(frozen=True)
class _Edge:
    """A jagged line through a point, dark on one side, or a band around it.

    Parameters
    ----------
    x, y
        The point.
    angle
        Of the line's normal.
    spacing, knots
        Distance of the corners along the line, and how far they lie off it.
    half_width
        Of a band; None: everything on one side.
    softness
        Width of the edge.

    """

    x: float
    y: float
    angle: float
    spacing: float
    knots: Field
    half_width: float | None
    softness: float

    def covers(self, x: Field, y: Field) -> Field:
        """How much of the shadow, 0 to 1, lies on points seen at these places from the light."""
        cosine, sine = np.float32(math.cos(self.angle)), np.float32(math.sin(self.angle))
        dx, dy = x - np.float32(self.x), y - np.float32(self.y)
        along = (cosine * dy - sine * dx) / np.float32(self.spacing) + (_KNOTS - 1) / 2
        distance = cosine * dx + sine * dy
        distance -= np.interp(along, np.arange(_KNOTS), self.knots).astype(np.float32)
        if self.half_width is not None:
            distance = np.abs(distance) - np.float32(self.half_width)
        share = np.clip(0.5 - distance / np.float32(self.softness), 0.0, 1.0)
        return np.asarray(share * share * (3.0 - 2.0 * share), np.float32)


def shadows(pair: StereoPair, strength: float, rng: np.random.Generator) -> tuple[Field, Field]:
    """Factors (H, W) for the left and the right view that darken parts of the scene.

    Equal at corresponding points where the truth is known. Nearby the disparity of the nearest
    known pixel is taken; far from it, as in the sky, there is no shadow.

    Parameters
    ----------
    pair
        Its truth decides where the shadows lie.
    strength
        How much light the deepest shadow takes away, below 1.
    rng
        Draws one to three shadows of one light.

    """
    if not pair.valid.any():
        ones = np.ones(pair.disparity.shape, np.float32)
        return ones, ones.copy()
    left, left_weight = _filled(pair.disparity)
    right, right_weight = _filled(_right_truth(pair))
    t = np.float32(rng.uniform(*_LIGHT))
    columns = np.arange(pair.width, dtype=np.float32)
    rows = np.arange(pair.height, dtype=np.float32)[:, np.newaxis]
    # Where the pixels of both views appear from the light.
    seen = columns - t * left, columns + (1 - t) * right
    edges = [
        _random_edge(rng, seen[0], _BAND_SHARE if number == 0 else 1.0)
        for number in range(int(rng.integers(1, _MOST + 1)))
    ]
    darkness = np.float32(strength * rng.uniform(_LIGHTEST, 1.0))
    first, second = (
        1 - darkness * weight * np.max([edge.covers(x, rows) for edge in edges], axis=0)
        for x, weight in zip(seen, (left_weight, right_weight), strict=True)
    )
    return first, second


def _random_edge(rng: np.random.Generator, seen: Field, band_share: float) -> _Edge:
    """A shadow that touches a random pixel of the left view, seen from the light as given."""
    height, width = seen.shape
    y, x = int(rng.integers(height)), int(rng.integers(width))
    size = math.hypot(height, width)
    band = None
    if rng.random() < band_share:
        widest = max(width / 4, _NARROWEST_BAND)
        band = 0.5 * math.exp(rng.uniform(math.log(_NARROWEST_BAND), math.log(widest)))
    return _Edge(
        x=float(seen[y, x]),
        y=float(y),
        angle=rng.uniform(0.0, 2.0 * math.pi),
        spacing=size * rng.uniform(0.05, 0.2),
        knots=(_ROUGHNESS * width * rng.random() * rng.uniform(-1.0, 1.0, _KNOTS)).astype(
            np.float32
        ),
        half_width=band,
        softness=math.exp(rng.uniform(*np.log(_SOFTNESS))),
    )


def _right_truth(pair: StereoPair) -> Disparity:
    """Disparities of the right view, not finite where unknown; its truth, or the left view's."""
    if pair.right_disparity is not None and np.isfinite(pair.right_disparity).any():
        return pair.right_disparity
    row, column = np.nonzero(pair.valid)
    values = pair.disparity[row, column]
    column = np.clip(np.rint(column - values), 0, pair.width - 1).astype(np.intp)
    moved = np.full(pair.disparity.shape, -np.inf, np.float32)
    np.maximum.at(moved, (row, column), values)  # the nearest point is seen
    return moved


def _filled(disparity: Disparity) -> tuple[Disparity, Field]:
    """Disparities, at unknown pixels those of the nearest known one, and how far to trust them."""
    known = np.isfinite(disparity)
    if known.all():
        return disparity, np.ones(disparity.shape, np.float32)
    distance, labels = cv2.distanceTransformWithLabels(
        np.where(known, 0, 1).astype(np.uint8),
        cv2.DIST_L2,
        cv2.DIST_MASK_5,
        labelType=cv2.DIST_LABEL_PIXEL,
    )
    values = np.zeros(int(labels.max()) + 1, np.float32)
    values[labels[known]] = disparity[known]
    near, far = _FADES
    weight = np.clip((far - np.asarray(distance)) / (far - near), 0.0, 1.0)
    return values[labels], weight.astype(np.float32)
