"""Augmentation keeps the stereo geometry: after any change the truth still matches the pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from hybridstereo.datasets import augment as augmentation
from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.augment import AugmentOptions, augment
from hybridstereo.datasets.pair import StereoPair, agree, build_pair
from hybridstereo.errors import InputError
from hybridstereo.features import ConvLayer, network_input
from hybridstereo.synthetic import SceneOptions

H, W = 60, 90
ARRAYS = ("left", "right", "disparity", "valid", "right_disparity", "right_valid")


@pytest.fixture(scope="module")
def scene() -> StereoPair:
    options = SceneOptions(H, W, max_disparity=14, objects=4)
    dataset = open_dataset("synthetic", scenes=1, scene_options=options)
    return dataset.load(dataset.samples[0])


@pytest.fixture
def coded(rng: np.random.Generator) -> StereoPair:
    """A pair in which a pixel's colour tells its point: equal colours are matches, exactly.

    Whole-numbered disparities; the left view is made from the right one.
    """
    right = rng.random((H, W, 3), np.float32)
    disparity = rng.integers(0, 3, (H, W)).cumsum(axis=1).astype(np.float32) // 4
    match = np.arange(W) - disparity.astype(int)
    left = np.take_along_axis(right, np.maximum(match, 0)[..., np.newaxis], axis=1)
    left[match < 0] = 0.5
    right_disparity = np.full((H, W), np.inf, np.float32)
    for y, x in np.argwhere(match >= 0):
        right_disparity[y, match[y, x]] = disparity[y, x]
    disparity[3:6, 20:30] = np.inf
    return build_pair("coded", left, right, disparity, right_disparity=right_disparity)


def colours_match(pair: StereoPair, tolerance: float = 0.0) -> float:
    """The fraction of valid pixels whose match, rounded to a pixel, has the same colour."""
    rows, columns = np.nonzero(pair.valid)
    match = columns - np.rint(pair.disparity[rows, columns]).astype(int)
    assert (match >= 0).all()
    assert (match < pair.width).all()
    difference = np.abs(pair.left[rows, columns] - pair.right[rows, match]).max(axis=1)
    return float((difference <= tolerance).mean())


def snapshot(pair: StereoPair) -> dict[str, np.ndarray]:
    return {name: getattr(pair, name).copy() for name in ARRAYS}


def assert_same(pair: StereoPair, arrays: dict[str, np.ndarray]) -> None:
    for name, expected in arrays.items():
        np.testing.assert_array_equal(getattr(pair, name), expected, err_msg=name)


def test_the_coded_pair_itself(coded: StereoPair) -> None:
    assert colours_match(coded) == 1
    assert coded.valid.mean() > 0.5


# ---------------------------------------------------------------------------------------- geometry

CHANGES: dict[str, Callable[[StereoPair], StereoPair]] = {
    "vertical flip": augmentation.flip_vertically,
    "horizontal flip": augmentation.flip_horizontally,
    "crop": lambda pair: augmentation.crop(pair, 5, 30, 40, 50),
    "both flips and a crop": lambda pair: augmentation.crop(
        augmentation.flip_horizontally(augmentation.flip_vertically(pair)), 7, 3, 31, 60
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_matches_survive(coded: StereoPair, name: str) -> None:
    before = snapshot(coded)
    changed = CHANGES[name](coded)
    assert changed.valid.mean() > 0.3
    assert colours_match(changed) == 1
    assert changed.right_disparity is not None
    assert changed.right_valid is not None
    assert (agree(changed.right_disparity, changed.disparity, 1) | ~changed.right_valid).all()
    assert_same(coded, before)  # never in place
    for array in ARRAYS:
        assert not np.shares_memory(getattr(changed, array), getattr(coded, array)), array


def test_vertical_flip(coded: StereoPair) -> None:
    flipped = augmentation.flip_vertically(coded)
    np.testing.assert_array_equal(flipped.disparity, coded.disparity[::-1])
    assert_same(augmentation.flip_vertically(flipped), snapshot(coded))


def test_horizontal_flip_swaps_the_views(coded: StereoPair) -> None:
    flipped = augmentation.flip_horizontally(coded)
    np.testing.assert_array_equal(flipped.left, coded.right[:, ::-1])
    np.testing.assert_array_equal(flipped.right, coded.left[:, ::-1])
    assert (flipped.disparity[flipped.valid] >= 0).all()
    assert_same(augmentation.flip_horizontally(flipped), snapshot(coded))


def test_horizontal_flip_needs_the_right_truth(coded: StereoPair) -> None:
    alone = replace(coded, right_disparity=None, right_valid=None)
    with pytest.raises(ValueError, match="right view"):
        augmentation.flip_horizontally(alone)
    options = AugmentOptions(horizontal_flip=1.0)
    untouched = augment(alone, options, np.random.default_rng(0))
    np.testing.assert_array_equal(untouched.left, coded.left)
    flipped = augment(coded, options, np.random.default_rng(0))
    np.testing.assert_array_equal(flipped.left, coded.right[:, ::-1])


def test_crop_drops_what_lost_its_match() -> None:
    image = np.zeros((4, 20, 3), np.float32)
    flat = np.full((4, 20), 3.0, np.float32)
    everywhere = np.ones((4, 20), bool)
    pair = StereoPair(image, image, flat, everywhere, flat, everywhere)
    part = augmentation.crop(pair, 0, 5, 4, 10)
    assert np.flatnonzero(~part.valid.all(axis=0)).tolist() == [0, 1, 2]
    assert part.right_valid is not None
    assert np.flatnonzero(~part.right_valid.all(axis=0)).tolist() == [7, 8, 9]
    assert (part.disparity == 3).all()  # the truth itself stays
    alone = augmentation.crop(replace(pair, right_disparity=None, right_valid=None), 0, 5, 4, 10)
    assert alone.right_valid is None


@pytest.mark.parametrize(
    "window", [(-1, 0, 5, 5), (0, 0, H + 1, 5), (0, W - 4, 5, 5), (0, 0, 0, 5)]
)
def test_crop_outside_the_image(coded: StereoPair, window: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="leaves the image"):
        augmentation.crop(coded, *window)


def test_random_crop_looks_for_valid_pixels() -> None:
    image = np.zeros((40, 400, 3), np.float32)
    disparity = np.zeros((40, 400), np.float32)
    valid = np.zeros((40, 400), bool)
    valid[:, 200:] = True
    pair = StereoPair(image, image, disparity, valid)
    shares = [
        augmentation.random_crop(pair, (40, 50), 0.9, np.random.default_rng(seed)).valid.mean()
        for seed in range(20)
    ]
    assert min(shares) >= 0.9  # a single place would fail in half of the cases
    places = {
        augmentation.random_crop(pair, (40, 50), 0.0, np.random.default_rng(seed)).valid.mean()
        for seed in range(20)
    }
    assert len(places) > 1
    nothing = replace(pair, valid=np.zeros_like(valid))
    part = augmentation.random_crop(nothing, (40, 50), 0.9, np.random.default_rng(0))
    assert (part.height, part.width) == (40, 50)


def test_the_networks_see_a_crop_as_within_its_view(coded: StereoPair) -> None:
    layer = ConvLayer(np.zeros((1, 3, 1, 1), np.float32), None)  # needs no padding
    part = augmentation.random_crop(coded, (20, 30), 0.1, np.random.default_rng(0))
    mirrored = augmentation.flip_horizontally(part)
    for view, stats, whole in (
        (part.left, part.left_statistics, coded.left),
        (part.right, part.right_statistics, coded.right),
        (mirrored.left[:, ::-1], mirrored.left_statistics, coded.right),
    ):
        assert stats is not None
        seen = network_input(view, [layer], stats[0])
        windows = sliding_window_view(network_input(whole, [layer]), (20, 30), axis=(0, 1))
        assert (np.moveaxis(windows, 2, -1) == seen).all(axis=(2, 3, 4)).any()


@pytest.mark.parametrize("flip", [None, "flip_vertically", "flip_horizontally"])
def test_a_crop_knows_where_it_lies(coded: StereoPair, flip: str | None) -> None:
    """Networks with coordinates see those of the complete view, also of a crop of a crop."""
    layer = ConvLayer(np.zeros((1, 5, 1, 1), np.float32), None)
    part = augmentation.crop(augmentation.crop(coded, 2, 3, H - 4, W - 4), 4, 6, 10, 12)
    whole = network_input(coded.left, [layer])[..., 3:]
    expected = whole[6:16, 9:21]
    if flip is not None:
        part = getattr(augmentation, flip)(part)
        rows, columns = ((H - 16, H - 6), (9, 21)) if "vert" in flip else ((6, 16), (W - 21, W - 9))
        expected = whole[slice(*rows), slice(*columns)]
    seen = network_input(part.left, [layer], None, part.window)[..., 3:]
    np.testing.assert_allclose(seen, expected, atol=1e-6)


def test_statistics_do_not_outlive_a_change_of_the_values(coded: StereoPair) -> None:
    part = augmentation.random_crop(coded, (20, 30), 0.1, np.random.default_rng(0))
    changed = augmentation.disturb(part, AugmentOptions(gain=0.5), np.random.default_rng(0))
    assert (changed.left_statistics, changed.right_statistics) == (None, None)


def test_crop_larger_than_the_image(coded: StereoPair) -> None:
    part = augmentation.random_crop(coded, (1000, 40), 0.0, np.random.default_rng(0))
    assert (part.height, part.width) == (H, 40)


@pytest.mark.parametrize("factor", [0.5, 0.73, 1.0, 1.5, 2.0])
def test_scale(scene: StereoPair, factor: float) -> None:
    before = snapshot(scene)
    scaled = augmentation.scale(scene, factor)
    assert (scaled.height, scaled.width) == (round(factor * H), round(factor * W))
    horizontal = scaled.width / W
    assert scaled.ndisp == int(np.ceil(15 * horizontal))
    assert np.isclose(scaled.disparity.max(), scene.disparity.max() * horizontal)
    assert abs(scaled.valid.mean() - scene.valid.mean()) < 0.03
    assert scaled.right_disparity is not None
    # The scaled truths of both views still agree wherever they were valid.
    again = agree(scaled.disparity, scaled.right_disparity, -1)
    assert again[scaled.valid].mean() > 0.93
    assert_same(scene, before)


def test_scale_multiplies_disparities_by_the_horizontal_factor() -> None:
    image = np.zeros((10, 15, 3), np.float32)
    pair = build_pair("p", image, image, np.full((10, 15), 3.0, np.float32), ndisp=16)
    pair = replace(pair, isint=True)
    scaled = augmentation.scale(pair, 0.5)  # 15 columns become 8, 10 rows become 5
    np.testing.assert_allclose(scaled.disparity, 3 * 8 / 15, rtol=1e-6)
    assert not scaled.isint
    assert augmentation.scale(pair, 1e-9).left.shape == (1, 1, 3)


def test_scale_takes_the_nearest_truth() -> None:
    image = np.zeros((1, 6, 3), np.float32)
    disparity = np.array([[1, 2, 3, 4, np.inf, 6]], np.float32)
    pair = build_pair("p", image, image, disparity, visible=np.ones((1, 6), bool))
    third = augmentation.scale(pair, 1 / 3)
    np.testing.assert_allclose(third.disparity, [[2 / 3, np.inf]])
    assert third.valid.tolist() == [[True, False]]
    double = augmentation.scale(pair, 2.0)
    np.testing.assert_array_equal(double.disparity[0], np.repeat(disparity[0], 2) * 2)


def test_scaled_pixels_still_match() -> None:
    """A linear ramp: the brightness at a point is known at any scale."""
    columns = np.arange(64, dtype=np.float32)
    left = np.repeat(np.broadcast_to(columns / 100, (8, 64))[..., None], 3, axis=2)
    right = left + np.float32(0.06)  # the right view shows 6 columns further on
    pair = build_pair("ramp", left, right, np.full((8, 64), 6.0, np.float32))
    for factor in (0.5, 0.8, 1.7):
        scaled = augmentation.scale(pair, factor)
        x = scaled.width // 2
        match = x - float(scaled.disparity[0, x])
        there = np.interp(match, np.arange(scaled.width), scaled.right[0, :, 0])
        assert there == pytest.approx(float(scaled.left[0, x, 0]), abs=2e-3)


def test_misalign_moves_the_right_view_only(scene: StereoPair) -> None:
    before = snapshot(scene)
    up = augmentation.misalign(scene, np.ones((2, 2)))
    np.testing.assert_allclose(up.right[:-1], scene.right[1:], atol=1e-5)
    assert up.right_disparity is not None
    assert scene.right_disparity is not None
    np.testing.assert_array_equal(up.right_disparity[:-1], scene.right_disparity[1:])
    for name in ("left", "disparity", "valid"):
        np.testing.assert_array_equal(getattr(up, name), getattr(scene, name))
    assert_same(scene, before)


def test_misalign_interpolates_between_the_corners() -> None:
    """A ramp from top to bottom tells by how much each pixel was moved."""
    ramp = np.broadcast_to(np.linspace(0.2, 0.2 + 0.01 * 40, 41)[:, None, None], (41, 61, 3))
    right = ramp.astype(np.float32)
    pair = build_pair("ramp", right, right, np.zeros((41, 61), np.float32))
    moved = augmentation.misalign(pair, np.array([[0.7, -0.7], [0.1, 0.3]]))
    shift = (moved.right[..., 0] - right[..., 0])[2:-2] / 0.01
    down, across = np.linspace(0, 1, 41)[2:-2, None], np.linspace(0, 1, 61)
    expected = (1 - down) * (0.7 - 1.4 * across) + down * (0.1 + 0.2 * across)
    np.testing.assert_allclose(shift, expected, atol=1e-3)
    assert moved.right_disparity is None


def test_misalignment_is_a_limit(scene: StereoPair) -> None:
    rng = np.random.default_rng(0)
    drawn = np.stack([augmentation._random_corners(rng) for _ in range(300)])
    assert np.abs(drawn).max() <= 1
    assert np.abs(drawn.mean(axis=(1, 2))).max() > 0.7  # some are nearly constant
    assert np.ptp(drawn, axis=(1, 2)).max() > 1.2  # others are not
    options = AugmentOptions(misaligned=0.3, misalignment=0.7)
    results = [augment(scene, options, np.random.default_rng(seed)) for seed in range(100)]
    moved = sum(not np.array_equal(pair.right, scene.right) for pair in results)
    assert 18 < moved < 42  # 30 on average, with a standard deviation of 4.6
    assert all(np.array_equal(pair.left, scene.left) for pair in results)


# ----------------------------------------------------------------------------------------- colours


def test_disturb_changes_the_views_independently(coded: StereoPair) -> None:
    same = replace(coded, right=coded.left.copy())
    before = snapshot(same)
    options = AugmentOptions(gain=0.2, colour=0.1, gamma=0.2, noise=0.02)
    changed = augmentation.disturb(same, options, np.random.default_rng(5))
    assert_same(same, before)
    assert changed.left.dtype == changed.right.dtype == np.float32
    assert not np.array_equal(changed.left, changed.right)
    for view in (changed.left, changed.right):
        assert not np.array_equal(view, same.left)
        assert view.min() >= 0
        assert view.max() <= 1
    np.testing.assert_array_equal(changed.disparity, same.disparity)


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        (AugmentOptions(gain=0.3), 0.5 * 0.7, 0.5 * 1.3),
        (AugmentOptions(colour=0.3), 0.5 * 0.7, 0.5 * 1.3),
        (AugmentOptions(gamma=0.5), 0.5**1.5, 0.5 ** (1 / 1.5)),
    ],
)
def test_strengths_are_limits(options: AugmentOptions, low: float, high: float) -> None:
    image = np.full((2, 2, 3), 0.5, np.float32)
    pair = build_pair("grey", image, image, np.zeros((2, 2), np.float32))
    drawn = np.stack(
        [augmentation.disturb(pair, options, np.random.default_rng(s)).left for s in range(300)]
    )
    assert drawn.min() >= low - 1e-6
    assert drawn.max() <= high + 1e-6
    assert drawn.min() < low + 0.1 * (high - low)
    assert drawn.max() > high - 0.1 * (high - low)
    channels_differ = bool((np.ptp(drawn, axis=-1) > 1e-6).any())
    assert channels_differ == (options.colour > 0)


def test_lighting_is_a_smooth_field_of_its_own_in_each_view() -> None:
    white = np.full((H, W, 3), 0.5, np.float32)
    pair = build_pair("white", white, white, np.zeros((H, W), np.float32))
    changed = augmentation.disturb(pair, AugmentOptions(lighting=0.3), np.random.default_rng(3))
    for view in (changed.left, changed.right):
        field = view[..., 0] / 0.5
        np.testing.assert_allclose(view, field[..., np.newaxis] * white, rtol=1e-6)
        assert 0.7 <= field.min() < 0.95
        assert 1.05 < field.max() <= 1.3
        steps = [np.abs(np.diff(field, axis=axis)).max() for axis in (0, 1)]
        assert max(steps) < 0.6 / (min(H, W) / 4)
    assert np.abs(changed.left - changed.right).max() > 0.05


def test_some_pairs_keep_their_values(coded: StereoPair) -> None:
    options = AugmentOptions(disturbed=0.3, gain=0.5)
    results = [augment(coded, options, np.random.default_rng(seed)) for seed in range(200)]
    changed = sum(not np.array_equal(pair.left, coded.left) for pair in results)
    assert 40 < changed < 80  # 60 on average, with a standard deviation of 6.5


def test_noise_level() -> None:
    image = np.full((50, 50, 3), 0.5, np.float32)
    pair = build_pair("grey", image, image, np.zeros((50, 50), np.float32))
    levels = [
        augmentation.disturb(pair, AugmentOptions(noise=0.05), np.random.default_rng(s)).left.std()
        for s in range(40)
    ]
    assert max(levels) < 0.052
    assert min(levels) < 0.01
    assert max(levels) > 0.04


def test_grey_takes_the_colour_of_both_views(scene: StereoPair) -> None:
    options = AugmentOptions(grey=0.4)
    results = [
        augmentation.disturb(scene, options, np.random.default_rng(seed)) for seed in range(100)
    ]
    grey = [np.ptp(pair.left, axis=2).max() < 1e-6 for pair in results]
    assert grey == [np.ptp(pair.right, axis=2).max() < 1e-6 for pair in results]
    assert 25 < sum(grey) < 55
    changed = results[grey.index(True)]
    np.testing.assert_allclose(changed.left[..., 1], scene.left @ augmentation._LUMA, atol=1e-6)
    np.testing.assert_array_equal(results[grey.index(False)].left, scene.left)


def test_contrast_changes_fine_structures_of_both_views_alike() -> None:
    fine = np.indices((64, 96)).sum(axis=0) % 2 * 0.2 + 0.4
    view = np.repeat(fine[..., np.newaxis], 3, axis=2).astype(np.float32)
    pair = build_pair("checks", view, view, np.zeros((64, 96), np.float32))
    changed = augmentation.disturb(pair, AugmentOptions(contrast=0.5), np.random.default_rng(2))
    np.testing.assert_array_equal(changed.left, changed.right)
    factor = (changed.left[..., 0] - 0.5) / (view[..., 0] - 0.5)
    assert 0.5 - 1e-3 <= factor.min() < 0.8
    assert 1.2 < factor.max() <= 1.5 + 1e-3
    steps = [np.abs(np.diff(factor, axis=axis)).max() for axis in (0, 1)]
    assert max(steps) < 1.0 / 15
    plain = replace(pair, left=np.full_like(view, 0.3), right=np.full_like(view, 0.3))
    same = augmentation.disturb(plain, AugmentOptions(contrast=0.5), np.random.default_rng(2))
    np.testing.assert_allclose(same.left, plain.left, atol=1e-6)


def test_clipping_is_a_limit(scene: StereoPair) -> None:
    options = AugmentOptions(clipping=0.2)
    whites, blacks = [], []
    for seed in range(40):
        changed = augmentation.disturb(scene, options, np.random.default_rng(seed))
        whites.append(max((view == 1).mean() for view in (changed.left, changed.right)))
        blacks.append(max((view == 0).mean() for view in (changed.left, changed.right)))
        inside = (changed.left > 0) & (changed.left < 1)
        change = np.polyfit(scene.left[inside], changed.left[inside], 1)
        assert change[0] >= 1  # the rest is stretched evenly
        line = np.polyval(change, scene.left[inside])
        np.testing.assert_allclose(changed.left[inside], line, atol=1e-4)
    for shares in (whites, blacks):
        assert 0.1 < max(shares) < 0.24  # the levels are found on every fourth pixel
        assert min(shares) < 0.05
    black = replace(scene, left=np.zeros_like(scene.left), right=np.zeros_like(scene.right))
    same = augmentation.disturb(black, options, np.random.default_rng(0))
    np.testing.assert_array_equal(same.left, black.left)


def test_shadows_lie_on_the_scene(coded: StereoPair) -> None:
    """Equal colours stay equal: a match is in shadow in both views or in none."""
    options = AugmentOptions(shadow=0.6)
    darkened = []
    for seed in range(8):
        changed = augmentation.disturb(coded, options, np.random.default_rng(seed))
        # Not all: where surfaces meet, the truths of the views may differ by a pixel.
        assert colours_match(changed, tolerance=0.02) > 0.95
        darkened.append((changed.left < 0.99 * coded.left).mean())
        assert (changed.left >= 0.4 * coded.left - 1e-6).all()
    assert 0.05 < np.mean(darkened) < 0.95


def test_probabilities_of_shadows_and_clipping(coded: StereoPair) -> None:
    for options in (
        AugmentOptions(shadowed=0.3, shadow=0.6),
        AugmentOptions(clipped=0.3, clipping=0.2),
    ):
        results = [augment(coded, options, np.random.default_rng(seed)) for seed in range(100)]
        # More than rounding, which older versions of NumPy add in a power of 1.
        changed = sum(np.abs(pair.left - coded.left).max() > 1e-5 for pair in results)
        assert 16 < changed < 44


# ------------------------------------------------------------------------------------ all together


def test_defaults_change_nothing(coded: StereoPair) -> None:
    assert_same(augment(coded, AugmentOptions(), np.random.default_rng(0)), snapshot(coded))


def test_same_generator_same_result(scene: StereoPair) -> None:
    options = AugmentOptions(
        crop=(32, 48),
        vertical_flip=0.5,
        horizontal_flip=0.5,
        min_scale=0.8,
        max_scale=1.25,
        gain=0.1,
        colour=0.1,
        gamma=0.1,
        noise=0.01,
        grey=0.5,
        contrast=0.2,
        shadow=0.5,
        clipping=0.05,
        misalignment=0.7,
    )
    before = snapshot(scene)
    results = [augment(scene, options, np.random.default_rng([7, step])) for step in (1, 1, 2)]
    assert_same(results[0], snapshot(results[1]))
    assert not np.array_equal(results[0].left, results[2].left)
    assert_same(scene, before)
    for result in results:
        assert (result.height, result.width) == (32, 48)
        assert result.left.flags.c_contiguous
        assert result.left.dtype == result.disparity.dtype == np.float32


@pytest.mark.parametrize(
    "wrong",
    [
        {"crop": (0, 5)},
        {"min_valid": 1.5},
        {"vertical_flip": -0.1},
        {"horizontal_flip": 1.1},
        {"gain": 1.0},
        {"colour": float("nan")},
        {"gamma": -1.0},
        {"noise": float("inf")},
        {"grey": 1.1},
        {"contrast": 1.0},
        {"shadowed": -0.1},
        {"shadow": 1.0},
        {"clipped": 2.0},
        {"clipping": 0.5},
        {"misaligned": float("nan")},
        {"misalignment": -1.0},
        {"min_scale": 0.0},
        {"min_scale": 1.2, "max_scale": 1.1},
    ],
)
def test_wrong_options(wrong: dict) -> None:
    with pytest.raises(InputError):
        AugmentOptions(**wrong)
    AugmentOptions(vertical_flip=1.0, horizontal_flip=1.0, min_valid=1.0)


@pytest.mark.shared
def test_real_pair_still_matches_after_everything(shared: Path) -> None:
    dataset = open_dataset("middlebury", shared / "data" / "middlebury-2006")
    pair = dataset.load(dataset.samples[0])
    options = AugmentOptions(
        crop=(200, 300), vertical_flip=0.5, horizontal_flip=0.5, min_scale=0.8, max_scale=1.25
    )
    for step in range(6):
        changed = augment(pair, options, np.random.default_rng(step))
        assert changed.valid.mean() > 0.4
        assert colours_match(changed, tolerance=0.1) > 0.8
        shifted = replace(changed, disparity=np.maximum(changed.disparity - 9, 0))
        assert colours_match(shifted, tolerance=0.1) < 0.8
