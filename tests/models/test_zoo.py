from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hybridstereo.errors import ModelError
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import read_pair
from hybridstereo.io.mask import read_mask
from hybridstereo.labels import LabelRange
from hybridstereo.model import PROVENANCE
from hybridstereo.models.zoo import (
    BEST_MODEL,
    DEFAULT_MODEL,
    SHIPPED,
    available_models,
    load_model,
    save_model,
)
from hybridstereo.stereo import Stereo
from hybridstereo.training.runfolder import RunFolder


def test_default_model_is_available():
    assert DEFAULT_MODEL in available_models()
    for name in available_models():
        assert load_model(name).config.description


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.h5")), ids=lambda path: path.stem)
def test_shipped_models_say_where_they_come_from(path):
    model = load_model(path.stem)
    assert len(model.unary) == (3 if path.stem.endswith("-fast") else 7)
    assert model.config.method == "crf"
    for name in ("description", *PROVENANCE):
        assert getattr(model.config, name), name
    assert "%" in model.config.validation
    assert path.stat().st_size < 1_300_000


def test_every_shipped_model_is_documented():
    text = (Path(__file__).resolve().parents[2] / "docs/models.md").read_text()
    for path in SHIPPED.glob("*.h5"):
        assert f"`{path.stem}`" in text


@pytest.mark.parametrize("document", ["README.md", "docs/models.md"])
def test_documented_figures_are_those_of_the_files(document):
    text = (Path(__file__).resolve().parents[2] / document).read_text()
    for path in SHIPPED.glob("*.h5"):
        layers, *shown = re.search(
            rf"^\| `{path.stem}`[^|]*\| (\d) \| ([\d.*]+) \| ([\d.*]+) \|", text, re.M
        ).groups()
        model = load_model(path.stem)
        assert int(layers) == len(model.unary)
        stated = re.findall(r"([\d.]+) %", model.config.validation)
        assert [figure.strip("*") for figure in shown] == stated


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.h5")), ids=lambda path: path.stem)
def test_shipped_models_match_the_sample(path, backend, sample):
    """A generated room with exact truth: better than SGBM, which gets 17 % wrong."""
    left, right = read_pair(sample / "left.png", sample / "right.png")
    truth = read_disparity(sample / "truth.pfm")
    mask = read_mask(sample / "mask0nocc.png")
    found = Stereo(load_model(path.stem), backend).match(left, right, labels=LabelRange(0, 64))
    bad = 100 * float((np.abs(found.disparity - truth)[mask] > 1).mean())
    assert bad < 16.9


def test_names_of_models_win_over_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULT_MODEL).mkdir()
    assert load_model(DEFAULT_MODEL).config.trained_on
    with pytest.raises(ModelError):
        load_model(f"./{DEFAULT_MODEL}")


def test_unknown_name():
    with pytest.raises(ModelError, match=r"There is no model 'nonsense'.*census"):
        load_model("nonsense")


def test_missing_file(tmp_path):
    with pytest.raises(ModelError, match=r"gone\.h5"):
        load_model(str(tmp_path / "gone.h5"))


def test_saved_model_is_the_same(tmp_path):
    model = load_model("census")
    save_model(tmp_path / "m.h5", model)
    again = load_model(str(tmp_path / "m.h5"))
    assert again.config == model.config
    for a, b in zip(model.unary, again.unary, strict=True):
        np.testing.assert_array_equal(a.weight, b.weight)
        np.testing.assert_array_equal(a.bias, b.bias)


def test_path_objects_are_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model(Path("m.h5"), load_model("census"))
    assert load_model(Path("m.h5")).config == load_model("census").config
    with pytest.raises(ModelError, match="There is no model 'census'"):
        load_model(Path("census"))


def test_folder_of_a_run_stands_for_its_best_model(tmp_path):
    save_model(tmp_path / BEST_MODEL, load_model("census"))
    save_model(tmp_path / "last.h5", load_model(DEFAULT_MODEL))
    for name in (tmp_path, str(tmp_path), f"{tmp_path}/"):
        assert load_model(name).config == load_model("census").config


def test_folder_without_a_model(tmp_path):
    with pytest.raises(ModelError, match=r"holds no model: it has no best\.h5\. Give the folder"):
        load_model(tmp_path)


def test_training_writes_the_best_model_where_it_is_looked_for(tmp_path):
    assert RunFolder(tmp_path).best.name == BEST_MODEL
