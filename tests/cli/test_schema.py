"""What is printed with ``--json`` is what the schema in the package says, key by key."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from click.testing import CliRunner
from support.videofiles import DISPARITIES, scenes, views_of

from hybridstereo.cli import cli
from hybridstereo.io.disparity import write_disparity
from hybridstereo.io.images import write_image

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads(files("hybridstereo.cli").joinpath("output.schema.json").read_text("utf-8"))
WITH_JSON = {
    name
    for name, command in cli.commands.items()
    if any("--json" in option.opts for option in command.params)
}
CPU = ["--device", "cpu"]
LABELS = ["--disparities", str(DISPARITIES)]
CALLS = {
    "infer": ["left.png", "right.png", "--rectify", "-o", "map.pfm", *CPU],
    "infer --no-check": [
        "left.png",
        "right.png",
        "--model",
        "census",
        "--method",
        "argmax",
        "--no-check",
        *LABELS,
        *CPU,
    ],
    "infer with depth": [
        "left.png",
        "right.png",
        "-o",
        "map.pfm",
        "--focal",
        "60",
        "--baseline",
        "100",
        "--depth",
        "depth.npy",
        "--disparities",
        "16",
    ],
    "infer of pairs": ["--pairs", "several.csv", "--out-dir", "out", *LABELS, *CPU],
    "infer of pairs again": [
        "--pairs",
        "several.csv",
        "--out-dir",
        "out",
        "--skip-existing",
        *LABELS,
    ],
    "stream": ["left.png", "right.png", "-o", "maps/", *LABELS, *CPU],
    "check": ["left.png", "left.png", *CPU],
    "eval": ["truth.pfm", "truth.pfm"],
    "eval with baseline": [
        "csv",
        "--root",
        "pairs.csv",
        "--model",
        "census",
        "--baseline",
        "sgbm",
        *CPU,
    ],
    "rectify": ["sample/left.png", "sample/right.png", "-o", "pair"],
    "bench": [
        "--width",
        "48",
        "--height",
        "32",
        *LABELS,
        "--layers",
        "3",
        "--repeat",
        "1",
        "--compare",
        "sgbm",
        "--pairs",
        "2",
        *CPU,
    ],
    "bench of a data set": [
        "--root",
        "csv=pairs.csv",
        "--model",
        "census",
        "--compare",
        "sgbm-3way,elas",
        *CPU,
    ],
    "info": [],
    "config": ["--all"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, request):
    place = tmp_path_factory.mktemp("schema")
    (frame,) = scenes(1)
    left, right = views_of([frame])
    write_image(place / "left.png", left[0])
    write_image(place / "right.png", right[0])
    write_disparity(place / "truth.pfm", frame.disparity)
    (place / "pairs.csv").write_text("left.png,right.png,truth.pfm\n")
    (place / "several.csv").write_text("left.png,right.png\nleft.png,none.png\n")
    (place / "sample").symlink_to(request.getfixturevalue("sample"))
    return place


def test_the_schema_is_one_and_knows_every_command():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert {x["$ref"].rpartition("/")[2] for x in SCHEMA["anyOf"]} == WITH_JSON
    assert {call.split()[0] for call in CALLS} == WITH_JSON


@pytest.mark.parametrize("call", CALLS)
def test_what_is_printed_fits(call, folder, monkeypatch):
    """A key that is not there fails: then output.schema.json is to say what it means."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HSTEREO_MODEL", "census")
    name = call.split()[0]
    result = CliRunner().invoke(cli, [name, *CALLS[call], "--json"])
    several = "pairs" in call  # a line for each, of which one fails
    assert result.exit_code == (3 if several else 0), result.output
    schema = {"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}
    for line in result.stdout.splitlines() if several else [result.stdout]:
        jsonschema.Draft202012Validator(schema).validate(json.loads(line))


def test_a_wrong_object_does_not_fit():
    schema = {"$ref": "#/$defs/check", "$defs": SCHEMA["$defs"]}
    validator = jsonschema.Draft202012Validator(schema)
    good = {"width": 3, "height": 4, "check": []}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "surprise": 1})
    assert not validator.is_valid({"width": 3, "check": []})
