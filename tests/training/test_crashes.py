"""Crashes of a run, in short: `tools/crash_campaign.py` does the same a hundred times."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import asdict

import pytest
from crash_campaign import MODELS, FullDisk, differences, leftovers

from hybridstereo.errors import OutputError
from hybridstereo.io import atomic
from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize
from hybridstereo.training import run as running
from hybridstereo.training.options import TrainOptions
from hybridstereo.training.run import train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals"),
]
UNARY_MODELS = MODELS[:3]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    synthesize(folder, 3, 3, SceneOptions(height=24, width=40, max_disparity=7, objects=2))
    return str(folder)


def test_killed_run_resumes_to_the_same_bytes(scenes, tmp_path):
    """kill -9 at several moments; nothing but the files on disk survives."""
    options = TrainOptions("middlebury", scenes, stage="unary", layers=1, filters=4, steps=60,
                           crop=(16, 24), checkpoint_every=3, val_fraction=0.4)  # fmt: skip
    train(options, tmp_path / "whole")
    run = tmp_path / "parts"
    code = f"""
import os
from hybridstereo.training.options import options_from_config
from hybridstereo.training.run import train
begun = os.path.exists({str(run / "config.json")!r})
train(None if begun else options_from_config({asdict(options)!r}), {str(run)!r})
"""
    rng = random.Random(16)
    log = run / "log.jsonl"
    for lines in (0, 4, 25):
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and process.poll() is None:
                if log.exists() and log.read_bytes().count(b"\n") >= lines:
                    break
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.02))
            process.kill()
    atomic._swept.clear()  # what a new process begins with
    train(None, run)
    assert differences(tmp_path / "whole", run, UNARY_MODELS) == []
    assert leftovers(run) == []


def test_disk_that_is_full_at_any_write(scenes, tmp_path, monkeypatch):
    """One sentence, or no picture; then there is space again and the run ends as ever."""
    options = TrainOptions("middlebury", scenes, stage="unary", layers=1, filters=2, steps=1,
                           crop=(16, 24), checkpoint_every=1, val_fraction=0.0)  # fmt: skip

    def draw(entries, path) -> None:  # a picture takes longer than the run
        with atomic.atomic_write(path) as temporary:
            temporary.write_bytes(b"curves")

    monkeypatch.setattr(running, "plot_curves", draw)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # waits for the real disk
    with FullDisk(None).mounted() as disk:
        train(options, tmp_path / "whole", threads=1)
    assert disk.operations > 40
    for operation in range(disk.operations):
        run = tmp_path / str(operation)
        try:
            with FullDisk(operation).mounted():
                train(options, run, threads=1)
        except OutputError as error:
            assert "No space left" in str(error)  # noqa: PT017
        begun = (run / "config.json").exists()
        train(None if begun else options, run, threads=1)
        assert differences(tmp_path / "whole", run, UNARY_MODELS) == [], operation
        assert leftovers(run) == []
