"""The interface of OpenCV's matchers."""

from __future__ import annotations

import numpy as np
import pytest
from support.videofiles import scenes, views_of

from hybridstereo import OpenCVMatcher, Stereo
from hybridstereo.errors import InputError
from hybridstereo.opencv import cv2, sgbm_matcher


@pytest.fixture(scope="module")
def stereo():
    return Stereo("census", "cpu")


def test_beside_sgbm(stereo):
    """BGR images in; 16 times the disparity out, of the same type and shape as OpenCV's."""
    (scene,) = scenes(1)
    left, right = (np.ascontiguousarray(x[0][..., ::-1]) for x in views_of([scene]))
    ours = OpenCVMatcher(stereo, num_disparities=16).compute(left, right)
    theirs = sgbm_matcher(cv2.STEREO_SGBM_MODE_SGBM, 16, 3, 3).compute(left, right)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    both = (theirs > 0) & ~scene.occlusion
    assert np.median(np.abs(ours[both] - theirs[both])) <= 8  # half a pixel
    assert np.median(np.abs(ours[both] / 16 - scene.disparity[both])) < 0.5


def test_the_channels_are_those_of_opencv(stereo):
    (scene,) = scenes(1)
    left, right = (x[0] for x in views_of([scene]))
    matcher = OpenCVMatcher(stereo, 16, refine=False)
    turned = matcher.compute_float(left[..., ::-1], right[..., ::-1])
    alone = stereo.match(left, right, disparities=16, min_disparity=0, refine=False).disparity
    np.testing.assert_array_equal(turned, alone)


def test_ranges_that_int16_cannot_hold(stereo):
    with pytest.raises(InputError, match="more than int16 holds"):
        OpenCVMatcher(stereo, 3000)
