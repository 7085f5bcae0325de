"""Kernels that are compiled before they are needed."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from hybridstereo import kernels, warmup
from hybridstereo.errors import DeviceError
from hybridstereo.kernels import diskcache
from hybridstereo.kernels.cpu.compile_times import timed_compiling
from hybridstereo.kernels.cpu.jit import compiled
from hybridstereo.sequence import StereoSequence
from hybridstereo.stereo import Stereo
from hybridstereo.warmup import STEPS, compile_steps, compiling_beside, warm_up

FRESH = """
import sys
import numpy as np
import hybridstereo as hs
from hybridstereo.kernels import diskcache
from hybridstereo.warmup import compile_steps

asked = []
load = diskcache.KernelCache.load_overload
def listening(self, *arguments):
    asked.append(self._stem)
    return load(self, *arguments)
diskcache.KernelCache.load_overload = listening

compile_steps({steps})
done = len(asked)
# What follows is replaced for training.
left = np.random.default_rng(0).random((24, 40, 3), np.float32)
for model in ("general-fast", "census"):
    stereo = hs.Stereo(model, device="cpu")
    stereo.match(left, np.roll(left, -2, 1), 16, fill=True, confidence=True, view="both")
    stereo.match(left, np.roll(left, -2, 1), 9, step=0.5, method="argmax")
print(done, *asked[done:])
"""


TRAINING = """
import numpy as np
from hybridstereo import kernels
from hybridstereo.datasets import StereoPair
from hybridstereo.labels import LabelRange
from hybridstereo.model import with_config
from hybridstereo.models.zoo import load_model
from hybridstereo.training.steps import *

cpu = kernels.select("cpu")
model = with_config(load_model("general-fast"), half_weight=0.5)
left = np.random.default_rng(0).random((24, 40, 3), np.float32)
truth = np.full((24, 40), 2, np.float32)
pair = StereoPair(left, np.roll(left, -2, 1), truth, truth > 0)
for step, options in ((unary_step, True), (structured_step, HingeOptions(iterations=2)),
                      (minorant_step, MinorantOptions(iterations=2))):
    step(model, cpu, pair, LabelRange(0, 16), options)
"""


def needed_beyond(steps, program=FRESH) -> list[str]:
    """Kernels that matching needs beside those of some steps, in a process that has none."""
    done = subprocess.run(
        [sys.executable, "-c", program.format(steps=steps)],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.split()[1:]


def test_the_steps_have_every_kernel_of_inference():
    assert needed_beyond([name for name in STEPS if name != "training"]) == []


def test_the_steps_have_every_kernel_of_training():
    program = FRESH.split("#")[0] + TRAINING + "print(done, *asked[done:])"
    assert needed_beyond(list(STEPS), program) == []


def test_a_warm_start_needs_no_more(rng):
    warm_up(["general-fast"], "cpu", training=False)
    stereo = Stereo("general-fast", "cpu")
    sequence = StereoSequence(stereo, disparities=16, warm_start=True)
    with timed_compiling() as times:
        for _ in range(2):
            frame = rng.random((24, 40, 3), np.float32)
            sequence.match(frame, np.roll(frame, -2, axis=1))
    assert times == []


def test_steps_are_told():
    told = []
    compile_steps(["pyramid", "labels"], "cpu", told.append)
    assert told == ["pyramid", "labels"]


def test_a_device_that_is_not_there(monkeypatch):
    if kernels.select("auto").name != "cpu":
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match="CUDA cannot be used"):
        warm_up(device="cuda")


# --- how long it takes ----------------------------------------------------------------------


def twice(x):
    return x + x


def test_kernels_are_timed_with_what_they_call():
    inner = compiled()(twice)
    outer = compiled()(lambda x: inner(x) + 1.5)
    with timed_compiling() as times:
        diskcache.KernelCache.load_overload, kept = (
            lambda self, *arguments: None,
            diskcache.KernelCache.load_overload,
        )
        try:
            assert outer(2.0) == 5.5
        finally:
            diskcache.KernelCache.load_overload = kept
    (kernel,) = times
    assert kernel.functions == 2
    assert 0 < kernel.seconds < time.process_time()
    assert kernel.name.endswith("<lambda>")


# --- processes beside a command -------------------------------------------------------------


class Helper:
    """Stands for a process."""

    def __init__(self, steps):
        self.steps, self.ended = steps, False

    def kill(self):
        self.ended = True

    def wait(self):
        assert self.ended


@pytest.fixture
def started(monkeypatch):
    helpers = []

    def start(steps):
        helpers.append(Helper(steps))
        return helpers[-1]

    monkeypatch.setattr(warmup, "_started", start)
    monkeypatch.setattr(warmup, "_cores", lambda: 2)
    monkeypatch.setattr(warmup, "driver_installed", lambda: False)
    monkeypatch.setattr(warmup, "nothing_kept", lambda: True)
    return helpers


def test_a_first_run_has_help_from_the_beginning(started):
    with compiling_beside("auto"):
        (helper,) = started
        assert not helper.ended
        assert set(helper.steps) <= set(STEPS)
    assert helper.ended


def test_help_comes_with_the_first_kernel_that_is_missing(started, monkeypatch):
    monkeypatch.setattr(warmup, "nothing_kept", lambda: False)
    with compiling_beside("cpu"):
        assert started == []
        for listener in diskcache._listeners * 2:
            listener()
        assert len(started) == 1
    assert diskcache._listeners == []


@pytest.mark.parametrize(
    ("device", "threads", "cores", "driver"),
    [("cpu", 1, 8, False), ("cpu", None, 1, False), ("cuda", None, 8, True), ("auto", 2, 8, True)],
)
def test_nothing_is_started_where_it_would_not_help(
    started, monkeypatch, device, threads, cores, driver
):
    monkeypatch.setattr(warmup, "_cores", lambda: cores)
    monkeypatch.setattr(warmup, "driver_installed", lambda: driver)
    with compiling_beside(device, threads):
        assert started == []


def test_nothing_but_our_own_code_is_started(monkeypatch):
    """The same for every input: no option, file or variable has a part in it."""
    given = {}
    monkeypatch.setattr(
        warmup.subprocess, "Popen", lambda command, **options: given.update(c=command, o=options)
    )
    warmup._started(["CRF"])
    assert given["c"][:3] == [sys.executable, "-c", warmup._CODE]
    assert given["c"][3:] == ["\n".join(sys.path), "CRF"]
    assert "shell" not in given["o"]


def test_a_system_that_allows_no_processes(started, monkeypatch):
    def refuse(steps):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(warmup, "_started", refuse)
    with compiling_beside("cpu"):
        assert started == []


def test_a_helper_compiles_and_is_gone(tmp_path, monkeypatch):
    """A real one, which finds modules where we do and not in the working folder."""
    monkeypatch.setenv(diskcache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "numpy.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    helper = warmup._started(["other edges and labels"])
    assert helper.wait(timeout=60) == 0
    names = {path.name.partition("-")[0] for path in diskcache.kept_kernels(tmp_path / "cache")}
    assert "edges_cpu._weights" in names
