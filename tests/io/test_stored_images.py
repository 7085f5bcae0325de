"""Images keep their bits and their names where the format allows it."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from hybridstereo.errors import InputError
from hybridstereo.io.images import decode_pixels
from hybridstereo.io.stored_images import read_stored_image


@pytest.mark.parametrize(
    ("name", "kind", "channels", "written"),
    [
        ("a.png", np.uint8, 3, "a.png"),
        ("a.PNG", np.uint16, 1, "a.PNG"),
        ("a.png", np.uint16, 4, "a.png"),
        ("a.tif", np.float32, 1, "a.tif"),
        ("a.tiff", np.uint16, 3, "a.tiff"),
        ("a.bmp", np.uint8, 3, "a.bmp"),
        ("a.pgm", np.uint16, 1, "a.pgm"),
        ("a.ppm", np.uint8, 3, "a.ppm"),
        ("a.jpg", np.uint8, 3, "a.png"),
    ],
)
def test_what_is_read_is_written_again(tmp_path, rng, name, kind, channels, written):
    pixels = rng.random((6, 8, channels)).astype(np.float32)
    if kind != np.float32:
        pixels = np.rint(pixels * np.iinfo(kind).max).astype(kind)
    pixels = pixels[..., 0] if channels == 1 else pixels
    assert cv2.imwrite(str(tmp_path / name), pixels)
    image = read_stored_image(tmp_path / name)
    assert image.size == (8, 6)
    assert image.name_to_write == written
    again = decode_pixels(image.encoded(image.pixels), "again")
    np.testing.assert_array_equal(again, image.pixels)
    assert again.dtype == kind
    if not name.endswith("jpg"):
        np.testing.assert_array_equal(again, pixels)
    np.testing.assert_array_equal(image.from_unit(image.unit()), image.pixels)
    assert image.rgb().shape == (6, 8, 3)


def test_a_format_that_the_suffix_does_not_name(tmp_path):
    """A 16-bit PNG called .bmp: OpenCV would write 8 bits without a word."""
    encoded = cv2.imencode(".png", np.full((4, 4), 40000, np.uint16))[1]
    (tmp_path / "a.bmp").write_bytes(bytes(encoded))
    image = read_stored_image(tmp_path / "a.bmp")
    assert image.name_to_write == "a.png"
    assert decode_pixels(image.encoded(image.pixels), "again").dtype == np.uint16


def test_twelve_bits_become_sixteen(tmp_path):
    values = np.array([[0, 2048, 4095]], ">u2")
    (tmp_path / "a.pgm").write_bytes(b"P5\n3 1\n4095\n" + values.tobytes())
    image = read_stored_image(tmp_path / "a.pgm")
    assert image.pixels.tolist() == [[0, 32776, 65535]]
    again = decode_pixels(image.encoded(image.pixels), "again")
    np.testing.assert_array_equal(again, image.pixels)


def test_what_is_no_file_or_no_image_is_refused(tmp_path):
    with pytest.raises(InputError, match="standard input"):
        read_stored_image("-")
    cv2.imwrite(str(tmp_path / "a.tif"), np.full((3, 3), 200, np.float32))
    with pytest.raises(InputError, match="values from 200 to 200"):
        read_stored_image(tmp_path / "a.tif")
