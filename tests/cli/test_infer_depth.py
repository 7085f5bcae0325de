"""`hstereo infer` with cameras: depth maps and point clouds, of one pair and of many."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.calibrated import camera_pair_of, named_matrices, write_kitti, write_opencv, write_ros
from support.commands import assert_one_sentence, run
from support.ply import read_ply

from hybridstereo.io.images import write_image
from hybridstereo.synthetic import SceneOptions, generate_scene, quantised, write_scene

QUICK = ("--model", "census", "--no-check")


@pytest.fixture(scope="module")
def scene():
    return generate_scene(11, SceneOptions(width=120, height=80, max_disparity=24, objects=3))


@pytest.fixture
def folder(scene, tmp_path, monkeypatch):
    """The working directory, with a scene as Middlebury stores it."""
    (tmp_path / "room").mkdir()
    write_scene(tmp_path / "room", scene)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def relative_error(depth, scene):
    """The median, beside the depth of the scene itself, whose baseline is stated as 100 mm."""
    geometry = scene.geometry
    truth = 0.1 * geometry.focal / (scene.disparity + geometry.doffs)
    assert depth.shape == truth.shape
    return np.nanmedian(np.abs(depth / truth - 1)[~scene.occlusion])


PAIR = ("room/im0.png", "room/im1.png")


def test_depth_and_points_of_a_known_scene(capsys, folder, scene):
    code, out, err = run(
        capsys, "infer", *PAIR, "--calib", "room/calib.txt", "--depth", "d.npy", "--ply", "p.ply",
        "-o", "m.pfm", "--json", *QUICK,
    )  # fmt: skip
    assert code == 0, err
    report = json.loads(out)
    assert report["outputs"] == {"disparity": "m.pfm", "depth": "d.npy", "ply": "p.ply"}
    assert report["rig"] == {
        "focal_pixels": pytest.approx(scene.geometry.focal),
        "baseline_metres": pytest.approx(0.1),
        "doffs": pytest.approx(scene.geometry.doffs, abs=1e-6),
    }
    depth = np.load("d.npy")
    assert relative_error(depth, scene) < 0.05
    _, points = read_ply(folder / "p.ply")
    z = np.array(points)[:, 2]
    assert 0.5 * depth.size < len(z) < depth.size
    assert np.isin(z.astype(np.float32), depth).all()


def test_every_calibration_gives_the_same_depth(capsys, folder, scene):
    cameras = camera_pair_of(scene)  # whose baseline is 120 mm
    write_kitti(folder / "kitti.txt", cameras)
    write_opencv(folder / "opencv.yml", named_matrices(cameras))
    write_ros(folder, cameras)
    geometry = scene.geometry
    numbers = ("--focal", geometry.focal, "--baseline", 0.12, "--doffs", geometry.doffs)
    depths = []
    for arguments in (
        numbers,
        ("--calib", "kitti.txt"),
        ("--calib", "opencv.yml", "--unit", "m"),
        ("--calib", "left.yaml", "--calib-right", "right.yaml"),
    ):
        code, _, err = run(
            capsys, "infer", *PAIR, *arguments, "--depth", "d.tif", "-o", "m.pfm",
            "--disparities", 24, *QUICK,
        )  # fmt: skip
        assert code == 0, err
        depths.append(cv2.imread("d.tif", cv2.IMREAD_UNCHANGED))
    for depth in depths[1:]:
        np.testing.assert_allclose(depth, depths[0], rtol=1e-5)
    assert relative_error(depths[0] / 1.2, scene) < 0.05


def test_a_unit_that_is_not_stated_is_said(capsys, folder, scene):
    write_opencv(folder / "opencv.yml", named_matrices(camera_pair_of(scene)))
    common = ("--calib", "opencv.yml", "--depth", "{name}.npy", "--disparities", 24, *QUICK)
    _, _, err = run(capsys, "infer", *PAIR, "-o", "m.pfm", *common)
    assert "baseline 0.12 mm; if its unit is not mm, give --unit" in err
    _, _, err = run(capsys, "infer", "--pairs", "room", "--out-dir", "out", *common)
    assert "1 pair whose baseline was taken for millimetres (room). Else give --unit." in err


def test_the_scale_changes_no_depth(capsys, folder, scene):
    code, _, err = run(
        capsys, "infer", *PAIR, "--calib", "room/calib.txt", "--depth", "d.npy", "-o", "m.pfm",
        "--scale", "1/2", *QUICK,
    )  # fmt: skip
    assert code == 0, err
    assert relative_error(np.load("d.npy"), scene) < 0.1


def test_images_of_half_the_size(capsys, folder, scene):
    text = (folder / "room/calib.txt").read_text()
    (folder / "narrow.txt").write_text(text.replace("width=120", "width=999"))
    (folder / "half").mkdir()
    for name, view in (("im0.png", scene.left), ("im1.png", scene.right)):
        small = cv2.resize(view, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        write_image(folder / "half" / name, quantised(small))
    code, _, err = run(
        capsys, "infer", "half/im0.png", "half/im1.png", "--calib", "room/calib.txt",
        "--depth", "d.npy", "-o", "m.pfm", "--disparities", 14, *QUICK,
    )  # fmt: skip
    assert code == 0, err
    large = cv2.resize(np.load("d.npy"), (120, 80), interpolation=cv2.INTER_NEAREST)
    assert relative_error(large, scene) < 0.06
    first, last = scene.disparity.min() / 2, scene.disparity.max() / 2  # as calib.txt states them
    for pair in (("half/im0.png", "half/im1.png"), ("--pairs", "half", "--out-dir", "out")):
        code, out, err = run(
            capsys, "infer", *pair, "--calib", "room/calib.txt", "--json", *QUICK
        )  # fmt: skip
        assert code == 0, err
        labels = json.loads(out)["labels"]
        assert first - 1.5 < labels["min_disparity"] <= first
        assert last <= labels["max_disparity"] < last + 1.5
    code, out, err = run(capsys, "infer", *PAIR, "--calib", "narrow.txt", *QUICK)
    assert_one_sentence(code, out, err, "the calibration is for 999x80")


def test_what_16_bits_cannot_hold_is_said(capsys, folder):
    far = ("--focal", 1000, "--baseline", 10, "--depth", "{name}.png", "--disparities", 24, *QUICK)
    code, _, err = run(capsys, "infer", *PAIR, *far, "-o", "m.pfm")
    assert code == 0
    assert "% of the pixels are farther away than 65.535 m" in err
    assert cv2.imread("{name}.png", cv2.IMREAD_UNCHANGED).max() == 65535
    code, _, err = run(capsys, "infer", "--pairs", "room", "--out-dir", "out", *far)
    assert "1 pair with points beyond 65.535 m, as far as 16 bits reach (room)" in err


def test_many_pairs_each_with_its_calibration(capsys, folder, scene):
    shutil.copytree("room", "scenes/a")
    shutil.copytree("room", "scenes/b")
    text = (folder / "room/calib.txt").read_text()
    (folder / "scenes/b/calib.txt").write_text(text.replace("baseline=100", "baseline=200"))
    shutil.copytree("room", "scenes/c")
    (folder / "scenes/c/calib.txt").unlink()
    code, out, err = run(
        capsys, "infer", "--pairs", "scenes", "--out-dir", "out", "--calib", "{dir}/calib.txt",
        "--depth", "{name}_depth.npy", "--ply", "{name}.ply", "--max-depth", 1000, "--json", *QUICK,
    )  # fmt: skip
    reports = [json.loads(line) for line in out.splitlines()]
    assert code == 3
    assert [report["status"] for report in reports] == ["done", "done", "failed"]
    assert "scenes/c/calib.txt does not exist" in err
    assert reports[0]["outputs"]["ply"] == "out/a.ply"
    assert reports[0]["labels"]["from"] == "caller"  # the file states it
    np.testing.assert_allclose(
        np.load("out/b_depth.npy"), 2 * np.load("out/a_depth.npy"), rtol=1e-6
    )
    assert reports[1]["rig"]["baseline_metres"] == pytest.approx(0.2)
    assert relative_error(np.load("out/a_depth.npy"), scene) < 0.05


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--depth", "d.npy"), "Depth needs --calib FILE, or --focal and --baseline"),
        (("--ply", "p.ply"), "Depth needs --calib"),
        (("--ply", "p.ply", "--focal", 9), "--baseline is missing"),
        (("--doffs", 9), "--focal and --baseline are missing"),
        (("--focal", 9, "--baseline", 0), "--baseline"),
        (("--calib", "room/calib.txt", "--focal", 9, "--baseline", 1), "but not both"),
        (("--max-depth", 3), "--ply"),
        (("--unit", "mm"), "about --calib"),
    ],
)
def test_command_lines_that_make_no_sense(capsys, folder, arguments, problem):
    code, out, err = run(capsys, "infer", *PAIR, *arguments)
    assert (code, out) == (2, "")
    assert problem in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--calib", "zero.txt", "--depth", "d.npy"), "zero.txt: The baseline is 0"),
        (("--calib", "room/calib.txt", "--depth", "d.jpg"), "names no format for depth maps"),
        (("--calib", "room/calib.txt", "--ply", "p.obj"), "does not end in .ply"),
        (("--calib", "room/calib.txt", "--ply", "no/p.ply"), "does not exist"),
        (("--calib", "other.txt", "--ply", "p.ply"), "the calibration is for 999x80"),
        (("--calib", "no.txt", "--ply", "p.ply"), "no.txt does not exist"),
        (("--calib", "room/calib.txt", "--depth", "m.npy", "-o", "m.npy"), "already"),
    ],
)
def test_what_cannot_work_is_refused_before_the_work(
    capsys, folder, monkeypatch, arguments, problem
):
    text = (folder / "room/calib.txt").read_text()
    (folder / "zero.txt").write_text(text.replace("baseline=100", "baseline=0"))
    (folder / "other.txt").write_text(text.replace("width=120", "width=999"))
    monkeypatch.setattr("hybridstereo.stereo.Stereo.match", lambda *a, **k: pytest.fail("worked"))
    assert_one_sentence(*run(capsys, "infer", *PAIR, *arguments, *QUICK), problem)


def test_the_recipes(capsys, folder, scene):
    """The commands of docs/recipes.md."""
    recipes = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
    section = recipes.partition("## Depth from disparity\n")[2].partition("\n## ")[0]
    lines = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1].splitlines()
    for name, copy in (("im0.png", "left.png"), ("im1.png", "right.png"), ("calib.txt",) * 2):
        shutil.copy(f"room/{name}", copy)
    shutil.copytree("room", "scenes/room")
    cameras = camera_pair_of(scene)
    write_kitti(folder / "calib_cam_to_cam.txt", cameras)
    write_opencv(folder / "stereo.yml", named_matrices(cameras))
    write_ros(folder, cameras)
    for line in lines:
        arguments = shlex.split(line, comments=True)[1:]
        code, out, err = run(capsys, *arguments, *QUICK)
        assert code == 0, err
        written = out.split()
        wanted = [arguments[i + 1].replace("{name}", "out/room") for i, x in enumerate(arguments)
                  if x in ("--depth", "--ply")]  # fmt: skip
        assert set(wanted) <= set(written)
