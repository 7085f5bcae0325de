"""OpenCV's matcher as the package sets it up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

import hybridstereo
from hybridstereo import system
from hybridstereo.errors import InstallError, StereoError
from hybridstereo.opencv import opencv_threads, penalties, sgbm_matcher, supported_disparities


@pytest.mark.parametrize(("count", "rounded"), [(1, 16), (16, 16), (17, 32), (255, 256)])
def test_disparities_are_rounded_up_to_what_opencv_accepts(count, rounded):
    assert supported_disparities(count) == rounded


def test_penalties_grow_with_the_window():
    assert penalties(block=3, channels=1) == (72, 288)
    assert penalties(block=5, channels=3) == (600, 2400)


def test_every_setting_reaches_the_matcher():
    matcher = sgbm_matcher(
        cv2.STEREO_SGBM_MODE_HH,
        disparities=48,
        block=7,
        channels=3,
        prefilter=31,
        uniqueness=9,
        left_right=2,
        speckle_window=80,
        speckle_range=4,
    )
    assert (matcher.getMinDisparity(), matcher.getNumDisparities()) == (0, 48)
    assert (matcher.getMode(), matcher.getBlockSize()) == (cv2.STEREO_SGBM_MODE_HH, 7)
    assert (matcher.getP1(), matcher.getP2()) == penalties(7, 3)
    assert (matcher.getPreFilterCap(), matcher.getUniquenessRatio()) == (31, 9)
    assert matcher.getDisp12MaxDiff() == 2
    assert (matcher.getSpeckleWindowSize(), matcher.getSpeckleRange()) == (80, 4)


def test_settings_not_given_are_those_of_opencv():
    ours = sgbm_matcher(cv2.STEREO_SGBM_MODE_SGBM, disparities=16, block=3, channels=1)
    theirs = cv2.StereoSGBM.create()
    for name in (
        "getPreFilterCap", "getUniquenessRatio", "getDisp12MaxDiff", "getSpeckleWindowSize",
        "getSpeckleRange",
    ):  # fmt: skip
        assert getattr(ours, name)() == getattr(theirs, name)(), name


@pytest.mark.parametrize("threads", [1, None])
def test_threads_are_set_back_also_after_a_failure(threads):
    before, inside = cv2.getNumThreads(), []

    def fail() -> None:
        with opencv_threads(threads):
            inside.append(cv2.getNumThreads())
            cv2.setNumThreads(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert inside == [threads or before]
    assert cv2.getNumThreads() == before


# --- where it cannot be imported ------------------------------------------------------------

NO_LIBRARY = "libGL.so.1: cannot open shared object file: No such file or directory"
COMMANDS = """
import sys
from hybridstereo.cli import main

for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as done:
        print(done.code, file=sys.stderr)
"""


@pytest.fixture
def broken_opencv(tmp_path):
    """What runs commands in a process that finds an OpenCV like that of a slim image."""
    (tmp_path / "cv2.py").write_text(f"raise ImportError({NO_LIBRARY!r})")
    search = os.pathsep.join([str(tmp_path), *sys.path])

    def run(*commands: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS, *commands],
            env={**os.environ, "PYTHONPATH": search},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    return run


def test_without_its_libraries_each_command_says_what_to_install(broken_opencv):
    commands = (
        "infer left.png right.png",
        "eval synthetic",
        "eval a.pfm b.pfm",
        "train synthetic -o run",
        "synth scenes",
        "bench",
    )
    lines = broken_opencv(*commands)
    assert len(lines) == 2 * len(commands), lines
    for said, code in zip(lines[::2], lines[1::2], strict=True):
        assert code == "1"
        assert said == (
            f"hstereo: OpenCV cannot be imported ({NO_LIBRARY}). Install the system's libraries "
            "with `apt-get install libgl1 libglib2.0-0`, or the wheel that needs none with "
            "`pip install opencv-python-headless`."
        )


def test_what_reads_no_images_works_without_opencv(broken_opencv):
    assert broken_opencv("info", "cache", "--help") == ["0", "0", "0"]


def test_library_users_can_catch_it_as_either():
    assert issubclass(InstallError, StereoError)
    assert issubclass(InstallError, ImportError)
    error = InstallError("OpenCV cannot be imported", "Install it")
    assert str(error) == "OpenCV cannot be imported. Install it."


def test_either_wheel_is_named_with_its_version(monkeypatch):
    def only(*installed: str):
        def version(name: str) -> str:
            return "4.9" if name in installed else "not installed"

        monkeypatch.setattr(system, "package_version", version)
        return {k: v for k, v in system._package_versions().items() if "opencv" in k}

    assert only("opencv-python") == {"opencv-python": "4.9"}
    assert only("opencv-python-headless") == {"opencv-python-headless": "4.9"}
    assert only() == {"opencv-python": "not installed"}


def test_we_call_nothing_that_the_headless_wheel_lacks():
    """Windows are all that it lacks (OpenCV's module highgui).

    Only `streams.sinks.MapWindow` opens one, and asks first whether it can.
    """
    sources = Path(hybridstereo.__file__).parent.rglob("*.py")
    texts = [path.read_text(encoding="utf-8") for path in sources if path.name != "sinks.py"]
    used = {name for text in texts for name in re.findall(r"\bcv2\.(\w+)", text)}
    assert "imdecode" in used
    assert not [
        name for name in used if re.search(r"window|imshow|wait|trackbar|mouse", name, re.I)
    ]
