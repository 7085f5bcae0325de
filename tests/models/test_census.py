from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.features import features_forward, network_input
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import decode_pixels, read_pair
from hybridstereo.labels import LabelRange
from hybridstereo.models.census import census_model
from hybridstereo.stereo import Stereo


def test_channels_compare_the_centre_with_every_neighbour(backend, rng):
    """Each of the 24 differences has the sign of centre minus neighbour, for interior pixels."""
    image = np.repeat(rng.random((12, 13, 1)), 3, axis=2).astype(np.float32)
    model = census_model()
    features = features_forward(backend, network_input(image, model.unary), model.unary)
    grey = image[..., 0]
    offsets = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3) if (dy, dx) != (0, 0)]
    for index, (dy, dx) in enumerate(offsets):
        centre = grey[2:-2, 2:-2]
        neighbour = grey[2 + dy : 10 + dy, 2 + dx : 11 + dx]
        clear = np.abs(centre - neighbour) > 0.05
        for mix in range(4):
            channel = features[2:-2, 2:-2, 4 * index + mix]
            np.testing.assert_array_equal(
                np.sign(channel)[clear], np.sign(centre - neighbour)[clear]
            )


def test_brightness_and_gain_do_not_matter(backend, rng):
    image = rng.random((10, 11, 3)).astype(np.float32)
    model = census_model()
    first, second = (
        features_forward(backend, network_input(x, model.unary), model.unary)
        for x in (image, (0.5 * image + 0.2).astype(np.float32))
    )
    np.testing.assert_allclose(first, second, atol=1e-3)


@pytest.mark.parametrize(("method", "expected"), [("crf", 12.48), ("argmax", 32.49)])
def test_sample_pair(backend, sample, method, expected):
    """End to end on a scene with exact truth: percentage of visible pixels off by over 1 px."""
    left, right = read_pair(sample / "left.png", sample / "right.png")
    truth = read_disparity(sample / "truth.pfm")
    mask = decode_pixels((sample / "mask0nocc.png").read_bytes(), "mask") == 255
    prediction = Stereo(census_model(), backend).match(
        left, right, labels=LabelRange(0, 64), method=method
    )
    bad = 100 * float((np.abs(prediction.disparity - truth)[mask] > 1).mean())
    assert bad == pytest.approx(expected, abs=0.3)
