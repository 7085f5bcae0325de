from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridstereo.errors import InputError
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import read_image
from hybridstereo.synthetic import (
    Photometric,
    SceneOptions,
    StereoScene,
    generate_scene,
    quantised,
    write_scene,
)
from hybridstereo.synthetic.layout import build_plain_world, build_world
from hybridstereo.synthetic.render import OCCLUSION_TOLERANCE, World, render
from hybridstereo.synthetic.surfaces import LEFT, RIGHT, Geometry

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"
SAMPLE_SEED, SAMPLE_OPTIONS = 26, SceneOptions(height=256, width=384)

SMALL = SceneOptions(height=120, width=160, max_disparity=31.0, min_disparity=1.0)
SEEDS = range(6)


@pytest.fixture(scope="module", params=SEEDS)
def scene(request: pytest.FixtureRequest) -> StereoScene:
    return generate_scene(request.param, SMALL)


def crowded_world(seed: int, limits: tuple[float, float], plain: bool) -> World:
    geometry = Geometry(160, 120, 170.0, 3.0 - limits[0], *limits)
    build = build_plain_world if plain else build_world
    return build(np.random.default_rng(seed), geometry, 60)


def arrays(scene: StereoScene) -> list[np.ndarray]:
    return [scene.left, scene.right, scene.disparity, scene.right_disparity, scene.occlusion]


def columns(scene: StereoScene) -> np.ndarray:
    """Where each left pixel's point lies in the right view."""
    return np.arange(scene.disparity.shape[1]) - scene.disparity.astype(np.float64)


def sampled(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Catmull-Rom interpolation of rows at x, exact to the last bit unlike cv2.remap's."""
    base = np.floor(x).astype(int)
    t = x - base
    weights = (
        t * (-0.5 + t * (1.0 - 0.5 * t)),
        1.0 + t * t * (-2.5 + 1.5 * t),
        t * (0.5 + t * (2.0 - 1.5 * t)),
        t * t * (-0.5 + 0.5 * t),
    )
    rows = np.arange(len(values))[:, None]
    last = values.shape[1] - 1
    total = np.zeros((*x.shape, *values.shape[2:]))
    for offset, weight in zip(range(-1, 3), weights, strict=True):
        taps = values[rows, np.clip(base + offset, 0, last)]
        total += taps * (weight[..., None] if values.ndim == 3 else weight)
    return total


def smooth_and_visible(scene: StereoScene) -> np.ndarray:
    """Pixels whose 5 x 5 neighbourhood is visible in both views and without depth edges."""
    window = np.ones((5, 5))
    x = columns(scene)
    rows = np.arange(len(x))[:, None]
    nearest = np.clip(np.rint(x).astype(int), 0, x.shape[1] - 1)
    jump = cv2.dilate(scene.disparity, window) - cv2.erode(scene.disparity, window)
    right = scene.right_disparity
    right_jump = cv2.dilate(right, window) - cv2.erode(right, window)
    seen = cv2.dilate(scene.occlusion.astype(np.uint8), window) == 0
    inside = (x >= 2) & (x <= x.shape[1] - 3)
    return seen & inside & (jump < 1.5) & (right_jump[rows, nearest] < 1.5)


def test_same_seed_same_bytes():
    options = replace(SMALL, photometric=Photometric())
    for first, second in zip(
        arrays(generate_scene(3, options)), arrays(generate_scene(3, options)), strict=True
    ):
        assert first.tobytes() == second.tobytes()


def test_other_seed_other_scene():
    first, second = generate_scene(0, SMALL), generate_scene(1, SMALL)
    assert np.abs(first.disparity - second.disparity).mean() > 0.5
    assert np.abs(first.left - second.left).mean() > 0.02


def test_shapes_types_and_ranges(scene):
    for view in (scene.left, scene.right):
        assert view.shape == (120, 160, 3)
        assert view.dtype == np.float32
        assert 0.0 <= view.min() < view.max() <= 1.0
        assert view.std() > 0.05
    for disparity in (scene.disparity, scene.right_disparity):
        assert disparity.shape == (120, 160)
        assert disparity.dtype == np.float32
        assert SMALL.min_disparity <= disparity.min()
        assert disparity.max() <= SMALL.max_disparity
        assert np.ptp(disparity) > 5.0
    assert scene.occlusion.dtype == bool
    assert 0.01 < scene.occlusion.mean() < 0.5


def test_right_view_warped_by_the_truth_is_the_left_view(scene):
    usable = smooth_and_visible(scene)
    assert usable.mean() > 0.25
    x = columns(scene)

    def error(shift: float) -> float:
        difference = np.abs(sampled(scene.right, x + shift) - scene.left)[usable]
        return float(difference.mean())

    assert error(0.0) < 0.004
    assert error(0.0) < 0.6 * min(error(0.25), error(-0.25))


def test_sub_pixel_truth_is_the_best_of_all_shifts(scene):
    usable = smooth_and_visible(scene)

    def error(shift: float) -> float:
        difference = sampled(scene.right, columns(scene) + shift) - scene.left
        # The median, since outlines of flat things mix two surfaces and match nowhere exactly.
        return float(np.median(np.square(difference).sum(axis=-1)[usable]))

    shifts = np.linspace(-0.3, 0.3, 13)
    quadratic, linear, _ = np.polyfit(shifts, [error(shift) for shift in shifts], 2)
    assert quadratic > 0
    assert abs(-linear / (2 * quadratic)) < 0.01


def test_left_and_right_disparity_agree_where_both_see(scene):
    usable = smooth_and_visible(scene)
    difference = np.abs(sampled(scene.right_disparity, columns(scene)) - scene.disparity)[usable]
    # Exact for planes, nearly so for spheres; folds between two planes are the rest.
    assert np.mean(difference < 1e-3) > 0.85
    assert np.mean(difference < 0.1) > 0.98


def test_visible_pixels_hit_no_nearer_surface_in_the_right_view(scene):
    x = columns(scene)
    visible = ~scene.occlusion
    assert (x[visible] >= 0).all()
    assert (x[visible] <= x.shape[1] - 1).all()
    rows = np.arange(len(x))[:, None]
    nearest = np.clip(np.rint(x).astype(int), 0, x.shape[1] - 1)
    in_front = scene.right_disparity[rows, nearest] - scene.disparity
    # The nearest right pixel is up to half a pixel away and may lie across an edge.
    assert np.mean(in_front[visible] > 1.0) < 0.02
    inside = scene.occlusion & (x >= 0) & (x <= x.shape[1] - 1)
    assert np.mean(in_front[inside] > 0.0) > 0.9


@pytest.mark.parametrize(
    ("limits", "plain"), [((1.0, 31.0), False), ((-15.0, 15.0), False), ((1.0, 31.0), True)]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_render_matches_brute_force_over_all_surfaces(seed, limits, plain):
    """The z-buffer and occlusion, without bounding windows and half-pixel grids."""
    world = crowded_world(seed, limits, plain)
    geometry, views = world.geometry, render(world)
    x, y = np.arange(160.0)[None, :], np.arange(120.0)[:, None]
    Y = geometry.rays_y(y)

    def nearest(camera: float, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = geometry.rays_x(columns, camera)
        hits = np.stack([surface.cast(camera, X, Y) for surface in world.surfaces])
        return hits.max(axis=0) * geometry.focal - geometry.doffs, hits.argmax(axis=0)

    left, left_owner = nearest(LEFT, x)
    right, _ = nearest(RIGHT, x)
    np.testing.assert_allclose(views.disparity, left, atol=1e-9)
    np.testing.assert_allclose(views.right_disparity, right, atol=1e-9)
    target = x - left
    matched, matched_owner = nearest(RIGHT, target)
    occluded = (target < 0) | (target > 159) | (matched - left > OCCLUSION_TOLERANCE)
    np.testing.assert_array_equal(views.occlusion, occluded)
    assert (matched - left > -1e-6).all()  # the right view sees the point or something nearer
    # Both see the same surface there, not one of two that coincide (folds excepted).
    assert np.mean((left_owner != matched_owner)[~occluded]) < 1e-3


def test_scenes_differ_in_kind():
    """Over some seeds: rooms and backdrops, near and far, much and little texture."""
    scenes = [generate_scene(seed, replace(SMALL, height=60, width=80)) for seed in range(12)]
    nearest = [scene.disparity.max() for scene in scenes]
    farthest = [scene.disparity.min() for scene in scenes]
    texture = [np.abs(np.diff(scene.left, axis=1)).mean() for scene in scenes]
    assert np.ptp(nearest) > 4.0
    assert np.ptp(farthest) > 4.0
    assert max(texture) > 1.5 * min(texture)


def test_objects_are_optional():
    without = generate_scene(5, replace(SMALL, objects=0))
    assert np.unique(np.diff(without.disparity, 2, axis=1).round(3)).size < 300
    assert np.abs(np.diff(without.disparity, axis=1)).max() < 3.0


# ------------------------------------------------------------------------------------ plain scenes

PLAIN = replace(SMALL, plain=True)


def without_objects(seed: int, options: SceneOptions) -> StereoScene:
    return generate_scene(seed, replace(options, objects=0))


def test_plain_scenes_are_a_family_of_their_own():
    first, again, ordinary = (generate_scene(3, o) for o in (PLAIN, PLAIN, SMALL))
    for one, other in zip(arrays(first), arrays(again), strict=True):
        assert one.tobytes() == other.tobytes()
    assert np.abs(first.disparity - ordinary.disparity).mean() > 0.5


def test_plain_scenes_have_little_texture_on_slanted_surfaces():
    def texture(scene: StereoScene) -> float:
        return float(np.median(np.abs(np.diff(scene.left, axis=1))))

    def slant(scene: StereoScene) -> float:
        return float(np.median(np.abs(np.gradient(scene.disparity)).sum(axis=0)))

    plain, ordinary = ([without_objects(s, o) for s in range(10)] for o in (PLAIN, SMALL))
    assert np.mean([texture(s) for s in plain]) < 0.5 * np.mean([texture(s) for s in ordinary])
    assert np.mean([slant(s) for s in plain]) > 0.08  # pixels of disparity per pixel


def test_plain_scenes_lie_under_shadows_of_things_unseen():
    """Without its casters the same world is brighter, here more and there less."""
    shares = []
    for seed in range(8):
        geometry = Geometry(160, 120, 170.0, 0.0, 1.0, 31.0)
        world = build_plain_world(np.random.default_rng(seed), geometry, 0)
        assert world.casters
        shaded, lit = render(world), render(replace(world, casters=()))
        np.testing.assert_array_equal(shaded.disparity, lit.disparity)
        assert (shaded.left <= lit.left + 1e-5).all()
        shares.append((shaded.left < 0.9 * lit.left).mean())
    assert sum(share > 0.03 for share in shares) >= 6
    assert 0.1 < np.mean(shares) < 0.7


@pytest.mark.parametrize("seed", SEEDS)
def test_plain_scenes_match(seed):
    scene = generate_scene(seed, PLAIN)
    usable = smooth_and_visible(scene)
    assert usable.mean() > 0.25
    difference = np.abs(sampled(scene.right, columns(scene)) - scene.left)[usable]
    assert difference.mean() < 0.004
    assert (scene.left > 0.97).mean() < 0.1


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([(1, 1), (3, 5), (1, 40), (50, 1), (30, 44)]),
    limits=st.sampled_from(
        [(2, 63), (0, 64), (-64, 0), (-20, 20), (60, 64), (0, 1), (1, 300), (-4096, 4096)]
    ),
    plain=st.booleans(),
)
def test_any_size_and_range(seed, size, limits, plain):
    options = SceneOptions(
        *size,
        min_disparity=limits[0],
        max_disparity=limits[1],
        photometric=Photometric(),
        plain=plain,
    )
    scene = generate_scene(seed, options)
    for array in arrays(scene):
        assert array.shape[:2] == size
        assert np.isfinite(array).all()
    for disparity in (scene.disparity, scene.right_disparity):
        assert limits[0] <= disparity.min()
        assert disparity.max() <= limits[1]


def test_photometric_differences_leave_the_geometry_alone():
    plain = generate_scene(2, SMALL)
    changed = generate_scene(2, replace(SMALL, photometric=Photometric()))
    for name in ("disparity", "right_disparity", "occlusion"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(changed, name))
    assert np.abs(plain.right - changed.right).mean() > 0.01
    assert changed.right.min() >= 0.0
    assert changed.right.max() <= 1.0


def test_zero_strengths_change_nothing():
    plain = generate_scene(2, SMALL)
    same = generate_scene(2, replace(SMALL, photometric=Photometric(0.0, 0.0, 0.0, 0.0)))
    np.testing.assert_allclose(same.left, plain.left, atol=1e-6)
    np.testing.assert_allclose(same.right, plain.right, atol=1e-6)


def test_each_strength_does_what_it_says():
    plain = generate_scene(4, SMALL)
    none = Photometric(0.0, 0.0, 0.0, 0.0)

    def changed(**strength: float) -> StereoScene:
        return generate_scene(4, replace(SMALL, photometric=replace(none, **strength)))

    gain = changed(gain=0.3)
    np.testing.assert_allclose(gain.left, plain.left, atol=1e-6)
    mid = (plain.right > 0.1) & (plain.right < 0.7)
    for channel in range(3):
        ratio = (gain.right / np.maximum(plain.right, 1e-6))[..., channel][mid[..., channel]]
        assert ratio.min() >= 0.7
        assert ratio.max() <= 1.3
        assert np.ptp(ratio) < 1e-3

    gamma = changed(gamma=0.5)
    np.testing.assert_allclose(gamma.left, plain.left, atol=1e-6)
    exponent = np.log(gamma.right[mid]) / np.log(plain.right[mid])
    assert exponent.min() >= 1 / 1.5
    assert exponent.max() <= 1.5
    assert np.ptp(exponent) < 1e-3
    assert abs(exponent.mean() - 1.0) > 1e-3

    noise = changed(noise=0.05)
    for before, after in ((plain.left, noise.left), (plain.right, noise.right)):
        unclipped = (before > 0.2) & (before < 0.8)
        assert 0.01 < (after - before)[unclipped].std() < 0.06

    blur = changed(blur=2.0)
    touched = [not np.allclose(blur.left, plain.left), not np.allclose(blur.right, plain.right)]
    assert sum(touched) == 1
    before, after = ((plain.left, blur.left), (plain.right, blur.right))[touched.index(True)]
    assert np.abs(np.diff(after, axis=1)).mean() < 0.95 * np.abs(np.diff(before, axis=1)).mean()


@pytest.mark.parametrize(
    "wrong",
    [
        {"height": 0},
        {"width": 0},
        {"width": 10.5},
        {"height": 5000},
        {"objects": -1},
        {"objects": 1001},
        {"min_disparity": 10.0, "max_disparity": 10.0},
        {"min_disparity": 10.0, "max_disparity": 5.0},
        {"min_disparity": 10.0, "max_disparity": 10.5},
        {"max_disparity": float("nan")},
        {"max_disparity": float("inf")},
        {"min_disparity": -5000.0},
    ],
)
def test_wrong_options(wrong):
    with pytest.raises(InputError):
        SceneOptions(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"gain": -0.1}, {"gain": 1.0}, {"noise": float("nan")}, {"blur": float("inf")}]
)
def test_wrong_photometric_strengths(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Photometric(**wrong)


@pytest.mark.parametrize("seed", [-1, 1.5, "7"])
def test_wrong_seed(seed):
    with pytest.raises(InputError, match="seed"):
        generate_scene(seed, SMALL)


def test_write_scene_round_trip(tmp_path):
    scene = generate_scene(1, replace(SMALL, height=20, width=30))
    names = ["im0.png", "im1.png", "disp0GT.pfm", "disp1GT.pfm", "mask0nocc.png", "calib.txt"]
    assert write_scene(tmp_path, scene) == [tmp_path / name for name in names]
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    np.testing.assert_allclose(read_image(tmp_path / "im0.png"), scene.left, atol=0.5001 / 255)
    np.testing.assert_allclose(read_image(tmp_path / "im1.png"), scene.right, atol=0.5001 / 255)
    np.testing.assert_array_equal(read_disparity(tmp_path / "disp0GT.pfm"), scene.disparity)
    np.testing.assert_array_equal(read_disparity(tmp_path / "disp1GT.pfm"), scene.right_disparity)
    mask = cv2.imread(str(tmp_path / "mask0nocc.png"), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(mask, np.where(scene.occlusion, 128, 255))


def test_calibration_describes_the_cameras(tmp_path):
    options = SceneOptions(20, 30, max_disparity=15.0, min_disparity=-4.0)
    scene = generate_scene(1, options)
    write_scene(tmp_path, scene)
    lines = (tmp_path / "calib.txt").read_text().splitlines()
    calibration = dict(line.split("=", 1) for line in lines)
    assert calibration["width"] == "30"
    assert calibration["height"] == "20"
    assert calibration["ndisp"] == "16"
    cameras = [
        np.array([row.split() for row in calibration[name].strip("[]").split(";")], float)
        for name in ("cam0", "cam1")
    ]
    assert cameras[0][0, 0] == cameras[0][1, 1] == pytest.approx(scene.geometry.focal)
    doffs = float(calibration["doffs"])
    assert cameras[1][0, 2] - cameras[0][0, 2] == pytest.approx(doffs, abs=1e-5)
    assert doffs + scene.disparity.min() > 0  # everything is at a positive, finite depth


def test_sample_is_one_of_the_scenes():
    scene = generate_scene(SAMPLE_SEED, SAMPLE_OPTIONS)
    for name, view in (("left.png", scene.left), ("right.png", scene.right)):
        stored = np.rint(255 * read_image(SAMPLE / name)).astype(int)
        assert np.abs(stored - quantised(view)).max() <= 1
    truth = read_disparity(SAMPLE / "truth.pfm")
    np.testing.assert_allclose(truth, scene.disparity, atol=1e-4)
    assert truth.max() < 64
    mask = cv2.imread(str(SAMPLE / "mask0nocc.png"), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(mask, np.where(scene.occlusion, 128, 255))
