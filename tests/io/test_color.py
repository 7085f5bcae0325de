from __future__ import annotations

import warnings

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hybridstereo.errors import InputError
from hybridstereo.io.color import (
    COLORMAPS,
    FARTHEST,
    INVALID,
    NEAREST,
    colorize,
    disparity_levels,
    palette,
)

BLACK = (0, 0, 0)


def brightness(color: np.ndarray) -> int:
    return int(color.max())


def test_near_is_red_and_far_is_blue():
    ramp = np.linspace(0, 60, 100, dtype=np.float32)[np.newaxis]
    picture = colorize(ramp)
    far, near = picture[0, 5].astype(int), picture[0, -5].astype(int)
    assert far[2] > far[0]
    assert near[0] > near[2]


def test_ends_of_the_range_get_the_ends_of_the_map():
    picture = colorize(np.float32([[10, 20]]), lo=10, hi=20)
    turbo = cv2.applyColorMap(np.arange(256, dtype=np.uint8)[:, None], cv2.COLORMAP_TURBO)[:, 0]
    np.testing.assert_array_equal(picture[0, 1], turbo[255, ::-1])
    np.testing.assert_array_equal(picture[0, 0], turbo[24, ::-1])


def test_values_beyond_the_range_are_clipped():
    picture = colorize(np.float32([[-100, 10, 20, 1e6]]), lo=10, hi=20)
    np.testing.assert_array_equal(picture[0, 0], picture[0, 1])
    np.testing.assert_array_equal(picture[0, 3], picture[0, 2])


def test_outliers_do_not_squeeze_the_scene():
    disparity = np.linspace(10, 20, 10_000, dtype=np.float32).reshape(100, 100)
    clean = colorize(disparity)
    disparity[0, 0], disparity[-1, -1] = -5000, 5000
    difference = np.abs(colorize(disparity).astype(int) - clean.astype(int))
    assert difference.max() <= 12


@pytest.mark.parametrize("invalid", [np.inf, -np.inf, np.nan])
def test_invalid_pixels_are_black(invalid):
    picture = colorize(np.float32([[1, invalid, 3]]))
    assert tuple(picture[0, 1]) == BLACK
    assert brightness(picture[0, 0]) > 0


@pytest.mark.parametrize("colormap", COLORMAPS)
def test_far_is_visibly_lighter_than_invalid(colormap):
    picture = colorize(np.float32([[0, np.inf, 9]]), lo=0, hi=9, colormap=colormap)
    assert brightness(picture[0, 0]) >= 40
    assert tuple(picture[0, 1]) == BLACK


KITTI_CORNERS = [
    (0.114, (0, 0, 255)), (0.299, (255, 0, 0)), (0.413, (255, 0, 255)), (0.587, (0, 255, 0)),
    (0.701, (0, 255, 255)), (0.886, (255, 255, 0)), (1.0, (255, 255, 255)),
]  # fmt: skip


@pytest.mark.parametrize(("position", "color"), KITTI_CORNERS)
def test_kitti_map_passes_through_the_colours_of_the_development_kit(position, color):
    # The corner lies between two of the 256 colours; neighbours differ by at most 9.
    nearest = palette("kitti")[round(255 * position)].astype(int)
    np.testing.assert_allclose(nearest, color, atol=9)


def test_grey_map_is_grey_and_grows_lighter_towards_the_viewer():
    grey = palette("grey").astype(int)
    assert (grey == grey[:, :1]).all()
    assert (np.diff(grey[FARTHEST:, 0]) >= 0).all()
    assert grey[NEAREST, 0] == 255


@pytest.mark.parametrize("colormap", COLORMAPS)
def test_colorize_looks_levels_up_in_the_palette(colormap):
    disparity = np.float32([[0, 3, np.inf, 10, 99]])
    levels = disparity_levels(disparity, lo=0, hi=10)
    assert levels[0, [0, 2, 3, 4]].tolist() == [FARTHEST, INVALID, NEAREST, NEAREST]
    picture = colorize(disparity, lo=0, hi=10, colormap=colormap)
    np.testing.assert_array_equal(picture, palette(colormap)[levels])


def test_constant_map_has_one_middle_colour():
    picture = colorize(np.full((3, 4), 7, np.float32))
    middle = colorize(np.float32([[0, 7, 14]]), lo=0, hi=14)[0, 1]
    np.testing.assert_array_equal(picture, np.broadcast_to(middle, (3, 4, 3)))


def test_all_invalid_is_all_black():
    assert not colorize(np.full((3, 4), np.inf, np.float32)).any()


def test_everything_below_the_given_lower_end_gets_the_first_colour():
    picture = colorize(np.float32([[1, 2]]), lo=100)
    first = colorize(np.float32([[0, 1]]), lo=0, hi=1)[0, 0]
    np.testing.assert_array_equal(picture[0], [first, first])


@pytest.mark.parametrize(("lo", "hi"), [(5, 3), (5, 5)])
def test_empty_range(lo, hi):
    with pytest.raises(InputError, match=f"from 5 to {hi} is empty"):
        colorize(np.ones((2, 2), np.float32), lo=lo, hi=hi)


@pytest.mark.parametrize("limits", [{"lo": np.nan}, {"hi": np.inf}])
def test_range_that_is_not_finite(limits):
    with pytest.raises(InputError, match="colour range cannot end at"):
        colorize(np.ones((2, 2), np.float32), **limits)


def test_unknown_colormap():
    with pytest.raises(InputError, match="no colour map 'rainbow'") as caught:
        colorize(np.ones((2, 2), np.float32), colormap="rainbow")
    assert "turbo" in caught.value.hint


@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(width=32),
    )
)
def test_any_map_gives_a_picture_without_a_warning(disparity):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = colorize(disparity)
    assert picture.dtype == np.uint8
    assert picture.shape == (*disparity.shape, 3)
    np.testing.assert_array_equal(picture.any(axis=2), np.isfinite(disparity))
