"""Textures of synthetic scenes: how random tiles lie on surfaces, and their band-limited lookup."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridstereo.opencv import cv2
from hybridstereo.synthetic.patterns import Image, plain_tile, random_tile

Array = NDArray[np.floating]

# Texture positions are rounded to this fraction of a texel: OpenCV 4 interpolates no finer, and
# OpenCV 5 does, so without the rounding the same seed would give two slightly different images.
_STEPS_PER_TEXEL = 32
_LOOKUP_COLUMNS = 4096  # cv2.remap wants sides below 32768, not one long row


def lookup(image: Image, x: Array, y: Array) -> Image:
    """Bilinear samples of ``image`` (H, W[, C]) at positions ``x, y`` (N,): (N[, C])."""
    count = x.size
    rows = -(-count // _LOOKUP_COLUMNS)
    maps = np.zeros((2, rows * _LOOKUP_COLUMNS), np.float32)
    for row, position in zip(maps, (x, y), strict=True):
        np.divide(np.rint(position * _STEPS_PER_TEXEL), _STEPS_PER_TEXEL, out=row[:count])
    map_x, map_y = maps.reshape(2, rows, _LOOKUP_COLUMNS)
    remapped = cv2.remap(image, map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    samples = np.asarray(remapped, np.float32)
    return samples.reshape(rows * _LOOKUP_COLUMNS, *image.shape[2:])[:count]


class Texture:
    """A random square tile that repeats without seam, with prefiltered smaller versions (mipmap).

    It is generated on first use from its own seed: textures that no ray hits cost nothing, and the
    others do not depend on the rest of the scene.

    Parameters
    ----------
    seed
        Seed of `random_tile`.
    size
        Side in texels, a power of two of at least 32.
    wall
        Whether it is for a wall or a floor.
    plain
        Whether it has hardly any texture: `plain_tile` then.

    """

    def __init__(self, seed: int, size: int, wall: bool = False, plain: bool = False) -> None:
        self.seed = seed
        self.size = size
        self.wall = wall
        self.plain = plain

    @cached_property
    def _levels(self) -> list[Image]:
        """The tile and its halved versions down to 4 x 4."""
        rng = np.random.default_rng(self.seed)
        tile = plain_tile(rng, self.size) if self.plain else random_tile(rng, self.size, self.wall)
        levels: list[Image] = []
        for level in range(int(np.log2(self.size)) - 1):
            side = self.size >> level
            smaller = cv2.resize(tile, (side, side), interpolation=cv2.INTER_AREA)
            # One more row and column, so that bilinear lookup works across the seam.
            bordered = cv2.copyMakeBorder(smaller, 0, 1, 0, 1, cv2.BORDER_WRAP)
            levels.append(np.asarray(bordered, np.float32))
        return levels

    def sample(self, x: Array, y: Array, footprint: Array) -> Image:
        """Colours (N, 3) at texel positions (N,), blurred over ``footprint`` texels.

        Blends the two nearest levels of the mipmap, so that the blur changes without a visible
        step.
        """
        detail = np.minimum(np.log2(np.maximum(footprint, 1.0)), len(self._levels) - 1.001)
        lower = detail.astype(np.int8)
        colours = np.empty((x.size, 3), np.float32)
        for level in range(int(lower.min(initial=0)), int(lower.max(initial=-1)) + 1):
            chosen = np.flatnonzero(lower == level)
            if chosen.size == 0:
                continue
            x_here, y_here = x[chosen], y[chosen]
            mixed = self._lookup(level, x_here, y_here)
            blend = (detail[chosen] - level)[:, None]
            if blend.any():
                mixed += blend * (self._lookup(level + 1, x_here, y_here) - mixed)
            colours[chosen] = mixed
        return colours

    def _lookup(self, level: int, x: Array, y: Array) -> Image:
        scale, size = 0.5**level, self.size >> level
        # Texel centres are at integers, hence the shift by half a texel between levels.
        moved = ((position + 0.5) * scale - 0.5 for position in (x, y))
        wrapped = (position - size * np.floor(position / size) for position in moved)
        return lookup(self._levels[level], *wrapped)


@dataclass(frozen=True)
class Material:
    """How a texture lies on a surface.

    Parameters
    ----------
    texture
        The tile.
    texel
        Width of a texel in world units.
    angle
        Rotation in radians.
    origin
        Texel at surface coordinates (0, 0).

    """

    texture: Texture
    texel: float
    angle: float = 0.0
    origin: tuple[float, float] = (0.0, 0.0)

    def colours(self, coordinates: Array, footprint: Array) -> Image:
        """Albedo (N, 3) at surface coordinates (2, N), blurred over ``footprint`` world units."""
        cosine, sine = np.cos(self.angle) / self.texel, np.sin(self.angle) / self.texel
        turn = np.array([[cosine, sine], [-sine, cosine]], np.float32)
        x, y = turn @ coordinates + np.array(self.origin, np.float32)[:, None]
        return self.texture.sample(x, y, footprint / np.float32(self.texel))
