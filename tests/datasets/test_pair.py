"""Which pixels both views see, and pairs whose parts do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.pairfiles import INF

from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.pair import agree, build_pair, in_front
from hybridstereo.errors import InputError


def two_planes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A foreground (d = 8, left columns 20 to 39) before a background (d = 2), 60 columns wide.

    Returns the truths of both views and where the left view's pixels are hidden in the right one.
    """
    left, right = np.full((3, 60), 2.0, np.float32), np.full((3, 60), 2.0, np.float32)
    left[:, 20:40] = 8.0
    right[:, 12:32] = 8.0
    hidden = np.zeros((3, 60), bool)
    hidden[:, :2] = True  # outside the right view
    hidden[:, 14:20] = True  # would be at right columns 12 to 17, behind the foreground
    return left, right, hidden


def test_agree_finds_the_hidden_columns() -> None:
    left, right, hidden = two_planes()
    np.testing.assert_array_equal(agree(left, right, -1), ~hidden)
    hidden_right = np.zeros_like(hidden)
    hidden_right[:, 58:] = True  # outside the left view
    hidden_right[:, 32:38] = True  # would be at left columns 34 to 39
    np.testing.assert_array_equal(agree(right, left, 1), ~hidden_right)


def test_in_front_finds_them_from_one_view() -> None:
    left, _, hidden = two_planes()
    np.testing.assert_array_equal(in_front(left), ~hidden)


def test_unknown_truth_is_never_visible() -> None:
    left, right, _ = two_planes()
    left[:, 25] = INF
    right[:, 20] = INF
    seen = agree(left, right, -1)
    assert not seen[:, 25].any()
    assert not seen[:, 28].any()  # its match is unknown
    assert not in_front(left)[:, 25].any()


def test_agree_between_two_pixels_of_the_other_view() -> None:
    left = np.full((1, 10), 2.5, np.float32)
    right = np.full((1, 10), 9.0, np.float32)
    right[0, 3] = 2.5
    assert np.flatnonzero(agree(left, right, -1)[0]).tolist() == [5, 6]  # matches 2.5 and 3.5


def test_build_pair_prefers_the_mask_then_both_truths() -> None:
    left, right, hidden = two_planes()
    image = np.zeros((3, 60, 3), np.float32)
    assert build_pair("p", image, image, left, visible=np.ones((3, 60), bool)).valid.all()
    pair = build_pair("p", image, image, left, right_disparity=right)
    np.testing.assert_array_equal(pair.valid, ~hidden)
    assert pair.right_valid is not None
    assert pair.right_valid.mean() == pytest.approx(52 / 60)
    assert build_pair("p", image, image, left).right_valid is None


@pytest.mark.parametrize("part", ["right", "disparity", "visible", "right_disparity"])
def test_build_pair_names_the_part_of_another_size(part: str) -> None:
    parts = {
        "left": np.zeros((4, 6, 3), np.float32),
        "right": np.zeros((4, 6, 3), np.float32),
        "disparity": np.zeros((4, 6), np.float32),
        "visible": np.ones((4, 6), bool),
        "right_disparity": np.zeros((4, 6), np.float32),
    }
    parts[part] = parts[part][:, :5]
    with pytest.raises(InputError, match=r"/scene: the left image is 6x4 but the .* is 5x4"):
        build_pair("/scene", **parts)


def test_search_range() -> None:
    image = np.zeros((1, 4, 3), np.float32)
    pair = build_pair("p", image, image, np.array([[3.0, 7.5, INF, 0.0]], np.float32))
    assert pair.search_range == 8
    assert replace(pair, ndisp=64).search_range == 64
    unknown = np.full((1, 4), INF, np.float32)
    assert build_pair("p", image, image, unknown).search_range == 1
    assert (pair.height, pair.width) == (1, 4)


@pytest.mark.shared
def test_real_masks_are_close_to_our_own_check(shared: Path) -> None:
    dataset = open_dataset("middlebury", shared / "data" / "middlebury-2006")
    sample = next(s for s in dataset.samples if s.name == "Aloe")
    pair = dataset.load(sample)
    assert pair.right_disparity is not None
    both = agree(pair.disparity, pair.right_disparity, -1)
    one = in_front(pair.disparity)
    assert (both != pair.valid).mean() < 0.01
    assert (one != pair.valid).mean() < 0.02
