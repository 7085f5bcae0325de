from __future__ import annotations

import numpy as np

from hybridstereo.filling import filled_disparity
from hybridstereo.labels import LabelRange

LABELS = LabelRange(0.0, 64)


def naive_fill(disparity, good):
    """Holes between level surfaces, pixel by pixel: the farther of the two ends of the hole."""
    height, width = disparity.shape
    found = disparity.copy()
    for y in range(height):
        for x in range(width):
            if good[y, x]:
                continue
            left = [disparity[y, c] for c in range(x - 1, -1, -1) if good[y, c]][:1]
            right = [disparity[y, c] for c in range(x + 1, width) if good[y, c]][:1]
            if left + right:
                found[y, x] = min(left + right)
    known = [y for y in range(height) if good[y].any()]
    return np.stack([found[min(known, key=lambda k: (abs(k - y), k))] for y in range(height)])


def test_level_surfaces_are_continued():
    generator = np.random.default_rng(1)
    disparity = np.repeat(generator.choice([5, 20, 40], 12), 6).astype(np.float32)
    disparity = np.tile(disparity, (9, 1))
    good = generator.random((9, 72)) > 0.4
    good[0] = good[5] = False  # a row without any good pixel takes the nearest one that has some
    np.testing.assert_allclose(
        filled_disparity(disparity, good, LABELS), naive_fill(disparity, good), atol=1e-4
    )


def test_a_slanted_background_goes_on_behind_a_near_object():
    x = np.arange(80)
    plane = np.tile(10 + 0.1 * x, (30, 1)).astype(np.float32)
    shown = plane.copy()
    shown[:, 45:60] = 40  # the object; left of it a shadow, and the margin that one view sees
    good = np.ones(plane.shape, bool)
    good[:, 35:45] = good[:, :12] = False
    garbage = np.where(good, shown, 63).astype(np.float32)
    filled = filled_disparity(garbage, good, LABELS)
    assert np.abs(filled - plane)[~good].max() < 0.5
    np.testing.assert_array_equal(filled[good], shown[good])
    # Level continuation would be off by more than a pixel at the border of the image.
    assert np.abs(plane[0, 12] - plane[0, 0]) > 1


def test_nothing_is_filled_in_beyond_the_labels():
    x = np.arange(60)
    plane = np.tile(1 + 0.2 * (x - 30), (20, 1)).astype(np.float32)
    good = np.tile(x >= 30, (20, 1))
    filled = filled_disparity(plane, good, LABELS)
    assert filled.min() == LABELS.minimum
    assert (filled[:, :20] == LABELS.minimum).all()


def test_without_holes_or_without_good_pixels_nothing_changes():
    disparity = np.arange(12, dtype=np.float32).reshape(3, 4)
    for good in (np.ones((3, 4), bool), np.zeros((3, 4), bool)):
        np.testing.assert_array_equal(filled_disparity(disparity, good, LABELS), disparity)
