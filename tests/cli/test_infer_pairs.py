"""`hstereo infer` on many pairs: what it accepts, prints and writes, and how it goes on."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.commands import assert_one_sentence, run

from hybridstereo.batch.work import process_pair
from hybridstereo.io.disparity import read_disparity

QUICK = ("--model", "census", "--disparities", 8, "--no-check")


def write_pair(left, right, seed):
    """Two images whose disparity is 3."""
    noise = np.random.default_rng(seed).integers(0, 256, (20, 32, 3), np.uint8)
    image = cv2.GaussianBlur(noise, (0, 0), 1)
    for path, pixels in ((left, image), (right, np.roll(image, -3, axis=1))):
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), pixels)


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """The working directory with the pairs 1 to 3 in ``left`` and ``right``."""
    for n in (1, 2, 3):
        write_pair(tmp_path / f"left/{n}.png", tmp_path / f"right/{n}.png", n)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder="out"):
    return sorted(os.path.relpath(os.path.join(path, x), folder)
                  for path, _, names in os.walk(folder) for x in names)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("left", "right"), "{}"),
        (("left/*.png", "right/*.png"), "{}"),
        (("--pairs", "."), "{}"),
        (("--pairs", "list.csv"), "left/{}"),
    ],
)
def test_every_way_to_name_pairs(capsys, pairs, arguments, names):
    (pairs / "list.csv").write_text("".join(f"left/{n}.png,right/{n}.png\n" for n in (1, 2, 3)))
    code, out, err = run(capsys, "infer", *arguments, "--out-dir", "out", *QUICK)
    assert code == 0, err
    assert files() == [f"{names.format(n)}.pfm" for n in (1, 2, 3)]
    assert out.split() == [f"out/{name}" for name in files()]
    assert "3 pairs: 3 done" in err
    for name in files():
        assert np.median(read_disparity(f"out/{name}")) == pytest.approx(3, abs=0.3)


def test_formats_and_other_files(capsys, pairs):
    code, _, err = run(
        capsys, "infer", "left", "right", "--out-dir", "a/b", *QUICK, "--format", "npy,png",
        "--color", "pictures/{name}.jpg", "--save-volume", "{name}.costs.npy",
    )  # fmt: skip
    assert code == 0, err
    assert [name for name in files("a/b") if "1" in name] == [
        "1.costs.npy", "1.npy", "1.png", "pictures/1.jpg",
    ]  # fmt: skip
    code, _, _ = run(
        capsys, "infer", "left", "right", "--out-dir", "c", *QUICK, "-o", "{name}_d.tif"
    )
    assert (code, files("c")) == (0, ["1_d.tif", "2_d.tif", "3_d.tif"])


def test_failures_are_told_and_the_rest_is_done(capsys, pairs):
    (pairs / "right/2.png").write_bytes(b"no image")
    code, out, err = run(capsys, "infer", "left", "right", "--out-dir", "out", *QUICK, "--json")
    reports = [json.loads(line) for line in out.splitlines()]
    assert code == 3
    assert [report["status"] for report in reports] == ["done", "failed", "done"]
    assert "right/2.png is not an image" in reports[1]["error"]
    assert reports[1]["hint"]
    assert "hstereo: 2 failed: right/2.png is not an image" in err
    assert "3 pairs: 2 done, 1 failed" in err
    first = reports[0]
    assert first["outputs"] == {"disparity": "out/1.pfm"}
    assert first["files"] == ["out/1.pfm"]
    assert (first["left"], first["right"]) == ("left/1.png", "right/1.png")
    assert first["labels"]["count"] == 8
    assert first["seconds"]["total"] > 0
    assert first["check"] is None


def test_colours_from_the_settings_wait_for_a_picture(capsys, pairs, monkeypatch):
    monkeypatch.setenv("HSTEREO_COLOR_RANGE", "0:9")
    monkeypatch.setenv("HSTEREO_INFER_SCALE_BAR", "1")
    code, _, err = run(capsys, "infer", "left/1.png", "right/1.png", "-o", "map.pfm", *QUICK)
    assert code == 0, err


def test_what_is_replaced_is_said(capsys, pairs):
    common = ("infer", "left", "right", "--out-dir", "out", *QUICK, "--format", "pfm,npy")
    assert "there already" not in run(capsys, *common)[2]
    os.remove("out/1.pfm")
    os.remove("out/2.pfm")
    os.remove("out/2.npy")
    said = "2 pairs with files that were there already, now replaced (1, 3). --skip-existing leaves"
    assert said in run(capsys, *common)[2]
    assert "there already" not in run(capsys, *common, "--skip-existing")[2]
    assert run(capsys, *common, "--quiet")[2] == ""


def test_skip_existing_and_shards(capsys, pairs):
    common = ("infer", "left", "right", "--out-dir", "out", *QUICK)
    code, _, err = run(capsys, *common, "--shard", "2/2")
    assert (code, files()) == (0, ["2.pfm"])
    assert "1 pair: 1 done" in err
    before = os.stat("out/2.pfm").st_mtime_ns
    code, out, err = run(capsys, *common, "--skip-existing", "--json")
    statuses = [json.loads(line)["status"] for line in out.splitlines()]
    assert (code, statuses) == (0, ["done", "skipped", "done"])
    assert "3 pairs: 2 done, 1 skipped" in err
    assert os.stat("out/2.pfm").st_mtime_ns == before


def test_options_hold_for_every_pair(capsys, pairs):
    code, out, err = run(
        capsys, "infer", "left", "right", "--out-dir", "out", "--json", "--model", "general-fast",
        "--scale", "1/2", "--rectify", "--iterations", 2, "--threads", 1,
    )  # fmt: skip
    assert code == 0, err
    for line in out.splitlines():
        report = json.loads(line)
        assert (report["width"], report["height"]) == (32, 20)
        assert report["labels"]["from"] in ("pair", "model")  # auto
        assert report["rectification"] is not None
        assert len(report["lower_bounds"]) == 2
        assert isinstance(report["check"], list)


def test_costs_of_another_program(capsys, pairs):
    quick = ("infer", "left", "right", *QUICK)
    code, _, err = run(
        capsys, *quick, "--out-dir", "costs", "-o", "{name}.pfm", "--save-volume", "{name}.npy"
    )
    assert code == 0, err
    (pairs / "right/2.png").unlink()  # which the costs make up for
    code, _, err = run(
        capsys, "infer", "left/*.png", "right/*.png", "--model", "census",
        "--volume", "costs/{name}.npy", "--out-dir", "out",
    )  # fmt: skip
    assert code == 0, err
    for name in files():
        expected = read_disparity(f"costs/{name}")
        np.testing.assert_array_equal(read_disparity(f"out/{name}"), expected)
    os.unlink("costs/3.npy")
    code, _, err = run(
        capsys, "infer", "left/*.png", "right/*.png", "--model", "census",
        "--volume", "costs/{name}.npy", "--out-dir", "out",
    )  # fmt: skip
    assert code == 3
    assert "3 failed: costs/3.npy" in err


def test_killed_and_started_again(capsys, pairs):
    """A run that is killed while it waits for more pairs; what it left half-written is removed."""
    command = [sys.executable, "-m", "hybridstereo", "infer", "--pairs", "-", "--out-dir", "out"]
    process = subprocess.Popen([*command, *map(str, QUICK)], stdin=subprocess.PIPE)
    process.stdin.write(b"left/1.png,right/1.png,1\nleft/2.png,right/2.png,2\n")
    process.stdin.flush()
    while not os.path.exists("out/2.pfm") and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (pairs / "out/.3.0123456789ab.hstereo.pfm").write_bytes(b"half")
    for skipped, done in ((2, "1 done, "), (3, "")):
        code, _, err = run(capsys, "infer", "left", "right", "--out-dir", "out", *QUICK,
                           "--skip-existing")  # fmt: skip
        assert code == 0
        assert f"3 pairs: {done}{skipped} skipped" in err
        assert files() == ["1.pfm", "2.pfm", "3.pfm"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Missing argument 'LEFT'"),
        (("left", "right", "--out-dir", "out", "--scale-bar"), "--scale-bar belongs to a colour"),
        (("left/1.png", "right/1.png", "-o", "m.pfm", "--scale-bar"), "--scale-bar belongs to"),
        (("left/1.png", "right/1.png", "-o", "m.pfm", "--color-range", "0:9"), "give --color, too"),
        (("left/1.png", "left/2.png", "right/1.png", "right/2.png", "--out-dir", "out"), "quotes"),
        (("left/1.png", "right/1.png", "other"), "two names, but 3 are given"),
        (("left", "right"), "Many pairs need --out-dir"),
        (("left/*.png", "right/*.png"), "Many pairs need --out-dir"),
        (("left",), "--pairs left"),
        (("--pairs", "."), "--pairs needs --out-dir"),
        (("left/1.png", "right/1.png", "--skip-existing"), "--skip-existing is about many pairs"),
        (("left/1.png", "right/1.png", "--shard", "1/2"), "--shard is about many pairs"),
        (("--out-dir", "out"), "Give --pairs, or LEFT and RIGHT"),
        (("left", "right", "--pairs", ".", "--out-dir", "out"), "Give --pairs, or LEFT"),
        (("left", "right", "--out-dir", "out", "--shard", "3/2"), "'3/2' is not a part"),
        (("left", "right", "--out-dir", "out", "--format", "gif"), "gif"),
        (("left", "right", "--out-dir", "out", "--volume", "x.npy"), "write {name}"),
        (("left", "right", "--out-dir", "out", "--volume", "{name}.npy", "--rectify"), "--rectify"),
        (("left", "right", "--out-dir", "out", "--volume", "{name}.npy", "--strict"), "--strict"),
        (("left", "right", "--out-dir", "out", "-o", "{name}.pfm", "--format", "png"), "not both"),
        (("left", "right", "--out-dir", "out", "--no-check", "--strict"), "--strict"),
    ],
)
def test_command_lines_that_make_no_sense(capsys, pairs, arguments, problem):
    code, out, err = run(capsys, "infer", *arguments)
    assert (code, out) == (2, "")
    assert problem in err
    assert not os.path.exists("out")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--pairs", "no.csv"), "no.csv does not exist"),
        (("--pairs", "empty"), "no pairs in empty"),
        (("--pairs", "bad.csv"), "bad.csv, line 2"),
        (("left", "nowhere"), "nowhere does not exist"),
        (("left/*.gif", "right/*.gif"), "no pairs in left/*.gif"),
        (("left/*.png", "right/1.png"), "wildcards"),
        (("left", "right", "-o", "map.pfm"), "Write {name}"),
        (("left", "right", "--color", "c.png"), "'{name}_c.png'"),
        (("left", "right", "--save-volume-crf", "{name}.h5", "--method", "argmax"), "--method crf"),
    ],
)
def test_what_cannot_work_is_refused_before_the_work(capsys, pairs, arguments, problem):
    (pairs / "empty").mkdir()
    (pairs / "bad.csv").write_text("left/1.png,right/1.png\nleft/2.png\n")
    assert_one_sentence(*run(capsys, "infer", *arguments, "--out-dir", "out"), problem)
    assert files() == []


def test_an_interruption_says_how_to_go_on(capsys, pairs, monkeypatch):
    def interrupted(stereo, pairs, work):
        yield process_pair(stereo, next(iter(pairs)), work)
        raise KeyboardInterrupt

    monkeypatch.setattr("hybridstereo.batch.run.run_pairs", interrupted)
    code, out, err = run(capsys, "infer", "left", "right", "--out-dir", "out", *QUICK)
    assert (code, out.split()) == (130, ["out/1.pfm"])
    assert "stopped after 1 pair; with --skip-existing the same command goes on from there" in err


def test_one_pair_may_go_into_a_folder_too(capsys, pairs):
    code, out, _ = run(capsys, "infer", "left/1.png", "right/1.png", "--out-dir", "out", *QUICK)
    assert (code, out.split()) == (0, ["out/left/1.pfm"])


def test_the_recipes(capsys, pairs):
    """The commands of docs/recipes.md; the one that reads a pipe, as a shell runs it."""
    recipes = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
    section = recipes.partition("## Many pairs\n")[2].partition("\n## ")[0]
    lines = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1].splitlines()
    write_pair(*(pairs / f"testing/image_{n}/000000_10.png" for n in (2, 3)), 4)
    write_pair(pairs / "trainingQ/Teddy/im0.png", pairs / "trainingQ/Teddy/im1.png", 5)
    write_pair(pairs / "seq/7_left.png", pairs / "seq/7_right.png", 6)
    (pairs / "pairs.csv").write_text("left/1.png,right/1.png,first\n")
    for line in lines:
        command, _, redirected = line.partition(" > ")
        if "|" in line:
            hstereo = f'hstereo() {{ "{sys.executable}" -m hybridstereo "$@"; }}'
            subprocess.run(["sh", "-ec", f"{hstereo}\n{line}"], check=True, capture_output=True)
            continue
        code, out, err = run(capsys, *shlex.split(command, comments=True)[1:])
        assert code == 0, err
        if redirected:
            assert json.loads(out)["name"] == "first"
    assert {"1.pfm", "Teddy.pfm", "Teddy.png", "first.pfm", "seq/7_left.pfm"} <= set(files("maps"))
    assert files("disp_0") == ["000000_10.png"]
