"""`hstereo check`, and what `hstereo infer` says about a pair before it works."""

from __future__ import annotations

import json

import pytest
from support.commands import assert_one_sentence, run
from support.misaligned import lowered

from hybridstereo.io.images import read_image, write_image
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import quantised

QUICK = ("--model", "census", "--disparities", 8, "--method", "argmax", "--json")


@pytest.fixture
def pair(sample):
    return sample / "left.png", sample / "right.png"


@pytest.fixture
def low_pair(sample, tmp_path):
    """The sample pair with its right view 3 px too low."""
    path = tmp_path / "low.png"
    write_image(path, quantised(lowered(read_image(sample / "right.png"), 3)))
    return sample / "left.png", path


def test_a_good_pair(capsys, pair):
    assert run(capsys, "check", *pair, "--strict") == (0, "nothing found\n", "")
    code, out, _ = run(capsys, "check", *pair, "--json")
    assert code == 0
    assert json.loads(out) == {"width": 384, "height": 256, "check": []}


def test_a_finding_has_figure_and_advice(capsys, low_pair):
    code, out, _ = run(capsys, "check", *low_pair)
    assert code == 0
    expected = "vertical-offset: The right view is 3.0 px too low. Correct it with --rectify.\n"
    assert out == expected
    code, out, _ = run(capsys, "check", *low_pair, "--strict", "--json")
    assert code == 1
    (found,) = json.loads(out)["check"]
    assert found == {
        "code": "vertical-offset",
        "figure": pytest.approx(3, abs=0.1),
        "unit": "px",
        "message": "The right view is 3.0 px too low",
        "hint": "Correct it with --rectify",
        "correctable": True,
    }


def test_sizes_that_differ_are_refused(capsys, pair, sample_crop):
    assert_one_sentence(*run(capsys, "check", pair[0], sample_crop[1]), "differ in size")


def test_infer_says_what_was_found(capsys, low_pair, tmp_path):
    code, out, err = run(capsys, "infer", *low_pair, "-o", tmp_path / "d.pfm", *QUICK)
    assert code == 0
    assert "hstereo: The right view is 3.0 px too low. Correct it with --rectify.\n" in err
    report = json.loads(out)
    assert [found["code"] for found in report["check"]] == ["vertical-offset"]
    assert report["seconds"]["check"] > 0


def test_what_rectify_corrects_is_no_finding(capsys, low_pair, tmp_path):
    options = "--rectify", "--strict"
    code, out, err = run(capsys, "infer", *low_pair, "-o", tmp_path / "d.pfm", *QUICK, *options)
    assert code == 0
    assert "too low" not in err
    assert json.loads(out)["check"] == []
    assert json.loads(out)["rectification"]["corrected"]


def test_without_the_check_nothing_is_found(capsys, low_pair, tmp_path):
    code, out, err = run(capsys, "infer", *low_pair, "-o", tmp_path / "d.pfm", *QUICK, "--no-check")
    assert code == 0
    assert "too low" not in err
    assert json.loads(out)["check"] is None
    assert "check" not in json.loads(out)["seconds"]


def test_strict_refuses_before_the_work(capsys, pair, tmp_path, monkeypatch):
    monkeypatch.setattr(Stereo, "match", lambda *a, **k: pytest.fail("worked"))
    arguments = ["infer", *pair[::-1], "-o", tmp_path / "d.pfm", "--strict"]
    assert_one_sentence(*run(capsys, *arguments), "swapped", "Give the left one first")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [("right.png", "--no-check"), ("--volume", "x.npy")])
def test_strict_needs_the_check(capsys, options):
    code, _, err = run(capsys, "infer", "left.png", *options, "--strict")
    assert code == 2
    assert "--strict" in err
