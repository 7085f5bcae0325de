"""What callers give: images, labels, a scale."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.errors import InputError
from hybridstereo.inputs import check_scale, checked_labels, given_image, given_pair, reduced
from hybridstereo.labels import LabelRange


def test_paths_and_arrays_give_the_same_pair(sample_crop):
    paths = given_pair(*sample_crop, "rgb", np.dtype(np.float32))
    arrays = [given_image(x, "left", "rgb") for x in sample_crop]
    mixed = given_pair(sample_crop[0], arrays[1], "rgb", np.dtype(np.float32))
    for image, array, other in zip(paths, arrays, mixed, strict=True):
        assert np.array_equal(image, array)
        assert np.array_equal(image, other)


def test_a_pair_has_the_type_of_the_model(rng):
    views = rng.random((2, 4, 5, 3), np.float32)
    left, right = given_pair(*views, "rgb", np.dtype(np.float64))
    assert left.dtype == right.dtype == np.float64
    assert np.array_equal(right, views[1].astype(np.float64))


def test_channels_are_checked_for_files_as_well(sample_crop):
    with pytest.raises(InputError, match="no channel order"):
        given_pair(*sample_crop, "rbg", np.dtype(np.float32))


def test_reduced_views_are_means_over_squares():
    image = np.arange(4 * 8 * 3, dtype=np.float32).reshape(4, 8, 3)
    assert reduced(image, 1) is image
    expected = image.reshape(1, 4, 2, 4, 3).mean((1, 3))
    np.testing.assert_allclose(reduced(image, 4), expected, rtol=1e-6)


def test_labels_are_a_range():
    labels = LabelRange(-2.0, 5)
    assert checked_labels(labels) is labels
    with pytest.raises(InputError, match="The labels are a int"):
        checked_labels(64)


@pytest.mark.parametrize(("scale", "volumes"), [(3, False), (0, False), (None, False), (2, True)])
def test_scales_that_mean_nothing(scale, volumes):
    with pytest.raises(InputError, match=r"scale|reduced views"):
        check_scale(scale, volumes)
