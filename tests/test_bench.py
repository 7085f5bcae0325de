"""The benchmark: what it counts, what it reports, how it fails.  No test depends on a time."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys

import cv2
import numpy as np
import pytest

from hybridstereo import bench_work, kernels
from hybridstereo.bench import (
    SIZES,
    BenchOptions,
    bench,
    interleave,
    label_steps,
    pixel_steps,
    random_model,
    synthetic_pair,
)
from hybridstereo.bench_peers import PEERS, Peer, PeerUnavailableError, sgbm_peer, torch_peer
from hybridstereo.bench_report import (
    COMPONENTS,
    BenchReport,
    Comparison,
    Run,
    Scaling,
    Setting,
    Timing,
    growth_exponent,
    paper_seconds,
)
from hybridstereo.bench_text import draw_report, format_report
from hybridstereo.bench_work import MachinePeaks, Peaks, count_work
from hybridstereo.cli import cli, main
from hybridstereo.errors import DeviceError, OutOfMemoryError
from hybridstereo.plots import Bar, bar_chart, ticks

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


def invented_report(*settings: Setting, seconds: float = 0.1) -> BenchReport:
    """A report in which component i of every run takes (i + 1) * seconds."""
    runs = []
    for setting in settings:
        timings = {
            name: Timing((0.9 * t, t, 1.2 * t))
            for name, t in zip(COMPONENTS, seconds * np.arange(1, 7), strict=True)
        }
        size = setting.height, setting.width, setting.disparities, setting.iterations
        work = count_work(random_model(setting.layers), *size)
        peer = Peer("sgbm", "SGBM", ("crf", "total"), lambda: 0.0)
        compared = tuple(
            Comparison(peer, name, timings[name], Timing((2 * seconds,)))
            for name in peer.components
        )
        runs.append(Run(setting, timings, work, 3 << 20, 2 << 20, compared))
    return BenchReport(tuple(runs), 3, "cpu", 2, Peaks(200e9, 20e9))


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
        assert model.parameter_count == 282_248  # SPEC 1
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


# --- what is counted ------------------------------------------------------------------------


def test_operations_of_the_networks():
    """A literal count of multiplications and additions, pixel by pixel of the output."""
    height, width = 3, 4
    work = count_work(random_model(2), height, width, labels=8, iterations=1)
    first = 2 * 3 * 3 * 3 * 100 * (height + 1) * (width + 1)
    second = 2 * 2 * 2 * 100 * 100 * height * width
    assert work["unary_cnn"].flop == 2 * (first + second)
    # 3x3, 3x3 and 1x1 layers: 7x8 pixels of 3 channels -> 5x6 of 64 -> 3x4 of 64 -> 3x4 of 2
    sizes = [7 * 8 * 3, 5 * 6 * 64, 3 * 4 * 64, 3 * 4 * 2]
    pairwise = 2 * (9 * 3 * sizes[1] + 9 * 64 * sizes[2] + 64 * sizes[3])
    assert work["pairwise_cnn"].flop == pairwise
    assert work["pairwise_cnn"].bytes == 4 * (sum(sizes[:-1]) + sum(sizes[1:]))


@pytest.mark.parametrize(("layers", "kilo_macs"), [(3, 82.7), (7, 242.7)])
def test_operations_agree_with_the_specification(layers, kilo_macs):
    work = count_work(random_model(layers), 375, 1242, labels=256, iterations=5)
    per_pixel = work["unary_cnn"].flop / 2 / 2 / KITTI.pixels
    assert per_pixel == pytest.approx(1e3 * kilo_macs, rel=0.02)  # borders of the layers
    assert work["correlation"].flop == 2 * 100 * 256 * KITTI.pixels
    assert work["correlation"].bytes == 4 * (200 + 256) * KITTI.pixels
    assert work["crf"].flop == pytest.approx(6e10, rel=0.05)  # SPEC 6.7
    assert work["crf"].bytes == pytest.approx(14e9, rel=0.03)
    assert work["input"].flop is None
    assert work["total"].flop == sum(x.flop or 0 for k, x in work.items() if k != "total")
    assert work["total"].bytes == sum(x.bytes for k, x in work.items() if k != "total")


def test_peaks_are_positive_rates():
    machine = MachinePeaks(threads=1)
    sample = machine.sample()
    assert sample.keys() == {"sgemm", "copy"}
    assert min(sample.values()) > 0
    peaks = machine.best(sgemm_seconds=1e-3, copy_seconds=1e-3)
    assert peaks.flop_rate == pytest.approx(2 * 64**3 / 1e-3)
    assert peaks.byte_rate == pytest.approx(2 * (1 << 16) / 1e-3)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5])
def test_growth_exponent_of_a_power(exponent):
    sizes = [1000, 2000, 4000, 8000]
    assert growth_exponent(sizes, [3e-4 * n**exponent for n in sizes]) == pytest.approx(exponent)


def test_growth_exponent_is_the_least_squares_slope(rng):
    sizes = [16, 32, 64, 128, 256]
    seconds = np.asarray(sizes) ** 1.1 * np.exp(0.1 * rng.standard_normal(5))
    expected = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    assert growth_exponent(sizes, seconds) == pytest.approx(expected)


def test_growth_exponent_needs_two_sizes():
    assert growth_exponent([64], [0.1]) is None


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
        assert curve["exponents"].keys() == COMPONENTS.keys()
        seconds = [step["seconds"]["crf"] for step in curve["steps"]]
        assert seconds[-1] == report.runs[0].timings["crf"].median  # measured once, used twice


def test_exponents_come_from_the_steps():
    runs = tuple(
        Run(Setting(n, 10, 8, 3, 5), {c: Timing((n**2.0,)) for c in COMPONENTS}, {}, None, 0)
        for n in (10, 20, 40)
    )
    scaling = Scaling("pixels", runs)
    assert scaling.sizes == [100, 200, 400]
    assert scaling.exponents == pytest.approx(dict.fromkeys(COMPONENTS, 2.0))


def test_paper_is_quoted_for_its_own_settings_only():
    assert paper_seconds(KITTI) == pytest.approx(
        {
            "input": 0.0076, "pairwise_cnn": 0.021, "unary_cnn": 0.262,
            "correlation": 0.155, "crf": 0.309, "total": 0.7546,
        }
    )  # fmt: skip
    assert paper_seconds(Setting(1242, 375, 256, 7, 5))["crf"] == pytest.approx(0.605)
    assert paper_seconds(SIZES["realtime"]) == pytest.approx({"total": 0.285})
    for other in ((1242, 375, 64, 7, 5), (1242, 375, 128, 3, 5), (1242, 375, 128, 7, 4)):
        assert paper_seconds(Setting(*other)) == {}


def test_text_has_every_row_and_the_paper():
    text = format_report(invented_report(KITTI, seconds=0.1))
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    for index, label in enumerate(COMPONENTS.values(), start=1):
        median, low, _, high = rows[label][len(label.split()) :][:4]
        assert float(median) == pytest.approx(100 * index)
        assert (float(low), float(high)) == pytest.approx((90 * index, 120 * index))
    assert rows["CRF"][-1] == "309.0"
    assert rows["total"][-1] == "754.6"
    assert "0.80 times its 754.6 ms on a GTX Titan X" in text
    # 242.7 kMAC per pixel and image (SPEC 3) in 0.3 s, beside 200 GFLOP/s
    rate = 2 * 2 * 242.7e3 * KITTI.pixels / 0.3 / 1e9
    assert float(rows["Unary-CNN"][5]) == pytest.approx(rate, rel=0.02)
    assert float(rows["Unary-CNN"][6].rstrip("%")) == pytest.approx(100 * rate / 200, rel=0.02)
    assert rows["peak, measured"] == ["peak,", "measured", "200.0", "20.0"]
    assert "3.0 MB at the peak" in text


def test_text_without_a_match_leaves_the_paper_out():
    text = format_report(invented_report(Setting(64, 48, 16, 3, 5)))
    assert "Titan X" not in text
    assert "CRF" in text


def test_text_of_a_comparison_says_who_is_faster():
    text = format_report(invented_report(KITTI))
    assert "2.50x slower" in text  # CRF 500 ms, SGBM 200 ms
    text = format_report(bench(BenchOptions(**TINY, disparities=(8,))))
    assert "slower" not in text


def test_text_of_the_scaling(report):
    text = format_report(report)
    assert "ms, by pixels" in text
    assert "ms, by disparities" in text
    assert text.count("exponent") == 2


def test_without_peaks(monkeypatch):
    """A device whose peaks are not measured has rates, but no shares."""
    import dataclasses

    other = dataclasses.replace(kernels.select("cpu"), name="other")
    monkeypatch.setattr("hybridstereo.bench.choose_backend", lambda device, threads: other)
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


# --- the picture ----------------------------------------------------------------------------


def test_bars_are_as_long_as_their_values():
    picture = bar_chart("t", "s", {"a": [Bar("x", 10.0)], "b": [Bar("x", 40.0)]}, "ms")
    assert picture.dtype == np.uint8
    blue = (picture == (0, 114, 178)).all(axis=2)
    # Rows of the legend, of the first and of the second bar have 12, n and 4n blue pixels.
    lengths = {length for length in blue.sum(axis=1) if length > 12}
    assert max(lengths) == pytest.approx(4 * min(lengths), rel=0.02)
    assert max(lengths) > 800


def test_reference_series_are_grey():
    groups = {"a": [Bar("quoted", 10.0), Bar("measured", 20.0)]}
    picture = bar_chart("t", "s", groups, "ms", {"quoted"})
    assert (picture == (150, 150, 150)).all(axis=2).sum() > 1000
    assert (picture == (0, 114, 178)).all(axis=2).sum() > 2000


@pytest.mark.parametrize("largest", [0.003, 1.0, 8.0, 99.0, 5301.0])
def test_ticks_are_few_and_reach_the_end(largest):
    marks = ticks(largest)
    assert 3 <= len(marks) <= 9
    assert marks[0] == 0
    assert marks[-2] < largest <= marks[-1] * (1 + 1e-9)


def test_picture_of_a_report():
    one = draw_report(invented_report(KITTI))
    two = draw_report(invented_report(KITTI, Setting(1242, 375, 256, 7, 5)))
    assert one.shape[1] == two.shape[1] == 1200
    assert two.shape[0] > one.shape[0]  # more bars
    background = (two == 255).all(axis=2).mean()
    assert 0.4 < background < 0.95
    # Nothing is cut off at the border.
    border = np.concatenate([two[:20].ravel(), two[-20:].ravel(), two[:, -12:].ravel()])
    assert (border == 255).all()
    # The second colour: SGBM in one picture, the bars for 256 disparities in the other.
    second = [(picture == (230, 159, 0)).all(axis=2).sum() for picture in (one, two)]
    assert 0 < 3 * second[0] < second[1]


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
    for label in COMPONENTS.values():
        assert f"\n{label}" in out
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
        ["--compare", "sgbm,elas"],
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
        (["--disparities", "1000000000"], "memory"),
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
    monkeypatch.setattr("hybridstereo.bench.generate_scene", None)
    code, out, err = run_cli(capsys, *TINY_ARGUMENTS, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("hstereo: ")
    assert len(err.strip().splitlines()) == 1
    assert words in err


def test_library_failures_are_typed(monkeypatch):
    def unavailable(device):
        raise kernels.DeviceUnavailableError("there is none", "Use --device cpu")

    with pytest.raises(OutOfMemoryError):
        bench(BenchOptions(**TINY, disparities=(8, 10**9)))
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
