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
    "train ": "minutes; tests/training runs every stage",
    "convert ": "the authors' parameters are not ours to ship; tests/models/test_convert.py",
    "--device cuda": "needs a GPU",
    "stream 0 1": "needs cameras and a screen",
    "cache --clear": "would clear the kernels of the tests",
    "warmup": "compiles everything; tests/test_warmup.py",
    "bench": "minutes; tests/bench, and tests/cli/test_schema.py for the JSON",
    "--submission": "complete data sets; tests/evaluation/test_submission.py",
    "--volumes": "MC-CNN's volumes of KITTI; tests/evaluation/test_methods.py",
    "--maps": "maps of KITTI; tests/evaluation/test_methods.py",
    "--components": "a finished run of training; tests/evaluation/test_components.py",
    "--workers": "needs Dask; tests/engines",
    "--scheduler": "needs Dask; tests/engines",
    "DATA/": "complete data sets; tests/models/test_shipped_figures.py",
    "--model kitti.h5": "complete data sets",
    "infer data/sample/": "seconds; .ci/run runs the command that opens the README",
}
# Added to examples so that they take a moment; the last value of an option counts.
SHORTENED = {"synth": ["--count", "1", "--width", "64", "--height", "48"]}
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


RUN = [call for call in all_examples() if reason_not_to_run(call) is None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sample):
    place = tmp_path_factory.mktemp("playground")
    playground.build(place)
    (place / "large").mkdir()
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
    words = shlex.split(call)
    words += SHORTENED.get(words[0], [])
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
    assert len(RUN) >= 40
    used = {part for call in all_examples() for part in NOT_RUN if part in f"{call} "}
    assert used == NOT_RUN.keys(), "an exception that nobody needs"


# --- Python ---------------------------------------------------------------------------------------

PYTHON = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in (ROOT / "README.md", ROOT / "docs" / "api.md", RECIPES)
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
