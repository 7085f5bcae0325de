"""OpenCV's matchers: the left border, the holes, the range, the settings that are stated."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from hybridstereo.datasets.pair import truth_pair
from hybridstereo.errors import InputError
from hybridstereo.evaluation.baselines import SETTINGS, OpenCvMethod
from hybridstereo.evaluation.scenes import Scene

SHIFT = 5


@pytest.fixture
def pair(rng):
    wide = cv2.GaussianBlur(rng.random((60, 140, 3), np.float32), (0, 0), 1.2)
    wide = (wide - wide.min()) / (wide.max() - wide.min())
    left, right = wide[:, :120], wide[:, SHIFT : 120 + SHIFT]  # left x matches right x - SHIFT
    truth = np.full((60, 120), SHIFT, np.float32)
    return truth_pair(truth, left=left, right=right, ndisp=20)


def compute(name, pair, **options):
    scene = Scene("s", ("s",), lambda: pair)
    return OpenCvMethod(name, **options).compute(scene, pair)


@pytest.mark.parametrize("name", list(SETTINGS))
def test_finds_a_shift_everywhere(name, pair):
    outcome = compute(name, pair)
    assert outcome.disparity.shape == (60, 120)
    assert outcome.disparity.dtype == np.float32
    assert np.isfinite(outcome.disparity).all()  # holes are filled
    assert outcome.seconds > 0
    inner = outcome.disparity[10:-10, SHIFT:-10]
    assert np.mean(np.abs(inner - SHIFT) < 0.5) > 0.95


@pytest.mark.parametrize("name", ["sgbm", "sgbm-hh"])
def test_the_left_border_is_matched_too(name, pair):
    border = compute(name, pair).disparity[5:-5, SHIFT + 2 : 20]  # left of ndisp columns
    assert np.mean(np.abs(border - SHIFT) < 0.5) > 0.9


def test_the_range_can_be_given(pair):
    # 16 labels, the least OpenCV knows, do not reach a disparity of 18.
    right = np.roll(pair.left, -18, axis=1)
    shifted = truth_pair(pair.disparity, left=pair.left, right=right)
    assert np.median(compute("sgbm", shifted, disparities=32).disparity) == pytest.approx(18)
    assert compute("sgbm", shifted, disparities=16).disparity.max() < 17


@pytest.mark.parametrize("name", list(SETTINGS))
def test_settings_are_stated(name):
    stated = OpenCvMethod(name).info
    assert stated.kind == "baseline"
    for word in (cv2.__version__, "block", "padded", "filled"):
        assert word in stated.settings


def test_block_sizes_suit_the_data_set():
    assert "block 3" in OpenCvMethod("sgbm", "middlebury").info.settings
    assert "block 5, P1 600, P2 2400" in OpenCvMethod("sgbm", "kitti").info.settings
    assert "block 15" in OpenCvMethod("bm", "kitti").info.settings


def test_threads_are_set_back(pair):
    before = cv2.getNumThreads()
    compute("bm", pair, threads=1)
    assert cv2.getNumThreads() == before


def test_images_that_opencv_refuses():
    tiny = np.zeros((3, 4, 3), np.float32)
    with pytest.raises(InputError, match="OpenCV cannot match 4x3"):
        compute("bm", truth_pair(np.zeros((3, 4), np.float32), left=tiny, right=tiny, ndisp=16))
