"""`hstereo infer --pairs` with a list, images and results behind URLs."""

from __future__ import annotations

import json
import sys

import cv2
import numpy as np
import pytest
from support.commands import assert_one_sentence, run

fsspec = pytest.importorskip("fsspec", reason="needs the extra remote")
NAMES = ("a", "b", "c")


@pytest.fixture
def scenes(tmp_path, rng):
    """A folder with three pairs and their list."""
    for side in ("left", "right"):
        (tmp_path / "in" / side).mkdir(parents=True)
    for name in NAMES:
        left = cv2.GaussianBlur(rng.integers(0, 256, (24, 40, 3), np.uint8), (0, 0), 1)
        cv2.imwrite(str(tmp_path / f"in/left/{name}.png"), left)
        cv2.imwrite(str(tmp_path / f"in/right/{name}.png"), np.roll(left, -3, axis=1))
    (tmp_path / "in/pairs.csv").write_text("".join(f"left/{x}.png,right/{x}.png\n" for x in NAMES))
    return tmp_path / "in"


@pytest.fixture
def memory(scenes):
    """The same behind memory:// URLs."""
    store = fsspec.filesystem("memory")
    store.put(str(scenes), "/data", recursive=True)
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


def infer(*arguments) -> list[str]:
    return ["infer", *map(str, arguments), "--model", "census", "--disparities", "8"]


@pytest.fixture
def expected(scenes, tmp_path, capsys):
    """The maps as they are without URLs, by name."""
    out = tmp_path / "expected"
    code, _, err = run(capsys, *infer("--pairs", scenes / "pairs.csv", "--out-dir", out))
    assert code == 0, err
    return {f"left/{x}.pfm": (out / f"left/{x}.pfm").read_bytes() for x in NAMES}


def stored(memory, folder: str) -> dict[str, bytes]:
    found = memory.find(folder)
    return {path.removeprefix(f"{folder}/"): memory.cat(path) for path in found}


def test_all_of_it_behind_urls(memory, expected, capsys):
    many = infer("--pairs", "memory://data/pairs.csv", "--out-dir", "memory://out", "--json")
    code, out, err = run(capsys, *many)
    assert code == 0, err
    assert stored(memory, "/out") == expected
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0]["left"] == "memory://data/left/a.png"
    assert lines[0]["files"] == ["memory://out/left/a.pfm"]


def test_only_what_is_missing_is_done_again(memory, expected, capsys):
    many = infer("--pairs", "memory://data/pairs.csv", "--out-dir", "memory://out")
    run(capsys, *many)
    memory.rm("/out/left/b.pfm")
    code, out, err = run(capsys, *many, "--skip-existing")
    assert (code, out) == (0, "memory://out/left/b.pfm\n")
    assert "1 done, 2 skipped" in err
    assert stored(memory, "/out") == expected


def test_paths_and_urls_can_be_mixed(memory, scenes, expected, tmp_path, capsys):
    listed = f"memory://data/left/a.png,file://{scenes}/right/a.png,left/a\n"
    (tmp_path / "mixed.csv").write_text(listed + "in/left/b.png,in/right/b.png,left/b\n")
    out = f"file://{tmp_path}/mixed"
    code, _, err = run(capsys, *infer("--pairs", f"file://{tmp_path}/mixed.csv", "--out-dir", out))
    assert code == 0, err
    for name in ("a", "b"):
        assert (tmp_path / f"mixed/left/{name}.pfm").read_bytes() == expected[f"left/{name}.pfm"]


def test_a_missing_image_fails_and_the_rest_is_done(memory, capsys):
    memory.rm("/data/right/b.png")
    many = infer("--pairs", "memory://data/pairs.csv", "--out-dir", "memory://out")
    code, _, err = run(capsys, *many)
    assert code == 3
    assert "left/b failed: memory://data/right/b.png does not exist" in err
    assert sorted(stored(memory, "/out")) == ["left/a.pfm", "left/c.pfm"]


def test_a_pair_of_two_urls(memory, expected, tmp_path, capsys):
    images = "memory://data/left/a.png", "memory://data/right/a.png"
    assert run(capsys, *infer(*images, "-o", "memory://one/a.pfm"))[0] == 0
    assert memory.cat("/one/a.pfm") == expected["left/a.pfm"]
    assert run(capsys, *infer(*images, "--out-dir", "memory://two"))[0] == 0
    assert stored(memory, "/two") == {"data/left/a.pfm": expected["left/a.pfm"]}


@pytest.mark.parametrize("where", ["list", "images", "results"])
def test_without_fsspec_one_sentence_says_what_to_install(
    scenes, tmp_path, capsys, monkeypatch, where
):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.delitem(sys.modules, "hybridstereo.io.url_files", raising=False)
    (tmp_path / "urls.csv").write_text("s3://b/l.png,s3://b/r.png\n")
    pairs = {"list": "s3://b/list.csv", "images": tmp_path / "urls.csv"}.get(
        where, scenes / "pairs.csv"
    )
    out = "s3://b/out" if where == "results" else tmp_path / "out"
    done = run(capsys, *infer("--pairs", pairs, "--out-dir", out))
    assert_one_sentence(*done, "pip install 'hybridstereo[remote]'")


def test_results_cannot_go_to_a_web_page(scenes, capsys):
    done = run(capsys, *infer("--pairs", scenes / "pairs.csv", "--out-dir", "https://host/out"))
    assert_one_sentence(*done, "can be read but not written")


def test_a_url_that_is_no_list(memory, capsys):
    done = run(capsys, *infer("--pairs", "memory://data", "--out-dir", "memory://out"))
    assert_one_sentence(*done, "memory://data does not exist or is not a file")


def test_only_workers_can_return_results(scenes, tmp_path, capsys):
    many = infer("--pairs", scenes / "pairs.csv", "--out-dir", tmp_path / "out", "--return-results")
    code, _, err = run(capsys, *many)
    assert code == 2
    assert "--return-results is about workers: give --scheduler or --workers" in err
    code, _, err = run(capsys, *infer("a.png", "b.png", "--return-results"))
    assert code == 2
    assert "--return-results is about many pairs" in err
