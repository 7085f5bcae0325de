"""The benchmark: what it measures, reports, compares.  No test depends on how long it takes."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys

import cv2
import numpy as np
import pytest

from hybridstereo import kernels
from hybridstereo.bench import work as bench_work
from hybridstereo.bench.peers import PEERS, PeerUnavailableError, sgbm_peer, torch_peer
from hybridstereo.bench.report import COMPONENTS, BenchReport, Setting
from hybridstereo.bench.run import (
    SIZES,
    BenchOptions,
    bench,
    interleave,
    label_steps,
    pixel_steps,
    random_model,
    synthetic_pair,
)
from hybridstereo.bench.text import format_report
from hybridstereo.cli import cli, main
from hybridstereo.errors import DeviceError, OutOfMemoryError
from hybridstereo.kernels.backend import table

TINY = {"width": 48, "height": 32, "layers": 2, "iterations": 1, "repeat": 2}
TINY_ARGUMENTS = [str(x) for name, value in TINY.items() for x in (f"--{name}", value)]
KITTI = SIZES["kitti"]


@pytest.fixture(scope="module", autouse=True)
def small_peaks():
    """Nobody looks at the machine's peaks here, so they need not take their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_work, "_SGEMM_SIDE", 64)
        patch.setattr(bench_work, "_COPY_BYTES", 1 << 16)
        patch.setattr(bench_work, "_COPY_BYTES_PER_THREAD", 1 << 12)
        yield


@pytest.fixture(scope="module")
def report(small_peaks) -> BenchReport:
    return bench(BenchOptions(**TINY, disparities=(16, 8), compare=("sgbm",), scaling=True))


def run_cli(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["bench", *map(str, arguments)])
    captured = capsys.readouterr()
    return done.value.code or 0, captured.out, captured.err


# --- what is measured -----------------------------------------------------------------------


def test_a_size_brings_the_settings_of_the_paper():
    assert BenchOptions().settings == (Setting(1242, 375, 128, 7, 5),)
    assert BenchOptions(size="realtime").settings == (Setting(640, 480, 128, 3, 4),)


def test_options_take_precedence_over_the_size():
    options = BenchOptions("realtime", 100, 50, disparities=(32, 64, 32), layers=5, iterations=2)
    assert options.settings == (Setting(100, 50, 32, 5, 2), Setting(100, 50, 64, 5, 2))


@pytest.mark.parametrize("layers", [1, 3, 7])
def test_random_model_has_the_networks_of_the_paper(layers):
    model = random_model(layers)
    unary = [layer.weight.shape for layer in model.unary]
    assert unary == [(100, 3, 3, 3)] + [(100, 100, 2, 2)] * (layers - 1)
    assert [layer.weight.shape for layer in model.pairwise] == [
        (64, 3, 3, 3), (64, 64, 3, 3), (2, 64, 1, 1),
    ]  # fmt: skip
    assert model.pairwise[-1].bias is None
    if layers == 7:
        assert model.parameter_count == 282_248  # docs/model.md 1
    for layer in (*model.unary, *model.pairwise):
        fan_in = layer.weight[0].size
        assert layer.weight.std() * math.sqrt(fan_in) == pytest.approx(1, rel=0.15)


def test_random_model_is_the_same_every_time():
    for first, second in zip(random_model(2).unary, random_model(2).unary, strict=True):
        np.testing.assert_array_equal(first.weight, second.weight)


@pytest.mark.parametrize("size", [(1, 1), (48, 32), (7, 2100)])
def test_synthetic_pair(size):
    left, right = synthetic_pair(*size, disparities=16)
    assert left.shape == right.shape == (size[1], size[0], 3)
    assert left.dtype == np.float32
    assert 0 <= left.min() <= left.max() <= 1
    if size == (48, 32):
        assert left.std() > 0.02
        assert np.abs(left - right).max() > 0.02


def test_steps_double_up_to_the_given_size():
    pixels = [step.pixels for step in pixel_steps(KITTI)]
    assert pixels[-1] == KITTI.pixels
    np.testing.assert_allclose(np.diff(np.log2(pixels)), 1, atol=0.01)
    assert [step.disparities for step in label_steps(KITTI)] == [16, 32, 64, 128]
    assert {step.pixels for step in label_steps(KITTI)} == {KITTI.pixels}


def test_steps_of_a_single_pixel_are_one():
    tiny = Setting(1, 1, 1, 3, 5)
    assert pixel_steps(tiny) == label_steps(tiny) == (tiny,)


def test_interleave_takes_turns():
    calls, steps = [], []

    def sampler(name):
        calls.append(name)
        return {"x": float(len(calls)), "y": 0.0}

    timings = interleave({"A": lambda: sampler("A"), "B": lambda: sampler("B")}, 3, steps.append)
    assert "".join(calls) == "ABABAB"
    assert steps[:2] == ["repeat 1 of 3: A", "repeat 1 of 3: B"]
    assert timings["A"]["x"].samples == (1, 3, 5)
    assert timings["B"]["x"].median == 4
    assert timings["B"]["x"].spread == (2, 6)
    assert timings["B"]["y"].median == 0


# --- the report -----------------------------------------------------------------------------


def test_report_has_every_component(report):
    names = ["input", "pairwise_cnn", "unary_cnn", "correlation", "crf", "total"]
    stored = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert [x["name"] for x in stored["components"]] == names
    for component in stored["components"]:
        assert len(component["samples"]) == 2
        assert component["seconds"] == statistics.median(component["samples"])
        assert 0 < component["min"] <= component["seconds"] <= component["max"]
        assert component["gbyte_per_second"] > 0
        assert component["share_of_copy"] > 0
        assert (component["gflop_per_second"] is None) == (component["name"] == "input")
        assert (component["share_of_sgemm"] is None) == (component["name"] == "input")
        assert component["titan_x_seconds"] is None
    for repeat in range(2):
        *stages, total = (x["samples"][repeat] for x in stored["components"])
        assert sum(stages) <= total


def test_report_of_several_disparities(report):
    stored = report.as_dict()
    assert [run["disparities"] for run in stored["runs"]] == [16, 8]
    assert stored["components"] == stored["runs"][0]["components"]
    assert (stored["width"], stored["height"], stored["disparities"]) == (48, 32, 16)
    assert (stored["layers"], stored["iterations"], stored["repeat"]) == (2, 1, 2)
    assert stored["threads"] == kernels.max_threads()
    assert stored["device"] == "cpu"
    assert stored["peaks"]["gflop_per_second"] > 0
    memory = [run["memory"] for run in stored["runs"]]
    assert [x["volume_bytes"] for x in memory] == [4 * 48 * 32 * 16, 4 * 48 * 32 * 8]
    # Small settings are warmed up first, because a process's peak never falls.
    assert memory[0]["peak_bytes"] >= memory[1]["peak_bytes"] > 0
    assert memory[0]["estimated_bytes"] > memory[0]["volume_bytes"]


def test_report_of_a_comparison(report):
    for run in report.as_dict()["runs"]:
        assert [x["component"] for x in run["comparisons"]] == ["crf", "total"]
        seconds = {x["name"]: x["seconds"] for x in run["components"]}
        for comparison in run["comparisons"]:
            assert comparison["peer"] == "sgbm"
            assert len(comparison["peer_samples"]) == 2
            assert comparison["seconds"] == seconds[comparison["component"]]
            ratio = comparison["seconds"] / comparison["peer_seconds"]
            assert comparison["ratio"] == pytest.approx(ratio)
            assert comparison["speedup"] == pytest.approx(1 / ratio)


def test_report_of_the_scaling(report):
    scaling = report.as_dict()["scaling"]
    assert [x["disparities"] for x in scaling["disparities"]["steps"]] == [2, 4, 8, 16]
    assert [x["width"] * x["height"] for x in scaling["pixels"]["steps"]] == [187, 384, 782, 1536]
    for curve in scaling.values():
        assert curve["exponents"].keys() == COMPONENTS.keys() - {"pyramid"}
        seconds = [step["seconds"]["crf"] for step in curve["steps"]]
        assert seconds[-1] == report.runs[0].timings["crf"].median  # measured once, used twice


def test_a_pyramid_is_timed_by_itself(capsys):
    code, out, _ = run_cli(
        capsys, *TINY_ARGUMENTS, "--disparities", 8, "--pyramid", 2, "--repeat", 1, "--json"
    )
    assert code == 0
    shown = json.loads(out)
    assert shown["pyramid"] == 2
    assert [x["name"] for x in shown["components"]] == list(COMPONENTS)
    seconds = {x["name"]: x["seconds"] for x in shown["components"]}
    assert 0 < seconds["pyramid"] < seconds["total"]


def test_text_of_the_scaling(report):
    text = format_report(report)
    assert "ms, by pixels" in text
    assert "ms, by disparities" in text
    assert text.count("exponent") == 2


def test_without_peaks(monkeypatch):
    """A device whose peaks are not measured has rates, but no shares."""
    other = table({**vars(kernels.select("cpu")), "name": "other"})
    monkeypatch.setattr("hybridstereo.bench.run.open_backend", lambda device: other)
    report = bench(BenchOptions(**TINY, disparities=(8,)))
    stored = report.as_dict()
    assert stored["peaks"] is None
    assert stored["components"][-1]["share_of_copy"] is None
    assert stored["components"][-1]["gflop_per_second"] > 0
    text = format_report(report)
    assert "SGEMM" not in text
    assert "GFLOP/s" in text


# --- peers ----------------------------------------------------------------------------------


def test_missing_torch_is_said_and_the_rest_goes_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    report = bench(BenchOptions(**TINY, disparities=(8,), compare=("sgbm", "torch")))
    assert "not installed" in report.unavailable["torch"]
    assert "pip install torch" in report.unavailable["torch"]
    assert report.unavailable["torch"] in format_report(report)
    assert {x.peer.name for x in report.runs[0].comparisons} == {"sgbm"}


def test_broken_torch_is_said(monkeypatch):
    def fail(name):
        raise ImportError("libtorch.so: cannot open shared object file", name="torch._C")

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(PeerUnavailableError, match=r"libtorch\.so"):
        torch_peer(random_model(2), kernels.select("cpu"), *synthetic_pair(16, 8, 4), 1)


def test_torch_computes_the_same_network():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    peer = torch_peer(random_model(3), kernels.select("cpu"), *synthetic_pair(40, 24, 4), 1)
    assert peer.difference < 1e-5
    assert peer.run() > 0
    assert torch.get_num_threads() == threads


def test_sgbm_rounds_the_disparities_and_leaves_the_threads_alone():
    threads = cv2.getNumThreads()
    peer = sgbm_peer(*synthetic_pair(64, 32, 17), 17, 1)
    assert "32 disparities" in peer.label
    assert peer.run() > 0
    assert cv2.getNumThreads() == threads


def test_sgbm_needs_room_for_its_disparities():
    with pytest.raises(PeerUnavailableError, match="20 columns"):
        sgbm_peer(*synthetic_pair(20, 16, 16), 16, 1)
    report = bench(BenchOptions(**{**TINY, "width": 20}, disparities=(8,), compare=("sgbm",)))
    assert "too narrow" in report.unavailable["sgbm"]


# --- the command ----------------------------------------------------------------------------


def test_command_prints_json_and_draws(capsys, tmp_path):
    plot = tmp_path / "bench.png"
    code, out, err = run_cli(
        capsys, *TINY_ARGUMENTS, "--disparities", "8,16", "--json", "--plot", plot,
        "--threads", 1, "--device", "cpu",
    )  # fmt: skip
    assert code == 0, err
    stored = json.loads(out)
    assert [run["disparities"] for run in stored["runs"]] == [8, 16]
    assert stored["threads"] == 1
    assert stored["plot"] == str(plot)
    assert cv2.imread(str(plot)).shape[1] == 1200


def test_command_prints_a_table(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run_cli(capsys, *TINY_ARGUMENTS, "--disparities", 8, "--compare", "torch,sgbm")
    assert (code, err) == (0, "")
    for name, label in COMPONENTS.items():
        assert (f"\n{label}" in out) == (name != "pyramid")
    assert "PyTorch is left out: it is not installed." in out
    assert "SGBM" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--width", "64"],
        ["--size", "kitti", "--width", "64", "--height", "48"],
        ["--size", "vga"],
        ["--disparities", "0"],
        ["--disparities", "64,many"],
        ["--disparities", "64,"],
        ["--layers", "0"],
        ["--repeat", "0"],
        ["--compare", "sgbm,stereo"],
        ["--pairs", "0"],
        ["--root", "somewhere"],
        ["--root", "synthetic", "--layers", "3"],
        ["--root", "synthetic", "--scaling"],
        ["--limit", "3"],
        ["--model", "census"],
    ],
)
def test_wrong_usage(capsys, arguments):
    code, out, err = run_cli(capsys, *arguments)
    assert (code, out) == (2, "")
    assert "Usage: hstereo bench" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cuda"], "--device cpu"),
        (["--threads", "100000"], "NUMBA_NUM_THREADS"),
        (["--width", "65536", "--height", "65536", "--disparities", "65536"], "memory"),
        (["--plot", "no/such/folder/plot.png"], "no/such/folder"),
        (["--plot", "plot.xyz"], ".png"),
    ],
)
def test_failures_are_one_sentence_before_any_work(capsys, monkeypatch, arguments, words):
    if arguments == ["--device", "cuda"]:
        status = kernels.DeviceUnavailableError("there is none", "Use --device cpu")

        def unavailable(device):
            raise status

        monkeypatch.setattr(kernels, "select", unavailable)
    monkeypatch.setattr("hybridstereo.bench.run.generate_scene", None)
    code, out, err = run_cli(capsys, *TINY_ARGUMENTS, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("hstereo: ")
    assert len(err.strip().splitlines()) == 1
    assert words in err


def test_library_failures_are_typed(monkeypatch):
    def unavailable(device):
        raise kernels.DeviceUnavailableError("there is none", "Use --device cpu")

    with pytest.raises(OutOfMemoryError):
        bench(BenchOptions(**{**TINY, "width": 65536, "height": 65536}, disparities=(8, 65536)))
    monkeypatch.setattr(kernels, "select", unavailable)
    with pytest.raises(DeviceError):
        bench(BenchOptions(**TINY, device="cuda"))


def test_choices_of_the_command_are_those_of_the_library():
    command = cli.commands["bench"]
    size = next(x for x in command.params if x.name == "size")
    assert size.type.choices == type(size.type.choices)(SIZES)
    compare = next(x for x in command.params if x.name == "compare")
    assert compare.type.convert(",".join(PEERS), compare, None) == PEERS
    for name, setting in SIZES.items():
        assert f"{name} {setting.width}x{setting.height}" in size.help


def test_help_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from hybridstereo.cli import cli\n"
        "try: cli.main(['bench', '--help'])\n"
        "except SystemExit: pass\n"
        "print([x for x in ('numpy', 'numba', 'cv2', 'h5py', 'torch') if x in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--scaling" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
