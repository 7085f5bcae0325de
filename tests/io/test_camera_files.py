"""Calibrations of every format come back as they were written; wrong ones are refused."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from support.calibrated import camera_pair, named_matrices, write_kitti, write_opencv, write_ros

from hybridstereo.errors import InputError
from hybridstereo.io.camera_files import read_cameras

CALIBRATED = ("K1", "D1", "K2", "D2", "R", "T")
RECTIFIED = ("K1", "D1", "K2", "D2", "R1", "R2", "P1", "P2")


@pytest.fixture(scope="module")
def pair():
    return camera_pair()


def assert_same(found, pair, rectified: bool = True) -> None:
    for ours, theirs in ((found.left, pair.left), (found.right, pair.right)):
        np.testing.assert_allclose(ours.matrix, theirs.matrix, rtol=1e-9)
        np.testing.assert_allclose(ours.distortion, theirs.distortion, rtol=1e-9)
        assert ours.fisheye is theirs.fisheye
    np.testing.assert_allclose(found.rotation, pair.rotation, atol=1e-9)
    np.testing.assert_allclose(found.translation, pair.translation, atol=1e-9)
    assert (found.rectified is not None) is rectified
    if rectified:
        for part in ("rotations", "projections"):
            for ours, theirs in zip(
                getattr(found.rectified, part), getattr(pair.rectified, part), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("suffix", ["yml", "xml"])
@pytest.mark.parametrize("keys", [CALIBRATED, RECTIFIED, {*CALIBRATED, *RECTIFIED}])
def test_opencv(tmp_path, pair, suffix, keys):
    matrices = {key: x for key, x in named_matrices(pair).items() if key in keys}
    found = read_cameras(write_opencv(tmp_path / f"c.{suffix}", matrices, pair.size))
    assert_same(found, pair, "P1" in keys)
    assert found.size == pair.size
    assert found.millimetres is None


@pytest.mark.parametrize(
    ("matrix", "distortion", "rotation", "projection", "sides"),
    [
        ("cameraMatrix", "distCoeffs", "R", "P", "12"),
        ("M", "D", "R", "P", "12"),
        ("camera_matrix_", "dist_coeffs_", "R_", "P_", ("left", "right")),
        ("K", "D", "R", "P", "01"),
        ("mtx_", "dist_", "R_", "P_", "lr"),
        ("Camera_Matrix_", "Distortion_Coefficients_", "R", "P", "12"),
    ],
)
def test_common_names(tmp_path, pair, matrix, distortion, rotation, projection, sides):
    bases = {"K": matrix, "D": distortion, "R": rotation, "P": projection}
    matrices = {
        f"{bases[key[0]]}{sides['12'.index(key[1])]}" if len(key) == 2 else key: value
        for key, value in named_matrices(pair).items()
    }
    assert_same(read_cameras(write_opencv(tmp_path / "c.yml", matrices)), pair)


def test_cameras_in_mappings(tmp_path, pair):
    storage = cv2.FileStorage(str(tmp_path / "c.yml"), cv2.FILE_STORAGE_WRITE)
    for side, camera in (("left", pair.left), ("right", pair.right)):
        storage.startWriteStruct(side, cv2.FileNode_MAP)
        storage.write("camera_matrix", camera.matrix)
        storage.write("distortion_coefficients", camera.distortion)
        storage.endWriteStruct()
    storage.write("rotation", pair.rotation)
    storage.write("translation", pair.translation)
    storage.write("image_width", pair.size[0])
    storage.write("image_height", pair.size[1])
    storage.release()
    found = read_cameras(tmp_path / "c.yml")
    assert_same(found, pair, rectified=False)
    assert found.size == pair.size


def test_opencv_in_two_files(tmp_path, pair):
    matrices = named_matrices(pair)
    inside = {key: matrices.pop(key) for key in ("K1", "D1", "K2", "D2")}
    paths = [
        write_opencv(tmp_path / "intrinsics.yml", inside),
        write_opencv(tmp_path / "extrinsics.yml", matrices),
    ]
    assert_same(read_cameras(paths), pair)
    write_opencv(paths[1], {**matrices, "K1": np.eye(3)})
    with pytest.raises(InputError, match="states another K1"):
        read_cameras(paths)


@pytest.mark.parametrize("sides", [(2, 3), (0, 1)])
@pytest.mark.parametrize("without", [(), ("S_rect", "R_rect", "P_rect")])
def test_kitti(tmp_path, pair, sides, without):
    path = write_kitti(tmp_path / "calib_cam_to_cam.txt", pair, sides, without)
    found = read_cameras(path, cameras=None if sides == (2, 3) else sides)
    assert_same(found, pair, not without)
    assert found.size == pair.size
    assert found.millimetres == 1000


@pytest.mark.parametrize("fisheye", [False, True])
def test_ros(tmp_path, fisheye):
    pair = camera_pair(fisheye=fisheye)
    found = read_cameras(*write_ros(tmp_path, pair))
    assert_same(found, pair)
    assert found.size == pair.size
    assert found.millimetres == 1000


def test_ros_messages(tmp_path, pair):
    """As ``ros2 topic echo`` prints them."""
    for path in write_ros(tmp_path, pair):
        lines = path.read_text().splitlines()
        short = {"camera_matrix": "k", "distortion_coefficients": "d"}
        short |= {"rectification_matrix": "r", "projection_matrix": "p"}
        text = ""
        for line in lines:
            name, _, value = line.partition(":")
            if name in short:
                text += f"{short[name]}:\n"
            elif name.strip() == "data":
                text += "".join(f"- {x}\n" for x in value.strip(" []").split(", "))
            elif name.strip() not in ("rows", "cols"):
                text += line.removeprefix("image_") + "\n"
        path.write_text(text + "---\n")
    assert_same(read_cameras(tmp_path / "left.yaml", tmp_path / "right.yaml"), pair)


def test_the_other_way_round(tmp_path, pair):
    path = write_opencv(tmp_path / "c.yml", named_matrices(pair.exchanged()))
    assert_same(read_cameras(path, cameras=(2, 1)), pair)


def test_what_is_missing_is_named(tmp_path, pair):
    matrices = named_matrices(pair)
    for lost, words in (
        (("K2",), "lacks the camera matrices"),
        (("D1",), "lacks the distortion coefficients"),
        (("T", "P1"), "R and T are missing"),
    ):
        kept = {key: x for key, x in matrices.items() if key not in lost}
        with pytest.raises(InputError, match=words):
            read_cameras(write_opencv(tmp_path / "c.yml", kept))
    path = write_kitti(tmp_path / "k.txt", pair)
    with pytest.raises(InputError, match="lacks S_00 of camera 0"):
        read_cameras(path, cameras=(0, 1))
    left, right = write_ros(tmp_path, pair)
    with pytest.raises(InputError, match="describes one camera only"):
        read_cameras(left)
    right.write_text(right.read_text().replace("projection_matrix", "other"))
    with pytest.raises(InputError, match=r"right.yaml lacks projection_matrix"):
        read_cameras(left, right)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("plumb_bob", "magic", "no distortion_model 'magic'"),
        ("plumb_bob", "equidistant", "not 4"),
        ("image_width: 480", "image_width: 481", "480x360 but"),
        ("image_width: 480", "image_width: many", "not a number"),
        ("rows: 3", "rows: 4", "numbers for 4x3 places"),
    ],
)
def test_damaged_ros_files(tmp_path, pair, old, new, words):
    left, right = write_ros(tmp_path, pair)
    right.write_text(right.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=words):
        read_cameras(left, right)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("K_02: 1 2 3\nK_02: 1", "line 2: K_02 is given a second time"),
        ("K_02: 1 2 3\nhello", "line 2: 'hello' is not"),
        ("K_02: 1 2 3", "lacks S_02"),
        ("cam0=[1 0 0; 0 1 0; 0 0 1]", "Middlebury's calib.txt"),
        ("P0: 7.1e+02 0 6.0e+02", "lacks the camera matrices"),
    ],
)
def test_other_texts(tmp_path, text, words):
    path = tmp_path / "calib.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_cameras(path)


def test_options_that_do_not_fit(tmp_path, pair):
    kitti = write_kitti(tmp_path / "k.txt", pair)
    opencv = write_opencv(tmp_path / "c.yml", named_matrices(pair))
    with pytest.raises(InputError, match="KITTI's calibration is one file"):
        read_cameras(kitti, opencv)
    with pytest.raises(InputError, match="has no cameras 2 and 3"):
        read_cameras(opencv, cameras=(2, 3))
    with pytest.raises(InputError, match="does not exist"):
        read_cameras(tmp_path / "missing.yml")
    opencv.write_bytes(bytes(3_000_000))
    with pytest.raises(InputError, match="too large"):
        read_cameras(opencv)


def test_kitti_sizes_must_agree(tmp_path, pair):
    path = write_kitti(tmp_path / "k.txt", pair)
    text = path.read_text()
    for key, words in (("S_03", "different size"), ("S_rect_03", "S_rect_03 differs")):
        lines = [f"{key}: 10 20" if x.startswith(f"{key}:") else x for x in text.splitlines()]
        path.write_text("\n".join(lines))
        with pytest.raises(InputError, match=words):
            read_cameras(path)
