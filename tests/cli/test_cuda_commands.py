"""`infer`, `train` and `bench` on the CUDA backend, in the PTX emulator: ``pytest -m emulator``."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import cuda_emulator
import numpy as np
import pytest
from support.commands import run

from hybridstereo import kernels, stereo
from hybridstereo.bench import run as bench
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.weights import read_weights
from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize
from hybridstereo.training import run as train
from hybridstereo.training.stages import Reporter

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(bool(cuda_emulator.why_not()), reason=cuda_emulator.why_not()),
]


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """Whatever device a command asks for, it gets the emulator."""
    for module in (stereo, train, bench):
        monkeypatch.setattr(module, "open_backend", lambda device: kernels.cuda_backend("emulated"))
    with cuda_emulator.emulated(timing=False, races=False, global_races=False) as emulated:
        yield emulated


def test_infer(device, sample_crop, tmp_path, capsys):
    output = tmp_path / "cuda.npy"
    options = ("--model", "census", "--disparities", 16, "--iterations", 2, "--json")
    code, out, err = run(capsys, "infer", *sample_crop, *options, "-o", output)
    assert code == 0, err
    assert json.loads(out)["device"] == "emulated"
    assert len(device.launches) > 30
    on_cpu = stereo.Stereo("census", kernels.select("cpu"))
    expected = on_cpu.match(*sample_crop, disparities=16, iterations=2)
    difference = np.abs(read_disparity(output) - expected.disparity)
    # A tolerance for ports is 0.05 % of labels; here that is less than one pixel.
    assert (difference > 0.01).sum() <= 1


def test_weights_go_up_once(device, sample_crop):
    """The second pair moves nothing but its images."""
    loaded = stereo.Stereo("census", "cuda")
    kernels_of_layers = {layer.weight.size for layer in loaded.model.unary}
    assert kernels_of_layers <= {array.size for array in device.uploads}
    for _ in range(2):
        device.uploads.clear()
        loaded.match(*sample_crop, disparities=8, iterations=1)
        assert device.uploads
        assert not kernels_of_layers & {array.size for array in device.uploads}


def test_bench(device):
    options = bench.BenchOptions(
        width=40, height=24, disparities=(16,), layers=3, iterations=1, repeat=1, threads=1
    )
    report = bench.bench(options)
    assert report.device == "emulated"
    assert report.peaks is None  # those of the CPU say nothing here
    assert {"unary_cnn", "pairwise_cnn", "correlation", "crf"} <= set(report.runs[0].timings)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    synthesize(folder, 3, 3, SceneOptions(height=24, width=36, max_disparity=7, objects=3))
    return str(folder)


def weights_of(path):
    return {name: array.tobytes() for name, array in read_weights(path).tensors.items()}


class StopAfter(Reporter):
    """Interrupts a run like Ctrl-C."""

    def __init__(self, steps):
        self.steps = steps

    def step(self, stage, step, steps, progress, entry):
        if step == self.steps:
            signal.raise_signal(signal.SIGINT)


def test_train_and_resume(device, scenes, tmp_path):
    """Stage full trains everything that there is; a resumed run gives the same bits."""
    options = train.TrainOptions(
        "middlebury", scenes, stage="unary", layers=2, filters=4, steps=2, crop=(16, 24),
        validate_every=2, checkpoint_every=2, iterations=1, val_fraction=0.4,
    )  # fmt: skip
    train.train(options, tmp_path / "unary", device="cuda")
    full = replace(options, stage="full", init=str(tmp_path / "unary" / "best.h5"))
    model = train.train(full, tmp_path / "full", device="cuda")
    assert model.pairwise
    assert isinstance(model.unary[0].weight, np.ndarray)

    with pytest.raises(KeyboardInterrupt):
        train.train(full, tmp_path / "parts", device="cuda", reporter=StopAfter(1))
    train.train(None, tmp_path / "parts", device="cuda")
    assert weights_of(tmp_path / "parts" / "best.h5") == weights_of(tmp_path / "full" / "best.h5")
