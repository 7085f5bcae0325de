"""A few small pairs and a model that is quick on them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from hybridstereo.stereo import Stereo

DISPARITY = 3


@pytest.fixture(scope="session")
def census() -> Stereo:
    return Stereo("census", "cpu")


@pytest.fixture
def pairs_folder(tmp_path, rng):
    """``left`` and ``right`` with the pairs a to d, of which c has no right view."""
    for side in ("left", "right"):
        (tmp_path / "in" / side).mkdir(parents=True)
    for name in "abcd":
        left = cv2.GaussianBlur(rng.integers(0, 256, (24, 40, 3), np.uint8), (0, 0), 1)
        cv2.imwrite(str(tmp_path / f"in/left/{name}.png"), left)
        if name != "c":
            right = np.roll(left, -DISPARITY, axis=1)
            cv2.imwrite(str(tmp_path / f"in/right/{name}.png"), right)
    return tmp_path / "in"
