"""Surfaces of synthetic scenes: exact ray intersections, for either camera.

World coordinates are those of the left camera: x to the right, y down, z forward, in units of the
baseline, so that the left camera sits at ``(0, 0, 0)`` and the right one at ``(1, 0, 0)``. The ray
of a pixel is ``(X, Y, 1)`` and a hit is given by its *inverse depth* ``1/z``, 0 where the ray
misses. Disparity is focal length times inverse depth, which is affine in the image for a plane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hybridstereo.synthetic.textures import Material

Array = NDArray[np.float64]
Points = NDArray[np.float32]  # (3, N): single precision is plenty for colours
BoolArray = NDArray[np.bool_]
Shape = Callable[[Array, Array], BoolArray]

LEFT, RIGHT = 0.0, 1.0  # x of the two cameras
# Between the two cameras: "facing the viewer" must mean the same in both views.
VIEWPOINT = np.array([0.5, 0.0, 0.0])
_EDGE_ON = 1e-9


@dataclass(frozen=True)
class Geometry:
    """The rectified camera pair: pixels, and how they become rays.

    The right principal point lies ``doffs`` pixels to the right of the left one, so disparity is
    ``focal / z - doffs`` (Middlebury's convention, with a baseline of 1). The scene keeps to
    disparities between ``min_disparity`` and ``max_disparity``.
    """

    width: int
    height: int
    focal: float
    doffs: float
    min_disparity: float
    max_disparity: float

    @property
    def centre(self) -> tuple[float, float]:
        """Principal point of the left view."""
        return (self.width - 1) / 2, (self.height - 1) / 2

    def rays_x(self, x: Array, camera_x: float) -> Array:
        """X of the rays through columns ``x``."""
        return (x - self.centre[0] - camera_x * self.doffs) / self.focal

    def rays_y(self, y: Array) -> Array:
        """Y of the rays through rows ``y``."""
        return (y - self.centre[1]) / self.focal

    def disparity(self, inverse: Array) -> Array:
        """Disparity of inverse depths."""
        return self.focal * inverse - self.doffs


class Surface(Protocol):
    """What the renderer needs from a surface."""

    @property
    def material(self) -> Material:
        """Texture and its scale."""

    @property
    def hull(self) -> Array | None:
        """Points (N, 3) whose convex hull contains the surface; None if it is unbounded."""

    def cast(self, camera_x: float, X: Array, Y: Array) -> Array:
        """Inverse depth of the first hit of the rays (X, Y, 1) from (camera_x, 0, 0), else 0."""

    def coordinates(self, points: Points) -> Points:
        """Texture coordinates (2, N), in world units, of points (3, N) on the surface."""

    def normals(self, points: Points) -> Points:
        """Unit normals towards the viewer at points (3, N): (3, N), or (3, 1) for a plane."""


def rectangle(half_u: float, half_v: float) -> Shape:
    """The rectangle ``|u| <= half_u, |v| <= half_v``."""
    return lambda u, v: (np.abs(u) <= half_u) & (np.abs(v) <= half_v)


def ellipse(half_u: float, half_v: float, hole: float = 0.0) -> Shape:
    """An ellipse; with ``hole`` in (0, 1) a ring whose hole has that share of the radius."""

    def inside(u: Array, v: Array) -> BoolArray:
        radius = (u / half_u) ** 2 + (v / half_v) ** 2
        return (radius <= 1.0) & (radius >= hole * hole)

    return inside


def lattice(half_u: float, half_v: float, pitch_u: float, pitch_v: float, bar: float) -> Shape:
    """A rectangular grid of bars of width ``bar``; an infinite pitch leaves that direction out."""

    def bars(position: Array, half: float, pitch: float) -> BoolArray:
        if np.isinf(pitch):
            return half - np.abs(position) <= bar
        return np.mod(position + half, pitch) <= bar

    def inside(u: Array, v: Array) -> BoolArray:
        frame = rectangle(half_u, half_v)(u, v)
        return frame & (bars(u, half_u, pitch_u) | bars(v, half_v, pitch_v))

    return inside


def _dot(X: Array, Y: Array, direction: Array) -> Array:
    """``(X, Y, 1) . direction`` with broadcasting."""
    return X * direction[0] + (Y * direction[1] + direction[2])


def _project(points: Points, origin: Array, *axes: Array) -> Points:
    """Coordinates (len(axes), N) of points (3, N) relative to ``origin``."""
    basis = np.stack(axes)
    return basis.astype(np.float32) @ points - (basis @ origin).astype(np.float32)[:, None]


def _offset(camera_x: float, origin: Array) -> Array:
    """Vector from ``origin`` to the camera."""
    return np.array([camera_x, 0.0, 0.0]) - origin


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane, cut out by ``shape`` in its own coordinates.

    Parameters
    ----------
    origin
        Point (3,) with surface coordinates (0, 0).
    axis_u, axis_v
        Orthonormal directions (3,) of the surface coordinates.
    material
        Texture and its scale.
    shape
        Whether ``(u, v)`` belongs to the surface; None: everywhere.
    half_u, half_v
        Half the size of a rectangle that contains the shape.

    """

    origin: Array
    axis_u: Array
    axis_v: Array
    material: Material
    shape: Shape | None = None
    half_u: float = np.inf
    half_v: float = np.inf

    @cached_property
    def normal(self) -> Array:
        """Unit normal towards the viewer."""
        normal = np.cross(self.axis_u, self.axis_v)
        return normal if normal @ (VIEWPOINT - self.origin) >= 0 else -normal

    @cached_property
    def hull(self) -> Array | None:
        """The four corners of the bounding rectangle."""
        if self.shape is None:
            return None
        signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
        u, v = signs[:, :1] * self.half_u, signs[:, 1:] * self.half_v
        return self.origin + u * self.axis_u + v * self.axis_v

    def cast(self, camera_x: float, X: Array, Y: Array) -> Array:
        """See `Surface.cast`."""
        normal, offset = self.normal, _offset(camera_x, self.origin)
        distance = -float(normal @ offset)
        if abs(distance) < _EDGE_ON:
            return np.zeros(np.broadcast_shapes(X.shape, Y.shape))
        inverse = _dot(X, Y, normal / distance)
        if self.shape is None:
            return np.maximum(inverse, 0.0, out=inverse)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            u = _dot(X, Y, self.axis_u) / inverse + offset @ self.axis_u
            v = _dot(X, Y, self.axis_v) / inverse + offset @ self.axis_v
            inverse[~(self.shape(u, v) & (inverse > 0.0))] = 0.0
        return inverse

    def coordinates(self, points: Points) -> Points:
        """See `Surface.coordinates`."""
        return _project(points, self.origin, self.axis_u, self.axis_v)

    def normals(self, points: Points) -> Points:
        """See `Surface.normals`."""
        return self.normal[:, None].astype(np.float32)


@dataclass(frozen=True, eq=False)
class Sphere:
    """A ball seen from outside."""

    centre: Array
    radius: float
    material: Material

    @cached_property
    def hull(self) -> Array:
        """A polyhedron of 64 nearly equidistant (Fibonacci) points around the sphere."""
        index = np.arange(64) + 0.5
        z = 1.0 - index / 32.0
        azimuth = index * np.pi * (3.0 - np.sqrt(5.0))
        ring = np.sqrt(1.0 - z * z)
        directions = np.stack([ring * np.cos(azimuth), ring * np.sin(azimuth), z], axis=1)
        # No direction is further than 0.35 rad from one of the points, and 1.08 cos(0.35) > 1.
        return self.centre + 1.08 * self.radius * directions

    def cast(self, camera_x: float, X: Array, Y: Array) -> Array:
        """See `Surface.cast`; solves ``|(X, Y, 1) z - c|^2 = r^2`` for ``1/z``."""
        centre = -_offset(camera_x, self.centre)
        along = _dot(X, Y, centre)
        constant = centre @ centre - self.radius**2
        root = along**2 - constant * (X * X + (Y * Y + 1.0))
        hit = root >= 0.0
        return np.where(hit, (along + np.sqrt(np.where(hit, root, 0.0))) / constant, 0.0)

    def coordinates(self, points: Points) -> Points:
        """See `Surface.coordinates`; Lambert's equal-area map has no seam on the visible side."""
        towards = VIEWPOINT - self.centre
        towards = towards / np.linalg.norm(towards)
        axis_u = np.cross(towards, [0.0, 1.0, 0.0])
        axis_u = axis_u / np.linalg.norm(axis_u)
        axis_v = np.cross(axis_u, towards)
        radius = np.float32(self.radius)
        u, v, front = _project(points, self.centre, axis_u, axis_v, towards)
        scale = np.sqrt(2.0 / np.maximum(1.0 + front / radius, 1e-6))
        return np.stack([u * scale, v * scale])

    def normals(self, points: Points) -> Points:
        """See `Surface.normals`."""
        return _project(points, self.centre, *np.eye(3)) / np.float32(self.radius)


@dataclass(frozen=True, eq=False)
class Cylinder:
    """The mantle of a round rod from ``base`` along the unit vector ``axis``; open ends."""

    base: Array
    axis: Array
    length: float
    radius: float
    material: Material

    @cached_property
    def _frame(self) -> tuple[Array, Array]:
        """Two unit vectors across the axis; the first points to the viewer."""
        towards = VIEWPOINT - self.base
        towards = towards - (towards @ self.axis) * self.axis
        towards = towards / np.linalg.norm(towards)
        return towards, np.cross(self.axis, towards)

    @cached_property
    def hull(self) -> Array:
        """Octagons around both ends."""
        towards, across = self._frame
        angle = np.arange(8) * (np.pi / 4)
        reach = self.radius / np.cos(np.pi / 8)
        ring = reach * (np.cos(angle)[:, None] * towards + np.sin(angle)[:, None] * across)
        start = self.base + ring
        return np.concatenate([start, start + self.length * self.axis])

    def cast(self, camera_x: float, X: Array, Y: Array) -> Array:
        """See `Surface.cast`; works in the two coordinates across the axis."""
        first, second = self._frame
        offset = _offset(camera_x, self.base)
        ray = _dot(X, Y, first), _dot(X, Y, second)
        start = offset @ first, offset @ second
        constant = start[0] ** 2 + start[1] ** 2 - self.radius**2
        if constant <= 0.0:  # the camera looks along the inside of the rod
            return np.zeros(np.broadcast_shapes(X.shape, Y.shape))
        along = -(ray[0] * start[0] + ray[1] * start[1])
        root = along**2 - constant * (ray[0] ** 2 + ray[1] ** 2)
        inverse = (along + np.sqrt(np.maximum(root, 0.0))) / constant
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            height = _dot(X, Y, self.axis) / inverse + offset @ self.axis
            hit = (root >= 0.0) & (inverse > 0.0) & (height >= 0.0) & (height <= self.length)
        inverse[~hit] = 0.0
        return inverse

    def coordinates(self, points: Points) -> Points:
        """See `Surface.coordinates`; the seam is on the far side."""
        front, side, height = _project(points, self.base, *self._frame, self.axis)
        return np.stack([np.arctan2(side, front) * np.float32(self.radius), height])

    def normals(self, points: Points) -> Points:
        """See `Surface.normals`."""
        first, second = self._frame
        across = _project(points, self.base, first, second)
        basis = np.stack([first, second], axis=1) / self.radius
        return basis.astype(np.float32) @ across
