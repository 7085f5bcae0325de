"""Views whose rows do not agree, as of a pair that is rectified badly."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np


def misaligned(
    right: np.ndarray, shift: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """The view with the point of (x, y) moved down by ``shift(x, y)`` rows, by OpenCV.

    The places that ``shift`` gets are relative to the centre and divided by the width.
    """
    height, width, _ = right.shape
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    rows = y - shift((x - width / 2) / width, (y - height / 2) / width)
    places = x.astype(np.float32), rows.astype(np.float32)
    return cv2.remap(right, *places, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)


def lowered(right: np.ndarray, rows: float) -> np.ndarray:
    """The view so many rows too low."""
    return misaligned(right, lambda x, y: rows + 0 * x)
