"""Ray casting of synthetic scenes: both views, their exact disparities, and occlusion.

Rays are cast on a grid of half pixels that contains the pixel centres: one pass gives the
disparity exactly at the centres, and around them the samples that soften the outlines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridstereo.synthetic.light import Light, LightMap
from hybridstereo.synthetic.patterns import Image
from hybridstereo.synthetic.surfaces import (
    LEFT,
    RIGHT,
    VIEWPOINT,
    Array,
    BoolArray,
    Geometry,
    Plane,
    Points,
    Surface,
)

OCCLUSION_TOLERANCE = 1e-3  # pixels of disparity
_APERTURE = 1.3  # pixels over which textures are averaged, as lens and sensor do


@dataclass(frozen=True)
class World:
    """Everything there is to see: walls (unbounded planes, which come first) and objects.

    ``casters`` are points (N, 3) around things that nobody sees, but that cast shadows.
    """

    geometry: Geometry
    walls: tuple[Plane, ...]
    objects: tuple[Surface, ...]
    light: Light
    casters: tuple[Array, ...] = ()

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        """Walls and objects, numbered as in `Hits.owner`."""
        return (*self.walls, *self.objects)

    @property
    def hulls(self) -> list[Array]:
        """Points around everything that casts a shadow."""
        objects = [hull for surface in self.objects if (hull := surface.hull) is not None]
        return [*objects, *self.casters]


class Rays(NamedTuple):
    """A grid of rays (X, Y, 1) from the camera at (camera_x, 0, 0), X (w,) and Y (h,) sorted."""

    camera_x: float
    X: Array
    Y: Array


class Hits(NamedTuple):
    """The first hit of each ray, which always exists: inverse depth and number of the surface."""

    inverse: Array
    owner: NDArray[np.int16]


class Views(NamedTuple):
    """What `render` returns: colours (H, W, 3) not yet limited to [0, 1], and the truth (H, W)."""

    left: Image
    right: Image
    disparity: Array
    right_disparity: Array
    occlusion: BoolArray


def render(world: World, travel: float = 0.0) -> Views:
    """Both views of a world with exact disparities and the left view's occlusion.

    ``travel`` is how far the cameras have moved to the right, in baselines.
    """
    geometry = world.geometry
    x = np.arange(-1, 2 * geometry.width) / 2.0
    y = np.arange(-1, 2 * geometry.height) / 2.0
    light_maps: dict[int, LightMap] = {}
    images, disparities, inverses = [], [], []
    for camera_x in (LEFT, RIGHT):
        rays = Rays(camera_x + travel, geometry.rays_x(x, camera_x), geometry.rays_y(y))
        hits = cast_grid(world.surfaces, rays)
        images.append(_colours(world, light_maps, rays, hits))
        inverses.append(hits.inverse[1::2, 1::2])
        disparities.append(geometry.disparity(inverses[-1]))
    occlusion = _occlusion(world, inverses[0], disparities[0], RIGHT + travel)
    return Views(images[0], images[1], disparities[0], disparities[1], occlusion)


def _bounds(surface: Surface, camera_x: float) -> tuple[Array, Array] | None:
    """Smallest and largest ray (X, Y) that can hit the surface; None: any."""
    hull = surface.hull
    if hull is None or hull[:, 2].min() <= 0.0:
        return None
    rays = (hull[:, :2] - [camera_x, 0.0]) / hull[:, 2:]
    return rays.min(axis=0), rays.max(axis=0)


def _span(sorted_rays: Array, low: float, high: float) -> slice:
    """The part of a sorted axis that lies in [low, high]."""
    first = int(np.searchsorted(sorted_rays, low))
    return slice(first, max(int(np.searchsorted(sorted_rays, high, side="right")), first))


def cast_grid(surfaces: tuple[Surface, ...], rays: Rays) -> Hits:
    """The nearest hits (h, w) of a grid of rays."""
    camera_x, X, Y = rays
    inverse = np.zeros((Y.size, X.size))
    owner = np.zeros(inverse.shape, np.int16)
    for number, surface in enumerate(surfaces):
        bounds = _bounds(surface, camera_x)
        rows, columns = slice(None), slice(None)
        if bounds is not None:
            (low_x, low_y), (high_x, high_y) = bounds
            rows, columns = _span(Y, low_y, high_y), _span(X, low_x, high_x)
        hit = surface.cast(camera_x, X[None, columns], Y[rows, None])
        nearer = hit > inverse[rows, columns]
        np.copyto(inverse[rows, columns], hit, where=nearer)
        owner[rows, columns][nearer] = number
    return Hits(inverse, owner)


def _occlusion(world: World, inverse: Array, disparity: Array, camera_x: float) -> BoolArray:
    """Left pixels whose point the right view, from ``camera_x``, cannot see.

    That is decided by rays through the point.
    """
    geometry = world.geometry
    x = np.arange(geometry.width) - disparity  # where the point would be in the right view
    X = geometry.rays_x(x, RIGHT)
    Y = geometry.rays_y(np.arange(geometry.height, dtype=float))
    limit = inverse + OCCLUSION_TOLERANCE / geometry.focal
    hidden = (x < 0.0) | (x > geometry.width - 1)
    for surface in world.surfaces:
        bounds = _bounds(surface, camera_x)
        if bounds is None:
            hidden |= surface.cast(camera_x, X, Y[:, None]) > limit
            continue
        (low_x, low_y), (high_x, high_y) = bounds
        rows = _span(Y, low_y, high_y)
        row, column = np.nonzero((X[rows] >= low_x) & (X[rows] <= high_x))
        row += rows.start
        hit = surface.cast(camera_x, X[row, column], Y[row])
        hidden[row, column] |= hit > limit[row, column]
    return hidden


def _colours(world: World, light_maps: dict[int, LightMap], rays: Rays, hits: Hits) -> Image:
    """Colours (H, W, 3) of the pixels; adds the light maps of the walls that it meets.

    A pixel on one surface takes its colour from the centre, since the textures are band limited;
    one that sees several mixes its 3 x 3 samples 1:2:1 in both directions.
    """
    offsets = [(dy, dx) for dy in range(3) for dx in range(3)]
    centre = _every_other(hits.owner, 1, 1)
    mixed = np.zeros(centre.shape, bool)
    for dy, dx in offsets:
        mixed |= _every_other(hits.owner, dy, dx) != centre
    wanted = np.zeros(hits.owner.shape, bool)
    for dy, dx in offsets:
        _every_other(wanted, dy, dx)[...] |= mixed
    _every_other(wanted, 1, 1)[...] = True

    colours = _shade(world, light_maps, rays, hits, np.flatnonzero(wanted))
    pixels = _every_other(colours, 1, 1).copy()
    row, column = np.nonzero(mixed)
    pixels[row, column] = sum(
        np.float32((1, 2, 1)[dy] * (1, 2, 1)[dx] / 16) * colours[2 * row + dy, 2 * column + dx]
        for dy, dx in offsets
    )
    return pixels


def _every_other(samples: NDArray[Any], dy: int, dx: int) -> NDArray[Any]:
    """The samples at offset (dy, dx), each in 0..2, around all pixel centres, as a view."""
    height, width = samples.shape[0] // 2, samples.shape[1] // 2
    return samples[dy : dy + 2 * height : 2, dx : dx + 2 * width : 2]


def _shade(
    world: World,
    light_maps: dict[int, LightMap],
    rays: Rays,
    hits: Hits,
    wanted: NDArray[np.intp],
) -> Image:
    """Colours (h, w, 3) of the hits with the flat indices ``wanted``, 0 elsewhere."""
    camera_x, X, Y = rays
    # One surface after the other; a stable sort, so that memory is read in order.
    owner = hits.owner.ravel()[wanted]
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(len(world.surfaces) + 1))
    wanted = wanted[order]
    row, column = np.divmod(wanted, X.size)
    depth = 1.0 / hits.inverse.ravel()[wanted]
    points = np.empty((3, wanted.size), np.float32)
    points[0], points[1], points[2] = camera_x + X[column] * depth, Y[row] * depth, depth
    colours = np.empty((wanted.size, 3), np.float32)
    pixel = np.float32(_APERTURE / world.geometry.focal)
    for number, surface in enumerate(world.surfaces):
        chosen = slice(ends[number], ends[number + 1])
        if chosen.start == chosen.stop:
            continue
        seen = points[:, chosen]
        normals = surface.normals(seen)
        footprint = pixel * _footprint(seen, normals)
        albedo = surface.material.colours(surface.coordinates(seen), footprint)
        if number < len(world.walls):
            if number not in light_maps:
                light_maps[number] = LightMap(
                    world.geometry, world.light, number, world.walls, world.hulls
                )
            light = light_maps[number].sample(seen)
        else:
            light = world.light.mix(world.light.direct(seen, normals), normals)
        np.multiply(albedo, light, out=colours[chosen])
    samples = np.zeros((Y.size * X.size, 3), np.float32)
    samples[wanted] = colours
    return samples.reshape(Y.size, X.size, 3)


def _footprint(points: Points, normals: Points) -> Points:
    """Size of a pixel on the surface in world units, per unit of 1 / focal length.

    A slanted surface stretches it in one direction only; the exponent is a compromise between
    aliasing in that direction and blur in the other. Seen from between the cameras, so that a
    point is as sharp in one view as in the other.
    """
    view = points - VIEWPOINT[:, None].astype(np.float32)
    distance = np.sqrt(np.einsum("in,in->n", view, view))
    cosine = np.abs(np.einsum("in,in->n", view, np.broadcast_to(normals, view.shape))) / distance
    return points[2] * np.maximum(cosine, 0.02) ** np.float32(-0.7)
