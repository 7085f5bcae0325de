"""The container file: built where an engine runs, else read line by line."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tools" / "container" / "Containerfile"
INSTRUCTIONS = {
    "FROM", "RUN", "COPY", "ENV", "VOLUME", "USER", "WORKDIR", "ENTRYPOINT", "CMD",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    lines = [x for x in FILE.read_text().splitlines() if not x.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(x.split(maxsplit=1)) for x in joined.splitlines() if x.strip()]


def test_instructions_are_known_and_in_order():
    found = instructions()
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert found[0][0] == "FROM"
    assert re.fullmatch(r"python:3\.\d+-slim", found[0][1])  # a version, not whatever is newest


def test_everything_that_is_copied_is_there():
    for name, text in instructions():
        if name == "COPY":
            *sources, _ = shlex.split(text)
            for source in sources:
                assert (ROOT / source).exists(), source
    copied = {x for name, text in instructions() if name == "COPY" for x in text.split()[:-1]}
    assert {"pyproject.toml", "README.md", "kernels", "src"} <= copied  # what pip needs


def test_packages_are_those_of_the_project():
    """But for OpenCV, whose headless wheel stands for the other, and TOML, which Python has."""
    text = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[(.*?)^\]", text, re.S | re.M)[1]
    wanted = set(re.findall(r'^    "([a-z0-9-]+>=[0-9.]+)"', block, re.M))
    installed = set(re.findall(r'"([a-z0-9-]+>=[0-9.]+)"', FILE.read_text()))
    assert installed == {x.replace("opencv-python>", "opencv-python-headless>") for x in wanted}


def test_it_does_not_run_as_root_and_starts_hstereo():
    found = dict(instructions())
    assert found["USER"] == "stereo"
    assert found["ENTRYPOINT"] == '["hstereo"]'
    assert found["ENV"].split("=")[1] == found["VOLUME"]


def engine() -> str | None:
    """A container engine that runs, not one that is only installed."""
    for name in ("podman", "docker"):
        if (
            shutil.which(name)
            and not subprocess.run([name, "info"], capture_output=True).returncode
        ):
            return name
    return None


@pytest.mark.large
def test_it_can_be_built():
    if (name := engine()) is None:
        pytest.skip("no container engine runs here")
    build = [name, "build", "-q", "-f", str(FILE), "-t", "hstereo-test", str(ROOT)]
    subprocess.run(build, check=True)
    shown = subprocess.run(
        [name, "run", "--rm", "hstereo-test", "--version"], check=True, capture_output=True
    )
    assert b"hstereo" in shown.stdout
