"""The conversion of ROS messages in the example node, without ROS."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hybridstereo.errors import StereoError
from hybridstereo.labels import LabelRange
from hybridstereo.result import StereoResult

PATH = Path(__file__).parents[1] / "docs" / "examples" / "ros2_stereo_node.py"


@pytest.fixture(scope="module")
def node():
    specification = importlib.util.spec_from_file_location("ros2_stereo_node", PATH)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def message(pixels, encoding, padding=0, big=False):
    """A sensor_msgs/Image, as ROS would send it."""
    stored = pixels.astype(pixels.dtype.newbyteorder(">" if big else "<"))
    rows = stored.reshape(len(pixels), -1).view(np.uint8)
    data = np.pad(rows, ((0, 0), (0, padding)))
    return SimpleNamespace(
        height=pixels.shape[0],
        width=pixels.shape[1],
        encoding=encoding,
        is_bigendian=int(big),
        step=data.shape[1],
        data=data.tobytes(),
    )


@pytest.mark.parametrize("padding", [0, 6])
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(
    ("encoding", "dtype", "channels"),
    [
        ("mono8", np.uint8, 1),
        ("mono16", np.uint16, 1),
        ("rgb8", np.uint8, 3),
        ("rgba8", np.uint8, 4),
        ("bgr8", np.uint8, 3),
        ("bgra8", np.uint8, 4),
        ("bgr16", np.uint16, 3),
    ],
)
def test_images(node, rng, encoding, dtype, channels, padding, big):
    pixels = rng.integers(0, np.iinfo(dtype).max, (3, 5, channels)).astype(dtype)
    image = node.image_from_message(message(pixels, encoding, padding, big))
    assert image.dtype == dtype
    expected = pixels[..., 0] if channels == 1 else pixels
    if encoding.startswith("bgr"):
        expected = pixels[..., [2, 1, 0, *range(3, channels)]]
    np.testing.assert_array_equal(image, expected)


def test_encodings_that_are_not_images(node):
    with pytest.raises(StereoError, match="encoded as 32FC1"):
        node.image_from_message(SimpleNamespace(encoding="32FC1"))


def test_disparity_image(node):
    disparity = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = StereoResult(disparity, disparity, LabelRange(-2.0, 11, 0.5), None, None, {})
    info = SimpleNamespace(p=[500.0, 0, 320, -60.0, 0, 500, 240, 0, 0, 0, 1, 0])
    focal, baseline = node.geometry_of(info)
    assert (focal, baseline) == (500.0, pytest.approx(0.12))
    fields = node.disparity_fields(result, "a header", focal, baseline)

    class Image:
        pass

    class DisparityImage:
        def __init__(self):
            self.image = Image()

    filled = node.fill(DisparityImage(), fields)
    assert (filled.header, filled.f, filled.t) == ("a header", 500.0, pytest.approx(0.12))
    assert (filled.min_disparity, filled.max_disparity, filled.delta_d) == (-2.0, 3.0, 0.5)
    image = filled.image
    assert (image.height, image.width, image.encoding, image.step) == (2, 3, "32FC1", 12)
    np.testing.assert_array_equal(np.frombuffer(image.data, "<f4").reshape(2, 3), disparity)
