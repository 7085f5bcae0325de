"""Results as notebooks show them: a picture with a scale."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest

from hybridstereo.display import map_picture
from hybridstereo.io.color import colorize
from hybridstereo.io.images import decode_pixels
from hybridstereo.labels import LabelRange
from hybridstereo.result import StereoResult


@pytest.fixture
def ramp():
    return np.tile(np.linspace(2, 40, 300, dtype=np.float32), (120, 1))


def test_the_map_stands_beside_a_scale(ramp):
    picture = map_picture(ramp, (2, 40), scale_bar=True)
    assert picture.shape[0] == 120
    assert picture.shape[1] > 300
    np.testing.assert_array_equal(picture[:, :300], colorize(ramp, 2, 40))
    # The bar shows the colours of the nearest on top and of the farthest below.
    bar = picture[:, 318]
    inked = np.flatnonzero((bar != 255).any(axis=1))
    np.testing.assert_allclose(bar[inked[1]], colorize(ramp, 2, 40)[0, -1], atol=10)
    np.testing.assert_allclose(bar[inked[-2]], colorize(ramp, 2, 40)[0, 0], atol=10)
    numbers = picture[:, 330:]
    assert (numbers < 200).any()


@pytest.mark.parametrize(
    ("shape", "columns"), [((30, 40), 240), ((3, 500), 500), ((40, 4000), 960), ((5, 1), 240)]
)
def test_small_maps_are_enlarged_and_large_ones_reduced(shape, columns):
    picture = map_picture(
        np.random.default_rng(0).random(shape).astype(np.float32), scale_bar=True, fit=True
    )
    assert picture.dtype == np.uint8
    assert columns < picture.shape[1] < columns + 0.4 * picture.shape[0] + 90
    assert picture.shape[0] >= 60


@pytest.mark.parametrize("value", [7.0, np.inf])
def test_a_flat_map_and_one_without_any_disparity(value):
    picture = map_picture(np.full((20, 30), value, np.float32), scale_bar=True)
    assert (picture[0, 0] == 0).all() == np.isinf(value)


def test_results_show_themselves_in_a_notebook(ramp):
    result = StereoResult(ramp, ramp, LabelRange(0, 64), None, None, {"crf": 0.25})
    png = result._repr_png_()
    decoded = decode_pixels(png, "picture")[..., ::-1]
    np.testing.assert_array_equal(decoded, map_picture(ramp, scale_bar=True, fit=True))
    html = result._repr_html_()
    assert base64.b64decode(re.search(r"base64,([^\"]+)\"", html)[1]) == png
    assert "300x120 pixels, disparities 0 to 63 px, 0.25 s" in html
