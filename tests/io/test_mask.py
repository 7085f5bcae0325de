"""Masks as image files."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from hybridstereo.errors import InputError
from hybridstereo.io.mask import read_mask


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (np.array([[0, 128, 255]], np.uint8), [False, False, True]),
        (np.array([[0, 1, 1]], np.uint8), [False, True, True]),
        (np.array([[0, 128, 0]], np.uint8), [False, False, False]),
        (np.array([[0, 255, 65535]], np.uint16), [False, False, True]),
        (np.full((1, 3, 3), 255, np.uint8), [True, True, True]),
    ],
)
def test_read_mask(tmp_path: Path, stored: np.ndarray, expected: list[bool]) -> None:
    path = tmp_path / "mask.png"
    assert cv2.imwrite(str(path), stored)
    assert read_mask(path)[0].tolist() == expected


def test_read_mask_of_floats(tmp_path: Path) -> None:
    path = tmp_path / "mask.tiff"
    assert cv2.imwrite(str(path), np.ones((2, 2), np.float32))
    with pytest.raises(InputError, match="not a mask"):
        read_mask(path)
