"""`hstereo rectify`: what it prints, its exit codes, and what it is good for."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.calibrated import (
    named_matrices,
    turned,
    write_opencv,
    write_ros,
)
from support.commands import assert_one_sentence, run
from support.misaligned import lowered

from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import write_image
from hybridstereo.synthetic import quantised


def test_without_calibration(capsys, taken_scene, tmp_path):
    paths = tmp_path / "a.png", tmp_path / "b.png"
    write_image(paths[0], quantised(taken_scene.left))
    write_image(paths[1], quantised(np.clip(lowered(taken_scene.right, 2), 0, 1)))
    out = tmp_path / "out"
    code, written, said = run(capsys, "rectify", *paths, "-o", out)
    assert code == 0
    assert written.split() == [str(out / "a.png"), str(out / "b.png")]
    assert said.startswith("hstereo: rows of the views were 2.")
    assert "after correcting the right view" in said
    code, written, _ = run(capsys, "rectify", *paths, "-o", out, "--json")
    report = json.loads(written)
    assert report["rows_apart"]["before"] == pytest.approx(2, abs=0.2)
    assert report["rows_apart"]["after"] < 0.2
    assert report["calibration"] is None


def test_with_calibration(capsys, taken_scene, cameras, taken_pair, tmp_path):
    left, right = write_ros(tmp_path, cameras)
    out = tmp_path / "out"
    code, written, said = run(
        capsys, "rectify", *taken_pair, "-o", out, "--calib", left, "--calib-right", right
    )
    assert code == 0, said
    assert written.split() == [str(out / name) for name in ("a.png", "b.png", "calib.txt")]
    assert "rows of the rectified views are 0." in said
    assert "baseline 120 mm; at least 100 % of each view shows something" in said
    # With the matrices stated, the views are those of the scene: so are its disparities.
    wrong = {}
    for name, pair in (("taken", taken_pair), ("rectified", (out / "a.png", out / "b.png"))):
        disparity = tmp_path / f"{name}.pfm"
        arguments = ("--model", "general-fast", "--disparities", 26, "-o", disparity)
        assert run(capsys, "infer", *pair, *arguments)[0] == 0
        visible = ~taken_scene.occlusion
        errors = np.abs(read_disparity(disparity) - taken_scene.disparity)[visible]
        wrong[name] = float(np.mean(errors > 1))
    assert wrong["rectified"] < 0.15
    assert wrong["taken"] > 0.6


def test_an_unknown_unit_is_said(capsys, cameras, taken_pair, tmp_path):
    calib = write_opencv(tmp_path / "c.xml", named_matrices(cameras))
    arguments = ("rectify", *taken_pair, "-o", tmp_path / "out", "--calib", calib)
    _, _, said = run(capsys, *arguments)
    assert "baseline 0.12 mm; if its unit is not mm, give --unit;" in said
    _, _, said = run(capsys, *arguments, "--unit", "m", "--alpha", 1)
    assert "baseline 120 mm; at least" in said


def test_a_calibration_that_does_not_fit_is_said(capsys, cameras, taken_pair, tmp_path):
    matrices = {key: named_matrices(cameras)[key] for key in ("K1", "D1", "K2", "D2", "R", "T")}
    matrices["R"] = turned(0.4, 0, 0) @ matrices["R"]
    calib = write_opencv(tmp_path / "c.yml", matrices)
    code, _, said = run(
        capsys, "rectify", *taken_pair, "-o", tmp_path / "out", "--calib", calib, "--unit", "m"
    )
    assert code == 0
    assert "does not fit these images well" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--calib", "missing.yml"], ["missing.yml does not exist"]),
        (["--alpha", "0.5"], ["are about a calibration", "Give it as --calib"]),
        (["--cameras", "3,2"], ["--cameras"]),
    ],
)
def test_one_sentence(capsys, taken_pair, tmp_path, options, words):
    done = run(capsys, "rectify", *taken_pair, "-o", tmp_path / "out", *options)
    assert_one_sentence(*done, *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("numbers", ["2", "2,2", "2,3,4", "a,b", "-1,2"])
def test_wrong_cameras_are_wrong_usage(capsys, taken_pair, tmp_path, numbers):
    code, _, said = run(
        capsys, "rectify", *taken_pair, "-o", tmp_path / "out", f"--cameras={numbers}"
    )
    assert code == 2
    assert "--cameras" in said
