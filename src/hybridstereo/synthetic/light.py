"""Light of synthetic scenes: one lamp, ambient light, soft shadows and dark corners on walls.

Nothing here depends on the viewer, so a point has the same colour in both views.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hybridstereo.opencv import cv2
from hybridstereo.synthetic.patterns import Image
from hybridstereo.synthetic.surfaces import LEFT, Array, Geometry, Plane, Points
from hybridstereo.synthetic.textures import lookup

_CELL = 2.0  # pixels per cell of the light maps: light is smooth
_SUBCELL_BITS = 4  # fractional bits of the corners of shadows


@dataclass(frozen=True)
class Light:
    """A lamp and the light from all around.

    Parameters
    ----------
    position
        Where it hangs (3,).
    reach
        Distance at which its light has fallen to a half.
    colour
        Of the lamp (3,).
    ambient
        Colour of the light from all around (3,), brighter from ``up``.
    up
        Unit vector (3,).
    softness
        Blur of the shadows' edges in pixels.

    """

    position: Array
    reach: float
    colour: Array
    ambient: Array
    up: Array
    softness: float

    def direct(self, points: Points, normals: Points) -> Points:
        """Share (N,) of the lamp's light that reaches points (3, N), without shadows."""
        towards = self.position[:, None].astype(np.float32) - points
        squared = np.einsum("in,in->n", towards, towards)
        facing = (normals * towards).sum(axis=0) / np.sqrt(squared)
        return np.maximum(facing, 0.0) / (1.0 + squared / np.float32(self.reach**2))

    def mix(self, direct: Points, normals: Points) -> Image:
        """Colour (N, 3) of the light on surfaces that get ``direct`` (N,) from the lamp."""
        sky = 0.85 + 0.15 * (self.up.astype(np.float32) @ normals)
        colour, ambient = self.colour.astype(np.float32), self.ambient.astype(np.float32)
        return direct[:, None] * colour + sky[:, None] * ambient


class LightMap:
    """Light on one wall, with soft shadows of the objects and darker corners.

    The map is laid out in left-view pixels (extended to what only the right view sees), which
    gives it the right resolution everywhere. It belongs to the wall's points, not to a view.

    Parameters
    ----------
    geometry, light
        Cameras and lamp.
    number, walls
        All walls, and which of them this map is for.
    hulls
        Points (N, 3) around each object, whose convex hull casts the shadow.

    """

    def __init__(
        self,
        geometry: Geometry,
        light: Light,
        number: int,
        walls: tuple[Plane, ...],
        hulls: list[Array],
    ) -> None:
        self._geometry = geometry
        wall = walls[number]
        left, top = min(0.0, geometry.min_disparity) - _CELL, -_CELL
        right = geometry.width + max(0.0, geometry.max_disparity)
        self._corner = left, top
        x = np.arange(left, right + 2 * _CELL, _CELL)
        y = np.arange(top, geometry.height + 2 * _CELL, _CELL)
        X, Y = geometry.rays_x(x, LEFT)[None, :], geometry.rays_y(y)[:, None]
        # Beyond the wall's horizon no point is lit: any finite depth will do.
        nowhere = 0.1 * (geometry.min_disparity + geometry.doffs) / geometry.focal
        depth = 1.0 / np.maximum(wall.cast(LEFT, X, Y), nowhere)
        points = np.stack([X * depth, Y * depth, depth]).reshape(3, -1).astype(np.float32)
        normals = wall.normals(points)
        direct = light.direct(points, normals) * self._lit(depth.shape, light, wall, hulls)
        colours = light.mix(direct, normals)
        for other in walls[:number] + walls[number + 1 :]:
            distance = np.abs(other.normal @ points - other.normal @ other.origin)
            corner = np.exp(-distance / (0.12 * light.reach))
            colours *= (1.0 - 0.35 * corner[:, None]).astype(np.float32)
        self._map: Image = colours.reshape(*depth.shape, 3)

    def _cells(self, points: Array | Points) -> Array:
        """Positions (2, N) on the map of points (3, N)."""
        pixels = points[:2] * (self._geometry.focal / points[2])
        shift = np.subtract(self._geometry.centre, self._corner).astype(points.dtype)
        return (pixels + shift[:, None]) / _CELL

    def _lit(self, shape: tuple[int, ...], light: Light, wall: Plane, hulls: list[Array]) -> Points:
        """Share of the lamp's light (N,) that the objects let pass."""
        shadow = np.zeros(shape, np.uint8)
        height = float((light.position - wall.origin) @ wall.normal)
        for hull in hulls:
            lower = (light.position - hull) @ wall.normal
            # An object above the lamp, or behind the wall, casts no shadow on it.
            if lower.min() <= 0.0 or lower.max() >= 1.2 * height:
                continue
            cast = light.position + (hull - light.position) * (height / lower)[:, None]
            if cast[:, 2].min() <= 0.0:
                continue
            corners = self._cells(cast.T).T
            if np.abs(corners).max() > 1e4:  # far outside, and too large for fixed point
                continue
            polygon = cv2.convexHull(np.rint(corners * 2**_SUBCELL_BITS).astype(np.int32))
            cv2.fillConvexPoly(shadow, polygon, 255, cv2.LINE_AA, _SUBCELL_BITS)
        soft = cv2.GaussianBlur(shadow.astype(np.float32), (0, 0), light.softness / _CELL)
        return 1.0 - soft.reshape(-1) / np.float32(255.0)

    def sample(self, points: Points) -> Image:
        """Light (N, 3) on points (3, N) of the wall."""
        return lookup(self._map, *self._cells(points))
