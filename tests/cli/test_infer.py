"""`hstereo infer`: outputs, formats, the report, and what is refused before the work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.commands import assert_one_sentence, run
from support.misaligned import lowered

from hybridstereo.cli.infer import _default_outputs
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import read_image, write_image
from hybridstereo.models.zoo import load_model, save_model
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import quantised


def infer(capsys, pair, *arguments) -> dict:
    """The report of a run with 16 labels that has to succeed."""
    code, out, err = run(capsys, "infer", *pair, "--disparities", 16, "--json", *arguments)
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("suffix", [".pfm", ".npy", ".tif", ".png"])
def test_suffix_picks_the_format(capsys, sample_crop, tmp_path, suffix):
    output = str(tmp_path / f"map{suffix}")
    report = infer(capsys, sample_crop, "-o", output)
    stored = read_disparity(output)
    assert report["outputs"] == {"disparity": output}
    visible = stored < np.inf  # a 16-bit PNG cannot hold disparity 0
    tolerance = 1 / 256 if suffix == ".png" else 0
    expected = Stereo().match(*sample_crop, disparities=16).disparity
    assert np.abs(stored - expected)[visible].max() <= tolerance
    assert visible.mean() > 0.9


def test_color_picture(capsys, sample_crop, tmp_path):
    color = str(tmp_path / "c.png")
    report = infer(capsys, sample_crop, "-o", tmp_path / "d.pfm", "--color", color)
    assert report["outputs"]["color"] == color
    picture = read_image(color)
    assert picture.shape == (40, 60, 3)
    assert picture.std() > 0.1


@pytest.mark.parametrize(("model", "edges"), [("census", "contrast"), ("general", "pairwise_cnn")])
def test_report_for_json(capsys, sample_crop, tmp_path, model, edges):
    report = infer(capsys, sample_crop, "-o", tmp_path / "d.pfm", "--model", model)
    assert (report["width"], report["height"]) == (60, 40)
    assert report["labels"] == {
        "count": 16,
        "min_disparity": 0.0,
        "max_disparity": 15.0,
        "step": 1.0,
        "from": "caller",
        "at_ends": report["labels"]["at_ends"],
    }
    assert len(report["lower_bounds"]) == 5
    assert report["lower_bounds"] == report["lower_bounds_per_sweep"][1::2]
    assert report["lower_bounds"][-1] <= report["energy"]
    levels = ["pyramid"] if load_model(model).config.pyramid else []
    stages = ["check", "input", "unary_cnn", "correlation", *levels, edges, "crf", "refinement"]
    assert list(report["seconds"]) == [*stages, "total"]
    assert report["memory"]["volume_bytes"] == 60 * 40 * 16 * 4
    assert report["memory"]["peak_bytes"] > 1e7


def test_argmax_report_has_no_energy(capsys, sample_crop, tmp_path):
    report = infer(capsys, sample_crop, "-o", tmp_path / "d.pfm", "--method", "argmax")
    assert report["energy"] is None
    assert report["lower_bounds"] is None
    disparity = read_disparity(tmp_path / "d.pfm")
    np.testing.assert_array_equal(disparity, np.round(disparity))


def test_same_file_twice(capsys, sample_crop, tmp_path):
    for name in ("a.pfm", "b.pfm"):
        infer(capsys, sample_crop, "-o", tmp_path / name)
    assert (tmp_path / "a.pfm").read_bytes() == (tmp_path / "b.pfm").read_bytes()


def test_run_folder_as_model(capsys, sample_crop, tmp_path):
    (tmp_path / "run").mkdir()
    save_model(tmp_path / "run" / "best.h5", load_model("census"))
    for name, model in (("a.pfm", "census"), ("b.pfm", tmp_path / "run")):
        infer(capsys, sample_crop, "-o", tmp_path / name, "--model", model)
    assert (tmp_path / "a.pfm").read_bytes() == (tmp_path / "b.pfm").read_bytes()


@pytest.mark.parametrize("output", ["map.xyz", "map", "missing/map.pfm"])
def test_bad_output_is_refused_before_the_work(capsys, sample_crop, tmp_path, output, monkeypatch):
    monkeypatch.setattr(Stereo, "match", lambda *a, **k: pytest.fail("worked"))
    assert_one_sentence(*run(capsys, "infer", *sample_crop, "-o", tmp_path / output))


def test_an_output_never_replaces_an_input_or_another_output(capsys, sample_crop, tmp_path):
    left = Path(sample_crop[0])
    before = left.read_bytes()
    same = tmp_path / "same.png"
    for outputs in (("-o", left), ("-o", tmp_path / "d.pfm", "--color", left.parent / "left.png"),
                    ("-o", same, "--color", same)):  # fmt: skip
        assert_one_sentence(*run(capsys, "infer", *sample_crop, *outputs), "already")
    assert left.read_bytes() == before
    assert not same.exists()


def test_failed_write_leaves_the_old_file(capsys, sample_crop, tmp_path):
    output = tmp_path / "d.png"
    output.write_bytes(b"precious")
    # negative disparities do not fit a KITTI PNG
    negative = ("--disparities", 4, "--min-disparity", -20)
    assert_one_sentence(*run(capsys, "infer", *sample_crop, "-o", output, *negative))
    assert output.read_bytes() == b"precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.png", "left.png", "right.png"]


def test_default_outputs():
    assert _default_outputs("a/b/left.view.png") == (
        "left.view_disparity.pfm",
        "left.view_disparity.png",
    )
    assert _default_outputs("-") == ("stdin_disparity.pfm", "stdin_disparity.png")


def test_range_is_found_and_said(capsys, sample, tmp_path):
    pair = [sample / "left.png", sample / "right.png"]
    args = ["infer", *pair, "-o", tmp_path / "d.pfm", "--model", "general-fast", "--json"]
    code, out, err = run(capsys, *args)
    labels = json.loads(out)["labels"]
    assert code == 0
    assert labels["from"] == "pair"
    assert labels["max_disparity"] >= 57  # 99.9 % of the truth lie below
    assert f"disparities 0 to {labels['max_disparity']:g}, found in the pair" in err


def test_range_of_a_plain_pair_is_the_models_and_that_is_said(capsys, tmp_path):
    from hybridstereo.io.images import write_image

    plain = tmp_path / "plain.png"
    write_image(str(plain), np.full((30, 120, 3), 90, np.uint8))
    code, _, err = run(
        capsys, "infer", plain, plain, "-o", tmp_path / "d.pfm", "--model", "general-fast"
    )
    assert code == 0
    assert "searched 0 to 119, the model's default" in err


def test_short_range_is_said(capsys, sample_crop, tmp_path):
    args = ["infer", *sample_crop, "-o", tmp_path / "d.pfm", "--model", "general-fast"]
    _, _, err = run(capsys, *args, "--disparities", 4)
    assert "the range may be too short" in err


def test_calibration_gives_the_range(capsys, sample_crop, tmp_path):
    calib = tmp_path / "calib.txt"
    calib.write_text("ndisp=70\nvmin=3\nvmax = 17.5\n")
    args = ["infer", *sample_crop, "-o", tmp_path / "d.pfm", "--model", "general-fast", "--json"]
    code, out, err = run(capsys, *args, "--calib", calib)
    labels = json.loads(out)["labels"]
    assert code == 0
    assert (labels["min_disparity"], labels["max_disparity"]) == (3, 18)
    assert f"disparities 3 to 18, from {calib}" in err
    calib.write_text("baseline=3\n")
    assert_one_sentence(*run(capsys, *args, "--calib", calib), "states no disparity range")


def test_rectify_says_how_far_the_rows_were_apart(capsys, sample, tmp_path):
    left, right = read_image(sample / "left.png"), read_image(sample / "right.png")
    paths = [str(tmp_path / name) for name in ("left.png", "right.png")]
    for path, view in zip(paths, (left, lowered(right, 1.5)), strict=True):
        write_image(path, quantised(view))
    arguments = ["infer", *paths, "--model", "census", "--disparities", 8, "--method", "argmax"]
    arguments += ["-o", tmp_path / "d.pfm", "--json"]
    code, out, err = run(capsys, *arguments, "--rectify")
    assert code == 0
    found = json.loads(out)["rectification"]
    assert found["corrected"]
    assert found["before"] == pytest.approx(1.5, abs=0.15)
    assert found["after"] < 0.25
    assert re.search(r"hstereo: rows of the views were 1\.[3-7]\d px apart, 0\.\d\d px after", err)
    code, out, err = run(capsys, *arguments)
    assert json.loads(out)["rectification"] is None
    assert "rows" not in err


def test_rectify_needs_a_right_view(capsys, sample_crop):
    code, _, err = run(capsys, "infer", sample_crop[0], "--volume", "x.npy", "--rectify")
    assert code == 2
    assert "--rectify" in err


@pytest.mark.parametrize(
    ("left", "stem"),
    [
        ("data/Teddy/im0.png", "Teddy_im0"),
        ("2005/Art/view1.png", "Art_view1"),
        ("Art/Illum1/Exp0/view1.png", "Art_Illum1_Exp0_view1"),
        ("/im0.png", "im0"),
        ("image_2/000017_10.png", "000017_10"),
        ("data/sample/left.png", "left"),
    ],
)
def test_scenes_with_equal_file_names_do_not_share_a_default_output(left, stem):
    assert _default_outputs(left) == (f"{stem}_disparity.pfm", f"{stem}_disparity.png")


def test_default_output_in_the_scene_s_own_folder(tmp_path, monkeypatch):
    (tmp_path / "Cones").mkdir()
    monkeypatch.chdir(tmp_path / "Cones")
    assert _default_outputs("im2.png")[0] == "Cones_im2_disparity.pfm"


def test_replaced_files_are_named_on_standard_error(capsys, sample_crop, tmp_path):
    color = tmp_path / "c.png"
    arguments = ("infer", *sample_crop, "--disparities", 16, "-o", tmp_path / "d.pfm")
    assert "has been replaced" not in run(capsys, *arguments)[2]
    code, out, err = run(capsys, *arguments, "--color", color)
    assert code == 0
    assert out.splitlines() == [str(tmp_path / "d.pfm"), str(color)]
    said = [line for line in err.splitlines() if "has been replaced" in line]
    assert said == [f"hstereo: {tmp_path / 'd.pfm'} was there already and has been replaced"]


def test_color_range_makes_pictures_comparable(capsys, sample_crop, tmp_path):
    from hybridstereo.io.color import colorize

    paths = tmp_path / "d.npy", tmp_path / "c.png"
    infer(capsys, sample_crop, "-o", paths[0], "--color", paths[1], "--color-range", "0:30")
    expected = colorize(read_disparity(str(paths[0])), lo=0, hi=30)
    assert np.array_equal(np.rint(255 * read_image(paths[1])), expected)


@pytest.mark.parametrize("span", ["5", "9:3", "nan:4", "a:b", "1:inf", "3:3"])
def test_color_ranges_that_mean_nothing(capsys, sample_crop, span):
    code, _, err = run(capsys, "infer", *sample_crop, f"--color-range={span}")
    assert code == 2
    assert "--color-range" in err


# --- what people read -------------------------------------------------------------------------


def test_several_maps_in_several_formats(capsys, sample_crop, tmp_path):
    maps = [tmp_path / name for name in ("d.pfm", "d.png", "d.npy")]
    options = [x for path in maps for x in ("-o", path)]
    report = infer(capsys, sample_crop, *options, "--color", tmp_path / "c.png")
    assert report["files"] == [*map(str, maps), str(tmp_path / "c.png")]
    assert report["outputs"]["disparity"] == str(maps[0])
    exact, rounded, same = (read_disparity(str(path)) for path in maps)
    assert np.array_equal(exact, same)
    assert np.abs(exact - rounded)[np.isfinite(rounded)].max() <= 1 / 256


def test_the_same_output_twice(capsys, sample_crop, tmp_path):
    path = tmp_path / "d.pfm"
    args = ("infer", *sample_crop, "--disparities", 16, "-o", path, "-o", path)
    assert_one_sentence(*run(capsys, *args), "an output already")
    code, _, err = run(capsys, "infer", *sample_crop, "-o", "-", "-o", "-")
    assert (code, "twice" in err) == (2, True)


def test_the_last_line_has_range_seconds_and_files(capsys, sample_crop, tmp_path):
    path = tmp_path / "d.pfm"
    args = ("infer", *sample_crop, "--disparities", 16, "--no-check", "-o", path)
    code, out, err = run(capsys, *args)
    assert (code, out) == (0, f"{path}\n")
    line = err.splitlines()[-1]
    assert re.fullmatch(rf"hstereo: disparities 0 to 15; \d+\.\d s; {re.escape(str(path))}", line)


def test_quiet_and_verbose(capsys, sample_crop, tmp_path):
    path = tmp_path / "d.pfm"
    args = ("infer", *sample_crop, "--disparities", 4, "-o", path)
    assert run(capsys, *args, "-q") == (0, f"{path}\n", "")
    plain, verbose = (run(capsys, *args, *more)[2] for more in ([], ["-v"]))
    added = set(verbose.splitlines()) - set(plain.splitlines())
    said = "\n".join(added)
    assert "60x40 pixels, 4 labels, 1 px apart; model general by crf on cpu" in said
    assert "1 tile" in said
    assert "unary cnn" in said
    code, _, err = run(capsys, *args, "-q", "-v")
    assert (code, "--quiet" in err) == (2, True)


def test_errors_are_said_even_when_quiet(capsys, sample_crop, tmp_path):
    result = run(capsys, "infer", sample_crop[0], tmp_path / "none.png", "-q")
    assert_one_sentence(*result, "does not exist")


def test_scale_bar(capsys, sample_crop, tmp_path):
    color = tmp_path / "c.png"
    options = ("-o", tmp_path / "d.npy", "--color-range", "0:30")
    infer(capsys, sample_crop, *options, "--color", color, "--scale-bar")
    picture = np.rint(255 * read_image(color)).astype(np.uint8)
    assert picture.shape[1] > 60
    code, _, err = run(capsys, "infer", *sample_crop, *options, "--scale-bar")
    assert (code, "--color" in err) == (2, True)
