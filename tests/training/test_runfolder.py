from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.errors import InputError, ModelError, OutputError
from hybridstereo.models.census import census_model
from hybridstereo.models.zoo import load_model
from hybridstereo.training.runfolder import Checkpoint, Position, RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create({"dataset": "x"})
    return folder


def test_checkpoint_round_trip(folder):
    momentum = {"unary/0/weight": np.full((100, 3, 3, 3), 0.5, np.float32), "p1": np.array([0.1])}
    position = Position("joint", step=7, best=12.345678901234567, seconds=3.5)
    folder.save(Checkpoint(census_model(), position, momentum))
    again = folder.load()
    assert again.position == position
    assert again.model.config == census_model().config
    assert set(again.momentum) == set(momentum)
    for name, array in momentum.items():
        np.testing.assert_array_equal(again.momentum[name], array)
        assert again.momentum[name].dtype == array.dtype


def test_checkpoint_is_a_usable_model(folder):
    folder.save(Checkpoint(census_model(), Position("unary")))
    assert load_model(str(folder.last)).parameter_count == census_model().parameter_count


def test_log_is_cut_back_to_the_checkpoint(folder):
    folder.append({"step": 0})
    folder.save(Checkpoint(census_model(), Position("unary", 1)))
    folder.append({"step": 1})
    assert len(folder.entries()) == 2
    folder.load()
    assert folder.entries() == [{"step": 0}]


def test_config_errors(tmp_path):
    with pytest.raises(InputError, match="no training run"):
        RunFolder(tmp_path / "none").config()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        RunFolder(tmp_path).config()
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(InputError, match="does not hold"):
        RunFolder(tmp_path).config()


def test_no_checkpoint(folder):
    with pytest.raises(InputError, match="no checkpoint"):
        folder.load()


def test_damaged_checkpoint(folder):
    folder.save(Checkpoint(census_model(), Position("unary")))
    folder.last.write_bytes(folder.last.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"last\.h5"):
        folder.load()


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        RunFolder(tmp_path / "file" / "run").create({})
