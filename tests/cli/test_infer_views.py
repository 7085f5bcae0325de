"""`hstereo infer`: the right view, confidence and validity, the left-right check and filling."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.commands import assert_one_sentence, run

from hybridstereo.cli.infer_views import right_name
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import read_pixels
from hybridstereo.stereo import Stereo


def infer(capsys, pair, *arguments):
    return run(
        capsys,
        *("infer", *pair, "--disparities", 16, "--model", "census", "--no-check", *arguments),
    )


def test_everything_at_once(capsys, sample_crop, tmp_path):
    code, out, err = infer(
        *(capsys, sample_crop, "--view", "both", "--fill", "--json", "-o", tmp_path / "map.pfm"),
        *("--confidence", tmp_path / "sure.npy", "--valid", tmp_path / "valid.png"),
    )
    assert code == 0, err
    report = json.loads(out)
    expected = Stereo("census").match(
        *sample_crop, disparities=16, view="both", confidence=True, fill=True
    )
    for suffix, result in (("", expected), ("_right", expected.right)):
        map_, sure, valid = (
            report["outputs"][x + suffix] for x in ("disparity", "confidence", "valid")
        )
        assert (tmp_path / f"map{suffix}.pfm").samefile(map_)
        np.testing.assert_array_equal(read_disparity(map_), result.disparity)
        np.testing.assert_array_equal(np.load(sure), result.confidence)
        np.testing.assert_array_equal(read_pixels(valid), result.validity)
        shares = report["validity" + suffix]
        assert sum(shares.values()) == pytest.approx(1)
        assert shares["good"] == pytest.approx(np.mean(result.validity == 255))
        assert report["confidence" + suffix] == pytest.approx(result.confidence.mean())
    assert report["view"] == "both"
    assert len(list(tmp_path.iterdir())) == 2 + 6  # with the pair itself


def test_check_leaves_holes(capsys, sample_crop, tmp_path):
    code, _, err = infer(capsys, sample_crop, "--lr-check", "-o", tmp_path / "map.png")
    assert code == 0, err
    holes = ~np.isfinite(read_disparity(tmp_path / "map.png"))
    assert 0 < holes.mean() < 0.6


def test_right_view_is_named_after_the_right_image(capsys, sample_crop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = infer(capsys, sample_crop, "--view", "right")
    assert code == 0, err
    stem = str(sample_crop[1]).rpartition("/")[2].removesuffix(".png")
    assert out.split() == [f"{stem}_disparity.pfm", f"{stem}_disparity.png"]
    report = json.loads(infer(capsys, sample_crop, "--view", "right", "--json")[1])
    assert (report["view"], report["validity"], report["confidence"]) == ("right", None, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--confidence", "c.jpg"], "no format"),
        (["--valid", "v.pfm"], "does not end in .png"),
        (["--confidence", "map.pfm"], "map.pfm"),
        (["--view", "both", "--confidence", "map_right.pfm"], "map_right.pfm"),
        (["--confidence", "c.pfm", "--method", "argmax"], "--method"),
    ],
)
def test_refused_before_the_work(capsys, sample_crop, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = infer(capsys, sample_crop, "-o", "map.pfm", *arguments)
    assert_one_sentence(code, out, err)
    assert words in err
    assert {path.suffix for path in tmp_path.iterdir()} <= {".png"}  # the pair itself


def test_usage(capsys, sample_crop, tmp_path):
    np.save(tmp_path / "costs.npy", np.zeros((40, 60, 4), np.float32))
    volume = ["infer", sample_crop[0], "--volume", tmp_path / "costs.npy", "-o", tmp_path / "m.pfm"]
    for flag in (["--lr-check"], ["--fill"], ["--view", "both"], ["--valid", tmp_path / "v.png"]):
        code, _, err = run(capsys, *volume, *flag)
        assert code == 2
        assert f"{flag[0]} needs both views" in err
    cameras = ["--focal", 100, "--baseline", 0.1, "--ply", tmp_path / "p.ply"]
    code, _, err = infer(capsys, sample_crop, "--view", "right", *cameras)
    assert code == 2
    assert "leave out --view right" in err
    code, _, err = infer(capsys, sample_crop, "--view", "both", "-o", "-")
    assert code == 2
    assert "Standard output takes one map" in err


def test_many_pairs(capsys, sample_crop, tmp_path):
    folder = tmp_path / "out"
    code, _, err = infer(
        *(capsys, sample_crop, "--out-dir", folder, "--fill"),
        *("--confidence", "{name}_sure.npy", "--valid", "{name}_valid.png"),
    )
    assert code == 0, err
    (sure,) = folder.rglob("*_sure.npy")
    (valid,) = folder.rglob("*_valid.png")
    expected = Stereo("census").match(*sample_crop, disparities=16, confidence=True, fill=True)
    np.testing.assert_array_equal(np.load(sure), expected.confidence)
    np.testing.assert_array_equal(read_pixels(valid), expected.validity)
    (written,) = folder.rglob("*.pfm")
    np.testing.assert_array_equal(read_disparity(written), expected.disparity)


def test_both_views_of_many_pairs(capsys, sample_crop, tmp_path):
    folder = tmp_path / "out"
    code, out, err = infer(
        *(capsys, sample_crop, "--out-dir", folder, "--view", "both", "--json"),
        *("--color", "{name}.png", "--valid", "{name}_valid.png"),
    )
    assert code == 0, err
    report = json.loads(out)
    assert report["outputs"].keys() == {
        *("disparity", "color", "valid"),
        *("disparity_right", "color_right", "valid_right"),
    }
    assert len(report["files"]) == len(set(report["files"])) == 6
    expected = Stereo("census").match(*sample_crop, disparities=16, view="both", validity=True)
    for suffix, result in (("", expected), ("_right", expected.right)):
        stored = read_disparity(report["outputs"]["disparity" + suffix])
        np.testing.assert_array_equal(stored, result.disparity)
        valid = read_pixels(report["outputs"]["valid" + suffix])
        np.testing.assert_array_equal(valid, result.validity)


def test_names_of_the_right_view():
    assert right_name("map.pfm") == "map_right.pfm"
    assert right_name("a.b/c.tar.npy") == "a.b/c.tar_right.npy"
