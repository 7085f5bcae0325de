"""Cameras of a rectified pair from files of all kinds: units, sizes, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.calibrated import (
    BASELINE,
    camera_pair,
    named_matrices,
    write_kitti,
    write_opencv,
    write_ros,
)

from hybridstereo.errors import InputError
from hybridstereo.rig import RigSource, StereoRig, read_rig

MIDDLEBURY = "cam0=[500 0 240; 0 500 180; 0 0 1]\ncam1=[500 0 252.5; 0 500 180; 0 0 1]\n"
MIDDLEBURY += "doffs=12.5\nbaseline=120\nwidth=480\nheight=360\nndisp=64\n"


@pytest.fixture
def pair():
    return camera_pair(doffs=12.5)


def test_all_formats_describe_the_same_cameras(tmp_path, pair):
    (tmp_path / "calib.txt").write_text(MIDDLEBURY)
    left, right = write_ros(tmp_path, pair)
    opencv = write_opencv(tmp_path / "o.yml", named_matrices(pair), pair.size)
    rigs = [
        read_rig(tmp_path / "calib.txt"),
        read_rig([write_kitti(tmp_path / "calib_cam_to_cam.txt", pair)]),
        read_rig(write_kitti(tmp_path / "grey.txt", pair, (0, 1)), cameras=(0, 1)),
        read_rig(left, right),
        read_rig(opencv, unit="m"),
    ]
    for rig in rigs:
        # The focal length is that of the rectified cameras, not of the lenses (425).
        assert rig.focal == pytest.approx(500)
        assert rig.focal_y == pytest.approx(500)
        assert rig.baseline == pytest.approx(BASELINE)  # 0.12 m
        assert rig.doffs == pytest.approx(12.5)
        assert rig.centre == pytest.approx((240, 180), abs=0.51)
        assert rig.size == (480, 360)
        assert rig.unit_known


def test_units(tmp_path, pair):
    path = write_opencv(tmp_path / "o.yml", named_matrices(pair))
    rig = read_rig(path)
    assert rig.baseline == pytest.approx(BASELINE / 1000)  # taken for millimetres
    assert not rig.unit_known
    assert read_rig(path, unit="cm").baseline == pytest.approx(BASELINE / 100)
    assert read_rig(path, unit="in").unit_known
    (tmp_path / "calib.txt").write_text(MIDDLEBURY)
    assert read_rig(tmp_path / "calib.txt", unit="cm").baseline == pytest.approx(1.2)
    with pytest.raises(InputError, match="no unit 'ft'"):
        read_rig(path, unit="ft")


def test_numbers_in_pixels_scale_with_the_images(tmp_path):
    rig = StereoRig(500.0, 0.12, 12.0, (239.5, 179.5), 510.0, (480, 360))
    half = rig.for_size(240, 180)
    assert half == StereoRig(250.0, 0.12, 6.0, (119.5, 89.5), 255.0, (240, 180))
    assert rig.for_size(480, 360) == rig
    assert rig.for_size(241, 180).focal == pytest.approx(500 * 241 / 480)  # rounded sizes
    with pytest.raises(InputError, match="240x200 pixels, but the calibration is for 480x360"):
        rig.for_size(240, 200)
    anywhere = StereoRig(100.0, 1.0)
    assert anywhere.for_size(11, 5).centre == (5, 2)
    with pytest.raises(InputError, match="its centre at 240, 180"):
        replace(rig, size=None).for_size(200, 100)


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ((500, 0), "`baseline` is 0"),
        ((500, -0.1), "`baseline` in metres is -0.1"),
        ((500, float("nan")), "`baseline` in metres is nan"),
        ((0, 0.1), "focal length in pixels is 0"),
        ((500, 0.1, 1e9), "`doffs` is"),
    ],
)
def test_what_no_cameras_have(numbers, problem):
    with pytest.raises(InputError, match=problem):
        StereoRig(*numbers)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("baseline=120\n", "states no cam0"),
        ("cam0=[500 0 240; 0 500 180; 0 0 1]\n", "states no baseline"),
        (MIDDLEBURY.replace("=120", "=0"), "calib.txt: The baseline is 0"),
    ],
)
def test_what_middleburys_file_has_to_state(tmp_path, text, problem):
    (tmp_path / "calib.txt").write_text(text)
    with pytest.raises(InputError, match=problem):
        read_rig(tmp_path / "calib.txt")


def test_cameras_that_are_not_rectified(tmp_path, pair):
    matrices = named_matrices(pair)
    taken = {key: matrices[key] for key in ("K1", "D1", "K2", "D2", "R", "T")}
    with pytest.raises(InputError, match="does not state the cameras of the rectified views"):
        read_rig(write_opencv(tmp_path / "o.yml", taken))
    exchanged = {**matrices, "P1": matrices["P2"], "P2": matrices["P1"]}
    exchanged |= {"R1": matrices["R2"], "R2": matrices["R1"]}
    del exchanged["R"], exchanged["T"]
    with pytest.raises(InputError, match="stands left of the other one"):
        read_rig(write_opencv(tmp_path / "e.yml", exchanged))


def test_principal_points_are_enough_for_doffs(tmp_path):
    (tmp_path / "calib.txt").write_text(MIDDLEBURY.replace("doffs=12.5\n", ""))
    assert read_rig(tmp_path / "calib.txt").doffs == 12.5


def test_sources(tmp_path):
    (tmp_path / "calib.txt").write_text(MIDDLEBURY)
    source = RigSource(("{x}/calib.txt",)).renamed(lambda name: name.replace("{x}", str(tmp_path)))
    assert source.read() == read_rig(tmp_path / "calib.txt")
    width, height = source.read().size
    assert source.stated_range(width, height) == (0, 63)
    assert source.stated_range(width // 2, height // 2) == (0, 32)  # as the images are reduced
    with pytest.raises(InputError, match="the calibration is for"):
        source.stated_range(width, height // 2)
    rig = StereoRig(100.0, 1.0)
    assert RigSource(rig=rig).read() is rig
    assert RigSource(rig=rig).stated_range(width, height) is None
    np.testing.assert_equal(RigSource(rig=rig).renamed(str).rig, rig)
