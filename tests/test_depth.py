"""Depth and points of scenes whose geometry is known."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from support.ply import read_ply

from hybridstereo.depth import depth_map, on_surfaces, point_cloud
from hybridstereo.errors import InputError
from hybridstereo.rig import StereoRig

H, W = 90, 120
RIG = StereoRig(150.0, 0.2, 7.5, (55.0, 40.0), 140.0)


def disparity_of(depth):
    return RIG.focal * RIG.baseline / depth - RIG.doffs


def rays():
    """Directions of the pixels, with z = 1."""
    y, x = np.mgrid[:H, :W]
    return (x - RIG.centre[0]) / RIG.focal, (y - RIG.centre[1]) / RIG.focal_y


@pytest.fixture
def box():
    """The depth of a box 0.4 m wide and 0.3 m high, 1 m away, before a wall 2 m away."""
    x, y = rays()
    return np.where((np.abs(x) <= 0.2) & (np.abs(y) <= 0.15), 1.0, 2.0)


@pytest.fixture
def image(rng):
    return rng.random((H, W, 3), np.float32)


def test_depth_is_that_of_the_scene(box):
    depth = depth_map(disparity_of(box).astype(np.float32), RIG)
    assert depth.dtype == np.float32
    np.testing.assert_allclose(depth, box, rtol=1e-5)


def test_what_has_no_depth():
    disparity = np.array([[np.inf, np.nan, -7.5, -8.0, -7.4]], np.float32)
    rig = StereoRig(150.0, 0.2, 7.5)
    depth = depth_map(disparity, rig)
    assert np.isnan(depth[0, :4]).all()
    assert depth[0, 4] == pytest.approx(300, rel=1e-4)


def test_a_box_is_a_box(box, image):
    cloud = point_cloud(disparity_of(box), RIG, image)
    front = cloud.positions[cloud.positions[:, 2] < 1.5]
    size = front.max(axis=0) - front.min(axis=0)
    # Pixels at the edge are left out: two on each side, of 1/150 and 1/140 m.
    assert size[0] == pytest.approx(0.4, abs=4 / 150)
    assert size[1] == pytest.approx(0.3, abs=4 / 140)
    assert size[2] < 1e-5
    assert front.mean(axis=0) == pytest.approx((0, 0, 1), abs=0.01)
    wall = cloud.positions[cloud.positions[:, 2] > 1.5]
    np.testing.assert_allclose(wall[:, 2], 2.0, rtol=1e-5)


def test_a_slanted_plane_is_flat(image):
    x, y = rays()
    normal, distance = np.array([0.3, -0.5, 1.0]), 1.7
    depth = distance / (normal[0] * x + normal[1] * y + normal[2])
    cloud = point_cloud(disparity_of(depth), RIG, image)
    assert len(cloud.positions) == H * W
    np.testing.assert_allclose(cloud.positions @ normal, distance, rtol=1e-5)


def test_there_are_no_trails(box, image):
    """A map whose edges are smeared over a few pixels, as interpolation leaves them."""
    smeared = cv2.GaussianBlur(disparity_of(box), (0, 0), 1.0)
    between = (smeared < disparity_of(1.05)) & (smeared > disparity_of(1.9))
    assert between.sum() > 200
    cloud = point_cloud(smeared, RIG, image)
    z = cloud.positions[:, 2]
    assert np.count_nonzero((z > 1.05) & (z < 1.9)) == 0
    assert len(z) > 0.85 * H * W


def test_far_away_a_smaller_step_is_a_jump():
    rig_doffs = 0.0
    near, far = (np.tile(np.float32([d] * 8 + [d + 0.6] * 8), (16, 1)) for d in (50, 3))
    assert on_surfaces(near, rig_doffs).all()
    kept = on_surfaces(far, rig_doffs)
    assert not kept[:, 7:9].any()
    assert kept[:, :7].all()
    assert kept[:, 9:].all()


def test_specks_and_invalid_pixels_have_no_points():
    disparity = np.full((40, 40), 20.0, np.float32)
    disparity[5:9, 5:9] = 30.0  # 16 pixels, of which 4 are not at an edge
    disparity[20:30, 20:30] = np.inf
    kept = on_surfaces(disparity, 0.0)
    assert not kept[4:10, 5:9].any()
    assert not kept[20:30, 20:30].any()
    assert kept[19, 20:30].all()  # beside what is invalid


def test_colours_and_farthest_points(box, image):
    cloud = point_cloud(disparity_of(box), RIG, image, max_depth=1.5)
    assert cloud.positions[:, 2].max() < 1.5
    everything = point_cloud(np.full((H, W), 20.0), RIG, image)
    expected = np.rint(image.reshape(-1, 3) * 255).astype(np.uint8)
    np.testing.assert_array_equal(everything.colors, expected)
    with pytest.raises(InputError, match="`max_depth` is 0"):
        point_cloud(box, RIG, image, max_depth=0)
    with pytest.raises(InputError, match="The image has the shape"):
        point_cloud(box, RIG, image[1:])


def test_saved_points(box, image, tmp_path):
    cloud = point_cloud(disparity_of(box), RIG, image)
    cloud.save(tmp_path / "box.ply")
    _, points = read_ply(tmp_path / "box.ply")
    np.testing.assert_array_equal(np.array(points)[:, :3], cloud.positions)
    np.testing.assert_array_equal(np.array(points)[:, 3:], cloud.colors)


def test_reduced_images_give_the_same_points(box, image):
    """Numbers of the calibration scale with the images, metres do not."""
    rig = StereoRig(RIG.focal, RIG.baseline, RIG.doffs, RIG.centre, RIG.focal_y, (W, H))
    small = cv2.resize(box, (W // 2, H // 2), interpolation=cv2.INTER_NEAREST)
    half = depth_map(disparity_of(small) / 2, rig)
    np.testing.assert_allclose(half, small, rtol=1e-5)
