"""Confidence and validity maps as files."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.errors import OutputError
from hybridstereo.io.confidence import write_confidence, write_validity
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import read_pixels
from hybridstereo.io.mask import read_mask

CONFIDENCE = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("suffix", [".pfm", ".npy", ".tif"])
def test_floats_are_kept(tmp_path, suffix):
    path = tmp_path / f"c{suffix}"
    write_confidence(path, CONFIDENCE)
    np.testing.assert_array_equal(read_disparity(path), CONFIDENCE)


def test_png_has_16_bits_of_the_whole_range(tmp_path):
    path = tmp_path / "c.png"
    write_confidence(path, CONFIDENCE)
    stored = read_pixels(path)
    assert stored.dtype == np.uint16
    assert (stored.min(), stored.max()) == (0, 65535)
    np.testing.assert_allclose(stored / 65535, CONFIDENCE, atol=1e-5)


def test_validity_is_an_8_bit_mask(tmp_path):
    path = tmp_path / "v.png"
    validity = np.array([[0, 128, 255]], np.uint8)
    write_validity(path, validity)
    stored = read_pixels(path)
    assert stored.dtype == np.uint8
    np.testing.assert_array_equal(stored, validity)
    np.testing.assert_array_equal(read_mask(path), validity == 255)


@pytest.mark.parametrize(
    ("write", "name", "words"),
    [
        (write_confidence, "c.jpg", "no format"),
        (write_confidence, "-", "standard output"),
        (write_confidence, "missing/c.pfm", "missing"),
        (write_validity, "v.pfm", "does not end in .png"),
        (write_validity, "-", "standard output"),
        (write_validity, "missing/v.png", "missing"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, write, name, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=words):
        write(name, np.zeros((2, 2), np.uint8))
    assert not list(tmp_path.iterdir())
