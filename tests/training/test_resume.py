"""Runs that were interrupted, killed or damaged, and go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from crash_campaign import MODELS, contents_of_model, differences
from support.listening import Listener

from hybridstereo.errors import InputError, ModelError, OutputError
from hybridstereo.models.zoo import load_model
from hybridstereo.training import stages
from hybridstereo.training.interrupts import TerminatedError
from hybridstereo.training.options import TrainOptions
from hybridstereo.training.run import train
from hybridstereo.training.runfolder import RunFolder
from hybridstereo.training.stages import Reporter, TrainingDivergedError

pytestmark = pytest.mark.slow

UNARY_MODELS = MODELS[:3]  # what stage unary alone leaves


class Interrupter(Reporter):
    """Presses Ctrl-C, or sends another signal, after some steps."""

    def __init__(self, steps: int, number: int = signal.SIGINT) -> None:
        self.steps, self.number = steps, number

    def step(self, *args) -> None:
        self.steps -= 1
        if self.steps == 0:
            os.kill(os.getpid(), self.number)


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory) -> Callable[[TrainOptions], Path]:
    """The folder of a run that nothing interrupted, made once for each optimiser."""
    made: dict[str, Path] = {}

    def whole(options: TrainOptions) -> Path:
        if options.optimizer not in made:
            made[options.optimizer] = tmp_path_factory.mktemp(options.optimizer) / "whole"
            train(options, made[options.optimizer])
        return made[options.optimizer]

    return whole


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("optimizer", "after"),
    [("sgd", 1), ("sgd", 5), ("sgd", 14), ("muon", 8), ("muon", 14)],
)
def test_interrupted_and_resumed_run_equals_uninterrupted(
    options, whole_runs, tmp_path, optimizer, after
):
    options = replace(options, optimizer=optimizer)
    whole = whole_runs(options)
    with pytest.raises(KeyboardInterrupt):
        train(options, tmp_path / "parts", reporter=Interrupter(after))
    train(None, tmp_path / "parts")
    assert differences(whole, tmp_path / "parts") == []


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_terminated_run_saves_and_resumes(options, tmp_path, name):
    number = getattr(signal, name)
    options = replace(options, stage="unary", checkpoint_every=50)
    train(options, tmp_path / "whole")
    with pytest.raises(TerminatedError, match=name):
        train(options, tmp_path / "parts", reporter=Interrupter(3, number))
    assert RunFolder(tmp_path / "parts").load().position.step == 3
    train(None, tmp_path / "parts")
    assert differences(tmp_path / "whole", tmp_path / "parts", UNARY_MODELS) == []


def test_finished_run_resumes_to_itself(options, tmp_path):
    options = replace(options, stage="unary")
    train(options, tmp_path / "run")
    before = contents_of_model(tmp_path / "run/best.h5")
    train(None, tmp_path / "run")
    assert contents_of_model(tmp_path / "run/best.h5") == before


def test_log_that_cannot_be_read_hides_no_error(options, tmp_path, monkeypatch):
    """What ended the run is said, although the curves cannot be drawn either."""

    def diverge(*args):
        (tmp_path / "run" / "log.jsonl").unlink()
        (tmp_path / "run" / "log.jsonl").mkdir()
        raise TrainingDivergedError("diverged")

    monkeypatch.setattr(stages, "unary_step", diverge)
    said = Listener()
    with pytest.raises(TrainingDivergedError):
        train(replace(options, stage="unary"), tmp_path / "run", reporter=said)
    assert any("log.jsonl is not a file" in text for text in said.texts)


@pytest.mark.parametrize("damage", [b"", b"\0" * 700, b'{"kind": "step", "stage', None])
def test_damaged_log_never_prevents_a_resume(options, tmp_path, damage):
    options = replace(options, stage="unary")
    train(options, tmp_path / "whole")
    run = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        train(options, run, reporter=Interrupter(4))
    log = run / "log.jsonl"
    log.unlink() if damage is None else log.write_bytes(log.read_bytes()[:300] + damage)
    said = Listener()
    train(None, run, reporter=said)
    assert any("log.jsonl lacks" in text for text in said.texts)
    assert differences(tmp_path / "whole", run, UNARY_MODELS) == ["log.jsonl"]
    steps = [entry["step"] for entry in RunFolder(run).log.entries() if entry["kind"] == "step"]
    assert steps[-2:] == [4, 5]


@pytest.mark.parametrize("resumed", [True, False])
def test_killed_before_the_first_checkpoint(options, tmp_path, resumed, monkeypatch):
    """Resuming starts the same run; so does starting it anew."""
    options = replace(options, stage="unary")
    train(options, tmp_path / "whole")
    run = tmp_path / "parts"

    def die(*args):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "save", die)
        with pytest.raises(SystemExit):
            train(options, run)
    assert sorted(path.name for path in run.iterdir()) == [".lock", "config.json", "log.jsonl"]
    train(None if resumed else options, run)
    assert differences(tmp_path / "whole", run, UNARY_MODELS) == []


def test_two_runs_at_once_are_refused(options, tmp_path):
    class Second(Reporter):
        def step(self, *args):
            with pytest.raises(OutputError, match="Another training run is at work"):
                train(None, tmp_path / "run")
            tried.append(1)

    tried: list[int] = []
    train(replace(options, stage="unary", steps=2), tmp_path / "run", reporter=Second())
    assert len(tried) == 2
    assert len(RunFolder(tmp_path / "run").log.entries()) == 2 + 1


@pytest.mark.parametrize("change", ["missing", "extra", "shape", "type", "stage", "edges"])
def test_checkpoint_that_does_not_fit_its_stage(options, tmp_path, change):
    options = replace(options, stage="unary")
    with pytest.raises(KeyboardInterrupt):
        train(options, tmp_path / "run", reporter=Interrupter(3))
    folder = RunFolder(tmp_path / "run")
    checkpoint = folder.load()
    name, array = "unary/0/bias", checkpoint.momentum["unary/0/bias"]
    if change == "missing":
        del checkpoint.momentum[name]
    elif change in ("stage", "edges"):
        checkpoint.position.stage = "joint" if change == "stage" else "full"
    else:
        odd = {
            "extra": ("p1", array),
            "shape": (name, array[1:]),
            "type": (name, np.float64(array)),
        }
        checkpoint.momentum.update([odd[change]])
    folder.save(checkpoint)
    with pytest.raises(ModelError, match="does not fit"):
        train(None, tmp_path / "run")


def test_lost_best_model_is_made_again(options, tmp_path):
    options = replace(options, stage="unary")
    with pytest.raises(KeyboardInterrupt):
        train(options, tmp_path / "run", reporter=Interrupter(4))
    (tmp_path / "run/best.h5").unlink()
    train(None, tmp_path / "run")
    assert load_model(tmp_path / "run").unary


def test_run_folder_is_not_overwritten(options, tmp_path):
    options = replace(options, stage="unary")
    train(options, tmp_path / "run")
    with pytest.raises(OutputError, match="`resume`"):
        train(options, tmp_path / "run")


def test_resume_without_a_run(tmp_path):
    with pytest.raises(InputError, match="no training run"):
        train(None, tmp_path / "nothing")
