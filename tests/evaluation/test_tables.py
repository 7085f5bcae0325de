"""Tables for people and for programs say the same."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

from hybridstereo.evaluation.protocol import RULES
from hybridstereo.evaluation.results import Evaluation, MethodInfo, SceneResult
from hybridstereo.evaluation.tables import as_dict, format_csv, format_text, mean_seconds


@pytest.fixture
def evaluation() -> Evaluation:
    ok = {"d1_noc": 12.5, "bad2": 1 / 3, "d1_all": math.nan}
    return Evaluation(
        "kitti",
        [MethodInfo("ours", "3 layers", "model"), MethodInfo("theirs", "maps", "folder")],
        ["a, b", "c"],
        [
            SceneResult("a, b", "ours", ok, 1.0, None),
            SceneResult("a, b", "theirs", ok, None, None),
            SceneResult("c", "ours", {"d1_noc": 2.5, "bad2": 1.0}, 2.0, None),
            SceneResult("c", "theirs", {}, None, 'no file "c".'),
        ],
        {
            "ours": {"d1_noc": 7.5, "bad2": 2 / 3, "d1_noc_pooled": 6.0},
            "theirs": {"d1_noc": 12.5, "bad2": 1 / 3},
        },
        "d1_noc",
    )


def test_text(evaluation):
    lines = format_text(evaluation, RULES["kitti"]).splitlines()
    assert lines[2].split() == ["scene", "method", "d1", "noc", "bad2", "seconds"]  # no "d1 all"
    assert lines[4].split() == ["a,", "b", "ours", "12.50", "0.33", "1.00"]
    assert lines[7].split()[:3] == ["c", "theirs", "failed"]
    table = lines[2:14]
    assert any(line.split() == ["mean", "ours", "7.50", "0.67", "1.50"] for line in table)
    assert any(line.split()[:3] == ["pooled", "ours", "6.00"] for line in table)
    assert 'c, theirs: no file "c".' in lines[-1]
    assert "1 of 4" in lines[-2]
    assert "2 scenes, non-occluded" in lines[0]


def test_a_figure_that_is_known_for_some_scenes_only(evaluation):
    evaluation.results[0].figures["d1_all"] = 20.0
    assert "'d1 all' is known for 1 of 2 scenes only" in format_text(evaluation, RULES["kitti"])


def test_one_scene_needs_no_mean(evaluation):
    one = Evaluation("x", evaluation.methods[:1], ["c"], [evaluation.results[2]], {"ours": {}}, "")
    assert "\nmean" not in format_text(one, RULES["kitti"])


def test_json_is_strict(evaluation):
    def refuse(name):
        raise AssertionError(name)

    read = json.loads(json.dumps(as_dict(evaluation)), parse_constant=refuse)
    assert read["results"][0]["figures"] == {"d1_noc": 12.5, "bad2": 1 / 3, "d1_all": None}
    assert read["results"][3]["error"] == 'no file "c".'
    assert read["means"]["ours"]["d1_noc_pooled"] == 6.0
    assert read["failed"] == 1
    assert read["seconds"] == {"ours": 1.5, "theirs": None}
    assert read["methods"][1] == {"name": "theirs", "settings": "maps", "kind": "folder"}


def test_csv_parses(evaluation):
    rows = list(csv.DictReader(io.StringIO(format_csv(evaluation))))
    kinds = ["mean", "pooled", "median", "standard error", "worst"]
    assert [row["row"] for row in rows] == ["image"] * 4 + [x for x in kinds for _ in range(2)]
    assert rows[0]["scene"] == "a, b"
    assert float(rows[0]["bad2"]) == 1 / 3
    assert rows[0]["d1_all"] == ""
    assert rows[3]["error"] == 'no file "c".'
    assert float(rows[4]["d1_noc"]) == 7.5
    assert float(rows[6]["d1_noc"]) == 6.0


def test_spread_over_the_scenes(evaluation):
    text = format_text(evaluation, RULES["kitti"])
    lines = [line.split() for line in text.splitlines()]
    assert ["ours", "7.50", "5.00", "12.50", "a,", "b"] in lines
    assert ["theirs", "12.50", "-", "12.50", "a,", "b"] in lines
    rows = list(csv.DictReader(io.StringIO(format_csv(evaluation))))
    by_kind = {row["row"]: row for row in rows if row["method"] == "ours"}
    assert float(by_kind["median"]["d1_noc"]) == 7.5
    assert float(by_kind["standard error"]["d1_noc"]) == 5.0
    assert (by_kind["worst"]["scene"], float(by_kind["worst"]["bad2"])) == ("a, b", 1.0)
    spread = as_dict(evaluation)["spread"]
    assert spread["ours"]["worst_scene"] == "a, b"
    assert spread["theirs"]["standard_error"] is None


def test_scenes_where_a_baseline_is_better(evaluation):
    evaluation.methods.append(MethodInfo("sgbm", "OpenCV", "baseline"))
    evaluation.means["sgbm"] = {}
    evaluation.results.append(SceneResult("c", "sgbm", {"d1_noc": 1.0}, None, None))
    assert "sgbm is better than ours on 1 of 1 scene: c" in format_text(evaluation, RULES["kitti"])
    assert as_dict(evaluation)["baseline_better"] == [
        {"model": "ours", "baseline": "sgbm", "scenes": ("c",), "of": 1}
    ]


def test_mean_seconds(evaluation):
    assert mean_seconds(evaluation, "ours") == 1.5
    assert mean_seconds(evaluation, "theirs") is None
