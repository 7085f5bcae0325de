"""Evaluations and grid searches by Dask's workers give what one process gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import run

from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize

pytest.importorskip("distributed", reason="needs the extra dask")
pytestmark = [pytest.mark.engines, pytest.mark.slow]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    synthesize(folder, 4, 3, SceneOptions(height=40, width=56, max_disparity=11, objects=4))
    return folder


def test_evaluation(scenes, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(scenes.parent)  # names of files are relative
    command = ("eval", "middlebury", "--root", scenes.name, "--model", "census", "--baseline",
               "argmax", "--json")  # fmt: skip
    code, one, _ = run(capsys, *command)
    assert code == 0
    code, two, err = run(capsys, *command, "--workers", "2", "--report", tmp_path / "report")
    assert code == 0, err
    assert (tmp_path / "report" / "report.html").exists()

    def without_times(text: str) -> dict:
        kept = json.loads(text)
        for result in kept["results"]:
            assert result.pop("seconds") > 0
        return {name: x for name, x in kept.items() if "seconds" not in str(name)}

    assert without_times(two)["results"] == without_times(one)["results"]
    assert len(without_times(two)["results"]) == 8


def test_grid_search(scenes, capsys, tmp_path):
    command = ("train", "middlebury", "--root", scenes, "--init", "census", "--stage", "crf",
               "--val-fraction", "0.5", "--iterations", "2")  # fmt: skip
    for name, more in (("one", ()), ("two", ("--workers", "2"))):
        code, _, err = run(capsys, *command, "-o", tmp_path / name, *more)
        assert code == 0, err
    tables = [Path(tmp_path, x, "crf_grid.json").read_text() for x in ("one", "two")]
    assert tables[0] == tables[1]
    assert len(json.loads(tables[0])) > 30


def test_workers_need_a_data_set(capsys):
    code, _, err = run(capsys, "eval", "a.pfm", "b.pfm", "--workers", "2")
    assert code == 2
    assert "need a DATASET" in err
