"""`infer`, `train` and `bench` on the CUDA backend, in the PTX emulator: ``pytest -m emulator``."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

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
    with cuda_emulator.emulated(timing=False, races=False, global_races=False) as emulated:
        backend = kernels.bound_backend(emulated)
        for module in (stereo, train, bench):
            monkeypatch.setattr(module, "open_backend", lambda device: backend)
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


def test_confidence(device, sample_crop):
    """Probabilities and the left-right check are those of the CPU, where the maps are."""
    options = {"disparities": 12, "iterations": 2, "confidence": True}
    found = stereo.Stereo("census", "cuda").match(*sample_crop, **options)
    expected = stereo.Stereo("census", kernels.select("cpu")).match(*sample_crop, **options)
    assert (np.abs(found.disparity - expected.disparity) > 0.01).mean() < 0.005
    assert (found.validity != expected.validity).mean() < 0.005
    assert (np.abs(found.confidence - expected.confidence) > 1e-3).mean() < 0.01
    assert np.ptp(expected.confidence) > 0.3


def test_many_pairs(device, sample_crop, tmp_path, capsys, monkeypatch):
    """Two at a time, with the maps of one alone; a pair that fails stops no other."""
    allocated, allocate = [], cuda_emulator.EmulatedDevice.allocate

    def counted(queue, size, dtype):
        allocated.append(queue)
        return allocate(queue, size, dtype)

    monkeypatch.setattr(cuda_emulator.EmulatedDevice, "allocate", counted)
    folders = tmp_path / "left", tmp_path / "right"
    for folder, path in zip(folders, sample_crop, strict=True):
        folder.mkdir()
        content = Path(path).read_bytes()
        for name in "abcdef":
            (folder / f"{name}.png").write_bytes(content[:90] if name == "c" else content)
    options = {"disparities": 8, "iterations": 1}
    given = ("--model", "census", "--disparities", 8, "--iterations", 1, "--no-check")
    maps = tmp_path / "maps"
    code, _, err = run(capsys, "infer", *folders, "--out-dir", maps, "-o", "{name}.npy", *given)
    assert code == 3, err
    alone = stereo.Stereo("census", "cuda")
    expected = alone.match(*sample_crop, **options).disparity
    assert sorted(x.stem for x in maps.glob("*.npy")) == list("abdef")
    for path in maps.glob("*.npy"):
        np.testing.assert_array_equal(read_disparity(path), expected)
    # Weights are where the model was loaded; a frame takes the memory of the one before.
    queues = device.queues[1:]
    assert len(queues) == 2
    kernels_of_layers = {layer.weight.size for layer in alone.model.unary}
    for queue in queues:
        assert queue.launches
        assert not kernels_of_layers & {array.size for array in queue.uploads}
    for_one_frame = allocated.count(queues[0])
    assert allocated.count(queues[1]) == for_one_frame
    with alone.backend.own_queue():
        alone.match(*sample_crop, **options)
    assert [allocated.count(queue) for queue in queues] == 2 * [for_one_frame]


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
