"""Ranks without MPI: who is told what by a launcher, and what a missing extra says."""

from __future__ import annotations

import sys

import pytest
from support.commands import assert_one_sentence, run

from hybridstereo.engines.ranks import Alone, interleaved, join, launched, own_part, shared_out

SEVERAL = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        (SEVERAL, (1, 4)),
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, (0, 2)),
        ({"PMIX_RANK": "3", "SLURM_STEP_NUM_TASKS": "8"}, (3, 8)),
        ({"SLURM_STEP_NUM_TASKS": "8"}, (0, 1)),  # a job of SLURM that starts nothing with MPI
        ({"PMI_SIZE": "many", "PMI_RANK": "0"}, (0, 1)),
    ],
)
def test_launchers(environment, expected):
    assert launched(environment) == expected


def test_without_a_launcher_mpi_is_not_loaded(monkeypatch):
    for name in (*SEVERAL, "PMI_SIZE", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # whoever imports it fails
    assert isinstance(join(), Alone)


def test_a_missing_mpi4py_is_one_sentence(monkeypatch, capsys, tmp_path):
    for name, value in SEVERAL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "hybridstereo.engines.mpi", raising=False)
    done = run(capsys, "train", "synthetic", "-o", tmp_path / "run")
    assert_one_sentence(*done, "pip install 'hybridstereo[mpi]'")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("infer", "--pairs", "PAIRS", "--out-dir", "OUT", "--workers", "2", "--model", "census"),
        ("eval", "synthetic", "--limit", "1", "--scheduler", "tcp://127.0.0.1:8786"),
        ("train", "synthetic", "-o", "OUT", "--workers", "2"),
    ],
)
def test_a_missing_dask_is_one_sentence(monkeypatch, capsys, tmp_path, sample, command):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "hybridstereo.engines.dask_workers", raising=False)
    places = {"PAIRS": sample, "OUT": tmp_path / "out"}
    done = run(capsys, *(places.get(word, word) for word in command))
    assert done[0] == 1
    last = done[2].strip().splitlines()[-1]
    assert_one_sentence(done[0], done[1], last, "Dask", "pip install 'hybridstereo[dask]'")


class Third(Alone):
    """The last of three ranks, whose others have computed already."""

    rank, size = 2, 3

    def gathered(self, value):
        return [["a", "d"], ["b", "e"], value]


def test_items_are_shared_out_and_come_back_in_order():
    assert own_part(Third(), "abcde") == "c"
    assert shared_out(Third(), str.upper, "abcde") == ["a", "b", "C", "d", "e"]
    assert interleaved([[1]]) == [1]
