"""The log of a run: cut back by what its lines say, and damage that costs lines only."""

from __future__ import annotations

import errno
import json
import os
import random

import pytest

from hybridstereo.errors import InputError, OutputError
from hybridstereo.training.curves import plot_curves
from hybridstereo.training.runlog import RunLog


def step(stage: str, number: int) -> dict:
    return {"kind": "step", "stage": stage, "step": number, "loss": "hinge", "hinge": 0.5}


def validation(stage: str, number: int) -> dict:
    return {"kind": "validation", "stage": stage, "step": number, "bad1": 10.0}


@pytest.fixture
def log(tmp_path):
    return RunLog(tmp_path / "log.jsonl")


ENTRIES = [
    step("unary", 0), step("unary", 1), validation("unary", 2),
    validation("crf", 40),
    validation("joint", 0), step("joint", 0), step("joint", 1), validation("joint", 2),
    step("joint", 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "at", "kept"),
    [
        ("unary", 0, 0),
        ("unary", 1, 1),
        ("unary", 2, 3),
        ("crf", 0, 3),
        ("joint", 0, 4),  # a resumed run validates before its first step again
        ("joint", 1, 6),
        ("joint", 2, 8),
        ("joint", 3, 9),
        ("", 0, 9),
    ],
)
def test_lines_behind_the_checkpoint_are_cut(log, stage, at, kept):
    for entry in ENTRIES:
        log.append(entry)
    assert log.cut_back(stage, at) == []
    assert log.entries() == ENTRIES[:kept]


def test_damaged_lines_are_dropped_with_a_message(log):
    lines = [json.dumps(entry).encode() for entry in ENTRIES[:2]]
    damaged = [b"\0" * 100, b"{", b"[]", b'{"kind": "step"}', b'{"step": 1e400}', b"[" * 60000,
               json.dumps(step("unary", 0) | {"loss": []}).encode(),
               json.dumps(step("unary", 0) | {"hinge": "x"}).encode(),
               json.dumps(step("unary", 10**30)).encode(), lines[0][:20]]  # fmt: skip
    log.path.write_bytes(b"\n".join([lines[0], *damaged, lines[1], b'{"kind": "st']))
    assert log.entries() == ENTRIES[:2]
    (message,) = log.cut_back("unary", 2)
    assert f"{len(damaged) + 1} damaged lines dropped" in message
    assert log.path.read_bytes() == lines[0] + b"\n" + lines[1] + b"\n"
    assert log.cut_back("unary", 2) == []


@pytest.mark.parametrize("contents", [None, b"", b"\0" * 5000])
def test_short_or_missing_log_is_said_and_never_padded(log, contents):
    if contents is not None:
        log.path.write_bytes(contents)
    messages = log.cut_back("unary", 5)
    assert "lacks 5 steps of 5" in messages[-1]
    assert log.path.read_bytes() == b""


def test_mutated_logs_can_be_cut_back_and_drawn(log, tmp_path):
    rng = random.Random(16)
    whole = b"".join(json.dumps(entry).encode() + b"\n" for entry in ENTRIES)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(data))
            data[place : place + rng.choice([0, 1, 30])] = rng.randbytes(rng.choice([0, 1, 8]))
        log.path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        log.cut_back("joint", 2)
        for entry in log.entries():
            assert entry["stage"] in ("unary", "crf", "joint")
    plot_curves(log.entries(), tmp_path / "curves.png")


def test_figures_that_do_not_exist_are_not_drawn(log, tmp_path):
    for entry in (*ENTRIES, validation("joint", 3) | {"bad1": float("nan")}):
        log.append(entry)
    plot_curves(log.entries(), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_full_disk_while_a_line_is_added(log, monkeypatch):
    log.append(step("unary", 0))
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[: len(data) - 10])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OutputError, match=r"log\.jsonl cannot be written.*The disk is full"):
        log.append(step("unary", 1))
    monkeypatch.undo()
    assert log.entries() == [step("unary", 0)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_pipe_in_the_place_of_the_log(log):
    os.mkfifo(log.path)
    for use in (log.entries, lambda: log.cut_back("unary", 1)):
        with pytest.raises(InputError, match="is not a file"):
            use()


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs /dev/zero")
def test_device_in_the_place_of_the_log(log):
    log.path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is not a file"):
        log.entries()
