"""Every example runs: those of the README, of docs/ and of ``--help``, on small files.

Names such as ``left.png`` are there (`support.playground`), a small model stands in for the default
one by way of ``HSTEREO_MODEL``, and what would take minutes is left out, with a reason.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import playground

from hybridstereo.cli import cli
from hybridstereo.cli.examples import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RECIPES = ROOT / "docs" / "recipes.md"

# Examples that are parsed only (tests/cli/test_docs.py), by what they contain, and why.
NOT_RUN = {
    "train synthetic": "looks at 250 scenes; tests/training runs every stage",
    "train --resume": "goes on with a run; tests/training/test_run.py",
    "--device cuda": "needs a GPU",
    "stream 0 1": "needs cameras and a screen",
    "--submission": "complete data sets; tests/evaluation/test_submission.py",
    "--components": "a finished run of training; tests/evaluation/test_components.py",
    "--workers": "needs Dask; tests/engines",
    "--scheduler": "needs Dask; tests/engines",
    "DATA/": "complete data sets; tests/models/test_shipped_figures.py",
}
# Added to examples so that they take a moment; the last value of an option counts.
SMALL = ("--width", "64", "--height", "48")
SHORTENED = {
    "synth": ("--count", "1", *SMALL),
    "bench": (*SMALL, "--disparities", "8", "--repeat", "1"),
    "bench --root": ("--repeat", "1"),
    "train": ("--steps", "1", "--stage", "unary", "--val-fraction", "0", "--crop", "32x48"),
    "warmup": ("--no-training",),
}
# Rows can be corrected where points are found, which needs more of a picture.
LARGE = re.compile(r"^rectify left\.png right\.png -o")


def words_of(line: str) -> list[list[str]]:
    """The calls of hstereo in a line of shell, without redirections."""
    calls, words = [], []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;<>"):
            if words and words[0].rpartition("/")[2] == "hstereo":
                calls.append(words[1:])
            words = []
        else:
            words.append(word)
    return calls


def shell_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)


def all_examples() -> list[str]:
    """Each call once, as it is written, in the order of the pages."""
    lines = [x for examples in EXAMPLES.values() for x in examples]
    lines.append((cli.epilog or "").removeprefix("Example: "))
    for page in PAGES:
        for block in shell_blocks(page, "sh"):
            lines += block.replace("\\\n", " ").splitlines()
    calls = [shlex.join(words) for line in lines for words in words_of(line)]
    return list(dict.fromkeys(calls))


def reason_not_to_run(call: str) -> str | None:
    return next((why for part, why in NOT_RUN.items() if part in f"{call} "), None)


def shortened(call: str) -> list[str]:
    """The words of a call, with options that make it a matter of a moment."""
    words = shlex.split(call)
    kind = "bench --root" if words[0] == "bench" and "--root" in words else words[0]
    if kind == "bench" and "--size" in words:  # which SMALL stands for
        place = words.index("--size")
        del words[place : place + 2]
    if kind == "train":  # each into a folder of its own
        if "-o" in words:
            place = words.index("-o")
            del words[place : place + 2]
        words += ["-o", f"trained_{RUN.index(call)}"]
    return [*words, *SHORTENED.get(kind, ())]


RUN = [call for call in all_examples() if reason_not_to_run(call) is None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sample):
    place = tmp_path_factory.mktemp("playground")
    playground.build(place)
    (place / "large").mkdir()
    (place / "data" / "sample").symlink_to(sample)
    (place / "data" / "middlebury").symlink_to(place / "data" / "MiddEval3")
    for name in ("left.png", "right.png"):
        (place / "large" / name).symlink_to(sample / name)
    return place


@pytest.fixture
def defaults(monkeypatch):
    """Small defaults, by the means that users have."""
    monkeypatch.setenv("HSTEREO_MODEL", "census")
    monkeypatch.setenv("HSTEREO_DEVICE", "cpu")


@pytest.mark.parametrize("call", RUN)
def test_example_runs(call, folder, defaults, monkeypatch):
    monkeypatch.chdir(folder / "large" if LARGE.search(call) else folder)
    words = shortened(call)
    if words[0] == "cache":  # and not that of the tests
        monkeypatch.setenv("HSTEREO_CACHE_DIR", str(folder / "kernels"))
    given = Path("left.png").read_bytes()  # for '-'
    if "--pairs" in words:
        given = b"left.png,right.png\n"
    result = CliRunner().invoke(cli, words, input=given)
    # `check` and `--strict` find something, or not; the examples say what to do then.
    assert result.exit_code == 0 or (words[0] == "check" and result.exit_code == 1), result.output
    assert "Traceback" not in result.output


def test_every_command_has_examples_in_its_help_and_most_run():
    assert EXAMPLES.keys() == cli.commands.keys()
    for name, command in cli.commands.items():
        shown = CliRunner().invoke(cli, [name, "--help"]).output
        for example in EXAMPLES[name]:
            assert example in shown
        assert command.epilog
    assert len(RUN) >= 85
    used = {part for call in all_examples() for part in NOT_RUN if part in f"{call} "}
    assert used == NOT_RUN.keys(), "an exception that nobody needs"


def test_no_block_of_code_escapes():
    """What runs is what these languages are looked for in."""
    for page in PAGES:
        languages = set(re.findall(r"^```(\S+)", page.read_text("utf-8"), re.M))
        known = {"sh"}
        if page in PAGES_OF_PYTHON:
            known.add("python")
        if page == RECIPES:
            known.add("bash")
        # toml: test_settings.py; yaml: tests/engines/test_scaling_doc.py
        assert languages <= known | {"bibtex", "toml", "yaml"}, page
    headings = ("FFmpeg", "GNU parallel", "A slim container")  # the last one: test_container.py
    assert sum(map(len, map(bash_blocks, headings))) == len(shell_blocks(RECIPES, "bash"))


# --- Python ---------------------------------------------------------------------------------------

PAGES_OF_PYTHON = (ROOT / "README.md", ROOT / "docs" / "api.md", RECIPES)
PYTHON = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES_OF_PYTHON
    for number, block in enumerate(shell_blocks(page, "python"))
]


@pytest.mark.parametrize("block", PYTHON)
def test_python_block_runs(block, folder, monkeypatch):
    monkeypatch.chdir(folder)
    small = re.sub(r'Stereo\("general(-fast)?"', 'Stereo("census"', block)
    exec(compile(small, "example", "exec"), {"print": lambda *_: None})


# --- whole pipelines, with the real programs ------------------------------------------------------


def bash_blocks(heading: str) -> list[str]:
    section = RECIPES.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```bash\n(.*?)^```$", section, re.M | re.S)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Run a block of a recipe with bash, hstereo being the one under test."""
    program = tmp_path_factory.mktemp("bin") / "hstereo"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hybridstereo "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HSTEREO_MODEL": "census",
        "HSTEREO_DEVICE": "cpu",
    }

    def run(block: str, where: Path) -> None:
        shown = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=where,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert shown.returncode == 0, shown.stderr

    return run


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_pipes_of_ffmpeg(folder, shell, defaults, monkeypatch):
    """The lossless video that FFmpeg makes of the raw frames holds the maps, bit for bit."""
    import numpy as np
    from support.videofiles import HEIGHT, WIDTH, read_video

    through_pipe, through_images = bash_blocks("FFmpeg")
    shell(through_pipe, folder)
    decode = ["ffmpeg", "-v", "error", "-i", "maps.mkv", "-f", "rawvideo", "-pix_fmt", "gray16le"]
    raw = subprocess.run([*decode, "-"], cwd=folder, capture_output=True, check=True).stdout
    stored = np.frombuffer(raw, "<u2").reshape(2, HEIGHT, WIDTH)
    call = ["stream", "left.mp4", "right.mp4", "--disparities", "16", "-o", "-"]
    monkeypatch.chdir(folder)
    again = CliRunner().invoke(cli, call).stdout_bytes
    direct = np.frombuffer(again, "<u2").reshape(2, HEIGHT, WIDTH)
    np.testing.assert_array_equal(stored, direct)
    assert 1 < np.median(direct) / 256 < 15
    assert (folder / "grey.mp4").stat().st_size > 0
    shell(through_images, folder)
    assert len(read_video(folder / "depth.mp4")) == 2


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.skipif(shutil.which("parallel") is None, reason="needs GNU parallel")
def test_gnu_parallel(folder, shell):
    (block,) = bash_blocks("GNU parallel")
    shell(block, folder)
    written = {x.name for x in (folder / "maps").iterdir()}
    assert {"f8.pfm", "f9.pfm"} <= written


FILTERED = sorted(
    {
        line
        for page in PAGES
        for block in shell_blocks(page, "sh")
        for line in block.splitlines()
        if "| jq " in line
    }
)


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize("line", FILTERED)
def test_filters_of_json(line, folder, defaults, monkeypatch):
    """What jq is asked for is there."""
    monkeypatch.chdir(folder / "large" if "--rectify" in line else folder)
    call, _, filtered = line.partition(" | ")
    if "check" in call:  # of a pair with nothing wrong there would be nothing to see
        call = call.replace("right.png", "left.png")
    result = CliRunner().invoke(cli, shortened(call.removeprefix("hstereo ")))
    words = shlex.split(filtered, comments=True)
    shown = subprocess.run(
        words, input=result.stdout, capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() not in ("", "null"), line
