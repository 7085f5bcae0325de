"""The table of components, from run folders and from files."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridstereo.errors import InputError
from hybridstereo.evaluation.components import (
    component_table,
    components_as_dict,
    format_components,
)
from hybridstereo.evaluation.results import Evaluation, MethodInfo
from hybridstereo.features import ConvLayer
from hybridstereo.model import StereoModel, with_config
from hybridstereo.models.census import census_model
from hybridstereo.models.zoo import save_model, stage_model
from hybridstereo.options import MatchOptions


def model(layers: int) -> StereoModel:
    shapes = [(4, 3, 3, 3)] + (layers - 1) * [(4, 4, 2, 2)]
    return StereoModel(tuple(ConvLayer(np.zeros(s, np.float32), None) for s in shapes))


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for stage in ("unary", "crf", "joint"):
        save_model(stage_model(folder, stage), model(3))
    return folder


def evaluated(table, others=()):
    infos = [method.info for method in table.methods]
    infos += [MethodInfo(name, "", "baseline") for name in others]
    means = {info.name: {"bad1": float(10 + i)} for i, info in enumerate(infos)}
    means[infos[1].name]["bad1"] = math.nan
    return Evaluation("middlebury", infos, ["a"], [], means, "bad1", "weighted mean")


def test_stages_of_a_run(run_folder, backend):
    table = component_table([("run", str(run_folder))], backend, MatchOptions(iterations=2))
    assert [row.title for row in table.rows] == ["CNN3", "CNN3, refined"]
    assert list(table.rows[0].cells) == ["CNN", "+CRF", "+Joint"]
    settings = {method.info.name: method.info.settings for method in table.methods}
    assert "no CRF, not refined" in settings["CNN3 CNN"]
    assert "no CRF, refined" in settings["CNN3 CNN, refined"]
    assert "2 iterations, not refined" in settings["CNN3 +Joint"]


def test_table_in_the_papers_layout(run_folder, backend):
    table = component_table([("run", str(run_folder))], backend, MatchOptions())
    lines = format_components(evaluated(table, ["sgbm"]), table, "bad1").splitlines()
    assert lines[0].split() == ["middlebury", "weighted", "mean", "CNN", "+CRF", "+Joint", "+PW"]
    assert lines[2].split() == ["CNN3", "bad1", "10.00", "-", "12.00", "-"]
    assert lines[3].split() == ["CNN3,", "refined", "bad1", "13.00", "14.00", "15.00", "-"]
    assert lines[-1] == "sgbm: 16.00"
    rows = components_as_dict(evaluated(table), table)
    assert rows[0]["columns"] == {
        "CNN": {"bad1": 10},
        "+CRF": {"bad1": None},
        "+Joint": {"bad1": 12},
    }


def test_a_pyramid_has_a_column_of_its_own(run_folder, tmp_path, backend):
    levels = {"half_weight": 0.5, "quarter_weight": 0.25}
    with_levels = with_config(model(7), softmax="mutual", **levels)
    for stage in ("unary", "crf"):
        (tmp_path / "other").mkdir(exist_ok=True)
        save_model(stage_model(tmp_path / "other", stage), with_levels)
    runs = [("run", str(run_folder)), ("other", str(tmp_path / "other"))]
    table = component_table(runs, backend, MatchOptions())
    assert list(table.rows[0].cells) == ["CNN", "+CRF", "+Joint"]
    assert list(table.rows[2].cells) == ["CNN", "+pyramid", "+CRF"]
    settings = {method.info.name: method.info.settings for method in table.methods}
    assert "pyramid" not in settings["CNN7 CNN"]
    assert "mutual" not in settings["CNN7 CNN"]
    assert "mutual softmax, pyramid 0.5, 0.25, argmax" in settings["CNN7 +pyramid"]
    assert "pyramid 0.5, 0.25" in settings["CNN7 +CRF"]
    lines = format_components(evaluated(table), table, "bad1").splitlines()
    assert lines[0].split()[3:] == ["CNN", "+pyramid", "+CRF", "+Joint", "+PW"]
    assert lines[2].split() == ["CNN3", "bad1", "10.00", "-", "-", "12.00", "-"]
    assert lines[4].split() == ["CNN7", "bad1", "16.00", "17.00", "18.00", "-", "-"]


def test_files_and_runs_beside_each_other(run_folder, tmp_path, backend):
    save_model(tmp_path / "a.h5", model(7))
    models = [("CNN", str(tmp_path / "a.h5")), ("+PW", str(tmp_path / "a.h5"))]
    table = component_table([*models, ("run", str(run_folder))], backend, MatchOptions())
    assert [row.title for row in table.rows[::2]] == ["CNN7", "CNN3"]
    assert list(table.rows[0].cells) == ["CNN", "+PW"]


def test_two_runs_of_the_same_depth_keep_their_names(run_folder, backend):
    runs = [("first", str(run_folder)), ("second", str(run_folder))]
    table = component_table(runs, backend, MatchOptions())
    assert [row.label for row in table.rows[::2]] == ["CNN3 (first)", "CNN3 (second)"]
    assert len({method.info.name for method in table.methods}) == len(table.methods)


def test_what_is_no_component(tmp_path, backend):
    save_model(tmp_path / "a.h5", census_model())
    for models in ([("a", str(tmp_path / "a.h5"))], 2 * [("crf", str(tmp_path / "a.h5"))]):
        with pytest.raises(InputError, match="unary=FILE"):
            component_table(models, backend, MatchOptions())
    with pytest.raises(InputError, match="no models"):
        component_table([], backend, MatchOptions())
    with pytest.raises(InputError, match="no result of a training stage"):
        component_table([("run", str(tmp_path))], backend, MatchOptions())
