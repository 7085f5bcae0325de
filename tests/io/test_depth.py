"""Depth maps as files, read back by NumPy and OpenCV."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from hybridstereo.errors import OutputError
from hybridstereo.io.depth import write_depth

DEPTH = np.array([[0.0001, 1.2344, 65.535], [np.nan, 70.0, np.inf], [0.0, -1.0, 2.0]], np.float32)
VALID = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1]], bool)


@pytest.mark.parametrize("suffix", [".npy", ".tif", ".TIFF"])
def test_metres(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    assert write_depth(path, DEPTH) == 0
    stored = np.load(path) if suffix == ".npy" else cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored, np.where(VALID, DEPTH, np.nan))


def test_millimetres_say_how_much_they_cannot_hold(tmp_path):
    assert write_depth(tmp_path / "a.png", DEPTH) == 1
    stored = cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint16
    assert stored.tolist() == [[1, 1234, 65535], [0, 65535, 0], [0, 0, 2000]]


@pytest.mark.parametrize("name", ["a.pfm", "a", "missing/a.npy"])
def test_what_cannot_be_written(tmp_path, name):
    with pytest.raises(OutputError):
        write_depth(tmp_path / name, DEPTH)
