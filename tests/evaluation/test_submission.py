"""Submission folders: names, formats and times as the benchmarks ask for them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from support.pairfiles import H, W, picture

from hybridstereo.errors import InputError
from hybridstereo.evaluation.methods import Outcome
from hybridstereo.evaluation.results import MethodInfo
from hybridstereo.evaluation.submission import write_submission
from hybridstereo.io.disparity import read_disparity


class Fixed:
    """Always the same map; remembers the disparity ranges it was given."""

    def __init__(self, disparity, name="My Method 1", seconds=0.25):
        self.info = MethodInfo(name, "", "model")
        self._outcome = Outcome(disparity, seconds)
        self.ranges = []

    def compute(self, scene, pair):
        self.ranges.append(pair.search_range)
        return self._outcome


@pytest.fixture
def disparity():
    values = np.linspace(0, 300, H * W, dtype=np.float32).reshape(H, W)
    values[3, 4] = np.inf
    return values


def kitti(folder, frames=("000000_10", "000001_10")):
    for frame in frames:
        for view in ("image_2", "image_3"):
            picture(folder / "testing" / view / f"{frame}.png")
            picture(folder / "testing" / view / f"{frame[:-2]}11.png")  # the next moment
    return folder


def middlebury(folder, parts=("trainingQ", "testQ")):
    for part in parts:
        picture(folder / part / "Teddy" / "im0.png")
        picture(folder / part / "Teddy" / "im1.png")
        (folder / part / "Teddy" / "calib.txt").write_text("ndisp=24")
    return folder


def test_kitti(tmp_path, disparity):
    method = Fixed(disparity)
    written = write_submission("kitti", kitti(tmp_path / "k"), tmp_path / "out", method)
    assert [str(path.relative_to(tmp_path / "out")) for path in written.files] == [
        "disp_0/000000_10.png", "disp_0/000001_10.png", "runtime.txt",
    ]  # fmt: skip
    stored = cv2.imread(str(written.files[0]), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint16
    assert stored[0, 0] == 1  # a disparity of 0 must not read as invalid
    assert stored[3, 4] == 0
    assert stored.max() == 65535  # beyond 256 px
    assert stored[1, 2] == int(256 * disparity[1, 2])
    assert float((tmp_path / "out" / "runtime.txt").read_text()) == 0.25
    assert method.ranges == [256, 256]
    assert "wants 200" in written.warnings[0]


def test_middlebury(tmp_path, disparity):
    dense = np.where(np.isfinite(disparity), disparity, 0)
    method = Fixed(dense)
    written = write_submission("middlebury", middlebury(tmp_path / "m"), tmp_path / "out", method)
    assert [str(path.relative_to(tmp_path / "out")) for path in written.files] == [
        "testQ/Teddy/disp0MyMethod1.pfm", "testQ/Teddy/timeMyMethod1.txt",
        "trainingQ/Teddy/disp0MyMethod1.pfm", "trainingQ/Teddy/timeMyMethod1.txt",
    ]  # fmt: skip
    np.testing.assert_array_equal(read_disparity(written.files[0]), dense)
    assert written.files[1].read_text() == "0.250\n"
    assert method.ranges == [24, 24]
    assert "wants 30" in written.warnings[0]


def test_middlebury_calls_maps_with_holes_sparse(tmp_path, disparity):
    root = middlebury(tmp_path / "m", ["testH"])
    written = write_submission("middlebury", root, tmp_path / "out", Fixed(disparity, "a", None))
    assert [path.name for path in written.files] == ["disp0a_s.pfm"]


def test_one_failure_does_not_lose_the_rest(tmp_path, disparity):
    root = kitti(tmp_path / "k")
    (root / "testing" / "image_3" / "000000_10.png").write_bytes(b"cut")
    written = write_submission("kitti", root, tmp_path / "out", Fixed(disparity))
    assert [name for name, _ in written.failures] == ["000000_10"]
    assert len(written.files) == 2


def test_useless_roots(tmp_path, disparity):
    method = Fixed(disparity)
    with pytest.raises(InputError, match="testing/image_2"):
        write_submission("kitti", tmp_path, tmp_path / "out", method)
    with pytest.raises(InputError, match="trainingH"):
        write_submission("middlebury", tmp_path / "no", tmp_path / "out", method)
    root = middlebury(tmp_path / "m", ["trainingQ", "testH"])
    with pytest.raises(InputError, match="several resolutions: H, Q"):
        write_submission("middlebury", root, tmp_path / "out", method)


def test_calibration_without_a_range(tmp_path, disparity):
    root = middlebury(tmp_path / "m", ["testQ"])
    (root / "testQ" / "Teddy" / "calib.txt").write_text("isint=0")
    written = write_submission("middlebury", root, tmp_path / "out", Fixed(disparity))
    assert "ndisp" in written.failures[0][1]
