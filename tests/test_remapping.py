"""Pairs that known cameras took come back; what cannot be rectified is refused."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from support.calibrated import BASELINE, as_taken, camera_pair, camera_pair_of, turned

from hybridstereo.errors import InputError
from hybridstereo.io.cameras import LensCamera, RectifiedViews
from hybridstereo.rectification import estimate
from hybridstereo.remapping import plan_remapping
from hybridstereo.synthetic import SceneOptions, generate_scene

HEIGHT, WIDTH = 360, 480


@pytest.fixture(scope="module")
def scene():
    return generate_scene(5, SceneOptions(HEIGHT, WIDTH, 40.0))


@pytest.fixture(scope="module")
def pair(scene):
    return camera_pair_of(scene)


@pytest.fixture(scope="module")
def taken(scene, pair):
    return [as_taken(pair, side, view) for side, view in enumerate((scene.left, scene.right))]


def moved(image: np.ndarray, original: np.ndarray) -> float:
    """By how many pixels an image differs in place from the original, worst of 4x4 parts."""
    distances = []
    for rows in np.array_split(np.arange(10, image.shape[0] - 10), 4):
        for columns in np.array_split(np.arange(10, image.shape[1] - 10), 4):
            part = np.ix_(rows, columns)
            ours, theirs = (x.mean(axis=2)[part].astype(np.float64) for x in (image, original))
            # One step of Lucas and Kanade; plain parts say nothing.
            dy, dx = np.gradient(theirs)
            slopes = np.stack([dx.ravel(), dy.ravel()], axis=1)
            if np.linalg.eigvalsh(slopes.T @ slopes)[0] > 1:
                shift = np.linalg.lstsq(slopes, (ours - theirs).ravel(), rcond=None)[0]
                distances.append(np.abs(shift).max())
    assert len(distances) > 4
    return max(distances)


def test_a_stated_rectification_gives_the_views_back(scene, pair, taken):
    remapping = plan_remapping(pair, pair.size)
    assert remapping.stated
    assert remapping.shown(pair.size) == (1, 1)
    views = [remapping.apply(side, image) for side, image in enumerate(taken)]
    for view, original in zip(views, (scene.left, scene.right), strict=True):
        assert moved(view, original) < 0.1
        assert np.abs(view - original)[10:-10, 10:-10].mean() < 0.01
    assert np.abs(taken[0] - scene.left).mean() > 0.05  # they had to be brought back


def test_fish_eyes_come_back(scene):
    pair = camera_pair(HEIGHT, WIDTH, fisheye=True)
    remapping = plan_remapping(pair, pair.size)
    image = remapping.apply(0, as_taken(pair, 0, scene.left))
    assert moved(image, scene.left) < 0.1
    with pytest.raises(InputError, match="fish-eye"):
        plan_remapping(pair, pair.size, alpha=0.0)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_computed_rectification_aligns_rows(pair, taken, alpha):
    remapping = plan_remapping(pair, pair.size, alpha)
    assert not remapping.stated
    found = estimate(*(remapping.apply(side, image) for side, image in enumerate(taken)))
    assert found.before < 0.15
    assert estimate(*taken).before > 2
    shown = min(remapping.shown(pair.size))
    assert shown > 0.999 if alpha == 0 else shown < 0.9


@pytest.mark.parametrize("alpha", [None, 0.0, 0.5])
def test_points_in_space_have_equal_rows_and_the_right_depth(pair, alpha, rng):
    """By construction: a point on the ray of a left pixel is found in its row of the right view."""
    remapping = plan_remapping(pair, pair.size, alpha)
    calibration = remapping.calibration
    pixels = rng.integers((150, 60), (WIDTH - 60, HEIGHT - 60), (100, 2))
    taken_at = [view[pixels[:, 1], pixels[:, 0]] for view in remapping.maps[0]]
    rays = cv2.undistortPoints(
        np.stack(taken_at, axis=1)[:, None].astype(np.float64),
        pair.left.matrix,
        pair.left.distortion,
    )
    points = np.concatenate([rays[:, 0], np.ones((100, 1))], axis=1)
    points *= rng.uniform(2, 5, (100, 1))  # metres
    seen, _ = cv2.projectPoints(
        points @ pair.rotation.T + pair.translation,
        np.zeros(3),
        np.zeros(3),
        pair.right.matrix,
        pair.right.distortion,
    )
    (focal, _, cx), (_, _, cy), _ = calibration.cam0
    for (x, y), point, place in zip(pixels, points, seen[:, 0], strict=True):
        row = np.stack(
            [view[y] for view in remapping.maps[1]], axis=1
        )  # where its pixels come from
        before, after = row[:-1], row[1:]
        along = ((place - before) * (after - before)).sum(1) / ((after - before) ** 2).sum(1)
        along = np.clip(along, 0, 1)
        missed = np.linalg.norm(before + along[:, None] * (after - before) - place, axis=1)
        column = int(np.argmin(missed))
        assert missed[column] < 0.02
        disparity = x - (column + along[column])
        depth = focal * calibration.baseline / (disparity + calibration.doffs) / 1000
        distance = depth * np.linalg.norm([(x - cx) / focal, (y - cy) / focal, 1])
        assert distance == pytest.approx(np.linalg.norm(point), rel=5e-3)


def test_the_new_calibration(scene, pair):
    calibration = plan_remapping(pair, pair.size).calibration
    geometry = scene.geometry
    assert calibration.cam0[0] == (geometry.focal, 0, geometry.centre[0])
    assert calibration.doffs == pytest.approx(geometry.doffs)
    assert calibration.baseline == pytest.approx(1000 * BASELINE)
    assert (calibration.width, calibration.height) == pair.size


def test_the_unit_of_the_baseline(pair):
    unknown = plan_remapping(replace(pair, millimetres=None), pair.size)
    assert not unknown.unit_known
    assert unknown.calibration.baseline == pytest.approx(BASELINE)
    inches = plan_remapping(replace(pair, millimetres=None), pair.size, millimetres=25.4)
    assert inches.unit_known
    assert inches.calibration.baseline == pytest.approx(25.4 * BASELINE)


@pytest.mark.parametrize("factor", [2, 0.5])
def test_images_of_another_size(pair, factor):
    """A pixel of the resized images comes from the same place."""
    width, height = (int(factor * side) for side in pair.size)
    plain, resized = plan_remapping(pair, pair.size), plan_remapping(pair, (width, height))
    for (x, y), (other_x, other_y) in zip(plain.maps, resized.maps, strict=True):
        for ours, theirs in ((x, other_x), (y, other_y)):
            expected = cv2.resize(factor * (ours + 0.5) - 0.5, (width, height), None, 0, 0)
            inner = np.s_[4:-4, 4:-4]
            np.testing.assert_allclose(theirs[inner], expected[inner], atol=0.02)
    assert resized.calibration.cam0[0][0] == pytest.approx(factor * plain.calibration.cam0[0][0])
    assert resized.calibration.baseline == pytest.approx(plain.calibration.baseline)


def test_rectified_images_may_have_another_size(pair):
    smaller = replace(pair, rectified=replace(pair.rectified, size=(400, 300)))
    remapping = plan_remapping(smaller, pair.size)
    assert remapping.apply(0, np.zeros((HEIGHT, WIDTH), np.uint16)).shape == (300, 400)
    assert (remapping.calibration.width, remapping.calibration.height) == (400, 300)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("channels", [0, 3, 4])
def test_types_and_channels_stay(pair, kind, channels, rng):
    largest = 1 if kind == np.float32 else np.iinfo(kind).max
    shape = (HEIGHT, WIDTH, channels) if channels else (HEIGHT, WIDTH)
    image = (rng.integers(0, 2, shape) * largest).astype(kind)
    remapped = plan_remapping(pair, pair.size).apply(1, image)
    assert remapped.dtype == kind
    assert remapped.shape == shape
    assert (remapped.min(), remapped.max()) == (0, largest)


def with_translation(pair, *translation):
    return replace(pair, translation=np.array(translation, float), rectified=None)


def with_projection(pair, side, row, column, value):
    projections = [P.copy() for P in pair.rectified.projections]
    projections[side][row, column] = value
    return replace(pair, rectified=replace(pair.rectified, projections=tuple(projections)))


def with_lens(pair, *coefficients):
    lens = LensCamera(pair.left.matrix, np.array(coefficients))
    return replace(pair, left=lens, rectified=None)


REFUSED = {
    "one place": (lambda p: with_translation(p, 0, 0, 0), "no baseline"),
    "above": (lambda p: with_translation(p, 0.01, -0.1, 0), "one above the other"),
    "behind": (lambda p: with_translation(p, -0.01, 0, 0.1), "behind the other"),
    "exchanged": (lambda p: p.exchanged(), "stands left of the other"),
    "other focal": (lambda p: with_projection(p, 1, 1, 1, 499.0), "differ in focal length or rows"),
    "other rows": (lambda p: with_projection(p, 1, 1, 2, 10.0), "differ in focal length or rows"),
    "slanted": (lambda p: with_projection(p, 1, 1, 3, 9.0), "not those of cameras side by side"),
    "no offset": (lambda p: with_projection(p, 1, 0, 3, 0.0), "not those of cameras side by side"),
    "other shape": (lambda p: replace(p, size=(640, 360)), "480x360 pixels, but the calibration"),
    "huge": (
        lambda p: replace(p, rectified=replace(p.rectified, size=(9999999, 9999999))),
        "rectified images of 9999999x9999999",
    ),
    "larger, unsaid": (
        lambda p: replace(
            p, size=None, left=replace(p.left, matrix=np.diag([4.0, 4, 1]) @ p.left.matrix)
        ),
        "has a centre at",
    ),
    "away": (
        lambda p: replace(
            p, rectified=RectifiedViews((turned(0, 80, 0),) * 2, p.rectified.projections)
        ),
        "would show nothing",
    ),
    "absurd lens": (lambda p: with_lens(p, 1e11, -1e11, 1e11, 1e11, 1e11), "calibration"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_rectified(pair, name):
    change, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        plan_remapping(change(pair), pair.size)


def test_wrong_arguments(pair):
    with pytest.raises(InputError, match="`alpha` is 2"):
        plan_remapping(pair, pair.size, alpha=2)
    with pytest.raises(InputError, match="40000x30000"):
        plan_remapping(pair, (40000, 30000))
