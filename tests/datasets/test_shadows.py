"""Shadows: the same points in both views, with dense, sparse and no truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hybridstereo.datasets import StereoPair, open_dataset
from hybridstereo.datasets.pair import build_pair
from hybridstereo.datasets.shadows import shadows
from hybridstereo.synthetic import SceneOptions

SEEDS = range(6)


@pytest.fixture(scope="module")
def scene() -> StereoPair:
    options = SceneOptions(90, 140, max_disparity=20, objects=5)
    dataset = open_dataset("synthetic", scenes=1, scene_options=options)
    return dataset.load(dataset.samples[0])


def differences(
    pair: StereoPair, left: np.ndarray, right: np.ndarray, where: np.ndarray
) -> np.ndarray:
    """Between the factors of left pixels and of their matches, interpolated."""
    rows, columns = np.nonzero(where)
    match = columns - pair.disparity[rows, columns]
    low = np.clip(np.floor(match).astype(int), 0, pair.width - 2)
    share = match - low
    there = (1 - share) * right[rows, low] + share * right[rows, low + 1]
    return np.abs(there - left[rows, columns])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("with_right_truth", [True, False])
def test_matches_get_the_same_shadow(scene: StereoPair, seed: int, with_right_truth: bool) -> None:
    pair = scene
    if not with_right_truth:
        pair = replace(scene, right_disparity=None, right_valid=None)
    left, right = shadows(pair, 0.7, np.random.default_rng(seed))
    assert left.dtype == right.dtype == np.float32
    assert 0.3 - 1e-6 <= left.min() <= left.max() <= 1
    assert np.ptp(left) > 0.1
    off = differences(pair, left, right, pair.valid)
    assert np.mean(off > 0.05) < 0.03  # hard edges, and depth edges between two pixels
    by_itself = differences(replace(pair, disparity=0 * pair.disparity), left, left, pair.valid)
    assert off.mean() < 0.2 * differences(pair, left, left, pair.valid).mean() + 1e-4
    assert by_itself.max() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_sparse_truth_is_enough(scene: StereoPair, seed: int) -> None:
    known = np.random.default_rng(0).random(scene.disparity.shape) < 0.2
    disparity = np.where(known, scene.disparity, np.inf).astype(np.float32)
    pair = replace(
        scene,
        disparity=disparity,
        valid=scene.valid & known,
        right_disparity=None,
        right_valid=None,
    )
    left, right = shadows(pair, 0.7, np.random.default_rng(seed))
    assert np.mean(differences(pair, left, right, pair.valid) > 0.1) < 0.1


def test_no_shadow_far_from_known_truth() -> None:
    image = np.zeros((200, 100, 3), np.float32)
    disparity = np.full((200, 100), 4.0, np.float32)
    disparity[:100] = np.inf
    pair = build_pair("sky", image, image, disparity)
    darkest = np.min([shadows(pair, 0.8, np.random.default_rng(s))[0] for s in range(40)], axis=0)
    assert (darkest[:50] == 1).all()
    assert (darkest[100:] < 0.9).all()


def test_without_truth_there_are_no_shadows() -> None:
    image = np.zeros((8, 9, 3), np.float32)
    pair = build_pair("unknown", image, image, np.full((8, 9), np.inf, np.float32))
    for field in shadows(pair, 0.8, np.random.default_rng(0)):
        assert (field == 1).all()


def test_same_generator_same_shadows(scene: StereoPair) -> None:
    first, again, other = (shadows(scene, 0.6, np.random.default_rng(s))[0] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_shadows_differ_in_kind(scene: StereoPair) -> None:
    """Over some seeds: soft and hard edges, small and large."""
    fields = [shadows(scene, 0.8, np.random.default_rng(seed))[0] for seed in range(40)]
    steepest = [max(np.abs(np.diff(f, axis=axis)).max() for axis in (0, 1)) for f in fields]
    covered = [(field < 0.95).mean() for field in fields]
    assert min(steepest) < 0.05
    assert max(steepest) > 0.4
    assert min(covered) < 0.2
    assert max(covered) > 0.5
