"""Objects of synthetic scenes: boxes, spheres, slanted panels and thin structures.

Each kind is a function ``(rng, spot) -> surfaces``. An object stands on ``spot.point`` and has
roughly the size ``spot.size``; the same kinds serve standing objects (the spot's "down" is that
of the room) and floating ones (it is arbitrary).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hybridstereo.synthetic.patterns import Rng
from hybridstereo.synthetic.surfaces import (
    LEFT,
    RIGHT,
    Array,
    Cylinder,
    Plane,
    Shape,
    Sphere,
    Surface,
    ellipse,
    lattice,
    rectangle,
)
from hybridstereo.synthetic.textures import Material, Texture


@dataclass(frozen=True, eq=False)
class Spot:
    """A place for an object.

    Parameters
    ----------
    point
        Where it stands (3,).
    axes
        Its directions right, down and forward, as the columns of a rotation (3, 3).
    size
        Its size in world units.
    pixel
        Width of a pixel at that depth in world units.
    texels
        Side of the textures to use.

    """

    point: Array
    axes: Array
    size: float
    pixel: float
    texels: int

    def at(self, right: float, up: float, forward: float) -> Array:
        """World coordinates of a point relative to where the object stands."""
        return np.asarray(self.point + self.axes @ np.array([right, -up, forward]))

    def turned(self, yaw: float) -> Spot:
        """The same spot, turned about its vertical axis."""
        return replace(self, axes=self.axes @ rotation(yaw, 0.0, 0.0))

    def material(self, rng: Rng, angle: float = 0.0) -> Material:
        """A random material for an object here."""
        return random_material(rng, self.pixel, self.texels, angle)


def rotation(yaw: float, pitch: float, roll: float) -> Array:
    """Rotation matrix about y (yaw), then x (pitch), then z (roll)."""
    (cy, sy), (cp, sp), (cr, sr) = ((np.cos(a), np.sin(a)) for a in (yaw, pitch, roll))
    about_y = np.array([[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]])
    about_x = np.array([[1.0, 0.0, 0.0], [0.0, cp, -sp], [0.0, sp, cp]])
    about_z = np.array([[cr, -sr, 0.0], [sr, cr, 0.0], [0.0, 0.0, 1.0]])
    return np.asarray(about_z @ about_x @ about_y)


def random_material(
    rng: Rng,
    pixel: float,
    texels: int,
    angle: float = 0.0,
    wall: bool = False,
    plain: bool = False,
) -> Material:
    """A random texture whose texels are about as wide as a pixel."""
    texture = Texture(int(rng.integers(2**32)), texels, wall, plain)
    return Material(texture, pixel * rng.uniform(0.7, 1.5), angle)


def _moved(rng: Rng, material: Material) -> Material:
    """The same material, cut from another part of the texture."""
    first, second = rng.uniform(0.0, material.texture.size, 2)
    return replace(material, origin=(float(first), float(second)))


def _cuboid(
    rng: Rng, spot: Spot, sides: tuple[float, float, float], material: Material
) -> list[Surface]:
    """The faces that a camera can see of a cuboid (right, up, forward) standing on the spot."""
    halves = np.array(sides) / 2.0
    centre = spot.at(0.0, halves[1], 0.0)
    faces: list[Surface] = []
    for axis, sign in np.ndindex(3, 2):
        outwards = spot.axes[:, axis] * (2 * sign - 1)
        origin = centre + outwards * halves[axis]
        if all(outwards @ ([camera, 0.0, 0.0] - origin) <= 0.0 for camera in (LEFT, RIGHT)):
            continue
        across, upright = (2, 1) if axis == 0 else (0, 2) if axis == 1 else (0, 1)
        shape = rectangle(halves[across], halves[upright])
        axis_u, axis_v = spot.axes[:, across], spot.axes[:, upright]
        half_u, half_v = float(halves[across]), float(halves[upright])
        face = Plane(origin, axis_u, axis_v, _moved(rng, material), shape, half_u, half_v)
        faces.append(face)
    return faces


def _rod(start: Array, end: Array, radius: float, material: Material) -> Cylinder:
    """A rod between two points."""
    length = float(np.linalg.norm(end - start))
    return Cylinder(start, (end - start) / length, length, radius, material)


def _disc(centre: Array, spot: Spot, radius: float, material: Material) -> Plane:
    """A horizontal disc."""
    right, _, forward = spot.axes.T
    return Plane(centre, right, forward, material, ellipse(radius, radius), radius, radius)


def _thin(rng: Rng, spot: Spot) -> float:
    """Half the width of a thin structure: about one to three pixels."""
    return spot.pixel * rng.uniform(0.8, 3.0)


def box(rng: Rng, spot: Spot) -> list[Surface]:
    """A box."""
    width, height, depth = spot.size * rng.uniform(0.5, 1.3, 3)
    return _cuboid(rng, spot, (width, height, depth), spot.material(rng))


def stack(rng: Rng, spot: Spot) -> list[Surface]:
    """Boxes on top of each other, smaller and turned from one to the next."""
    surfaces: list[Surface] = []
    height, width = 0.0, spot.size * rng.uniform(0.8, 1.2)
    for _ in range(int(rng.integers(2, 5))):
        thickness = width * rng.uniform(0.2, 0.6)
        level = replace(spot, point=spot.at(0.0, height, 0.0)).turned(rng.uniform(-0.5, 0.5))
        sides = (width, thickness, width * rng.uniform(0.6, 1.0))
        surfaces += _cuboid(rng, level, sides, spot.material(rng))
        height += thickness
        width *= rng.uniform(0.7, 0.95)
    return surfaces


def sphere(rng: Rng, spot: Spot) -> list[Surface]:
    """A ball."""
    radius = spot.size * rng.uniform(0.3, 0.55)
    material = spot.material(rng, angle=rng.uniform(0.0, 2 * np.pi))
    return [Sphere(spot.at(0.0, radius, 0.0), radius, _moved(rng, material))]


def can(rng: Rng, spot: Spot) -> list[Surface]:
    """An upright can with its lids."""
    radius, height = spot.size * rng.uniform(0.2, 0.45), spot.size * rng.uniform(0.5, 1.3)
    material, lid = spot.material(rng), spot.material(rng)
    bottom, top = spot.at(0.0, 0.0, 0.0), spot.at(0.0, height, 0.0)
    ends = [_disc(end, spot, radius, lid) for end in (bottom, top)]
    return [_rod(bottom, top, radius, material), *ends]


def table(rng: Rng, spot: Spot) -> list[Surface]:
    """A board on four thin legs, sometimes with something on it."""
    width, depth = spot.size * rng.uniform(0.9, 1.6), spot.size * rng.uniform(0.6, 1.0)
    height, board = spot.size * rng.uniform(0.5, 0.9), spot.size * rng.uniform(0.04, 0.09)
    wood = spot.material(rng)
    leg = min(_thin(rng, spot), 0.1 * depth)
    surfaces: list[Surface] = []
    for side, end in np.ndindex(2, 2):
        right, forward = (side - 0.5) * 0.9 * width, (end - 0.5) * 0.9 * depth
        surfaces.append(
            _rod(spot.at(right, 0, forward), spot.at(right, height, forward), leg, wood)
        )
    surfaces += _cuboid(rng, _raised(spot, height), (width, board, depth), wood)
    if rng.uniform() < 0.6:
        top = replace(_raised(spot, height + board), size=0.45 * spot.size)
        thing = (box, sphere, can, stack)[rng.integers(4)]
        surfaces += thing(rng, top)
    return surfaces


def _raised(spot: Spot, height: float) -> Spot:
    """The same spot, higher."""
    return replace(spot, point=spot.at(0.0, height, 0.0))


def panel(rng: Rng, spot: Spot) -> list[Surface]:
    """A slanted plane: rectangle, ellipse or ring."""
    half_u, half_v = spot.size * rng.uniform(0.3, 0.8, 2)
    shapes: tuple[Shape, ...] = (
        rectangle(half_u, half_v),
        rectangle(half_u, half_v),
        ellipse(half_u, half_v),
        ellipse(half_u, half_v, hole=rng.uniform(0.4, 0.85)),
    )
    return [_leaning(rng, spot, shapes[rng.integers(len(shapes))], half_u, half_v)]


def fence(rng: Rng, spot: Spot) -> list[Surface]:
    """A fence, shelf or grid: bars a few pixels wide with a view through."""
    half_u, half_v = spot.size * rng.uniform(0.6, 1.2), spot.size * rng.uniform(0.4, 0.8)
    bar = 2.0 * _thin(rng, spot)
    pitch = bar * rng.uniform(3.0, 9.0)
    pitch_v = pitch * rng.choice([1.0, 2.5, np.inf])
    shape = lattice(half_u, half_v, pitch, pitch_v, bar)
    return [_leaning(rng, spot, shape, half_u, half_v)]


def _leaning(rng: Rng, spot: Spot, shape: Shape, half_u: float, half_v: float) -> Plane:
    """A flat shape that stands on the spot and leans back or forth."""
    tilt = rng.uniform(-0.6, 0.6)
    right, down, forward = spot.axes.T
    axis_v = np.cos(tilt) * down + np.sin(tilt) * forward
    origin = spot.point - half_v * axis_v
    material = spot.material(rng, angle=rng.choice([0.0, 0.5 * np.pi, 0.4]))
    return Plane(origin, right, axis_v, _moved(rng, material), shape, half_u, half_v)


def pole(rng: Rng, spot: Spot) -> list[Surface]:
    """A long upright pole, thin or thick."""
    radius = _thin(rng, spot) * rng.choice([1.0, 1.0, 3.0])
    height = spot.size * rng.uniform(1.5, 4.0)
    material = spot.material(rng)
    return [_rod(spot.at(0.0, 0.0, 0.0), spot.at(0.0, height, 0.0), radius, material)]


def twigs(rng: Rng, spot: Spot) -> list[Surface]:
    """Thin rods that spread from one place like a bare plant, in a pot."""
    pot = replace(spot, size=0.35 * spot.size)
    surfaces = can(rng, pot)
    bark = spot.material(rng)
    start = _raised(spot, 0.15 * spot.size)
    for _ in range(int(rng.integers(4, 11))):
        right, forward = spot.size * rng.uniform(-0.7, 0.7, 2)
        end = start.at(right, spot.size * rng.uniform(0.5, 1.3), forward)
        surfaces.append(_rod(start.point, end, 0.6 * _thin(rng, spot), bark))
    return surfaces


def lamp(rng: Rng, spot: Spot) -> list[Surface]:
    """A ball that hangs from a long wire."""
    raised = _raised(spot, spot.size * rng.uniform(0.8, 1.6))
    (ball,) = sphere(rng, replace(raised, size=0.5 * spot.size))
    wire = spot.material(rng)
    low, high = raised.at(0.0, 0.1 * spot.size, 0.0), raised.at(0.0, 6.0 * spot.size, 0.0)
    return [ball, _rod(low, high, 0.4 * _thin(rng, spot), wire)]


def poster(rng: Rng, spot: Spot) -> list[Surface]:
    """A flat picture upright against what lies behind the spot."""
    half_u, half_v = spot.size * rng.uniform(0.3, 0.8, 2)
    right, down, _ = spot.axes.T
    material = _moved(rng, spot.material(rng))
    shape = rectangle(half_u, half_v)
    return [Plane(spot.point, right, down, material, shape, half_u, half_v)]


Kind = Callable[[Rng, Spot], list[Surface]]

# How often each kind occurs: standing in a room, and floating in front of backdrops.
STANDING: dict[Kind, float] = {
    box: 3.0,
    stack: 1.5,
    sphere: 1.5,
    can: 1.5,
    table: 1.5,
    panel: 1.0,
    fence: 1.0,
    pole: 1.0,
    twigs: 1.0,
    lamp: 0.7,
}
FLOATING: dict[Kind, float] = {box: 2.0, sphere: 1.5, can: 0.7, panel: 4.0, fence: 1.0, pole: 1.5}
