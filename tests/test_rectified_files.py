"""Pairs of files: what is written where, and what is not written at all."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
from support.calibrated import (
    named_matrices,
    turned,
    write_kitti,
    write_opencv,
)
from support.misaligned import lowered

from hybridstereo.errors import InputError, OutputError
from hybridstereo.io.calib import read_calibration
from hybridstereo.io.images import read_image, write_image
from hybridstereo.rectified_files import rectify_files
from hybridstereo.synthetic import quantised


@pytest.fixture
def low_pair(taken_scene, tmp_path):
    """The right view three rows too low."""
    paths = tmp_path / "a.png", tmp_path / "b.png"
    write_image(paths[0], quantised(taken_scene.left))
    write_image(paths[1], quantised(np.clip(lowered(taken_scene.right, 3), 0, 1)))
    return paths


def files_in(folder) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_rows_are_corrected(taken_scene, low_pair, tmp_path):
    result = rectify_files(*low_pair, tmp_path / "new" / "out")
    assert result.before == pytest.approx(3, abs=0.2)
    assert result.after < 0.2
    assert result.left.read_bytes() == low_pair[0].read_bytes()
    assert result.calib is None
    assert files_in(result.left.parent) == {"a.png", "b.png"}
    inner = np.s_[8:-8]
    assert np.abs(read_image(result.right) - taken_scene.right)[inner].mean() < 0.01
    assert "3.0" in result.describe()
    assert json.loads(json.dumps(result.as_dict()))["rectification"]["corrected"] is True


def test_a_rectified_pair_is_copied(taken_scene, low_pair, tmp_path):
    cv2.imwrite(str(tmp_path / "right.jpg"), quantised(taken_scene.right)[..., ::-1])
    result = rectify_files(low_pair[0], tmp_path / "right.jpg", tmp_path / "out")
    assert result.right.read_bytes() == (tmp_path / "right.jpg").read_bytes()
    assert "well rectified" in result.describe()


def test_unknown_rows_are_an_error_and_nothing_is_written(low_pair, tmp_path):
    write_image(tmp_path / "plain.png", np.full((160, 240, 3), 99, np.uint8))
    with pytest.raises(InputError, match="too few points match in both views"):
        rectify_files(low_pair[0], tmp_path / "plain.png", tmp_path / "out")
    assert files_in(tmp_path / "out") == set()


@pytest.mark.parametrize(("kind", "suffix"), [(np.uint16, ".png"), (np.uint8, ".jpg")])
def test_bits_are_kept(taken_scene, tmp_path, kind, suffix):
    largest = np.iinfo(kind).max
    for name, view in (("a", taken_scene.left), ("b", lowered(taken_scene.right, 3))):
        grey = np.clip(view, 0, 1).mean(axis=2)
        pixels = np.rint(largest * grey).astype(kind)
        assert cv2.imwrite(str(tmp_path / f"{name}{suffix}"), pixels)
    result = rectify_files(tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", tmp_path / "out")
    assert (result.left.name, result.right.name) == (f"a{suffix}", "b.png")
    written = cv2.imread(str(result.right), cv2.IMREAD_UNCHANGED)
    assert written.dtype == kind
    assert written.shape == (160, 240)
    assert np.abs(written / largest - taken_scene.right.mean(axis=2))[8:-8].mean() < 0.01


def test_a_calibrated_pair(taken_scene, cameras, taken_pair, tmp_path):
    calib = write_opencv(tmp_path / "c.yml", named_matrices(cameras), cameras.size)
    result = rectify_files(*taken_pair, tmp_path / "out", [calib], unit="m")
    assert result.after < 0.15
    assert result.before is None or result.before > 1
    assert not result.fits_badly
    assert files_in(tmp_path / "out") == {"a.png", "b.png", "calib.txt"}
    assert np.abs(read_image(result.left) - taken_scene.left)[8:-8, 8:-8].mean() < 0.01
    stated = read_calibration(result.calib)
    assert (stated.width, stated.height) == cameras.size
    assert stated.baseline == pytest.approx(120)
    assert stated.doffs == pytest.approx(taken_scene.geometry.doffs, abs=1e-6)
    report = json.loads(json.dumps(result.as_dict()))
    assert report["calibration"]["baseline_unit_known"] is True
    assert report["outputs"]["calib"] == str(result.calib)


def test_a_wrong_calibration_is_noticed(taken_scene, cameras, taken_pair, tmp_path):
    matrices = named_matrices(cameras)
    matrices = {key: matrices[key] for key in ("K1", "D1", "K2", "D2", "R", "T")}
    matrices["R"] = turned(0.4, 0, 0) @ matrices["R"]
    calib = write_opencv(tmp_path / "c.yml", matrices)
    result = rectify_files(*taken_pair, tmp_path / "out", [calib])
    assert result.fits_badly


def test_files_of_one_name(cameras, taken_pair, tmp_path):
    """As KITTI's: image_02/data/0000.png and image_03/data/0000.png."""
    paths = [tmp_path / folder / "0.png" for folder in ("image_02", "image_03")]
    for path, taken in zip(paths, taken_pair, strict=True):
        path.parent.mkdir()
        taken.rename(path)
    calib = write_kitti(tmp_path / "calib_cam_to_cam.txt", cameras)
    result = rectify_files(*paths, tmp_path / "out", [calib])
    assert (result.left.name, result.right.name) == ("left_0.png", "right_0.png")
    assert result.after < 0.15


def test_inputs_are_never_replaced(cameras, low_pair, taken_pair, tmp_path):
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OutputError, match="is an input already"):
        rectify_files(*low_pair, tmp_path)
    calib = write_kitti(tmp_path / "out.txt", cameras)
    (tmp_path / "out").mkdir()
    calib = calib.rename(tmp_path / "out" / "calib.txt")
    with pytest.raises(OutputError, match=r"calib\.txt is an input already"):
        rectify_files(*taken_pair, tmp_path / "out", [calib])
    assert files_in(tmp_path / "out") == {"calib.txt"}
    assert {path: path.read_bytes() for path in before} == before


def test_what_is_refused(low_pair, tmp_path):
    with pytest.raises(InputError, match="are about a calibration"):
        rectify_files(*low_pair, tmp_path / "out", alpha=0.5)
    with pytest.raises(InputError, match="no unit 'ell'"):
        rectify_files(*low_pair, tmp_path / "out", ["c.yml"], unit="ell")
    small = tmp_path / "small.png"
    write_image(small, np.zeros((10, 10, 3), np.uint8))
    with pytest.raises(InputError, match="differ in size"):
        rectify_files(low_pair[0], small, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(OutputError, match="cannot be created"):
        rectify_files(*low_pair, small)
