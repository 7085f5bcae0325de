"""Finding the disparities of a pair: the coarse views, which pixels are believed, the ends."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.labels import LabelRange
from hybridstereo.search_range import CoarseMatch, believed, coarse_views, covering_range
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import SceneOptions, generate_scene


@pytest.fixture(scope="module")
def stereo():
    return Stereo("general-fast", device="cpu")


@pytest.fixture(scope="module")
def scene():
    return generate_scene(3, SceneOptions(width=400, height=240, max_disparity=48))


@pytest.mark.parametrize(
    ("width", "factor"), [(1, 1), (99, 1), (100, 2), (320, 4), (1242, 4), (1601, 8), (6000, 16)]
)
def test_coarse_views_are_narrow_and_their_labels_span_both_signs(width, factor):
    image = np.zeros((3, width, 3), np.float32)
    views = coarse_views(image, image)
    assert views.factor == factor
    assert views.left.shape[1] == -(-width // factor) <= 400
    assert views.label_range.minimum <= 0 <= views.label_range.maximum
    assert views.label_range.count <= views.left.shape[1]


@pytest.mark.parametrize("minimum", [-5, 0, 2])
def test_believed_equals_a_search_pixel_by_pixel(rng, minimum):
    height, width, count = 4, 17, 9
    costs = rng.random((height, width, count), dtype=np.float32)
    labels = rng.integers(0, count, (height, width))
    expected = np.zeros((height, width), bool)
    for y in range(height):
        for x in range(width):
            there = x - (labels[y, x] + minimum)
            if 0 <= there < width:
                along = {
                    k: costs[y, there + k + minimum, k]
                    for k in range(count)
                    if 0 <= there + k + minimum < width
                }
                cheapest = min(along, key=along.__getitem__)
                expected[y, x] = abs(cheapest - labels[y, x]) <= 1
    found = believed(costs, labels, LabelRange(float(minimum), count))
    assert np.array_equal(found, expected)
    assert 0 < expected.mean() < 1


def coarse_map(*parts: tuple[float, int]) -> np.ndarray:
    """A map of one row with so many pixels of each disparity."""
    return np.repeat([value for value, _ in parts], [count for _, count in parts])[None]


def everywhere(disparity: np.ndarray) -> np.ndarray:
    return np.ones(disparity.shape, bool)


def test_a_few_pixels_do_not_make_a_range_and_a_small_object_does():
    background = (5.0, 4000)
    noise = coarse_map(background, (60.0, 2), (70.0, 2))
    found = covering_range(CoarseMatch(noise, everywhere(noise), 4))
    assert found.maximum < 40
    thing = coarse_map(background, (30.0, 12))
    assert covering_range(CoarseMatch(thing, everywhere(thing), 4)).maximum >= 120


def test_negative_disparities_need_more_than_chance():
    stray = coarse_map((5.0, 960), (-9.0, 40))
    assert covering_range(CoarseMatch(stray, everywhere(stray), 4)).minimum >= 0
    real = coarse_map((5.0, 900), (-9.0, 100))
    found = covering_range(CoarseMatch(real, everywhere(real), 4))
    assert -48 <= found.minimum <= -36


def test_a_range_far_from_zero_starts_there():
    far = coarse_map((20.0, 500), (25.0, 500))
    found = covering_range(CoarseMatch(far, everywhere(far), 4))
    assert 60 < found.minimum <= 80
    assert 100 <= found.maximum < 120


def test_too_few_believed_pixels_show_no_range():
    disparity = coarse_map((5.0, 100))
    mask = np.arange(100)[None] < 20
    assert covering_range(CoarseMatch(disparity, mask, 4)) is None
    assert covering_range(CoarseMatch(disparity, ~mask, 4)) is not None
    assert covering_range(CoarseMatch(disparity[:, :2], mask[:, :2], 4)) is None


def test_range_of_a_generated_scene_covers_its_truth(stereo, scene):
    found = stereo.find_range(scene.left, scene.right)
    truth = scene.disparity[np.isfinite(scene.disparity)]
    inside = (truth >= found.minimum) & (truth <= found.maximum)
    assert inside.mean() > 0.998
    assert found.count < 1.6 * np.quantile(truth, 0.999)


def test_negative_ranges_are_found(stereo, scene):
    shift = 40  # of the right view's content, so that all disparities are smaller by it
    left, right = scene.left[:, :-shift], scene.right[:, :-shift]
    moved = scene.right[:, :1].repeat(shift, axis=1)
    right = np.concatenate([moved, right], axis=1)[:, : left.shape[1]]
    truth = scene.disparity[:, :-shift]
    truth = truth[np.isfinite(truth)] - shift
    found = stereo.find_range(left, right)
    assert truth.min() < -20
    assert np.mean((truth >= found.minimum) & (truth <= found.maximum)) > 0.95


def test_swapped_views_show_negative_disparities(stereo, scene):
    swapped = stereo.find_range(scene.right, scene.left)
    assert swapped.minimum < -20
    assert swapped.maximum < 20


@pytest.mark.parametrize("kind", ["plain", "unrelated", "tiny"])
def test_what_shows_no_range_is_searched_with_the_models(stereo, rng, kind):
    height, width = (1, 2) if kind == "tiny" else (60, 200)
    noise = rng.random((2, height, width, 3), dtype=np.float32)
    left, right = np.full_like(noise, 0.5) if kind == "plain" else noise
    result = stereo.match(left, right)
    assert result.range_from == "model"
    assert result.label_range.count == min(stereo.model.config.disparities, width)


def test_who_chose_the_labels(stereo, scene):
    left, right = scene.left[:60], scene.right[:60]
    found = stereo.match(left, right)
    assert found.range_from == "pair"
    assert found.label_range == stereo.find_range(left, right)
    assert "range" in found.seconds
    explicit = stereo.match(left, right, "auto", search_range=16)
    assert explicit.label_range == found.label_range
    assert stereo.match(left, right, search_range=16).range_from == "data set"
    assert stereo.match(left, right, 16).range_from == "caller"


def test_given_minimum_and_step_hold_with_a_found_range(stereo, scene):
    left, right = scene.left[:60], scene.right[:60]
    found = stereo.find_range(left, right)
    result = stereo.match(left, right, min_disparity=-3, step=2)
    assert (result.label_range.minimum, result.label_range.step) == (-3, 2)
    assert found.maximum - 2 < result.label_range.maximum <= found.maximum


def test_pixels_at_the_ends_of_a_short_range_are_counted(stereo, scene):
    left, right = scene.left[:60], scene.right[:60]
    assert stereo.match(left, right, 6).at_range_ends > 0.2
    enough = stereo.match(left, right, 64)
    assert enough.at_range_ends < 0.01


def test_label_zero_is_no_end(stereo):
    """The sky has it, and nothing lies behind the sky."""
    image = np.random.default_rng(0).random((30, 60, 3), dtype=np.float32)
    same = stereo.match(image, image, 16)
    assert np.mean(same.unrefined == 0) > 0.9
    assert same.at_range_ends < 0.1
    assert stereo.match(image, image, 16, min_disparity=-15).at_range_ends > 0.9


@pytest.mark.shared
def test_ranges_of_real_pairs(stereo, shared):
    """docs/evaluation.md: the range covers 99.8 % of the true pixels in 95 % of the pairs."""
    from hybridstereo.datasets import open_dataset

    data = shared / "data"
    folders = ("MiddEval3", "middlebury-2001", "middlebury-2003", "middlebury-2005", "large")
    roots = {
        "middlebury": [data / name for name in folders],
        "kitti": [data / "kitti2015", data / "kitti2015-more"],
    }
    covered, lengths = [], []
    for sample in open_dataset("middlebury,kitti", roots).samples:
        pair = sample.read()
        found = stereo.find_range(pair.left, pair.right)
        truth = pair.disparity[pair.valid]
        covered.append(np.mean((truth >= found.minimum) & (truth <= found.maximum)) >= 0.998)
        low, high = np.quantile(truth, [0.001, 0.999])
        lengths.append(found.count / (high - low))
    assert np.mean(covered) >= 0.95
    assert np.median(lengths) <= 1.35
