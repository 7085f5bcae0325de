"""Completion in shells: the scripts, what is offered, and how little is loaded for it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from hybridstereo.cli import cli
from hybridstereo.cli.completion import DATASETS
from hybridstereo.datasets.registry import KINDS


def offered(*words, shell="bash"):
    """What is offered for the last word: kind and value."""
    script = get_completion_class(shell)(cli, {}, "hstereo", "_HSTEREO_COMPLETE")
    return [(x.type, x.value) for x in script.get_completions(list(words[:-1]), words[-1])]


def test_commands_options_models_and_files():
    assert offered("in") == [("plain", "infer"), ("plain", "info")]
    assert ("plain", "--disparities") in offered("infer", "--dis")
    assert offered("infer", "--model", "general") == [
        ("plain", "general"),
        ("plain", "general-fast"),
    ]
    assert offered("infer", "--model", "runs/a") == [("file", "runs/a")]
    assert offered("infer", "le") == [("file", "le")]
    assert offered("infer", "left.png", "ri") == [("file", "ri")]
    assert offered("infer", "--output", "m") == [("file", "m")]
    assert offered("stream", "--range", "") == [("plain", "fixed"), ("plain", "tracked")]
    assert offered("completion", "z") == [("plain", "zsh")]


def plain(*names):
    return [("plain", name) for name in names]


def test_devices_data_sets_lists_and_names_of_commands():
    assert offered("infer", "--device", "") == plain("auto", "cpu", "cuda")
    assert offered("eval", "--device", "cu") == plain("cuda")
    assert offered("eval", "m") == plain("middlebury")
    assert offered("eval", "maps/") == [("file", "maps/")]
    assert offered("eval", "--model", "kitti-") == plain("kitti-fast")
    assert offered("train", "") == plain(*sorted(KINDS))
    assert tuple(sorted(KINDS)) == DATASETS
    assert offered("infer", "--format", "p") == plain("pfm", "png")
    assert offered("infer", "--format", "pfm,") == plain("pfm,pfm", "pfm,png", "pfm,npy", "pfm,tif")
    assert offered("eval", "--baseline", "bm,sgbm-h") == plain("bm,sgbm-hh")
    assert offered("config", "in") == plain("infer", "info")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_name_the_program_and_are_valid(shell):
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0, result.output
    assert f"_HSTEREO_COMPLETE={shell}_complete" in result.stdout
    if program := shutil.which(shell):
        flag = "--no-execute" if shell == "fish" else "-n"
        subprocess.run([program, flag], input=result.stdout.encode(), check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path):
    """A real bash sources the script and asks it."""
    program = tmp_path / "hstereo"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hybridstereo "$@"\n')
    program.chmod(0o755)
    script = (
        f'PATH="{tmp_path}:$PATH"\neval "$(hstereo completion bash)"\n'
        "COMP_WORDS=(hstereo chec) COMP_CWORD=1\n"
        "_hstereo_completion hstereo\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    shown = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True)
    assert shown.stdout.split() == ["check"]
    script = script.replace("chec) COMP_CWORD=1", "infer --format pfm,t) COMP_CWORD=3")
    shown = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True)
    assert shown.stdout.split() == ["pfm,tif"]


def test_nothing_heavy_is_loaded_for_it():
    code = (
        "import os, sys\n"
        "os.environ.update(_HSTEREO_COMPLETE='bash_complete', COMP_WORDS='hstereo infer --mo',"
        " COMP_CWORD='2')\n"
        "from hybridstereo.cli import main\n"
        "try: main([])\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'numba', 'cv2', 'h5py'} & set(sys.modules)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout.split() == ["plain,--model"]
