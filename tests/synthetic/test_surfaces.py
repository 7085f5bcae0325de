from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.synthetic.render import Rays, cast_grid
from hybridstereo.synthetic.surfaces import (
    LEFT,
    RIGHT,
    Cylinder,
    Plane,
    Sphere,
    ellipse,
    lattice,
    rectangle,
)
from hybridstereo.synthetic.textures import Material, Texture

MATERIAL = Material(Texture(0, 32), 1.0)


def test_plane_maps_affinely():
    """d = a x + b y + c on the left gives d = (a x + b y + c) / (1 - a) on the right."""
    focal, (a, b, c) = 100.0, (0.2, -0.1, 20.0)
    gradient = np.array([a, b, c / focal])  # gradient . P = 1 for P on the plane, f = 1 pixel
    origin = gradient / (gradient @ gradient)
    normal = gradient / np.linalg.norm(gradient)
    axis_u = np.cross(normal, [0.0, 1.0, 0.0])
    axis_u /= np.linalg.norm(axis_u)
    plane = Plane(origin, axis_u, np.cross(normal, axis_u), MATERIAL)
    x, y = np.linspace(-40, 40, 9)[None, :], np.linspace(-30, 30, 7)[:, None]
    left = focal * plane.cast(LEFT, x / focal, y / focal)
    np.testing.assert_allclose(left, a * x + b * y + c)
    right = focal * plane.cast(RIGHT, x / focal, y / focal)
    np.testing.assert_allclose(right, (a * x + b * y + c) / (1 - a))


SPHERE = Sphere(np.array([0.4, -0.3, 9.0]), 1.7, MATERIAL)
ROD = Cylinder(np.array([-1.0, 2.0, 7.0]), np.array([0.6, -0.8, 0.0]), 3.0, 0.5, MATERIAL)
AXES = np.array([0.8, 0.0, 0.6]), np.array([0.0, 1.0, 0.0])
PANEL = Plane(np.array([0.5, 0.2, 8.0]), *AXES, MATERIAL, ellipse(2.0, 1.0, 0.3), 2.0, 1.0)


@pytest.mark.parametrize("surface", [SPHERE, ROD, PANEL])
@pytest.mark.parametrize("camera", [LEFT, RIGHT])
def test_hits_lie_on_the_surface_inside_its_hull(surface, camera):
    X, Y = np.linspace(-0.6, 0.6, 121)[None, :], np.linspace(-0.6, 0.6, 111)[:, None]
    inverse = surface.cast(camera, X, Y)
    row, column = np.nonzero(inverse)
    assert 100 < row.size < inverse.size / 2
    depth = 1.0 / inverse[row, column]
    points = np.stack([camera + X[0, column] * depth, Y[row, 0] * depth, depth])
    if surface is SPHERE:
        distance = np.linalg.norm(points - SPHERE.centre[:, None], axis=0)
        np.testing.assert_allclose(distance, SPHERE.radius)
        assert depth.max() < SPHERE.centre[2]  # the near side
    elif surface is ROD:
        relative = points - ROD.base[:, None]
        along = ROD.axis @ relative
        across = np.linalg.norm(relative - ROD.axis[:, None] * along, axis=0)
        np.testing.assert_allclose(across, ROD.radius)
        assert along.min() >= 0.0
        assert along.max() <= ROD.length
    else:
        np.testing.assert_allclose(PANEL.normal @ (points - PANEL.origin[:, None]), 0, atol=1e-12)
    # The renderer casts rays only inside the box around the hull.
    hull = surface.hull
    box = (hull[:, :2] - [camera, 0.0]) / hull[:, 2:]
    assert box[:, 0].min() <= X[0, column].min()
    assert X[0, column].max() <= box[:, 0].max()
    assert box[:, 1].min() <= Y[row, 0].min()
    assert Y[row, 0].max() <= box[:, 1].max()


@pytest.mark.parametrize("surface", [SPHERE, ROD, PANEL])
def test_normals_are_units_towards_the_viewer(surface):
    X, Y = np.linspace(-0.6, 0.6, 121), np.linspace(-0.6, 0.6, 111)
    hits = cast_grid((surface,), Rays(LEFT, X, Y))
    row, column = np.nonzero(hits.inverse)
    depth = 1.0 / hits.inverse[row, column]
    points = np.stack([X[column] * depth, Y[row] * depth, depth]).astype(np.float32)
    normals = surface.normals(points)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=0), 1.0, atol=1e-5)
    assert (np.sum(normals * points, axis=0) <= 1e-3).all()
    assert np.isfinite(surface.coordinates(points)).all()


def test_shapes():
    u, v = np.array([0.0, 0.9, 0.0, 1.5, 0.45]), np.array([0.0, 0.9, 0.45, 0.0, 0.0])
    assert rectangle(1.0, 1.0)(u, v).tolist() == [True, True, True, False, True]
    assert ellipse(1.0, 1.0)(u, v).tolist() == [True, False, True, False, True]
    assert ellipse(1.0, 1.0, hole=0.4)(u, v).tolist() == [False, False, True, False, True]
    grid = lattice(1.0, 1.0, pitch_u=0.5, pitch_v=np.inf, bar=0.1)
    positions = np.array([-1.0, -0.95, -0.8, -0.45, 0.55, 0.7, 1.2])
    expected = [True, True, False, True, True, False, False]
    assert grid(positions, np.zeros(7)).tolist() == expected
    assert grid(np.full(3, 0.3), np.array([0.0, 0.95, -0.92])).tolist() == [False, True, True]
