from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from hybridstereo.errors import InputError, ModelError, OutputError
from hybridstereo.io.weights import read_weights, write_weights
from hybridstereo.models.census import census_model
from hybridstereo.models.zoo import load_model, save_model
from hybridstereo.training.runfolder import Checkpoint, Position, RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        folder.begin({"dataset": "x"})
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


def test_the_log_reaches_the_disk_before_the_checkpoint(folder, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.path.samestat(os.fstat(descriptor), os.stat(folder.log.path)))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder.save(Checkpoint(census_model(), Position("unary")))
    assert synced[0]
    assert not any(synced[1:])


def test_config_errors(tmp_path):
    with pytest.raises(InputError, match="no training run"):
        RunFolder(tmp_path / "none").config()
    for text, problem in (("{", "cannot be read"), ("[]", "does not hold"), ("", "empty"),
                          ("[" * 99999, "damaged"), ("x" * (1 << 21), "too large")):  # fmt: skip
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match=problem):
            RunFolder(tmp_path).config()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_pipes_and_devices_in_the_place_of_files_are_refused_at_once(folder):
    for path, read in ((folder.path / "config.json", folder.config), (folder.last, folder.load)):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises((InputError, ModelError), match="a pipe"):
            read()
        path.unlink()
        path.symlink_to("/dev/zero")
        with pytest.raises((InputError, ModelError), match="a device"):
            read()


def test_damaged_checkpoint(folder):
    folder.save(Checkpoint(census_model(), Position("unary")))
    folder.last.write_bytes(folder.last.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"last\.h5") as caught:
        folder.load()
    assert "`init`" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"position_step": -1}, "step is -1"),
        ({"position_step": 2**62}, "step is"),
        ({"position_step": 1.5}, "step is 1.5"),
        ({"position_step": True}, "step is True"),
        ({"position_stage": "unry"}, "stage is 'unry'"),
        ({"position_stage": 3}, "stage is 3"),
        ({"position_best": -1.0}, "best is"),
        ({"position_seconds": -1.0}, "seconds is"),
        ({"position_seconds": "long"}, "seconds is 'long'"),
        ({"position_step": None}, "position names best, seconds, stage"),
        ({"position_colour": 1}, "position names"),
        ({"colour": 1}, "'colour', which this version does not know"),
        ({"p1": "x"}, "'p1' is not a float"),
        ({"iterations": None}, "'iterations' is missing"),
    ],
)
def test_odd_values_in_a_checkpoint_with_a_valid_checksum(folder, changes, problem):
    folder.save(Checkpoint(census_model(), Position("unary", 3)))
    stored = read_weights(folder.last)
    config = {k: v for k, v in {**stored.config, **changes}.items() if v is not None}
    write_weights(folder.last, config, stored.tensors)
    with pytest.raises(ModelError, match=problem):
        folder.load()


@pytest.mark.parametrize(
    ("name", "array", "problem"),
    [
        ("extra", np.zeros(3, np.float32), "'extra', which this version does not know"),
        ("unary/0/extra", np.zeros(3, np.float32), "belongs to no layer"),
        ("unary/0/bias", np.zeros(100), "float64"),
        ("unary/0/weight", np.zeros((100, 3, 3, 3), np.int64), "int64"),
    ],
)
def test_odd_arrays_in_a_checkpoint_with_a_valid_checksum(folder, name, array, problem):
    folder.save(Checkpoint(census_model(), Position("unary", 3)))
    stored = read_weights(folder.last)
    write_weights(folder.last, stored.config, stored.tensors | {name: array})
    with pytest.raises(ModelError, match=problem):
        folder.load()


def test_checkpoints_of_versions_that_counted_bytes_of_the_log_are_read(folder):
    folder.save(Checkpoint(census_model(), Position("unary", 3)))
    stored = read_weights(folder.last)
    write_weights(folder.last, stored.config | {"position_log_bytes": 1 << 30}, stored.tensors)
    assert folder.load().position == Position("unary", 3)
    assert folder.log.path.stat().st_size == 0


@pytest.mark.parametrize("name", ["file/run", "n" * 300, "a\0b"])
def test_folder_that_cannot_be_made(tmp_path, name):
    (tmp_path / "file").write_text("")
    folder = RunFolder(tmp_path / name)
    with pytest.raises(OutputError, match="cannot be created"), folder.locked():
        pass
    with pytest.raises(InputError, match="no training run"):
        folder.config()


def test_a_run_without_a_checkpoint_can_be_begun_again(folder):
    with folder.locked():
        folder.begin({"dataset": "y"})
    assert folder.config() == {"dataset": "y"}


def test_models_without_a_checkpoint_are_not_overwritten(folder):
    save_model(folder.best, census_model())
    with pytest.raises(OutputError, match=r"best\.h5.*Move them elsewhere"):
        folder.begin({})
    folder.best.unlink()
    folder.save(Checkpoint(census_model(), Position("unary")))
    with pytest.raises(OutputError, match="`resume`"):
        folder.begin({})


def test_only_one_run_at_a_time(folder):
    with (
        folder.locked(),
        pytest.raises(OutputError, match="Another training run is at work"),
        RunFolder(folder.path).locked(),
    ):
        pass


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_the_lock_of_a_dead_process_does_not_block(folder):
    code = f"""
import time
from hybridstereo.training.runfolder import RunFolder
with RunFolder({str(folder.path)!r}).locked():
    print("locked", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(OutputError, match="Another training run"), folder.locked():
            pass
        process.kill()
        process.wait()
    with folder.locked():
        assert json.loads((folder.path / "config.json").read_text()) == {"dataset": "x"}
