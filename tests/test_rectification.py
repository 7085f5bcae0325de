from __future__ import annotations

import cv2
import numpy as np
import pytest
from support.misaligned import misaligned

from hybridstereo.errors import InputError
from hybridstereo.rectification import PARAMETERS, Camera, corrected, estimate, rectify
from hybridstereo.synthetic import SceneOptions, generate_scene

HEIGHT, WIDTH = 360, 480


@pytest.fixture(scope="module")
def views() -> tuple[np.ndarray, np.ndarray]:
    scene = generate_scene(5, SceneOptions(HEIGHT, WIDTH, 40.0))
    return scene.left, scene.right


MISALIGNMENTS = {
    "offset": lambda x, y: 1.5 + 0 * x,
    "large offset": lambda x, y: -8 + 0 * x,
    "roll of 1 degree": lambda x, y: np.deg2rad(1) * WIDTH * x,
    "keystone": lambda x, y: 12 * x * y,
    "larger": lambda x, y: 3 * y,
    "radial": lambda x, y: 20 * y * (x**2 + y**2),
    "all together": lambda x, y: -1 + 4 * x + 6 * x * y + 2 * y + 5 * y * (x**2 + y**2),
}


@pytest.mark.parametrize("name", MISALIGNMENTS)
def test_misaligned_rows_are_brought_back(views, name):
    left, right = views
    shift = MISALIGNMENTS[name]
    moved = misaligned(right, shift)
    better, found = rectify(left, moved)
    assert found.corrects
    assert found.knows_rows
    assert found.matches > 50
    assert found.after < 0.2
    assert found.after < 0.5 * found.before
    inner = np.s_[12:-12, 12:-12]
    wrong, left_over = (float(np.abs(view - right)[inner].mean()) for view in (moved, better))
    assert left_over < 0.45 * wrong
    assert not estimate(left, better).corrects


def test_the_shift_is_that_of_the_misalignment(views):
    left, right = views
    found = estimate(left, misaligned(right, MISALIGNMENTS["offset"]))
    named = dict(zip(PARAMETERS, found.parameters, strict=True))
    assert named["dcy"] == pytest.approx(-1.5, abs=0.15)
    assert found.before == pytest.approx(1.5, abs=0.2)


def test_a_rectified_pair_is_left_alone(views):
    left, right = views
    better, found = rectify(left, right)
    assert better is right
    assert not found.corrects
    assert found.reason == "it is well rectified"
    assert found.knows_rows
    assert found.before == found.after < 0.2
    assert set(found.parameters) == {0.0}
    assert "left as it is: it is well rectified" in found.describe()


def test_whole_rows_are_shifted_exactly(views):
    """At whole rows the spline is the image itself, inside and where it is reflected."""
    left, right = views
    found = estimate(left, misaligned(right, MISALIGNMENTS["offset"]))
    names = dict.fromkeys(PARAMETERS, 0.0) | {"dcy": 3.0}
    moved = corrected(right, type(found)(found.camera, tuple(names.values())))
    np.testing.assert_allclose(moved[3:], right[:-3], atol=2e-6)
    np.testing.assert_allclose(moved[:3], right[:3][::-1], atol=2e-6)


def test_a_smooth_image_is_read_between_rows():
    y = np.arange(60, dtype=np.float32)[:, None, None]
    image = np.broadcast_to(0.5 + 0.4 * np.sin(y / 5), (60, 8, 3)).astype(np.float32)
    found = type(estimate(image, image))(Camera.assumed(60, 8), (0, 0, 0, 0, 0, 0.4))
    expected = 0.5 + 0.4 * np.sin((y - 0.4) / 5)
    inner = np.s_[8:-8]  # where the reflected border, which has a kink, is forgotten
    moved = corrected(image, found)
    np.testing.assert_allclose(
        moved[inner], np.broadcast_to(expected, moved.shape)[inner], atol=1e-4
    )


@pytest.mark.parametrize("kind", ["plain", "noise", "unrelated", "tiny", "repeated"])
def test_pairs_without_common_points_are_left_alone(views, kind, rng):
    left, right = views
    shape = left.shape
    if kind == "plain":
        left = right = np.full(shape, 0.5, np.float32)
    elif kind == "noise":
        left, right = (rng.random(shape, np.float32) for _ in range(2))
    elif kind == "unrelated":
        right = generate_scene(6, SceneOptions(HEIGHT, WIDTH, 40.0)).right
    elif kind == "tiny":
        left, right = left[:1, :2], right[:1, :2]
    else:
        left = np.broadcast_to(np.sin(np.arange(WIDTH) / 3)[None, :, None] / 2 + 0.5, shape)
        right = left = left.astype(np.float32)
    better, found = rectify(left, right)
    assert better is right
    assert found.reason
    assert not found.knows_rows
    assert found.as_dict()["corrected"] is False


def test_few_wrong_matches_do_not_matter(views, rng):
    """A tenth of the view shows something else."""
    left, right = views
    moved = misaligned(right, MISALIGNMENTS["offset"])
    moved[:, :32] = rng.random((HEIGHT, 32, 3), np.float32)
    assert rectify(left, moved)[1].after < 0.2


def test_same_bits_for_any_number_of_threads(views):
    left, right = views
    moved = misaligned(right, MISALIGNMENTS["all together"])
    before, results = cv2.getNumThreads(), []
    try:
        for threads in (1, 2, 4):
            cv2.setNumThreads(threads)
            results.append(rectify(left, moved))
    finally:
        cv2.setNumThreads(before)
    assert len({found for _, found in results}) == 1
    for image, _ in results[1:]:
        np.testing.assert_array_equal(image, results[0][0])


def test_a_known_camera_counts(views):
    left, right = views
    camera = Camera(900.0, 200.0, 130.0)
    moved = misaligned(right, MISALIGNMENTS["keystone"])
    better, found = rectify(left, moved, camera)
    assert found.camera == camera
    assert found.after < 0.2
    assert estimate(left, better, camera).before < 0.2


def test_large_views_are_reduced_for_matching(views, monkeypatch):
    left, right = views
    monkeypatch.setattr("hybridstereo.rectification._MOST_PIXELS", HEIGHT * WIDTH // 3)
    found = estimate(left, misaligned(right, MISALIGNMENTS["offset"]))
    named = dict(zip(PARAMETERS, found.parameters, strict=True))
    assert named["dcy"] == pytest.approx(-1.5, abs=0.25)


def test_views_of_different_size_are_refused(views):
    with pytest.raises(InputError, match="shapes"):
        estimate(views[0], views[1][:, :-1])
