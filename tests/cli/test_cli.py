"""The command line as a shell user meets it: exit codes, streams, one sentence per failure."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import cv2
import numpy as np
import pytest
from support.commands import assert_one_sentence, run

from hybridstereo import cli as cli_module
from hybridstereo.cli import cli
from hybridstereo.io.disparity import read_disparity, write_disparity
from hybridstereo.kernels.cuda.cudalib import probe


def shell(*arguments, **options) -> subprocess.CompletedProcess:
    code = "from hybridstereo.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, **options
    )


@pytest.fixture
def pair(tmp_path, rng):
    left = rng.integers(0, 256, (24, 40, 3), np.uint8)
    left = cv2.GaussianBlur(left, (0, 0), 1)
    paths = [tmp_path / "left.png", tmp_path / "right.png"]
    for path, image in zip(paths, (left, np.roll(left, -3, axis=1)), strict=True):
        cv2.imwrite(str(path), image)
    return paths


# --- what works -----------------------------------------------------------------------------


def test_defaults_write_map_and_picture_here(capsys, pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "infer", *pair, "--disparities", 8)
    assert code == 0
    assert out.split() == ["left_disparity.pfm", "left_disparity.png"]
    disparity = read_disparity(tmp_path / "left_disparity.pfm")
    assert np.median(disparity) == pytest.approx(3, abs=0.3)
    assert (tmp_path / "left_disparity.png").stat().st_size > 100


def test_output_alone_makes_no_picture(capsys, pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "infer", *pair, "--disparities", 8, "-o", "d.npy")
    assert (code, out.split()) == (0, ["d.npy"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.npy", "left.png", "right.png"]


def test_json_is_one_object(capsys, pair, tmp_path):
    code, out, _ = run(
        capsys, "infer", *pair, "--disparities", 8, "-o", tmp_path / "d.pfm", "--json",
        "--min-disparity", -2, "--step", 0.5, "--iterations", 2, "--threads", 1, "--device", "cpu",
    )  # fmt: skip
    report = json.loads(out)
    assert code == 0
    assert report["labels"] == {
        "count": 8, "min_disparity": -2.0, "max_disparity": 1.5, "step": 0.5,
        "from": "caller", "at_ends": report["labels"]["at_ends"],
    }  # fmt: skip
    assert len(report["lower_bounds"]) == 2
    assert report["threads"] == 1


def test_pipeline_reads_stdin_and_writes_stdout(pair):
    done = shell("infer", "-", pair[1], "--disparities", 8, "-o", "-", input=pair[0].read_bytes())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"Pf\n40 24\n-1.0\n")
    assert len(done.stdout) == len(b"Pf\n40 24\n-1.0\n") + 24 * 40 * 4


@pytest.mark.parametrize("kind", ["grey", "grey16", "rgb16", "rgba", "jpeg", "tiff", "ppm"])
def test_image_kinds(capsys, tmp_path, rng, kind):
    left = cv2.GaussianBlur(rng.integers(0, 256, (24, 40, 3), np.uint8), (0, 0), 1)
    suffix = {"jpeg": ".jpg", "tiff": ".tif", "ppm": ".ppm"}.get(kind, ".png")
    paths = []
    for name, image in (("l", left), ("r", np.roll(left, -3, axis=1))):
        if "grey" in kind:
            image = image[..., 0]
        if "16" in kind:
            image = image.astype(np.uint16) * 257
        if kind == "rgba":
            image = np.dstack([image, np.full(image.shape[:2], 255, np.uint8)])
        paths.append(tmp_path / (name + suffix))
        cv2.imwrite(str(paths[-1]), image)
    code, _, err = run(capsys, "infer", *paths, "--disparities", 8, "-o", tmp_path / "d.npy")
    assert code == 0, err
    assert np.median(np.load(tmp_path / "d.npy")) == pytest.approx(3, abs=0.3)


def test_info(capsys):
    code, out, _ = run(capsys, "info")
    assert code == 0
    words = ["hybridstereo", "numba", "threads", "memory", "cuda"]
    for word in [*words, "general (default)", "trained on", "census"]:
        assert word in out
    code, out, _ = run(capsys, "info", "--json")
    info = json.loads(out)
    assert info["models"]["general"]["default"] is True
    assert info["models"]["general"]["validation"]
    assert info["cuda"]["usable"] or (info["cuda"]["reason"] and info["cuda"]["fix"])


def test_synth(capsys, tmp_path):
    code, out, _ = run(
        capsys, "synth", tmp_path / "s", "--count", 2, "--width", 40, "--height", 30,
        "--max-disparity", 12, "--photometric",
    )  # fmt: skip
    assert code == 0
    assert len(out.split()) == 2
    for scene in map(Path, out.split()):
        assert {"im0.png", "im1.png", "disp0GT.pfm", "calib.txt"} <= {
            p.name for p in scene.iterdir()
        }


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert (code, out.split()[0]) == (0, "hstereo,")


# --- what users get wrong -------------------------------------------------------------------


def test_missing_file(capsys, pair, tmp_path):
    assert_one_sentence(*run(capsys, "infer", "nowhere.png", pair[1]), "nowhere.png")


def test_folder_instead_of_image(capsys, pair, tmp_path):
    assert_one_sentence(*run(capsys, "infer", tmp_path, pair[1]), "folder")


def test_sizes_differ(capsys, pair, tmp_path):
    cv2.imwrite(str(tmp_path / "small.png"), np.zeros((10, 12, 3), np.uint8))
    assert_one_sentence(*run(capsys, "infer", pair[0], tmp_path / "small.png"), "40x24", "12x10")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".ppm"])
def test_truncated_image(capsys, pair, tmp_path, suffix):
    whole = cv2.imencode(suffix, cv2.imread(str(pair[0])))[1].tobytes()
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    assert_one_sentence(*run(capsys, "infer", path, pair[1]), f"cut{suffix}")


def test_no_image_at_all(capsys, pair, tmp_path):
    (tmp_path / "text.png").write_text("not an image")
    assert_one_sentence(*run(capsys, "infer", tmp_path / "text.png", pair[1]), "text.png")


def test_nan_in_a_float_image(capsys, pair, tmp_path):
    image = np.full((24, 40), 0.5, np.float32)
    image[3, 4] = np.nan
    cv2.imwrite(str(tmp_path / "nan.tif"), image)
    assert_one_sentence(*run(capsys, "infer", tmp_path / "nan.tif", pair[1]), "nan.tif")


def test_both_from_stdin(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert_one_sentence(*run(capsys, "infer", "-", "-", "-o", "x.pfm"))


def test_too_many_disparities(capsys, pair, monkeypatch):
    monkeypatch.setattr("hybridstereo.memory.available_memory", lambda: 1 << 28)
    assert_one_sentence(
        *run(capsys, "infer", *pair, "--disparities", 65536, "-o", "x.pfm"),
        "memory",
        "Use at most --disparities ",
    )


def test_out_of_memory_in_the_middle(capsys, pair, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("hybridstereo.stereo.Stereo.match", fail)
    result = run(capsys, "infer", *pair, "-o", tmp_path / "d.pfm")
    assert_one_sentence(*result, "memory")
    assert not (tmp_path / "d.pfm").exists()


@pytest.mark.skipif(probe().usable, reason="there is a GPU")
def test_no_cuda(capsys, pair):
    assert_one_sentence(*run(capsys, "infer", *pair, "--device", "cuda"), "--device cpu")


def test_unknown_model(capsys, pair):
    assert_one_sentence(*run(capsys, "infer", *pair, "--model", "best"), "census")


def test_run_folder_as_model(capsys, pair, tmp_path):
    from hybridstereo.models.zoo import BEST_MODEL, load_model, save_model

    (tmp_path / "run").mkdir()
    arguments = ["infer", *pair, "--disparities", 8, "-o", tmp_path / "d.npy", "--model"]
    assert_one_sentence(*run(capsys, *arguments, tmp_path / "run"), "run", BEST_MODEL)
    save_model(tmp_path / "run" / BEST_MODEL, load_model("census"))
    code, _, err = run(capsys, *arguments, tmp_path / "run")
    assert code == 0, err


def test_damaged_model(capsys, pair, tmp_path):
    from hybridstereo.models.zoo import load_model, save_model

    save_model(tmp_path / "m.h5", load_model("census"))
    whole = (tmp_path / "m.h5").read_bytes()
    (tmp_path / "m.h5").write_bytes(whole[: len(whole) // 3])
    assert_one_sentence(*run(capsys, "infer", *pair, "--model", tmp_path / "m.h5"), "m.h5")


def test_unknown_suffix(capsys, pair):
    assert_one_sentence(*run(capsys, "infer", *pair, "-o", "map.xyz"), ".pfm")


def test_folder_of_output_is_missing(capsys, pair):
    assert_one_sentence(*run(capsys, "infer", *pair, "-o", "no/such/map.pfm"), "no/such")


def test_convert_of_nothing(capsys, tmp_path):
    result = run(capsys, "convert", tmp_path / "params.npz", "-o", tmp_path / "m.h5")
    assert_one_sentence(*result, "params.npz")


def test_synth_with_an_impossible_range(capsys, tmp_path):
    result = run(capsys, "synth", tmp_path, "--min-disparity", 9, "--max-disparity", 8)
    assert_one_sentence(*result, "disparity range 9.0 to 8.0")


@pytest.mark.parametrize(
    "arguments",
    [
        ["infer"],
        ["infer", "a.png"],
        ["infer", "a.png", "b.png", "--disparities", "0"],
        ["infer", "a.png", "b.png", "--disparities", "1000000000"],
        ["infer", "a.png", "b.png", "--step", "0"],
        ["infer", "a.png", "b.png", "--step", "inf"],
        ["infer", "a.png", "b.png", "--min-disparity", "nan"],
        ["infer", "a.png", "b.png", "--volume-scale", "nan"],
        ["infer", "a.png", "b.png", "--iterations", "1000000000"],
        ["train", "csv", "--gamma", "nan"],
        ["train", "csv", "--lr", "inf"],
        ["synth", "scenes", "--width", "0"],
        ["infer", "a.png", "b.png", "--method", "magic"],
        ["infer", "a.png", "b.png", "--json", "-o", "-"],
        ["infer", "a.png", "b.png", "--nonsense"],
        ["nonsense"],
        [],
    ],
)
def test_usage_errors_exit_with_2(capsys, arguments):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert "Usage: hstereo" in err


def test_ctrl_c_exits_with_130(capsys, pair, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("hybridstereo.stereo.Stereo.match", interrupt)
    code, out, err = run(capsys, "infer", *pair, "-o", "x.pfm")
    assert (code, out, err.strip()) == (130, "", "hstereo: interrupted")


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_sigint_leaves_nothing_behind(tmp_path):
    """A real signal to a real process, while it waits for its image."""
    # A shell starts its background jobs with the signal ignored, and so may whoever runs the tests.
    handle = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{handle}; from hybridstereo.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "infer", "-", "-o", str(tmp_path / "d.pfm"), "right.png"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["info", "--help"])
def test_a_reader_that_goes_away_is_no_mistake(command):
    """`hstereo ... | head -c 1` ends in silence."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hybridstereo", *command.split()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.close()
    assert process.communicate()[1] == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("--help", ""),
        ("--help", "1"),
        ("--version", ""),
        ("info", ""),
        # Quietly, since kernels may have to be compiled, which it would say.
        ("infer {} {} -o - --method argmax --disparities 4 -q", ""),
    ],
)
def test_output_that_cannot_be_written(pair, command, unbuffered):
    """Whether Python notices while it prints or not before it ends."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hybridstereo", *command.format(*pair).split()],
            stdout=full, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert_one_sentence(done.returncode, "", done.stderr, "No space left on device")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("command", "code"), [("info", 0), ("nonsense", 2), ("cache --clear", 1)])
def test_messages_that_cannot_be_written(command, code, tmp_path):
    """There is no way to say it then, but the exit code says as much."""
    (tmp_path / "file").touch()
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hybridstereo", *command.split()],
            stdout=subprocess.DEVNULL, stderr=full,
            env={**os.environ, "HSTEREO_CACHE_DIR": str(tmp_path / "file")},
        )  # fmt: skip
    assert done.returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_messages_that_cannot_be_written_stop_no_work(pair, tmp_path, monkeypatch, capsys):
    output = tmp_path / "map.pfm"
    output.touch()
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        code, out, _ = run(capsys, "infer", *pair, "--model", "census", "-o", output)
        assert sys.stderr is full
    assert (code, out) == (0, f"{output}\n")
    assert read_disparity(output).shape == (24, 40)


def test_a_failure_that_nobody_explained_is_a_sentence(capsys, pair, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(5, "Input/output error", "disk.img")

    monkeypatch.setattr("hybridstereo.stereo.Stereo.match", fail)
    result = run(capsys, "infer", *pair, "-o", "x.pfm")
    assert_one_sentence(*result, "disk.img: Input/output error.")


LONG = "a" * 300


@pytest.mark.parametrize(
    "command",
    [
        "infer LONG.png RIGHT -o x.pfm",
        "infer LEFT LONG.png -o x.pfm",
        "infer LEFT RIGHT -o LONG.pfm",
        "infer LEFT RIGHT -o x.pfm --color LONG.png",
        "infer LEFT RIGHT -o x.pfm --save-volume LONG.npy",
        "infer LEFT -o x.pfm --volume LONG.npy",
        "infer LEFT RIGHT -o x.pfm --model LONG",
        "infer LEFT RIGHT -o x.pfm --model LONG.h5",
        "convert LONG.npz -o m.h5",
        "convert LONG -o m.h5",
        "synth LONG",
        "train --resume -o LONG",
        "train kitti --root LONG",
        "train middlebury --root LONG",
        "train csv --root LONG",
        "eval LONG.pfm LONG.pfm",
        "eval LONG.png LONG.png",
        "eval --pred LONG --gt LONG",
        "eval csv --root LONG",
        "eval synthetic --report LONG",
        "eval synthetic --model LONG",
        "eval synthetic --pred LONG",
        "eval --submission kitti x --root LONG",
        "eval --submission middlebury x --root LONG",
        "bench --plot LONG.png",
    ],
)
def test_names_that_are_too_long(capsys, pair, tmp_path, monkeypatch, command):
    """The library says so itself: its users see no OSError either."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_module, "_explain", lambda error: pytest.fail(repr(error)))
    names = {"LONG": LONG, "LEFT": str(pair[0]), "RIGHT": str(pair[1])}
    words = [re.sub("|".join(names), lambda name: names[name[0]], x) for x in command.split()]
    assert_one_sentence(*run(capsys, *words))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["left.png", "right.png"]


def test_a_name_in_a_list_that_is_too_long(capsys, pair, tmp_path):
    (tmp_path / "pairs.csv").write_text(f"left.png,right.png,{LONG}.pfm\n")
    assert_one_sentence(*run(capsys, "eval", "csv", "--root", tmp_path / "pairs.csv"), "missing")


# --- documented = tested --------------------------------------------------------------------


def commands() -> list:
    return [pytest.param(name, command, id=name) for name, command in cli.commands.items()]


@pytest.mark.parametrize(("name", "command"), commands())
def test_every_command_and_option_has_help(name, command):
    assert command.help
    assert command.short_help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.name}"


@pytest.mark.parametrize("name", list(cli.commands))
def test_every_command_is_in_the_readme(name):
    # Their options are in docs/cli.md, see test_docs.py.
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"`hstereo {name}`" in readme


def test_exit_codes_are_the_documented_ones():
    assert (cli_module.EXIT_FAILURE, cli_module.EXIT_USAGE) == (1, 2)
    assert (cli_module.EXIT_INCOMPLETE, cli_module.EXIT_INTERRUPTED) == (3, 130)


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "a.pfm", "."],
        ["eval", "a.pfm", ""],
    ],
)
def test_names_that_no_file_has(capsys, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (1, "")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [
        "infer left.png right.png",
        "infer left.png --volume costs.npy",
        "check left.png right.png",
        "rectify left.png right.png -o new",
        "eval truth.pfm truth.pfm",
        "eval csv --root pairs.csv --model census",
        "eval --gt maps --pred maps",
        "train csv --root pairs.csv --val-fraction 0 --steps 1 --stage unary",
    ],
)
def test_max_pixels(capsys, pair, tmp_path, monkeypatch, command):
    """The option reaches every reader, also those that data sets call in threads of their own."""
    monkeypatch.chdir(tmp_path)
    truth = np.full((24, 40), 3, np.float32)
    for path in (Path("truth.pfm"), Path("maps/truth.pfm")):
        path.parent.mkdir(exist_ok=True)
        write_disparity(path, truth)
    np.save("costs.npy", np.zeros((24, 40, 4), np.float32))
    Path("pairs.csv").write_text("left.png,right.png,truth.pfm\n")
    code, out, err = run(capsys, *command.split(), "--max-pixels", 24 * 40 - 1)
    assert code in (1, 3)
    assert "states 40x24 pixels, more than the 959 that are read" in out + err
    assert "allow more with --max-pixels" in out + err
    assert not list(tmp_path.glob("*_disparity*"))
    if "train" not in command:
        code, out, err = run(capsys, *command.split(), "--max-pixels", 24 * 40)
        assert "that are read" not in out + err


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_exit_codes_of_signals(capsys, monkeypatch, name, code):
    from hybridstereo.training import interrupts
    from hybridstereo.training import run as training

    def end(*args, **kwargs):
        raise interrupts.TerminatedError(getattr(signal, name))

    monkeypatch.setattr(training, "train", end)
    assert run(capsys, "train", "synthetic") == (code, "", f"hstereo: ended by {name}\n")
