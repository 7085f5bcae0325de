"""Random worlds: a room, slanted backdrops or a plain street, furnished with objects, and lit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hybridstereo.synthetic.light import Light
from hybridstereo.synthetic.objects import (
    FLOATING,
    STANDING,
    Kind,
    Spot,
    poster,
    random_material,
    rotation,
)
from hybridstereo.synthetic.patterns import Rng
from hybridstereo.synthetic.render import World
from hybridstereo.synthetic.surfaces import LEFT, RIGHT, Array, Geometry, Plane, Surface

_ROOM_SHARE = 0.75  # of the worlds; the others are slanted backdrops with floating objects
_POSTER_SHARE = 0.2  # of the objects
_FLOATING_SHARE = 0.12  # of the other objects in a room
_OBJECT_TEXELS, _WALL_TEXELS = 256, 512
# Of plain worlds:
_STREET_SHARE = 0.75  # the others are slanted backdrops
_WALL_SHARE = 0.6  # of the three places for a wall beside a street
_PLAIN_SHARE = 0.6  # of these walls
_CASTERS = 2, 7  # number of unseen things that cast shadows
_ATTEMPTS = 8  # at placing an object so that no part of it comes too near


@dataclass(frozen=True, eq=False)
class _Stage:
    """The empty world: what limits it, and its directions.

    Parameters
    ----------
    geometry
        The cameras.
    walls
        Unbounded planes; the nearest one along each ray is seen.
    axes
        Right, down and forward, as the columns of a rotation (3, 3).
    floor
        The plane that objects stand on; None: they float.

    """

    geometry: Geometry
    walls: tuple[Plane, ...]
    axes: Array
    floor: Plane | None

    def ray(self, x: float, y: float) -> Array:
        """Direction (X, Y, 1) of the left view's pixel (x, y)."""
        rays = self.geometry.rays_x(np.array(x), LEFT), self.geometry.rays_y(np.array(y))
        return np.array([*rays, 1.0])

    def wall_at(self, ray: Array) -> tuple[Plane, float]:
        """The wall that the left view sees along a ray, and its inverse depth there."""
        inverse = [float(wall.cast(LEFT, ray[:1], ray[1:2])[0]) for wall in self.walls]
        nearest = int(np.argmax(inverse))
        return self.walls[nearest], inverse[nearest]


def build_world(rng: Rng, geometry: Geometry, objects: int) -> World:
    """A random world whose visible points all keep to the disparity range of ``geometry``."""
    stage = _room(rng, geometry) if rng.uniform() < _ROOM_SHARE else _backdrops(rng, geometry)
    surfaces: list[Surface] = []
    for _ in range(objects):
        surfaces += _furnish(rng, stage)
    return World(geometry, stage.walls, tuple(surfaces), _light(rng, stage))


def build_plain_world(rng: Rng, geometry: Geometry, objects: int) -> World:
    """A random world of large, nearly plain, slanted surfaces under hard and soft shadows.

    Few objects stand on a street with some walls beside it, or in front of slanted backdrops; what
    casts the other shadows is not seen. All visible points keep to the disparity range.
    """
    if rng.uniform() < _STREET_SHARE:
        stage = _street(rng, geometry)
    else:
        stage = _backdrops(rng, geometry, plain=True)
    surfaces: list[Surface] = []
    for _ in range(objects):
        surfaces += _furnish(rng, stage)
    light = _sun(rng, stage)
    casters = [_caster(rng, stage, light) for _ in range(int(rng.integers(*_CASTERS)))]
    return World(geometry, stage.walls, tuple(surfaces), light, tuple(casters))


def _inverse_depth(geometry: Geometry, share: float) -> float:
    """Inverse depth at a share of the disparity range, which shrinks a little for rounding."""
    inside = 0.005 + 0.99 * share
    span = geometry.max_disparity - geometry.min_disparity
    return (geometry.min_disparity + inside * span + geometry.doffs) / geometry.focal


def _texels(geometry: Geometry, most: int) -> int:
    """Side of a texture: ``most``, or less for small views, which could not show it all."""
    side = max(geometry.width, geometry.height)
    return int(np.clip(most * 2 ** np.ceil(np.log2(side / _WALL_TEXELS)), 32, most))


def _wall(
    rng: Rng,
    geometry: Geometry,
    outwards: Array,
    axis_u: Array,
    share: float,
    plain: bool = False,
) -> Plane:
    """The plane with the given normal that comes as near as a share of the disparity range.

    A plane's inverse depth is affine in the image, hence largest in a corner of one of the views.
    """
    x, y = np.array([-1.0, geometry.width]), np.array([-1.0, geometry.height])
    nearest = _inverse_depth(geometry, share)
    distance = 0.0
    for camera in (LEFT, RIGHT):
        X, Y = np.meshgrid(geometry.rays_x(x, camera), geometry.rays_y(y))
        reach = float((X * outwards[0] + Y * outwards[1] + outwards[2]).max())
        reach = max(reach, 0.1)  # both cameras are inside, even if neither sees the wall
        distance = max(distance, reach / nearest + camera * outwards[0])
    pixel = 1.0 / (nearest * geometry.focal)
    texels = _texels(geometry, _WALL_TEXELS)
    material = random_material(rng, pixel, texels, wall=True, plain=plain)
    return Plane(distance * outwards, axis_u, np.cross(outwards, axis_u), material)


def _backdrop(rng: Rng, geometry: Geometry) -> Plane:
    """The frontal plane behind everything, which keeps the disparities above the lower limit."""
    return _wall(rng, geometry, np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0]), 0.0)


def _room(rng: Rng, geometry: Geometry) -> _Stage:
    """Floor, ceiling and walls around the cameras, which look a little down and to one side."""
    yaw, pitch, roll = rng.normal(0.0, 0.3), rng.uniform(0.02, 0.3), rng.normal(0.0, 0.02)
    axes = rotation(yaw, pitch, roll)
    right, down, forward = axes.T
    walls = [
        _wall(rng, geometry, outwards, along, share)
        for outwards, along, share in (
            (down, right, rng.uniform(0.5, 0.95)),
            (-down, right, rng.uniform(0.1, 0.4)),
            (-right, forward, rng.uniform(0.1, 0.6)),
            (right, forward, rng.uniform(0.1, 0.6)),
            (forward, right, rng.uniform(0.03, 0.25)),
        )
    ]
    return _Stage(geometry, (*walls, _backdrop(rng, geometry)), axes, walls[0])


def _street(rng: Rng, geometry: Geometry) -> _Stage:
    """A wide, plain floor that comes near, and up to three walls along it, most of them plain."""
    yaw, pitch, roll = rng.normal(0.0, 0.25), rng.uniform(0.0, 0.5), rng.normal(0.0, 0.03)
    axes = rotation(yaw, pitch, roll)
    right, down, forward = axes.T
    walls = [_wall(rng, geometry, down, right, rng.uniform(0.6, 0.98), plain=True)]
    places = ((-right, forward, 0.6), (right, forward, 0.6), (forward, right, 0.25))
    for outwards, along, nearest in places:
        if rng.uniform() < _WALL_SHARE:
            share, plain = rng.uniform(0.03, nearest), rng.uniform() < _PLAIN_SHARE
            walls.append(_wall(rng, geometry, outwards, along, share, plain))
    return _Stage(geometry, (*walls, _backdrop(rng, geometry)), axes, walls[0])


def _backdrops(rng: Rng, geometry: Geometry, plain: bool = False) -> _Stage:
    """A few strongly slanted planes behind everything."""
    walls = []
    for _ in range(int(rng.integers(1, 4))):
        turned = rotation(rng.uniform(-1.0, 1.0), rng.uniform(-1.0, 1.0), rng.uniform(-3.0, 3.0))
        share = rng.uniform(0.1, 0.6)
        walls.append(_wall(rng, geometry, turned[:, 2], turned[:, 0], share, plain))
    return _Stage(geometry, (*walls, _backdrop(rng, geometry)), np.eye(3), None)


def _furnish(rng: Rng, stage: _Stage) -> list[Surface]:
    """The surfaces of one more object; none if it finds no place within the disparity range."""
    geometry = stage.geometry
    nearest_depth = 1.0 / _inverse_depth(geometry, 1.0)
    smaller = min(geometry.width, geometry.height)
    for attempt in range(_ATTEMPTS):
        # Near objects look larger, and a narrow disparity range has room for small ones only.
        share = rng.uniform(0.02, 0.95)
        pixels = smaller * rng.uniform(0.12, 0.4) * (0.6 + 0.7 * share) * 0.8**attempt
        if rng.uniform() < _POSTER_SHARE:
            surfaces = poster(rng, _wall_spot(rng, stage, pixels))
        else:
            placed = _free_spot(rng, stage, share, pixels)
            if placed is None:
                continue
            kinds, spot = placed
            surfaces = _choose(rng, kinds)(rng, spot)
        depths = [hull[:, 2].min() for surface in surfaces if (hull := surface.hull) is not None]
        if min(depths) >= nearest_depth:
            return surfaces
    return []


def _choose(rng: Rng, kinds: dict[Kind, float]) -> Kind:
    """One of the kinds, according to their weights."""
    weights = np.array(list(kinds.values()))
    return list(kinds)[rng.choice(len(weights), p=weights / weights.sum())]


def _wall_spot(rng: Rng, stage: _Stage, pixels: float) -> Spot:
    """A place on a wall, a little in front of it."""
    geometry = stage.geometry
    ray = stage.ray(rng.uniform(0.0, geometry.width), rng.uniform(0.0, geometry.height))
    wall, inverse = stage.wall_at(ray)
    axes = np.stack([wall.axis_u, wall.axis_v, np.cross(wall.axis_u, wall.axis_v)], axis=1)
    pixel = 1.0 / (inverse * geometry.focal)
    # Each by another amount: of two coplanar pictures, rounding would pick one at random.
    nearer = 1.0 - rng.uniform(0.001, 0.005)
    return Spot(
        nearer * ray / inverse, axes, pixels * pixel, pixel, _texels(geometry, _OBJECT_TEXELS)
    )


def _free_spot(
    rng: Rng, stage: _Stage, share: float, pixels: float
) -> tuple[dict[Kind, float], Spot] | None:
    """A place on the floor or in the air, with what can be there; None if a wall hides it."""
    geometry = stage.geometry
    inverse = _inverse_depth(geometry, share)
    x = geometry.width * rng.uniform(-0.05, 1.05)
    ray = stage.ray(x, geometry.height * rng.uniform(0.0, 1.1))
    standing = stage.floor is not None and rng.uniform() >= _FLOATING_SHARE
    if standing and stage.floor is not None:
        # The floor's points P satisfy gradient . P = 1, so its inverse depth is gradient . ray.
        gradient = stage.floor.origin / (stage.floor.origin @ stage.floor.origin)
        ray[1] = (inverse - gradient[0] * ray[0] - gradient[2]) / gradient[1]
        if ray[1] > geometry.rays_y(np.array(1.15 * geometry.height)):
            return None
        axes = stage.axes @ rotation(rng.uniform(-np.pi, np.pi), 0.0, 0.0)
    else:
        axes = rotation(rng.normal(0.0, 0.6), rng.normal(0.0, 0.5), rng.uniform(-np.pi, np.pi))
    if stage.wall_at(ray)[1] > 1.001 * inverse:
        return None
    pixel = 1.0 / (inverse * geometry.focal)
    spot = Spot(ray / inverse, axes, pixels * pixel, pixel, _texels(geometry, _OBJECT_TEXELS))
    return (STANDING if standing else FLOATING), spot


def _light(rng: Rng, stage: _Stage) -> Light:
    """A warm or cool lamp above the middle of the scene, inside the walls."""
    distance = 1.0 / _inverse_depth(stage.geometry, 0.35)
    right, down, forward = stage.axes.T
    position = distance * (
        rng.uniform(-0.7, 0.7) * right
        - rng.uniform(0.3, 1.0) * down
        + rng.uniform(0.1, 0.8) * forward
    )
    gradients = [wall.origin / (wall.origin @ wall.origin) for wall in stage.walls]
    position = position * min(1.0, 0.85 / max(float(g @ position) for g in gradients))
    warmth = rng.uniform(-0.06, 0.15)
    return Light(
        position=position,
        reach=distance * rng.uniform(0.8, 1.8),
        colour=np.array([1.0 + warmth, 1.0, 1.0 - warmth]),
        ambient=rng.uniform(0.2, 0.5) * np.array([1.0 - 0.5 * warmth, 1.0, 1.0 + 0.5 * warmth]),
        up=-down,
        softness=rng.uniform(1.5, 6.0),
    )


def _sun(rng: Rng, stage: _Stage) -> Light:
    """A light far above, and a blue sky, which lights the shadows."""
    distance = 1.0 / _inverse_depth(stage.geometry, 0.35)
    right, down, forward = stage.axes.T
    position = distance * (
        rng.uniform(-4.0, 4.0) * right
        - rng.uniform(3.0, 6.0) * down
        + rng.uniform(-4.0, 3.0) * forward
    )
    warmth = rng.uniform(0.0, 0.1)
    return Light(
        position=position,
        reach=6.0 * distance,
        colour=np.array([1.0 + warmth, 1.0, 1.0 - warmth]),
        ambient=rng.uniform(0.15, 0.5) * np.array([1.0 - 0.5 * warmth, 1.0, 1.0 + warmth]),
        up=-down,
        softness=float(np.exp(rng.uniform(np.log(0.7), np.log(10.0)))),
    )


def _caster(rng: Rng, stage: _Stage, light: Light) -> Array:
    """Points (N, 3) around something between the light and a place that the left view sees."""
    geometry = stage.geometry
    # Rather below the middle: the sky catches no shadow.
    y = geometry.height * np.sqrt(rng.uniform(0.1, 1.0))
    wall, inverse = stage.wall_at(ray := stage.ray(rng.uniform(0.0, geometry.width), y))
    point = ray / inverse
    size = geometry.width / (inverse * geometry.focal)
    long, narrow = size * rng.uniform(0.2, 1.0), size * np.exp(rng.uniform(-4.0, -0.5))
    turn = rng.uniform(0.0, 2.0 * np.pi)
    axis = np.cos(turn) * wall.axis_u + np.sin(turn) * wall.axis_v
    across = np.cos(turn) * wall.axis_v - np.sin(turn) * wall.axis_u
    angles = np.sort(rng.uniform(0.0, 2.0 * np.pi, int(rng.integers(4, 9))))
    outline = long * np.cos(angles)[:, None] * axis + narrow * np.sin(angles)[:, None] * across
    near = rng.uniform(0.05, 0.4)
    return np.asarray(point + outline + near * (light.position - point - outline))
