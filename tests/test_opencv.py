"""OpenCV's matcher as the package sets it up."""

from __future__ import annotations

import cv2
import pytest

from hybridstereo.opencv import opencv_threads, penalties, sgbm_matcher, supported_disparities


@pytest.mark.parametrize(("count", "rounded"), [(1, 16), (16, 16), (17, 32), (255, 256)])
def test_disparities_are_rounded_up_to_what_opencv_accepts(count, rounded):
    assert supported_disparities(count) == rounded


def test_penalties_grow_with_the_window():
    assert penalties(block=3, channels=1) == (72, 288)
    assert penalties(block=5, channels=3) == (600, 2400)


def test_every_setting_reaches_the_matcher():
    matcher = sgbm_matcher(
        cv2.STEREO_SGBM_MODE_HH,
        disparities=48,
        block=7,
        channels=3,
        prefilter=31,
        uniqueness=9,
        left_right=2,
        speckle_window=80,
        speckle_range=4,
    )
    assert (matcher.getMinDisparity(), matcher.getNumDisparities()) == (0, 48)
    assert (matcher.getMode(), matcher.getBlockSize()) == (cv2.STEREO_SGBM_MODE_HH, 7)
    assert (matcher.getP1(), matcher.getP2()) == penalties(7, 3)
    assert (matcher.getPreFilterCap(), matcher.getUniquenessRatio()) == (31, 9)
    assert matcher.getDisp12MaxDiff() == 2
    assert (matcher.getSpeckleWindowSize(), matcher.getSpeckleRange()) == (80, 4)


def test_settings_not_given_are_those_of_opencv():
    ours = sgbm_matcher(cv2.STEREO_SGBM_MODE_SGBM, disparities=16, block=3, channels=1)
    theirs = cv2.StereoSGBM.create()
    for name in (
        "getPreFilterCap", "getUniquenessRatio", "getDisp12MaxDiff", "getSpeckleWindowSize",
        "getSpeckleRange",
    ):  # fmt: skip
        assert getattr(ours, name)() == getattr(theirs, name)(), name


@pytest.mark.parametrize("threads", [1, None])
def test_threads_are_set_back_also_after_a_failure(threads):
    before, inside = cv2.getNumThreads(), []

    def fail() -> None:
        with opencv_threads(threads):
            inside.append(cv2.getNumThreads())
            cv2.setNumThreads(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert inside == [threads or before]
    assert cv2.getNumThreads() == before
