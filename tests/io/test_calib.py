"""Reading Middlebury's calib.txt: the tidy, the untidy and the broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridstereo.errors import InputError
from hybridstereo.io.calib import Calibration, read_calibration
from hybridstereo.synthetic import SceneOptions, generate_scene, write_scene

TIDY = """cam0=[3997.684 0 1176.728; 0 3997.684 1011.728; 0 0 1]
cam1=[3997.684 0 1307.839; 0 3997.684 1011.728; 0 0 1]
doffs=131.111
baseline=193.001
width=2964
height=1988
ndisp=280
isint=0
vmin=31
vmax=257
dyavg=0.918
dymax=1.516
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "calib.txt"
    path.write_bytes(text.encode())
    return path


def test_tidy(tmp_path: Path) -> None:
    assert read_calibration(write(tmp_path, TIDY)) == Calibration(
        cam0=((3997.684, 0, 1176.728), (0, 3997.684, 1011.728), (0, 0, 1)),
        cam1=((3997.684, 0, 1307.839), (0, 3997.684, 1011.728), (0, 0, 1)),
        doffs=131.111,
        baseline=193.001,
        width=2964,
        height=1988,
        ndisp=280,
        isint=False,
        vmin=31,
        vmax=257,
    )


def test_untidy_is_the_same(tmp_path: Path) -> None:
    lines = [f"  {line} ".replace("=", " =\t").replace("[", "[ ") for line in TIDY.splitlines()]
    untidy = "\ufeff\r\n" + "\r\n\r\n".join(reversed(lines)) + "\r\n "
    assert read_calibration(write(tmp_path, untidy)) == read_calibration(write(tmp_path, TIDY))


def test_absent_keys_are_none(tmp_path: Path) -> None:
    assert read_calibration(write(tmp_path, "ndisp= 64.0\n isint= 1")) == Calibration(
        ndisp=64, isint=True
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndisp 64", "line 1: 'ndisp 64' is not key=value"),
        ("\n=64", "line 2: '=64' is not key=value"),
        ("ndisp=64\nndisp=65", "line 2: ndisp is given a second time"),
        ("ndisp=", "ndisp= is not a number"),
        ("ndisp=64 65", "is not a number"),
        ("ndisp=many", "is not numbers"),
        ("ndisp=0", "from 1 to"),
        ("ndisp=64.5", "a whole number"),
        ("width=-3", "a whole number"),
        ("doffs=nan", "is not numbers"),
        ("doffs=1e999", "finite"),
        ("isint=2", "0 or 1"),
        ("cam0=1 2 3", "square brackets"),
        ("cam0=[1 0 1; 0 1 1]", "three rows of three"),
        ("cam0=[1 0 1; 0 1 1; 0 0]", "three rows of three"),
        ("cam0=[0 0 1; 0 1 1; 0 0 1]", "a camera matrix"),
        ("cam0=[1 0 1; 0 1 1; 0 0 2]", "a camera matrix"),
    ],
)
def test_broken(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_calibration(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "calib.txt"
    path.write_bytes(b"\xff\xfe\x00ndisp")
    with pytest.raises(InputError, match="not a text file"):
        read_calibration(path)
    with pytest.raises(InputError, match="does not exist"):
        read_calibration(tmp_path / "none.txt")


def test_our_own_scenes(tmp_path: Path) -> None:
    options = SceneOptions(32, 48, max_disparity=12.5, objects=2)
    write_scene(tmp_path, generate_scene(1, options))
    calibration = read_calibration(tmp_path / "calib.txt")
    assert (calibration.width, calibration.height, calibration.ndisp) == (48, 32, 13)
    assert calibration.isint is False


@pytest.mark.shared
def test_every_real_file(shared: Path) -> None:
    found = {
        path.parent.name: read_calibration(path)
        for path in (shared / "data" / "MiddEval3").rglob("calib.txt")
    }
    assert {name: c.ndisp for name, c in found.items()}["Jadeplant"] == 160
    assert len(found) == 7
    for calibration in found.values():
        assert None not in vars(calibration).values()
        assert calibration.cam0 is not None
        assert calibration.cam1 is not None
        difference = calibration.cam1[0][2] - calibration.cam0[0][2]
        assert calibration.doffs == pytest.approx(difference, abs=2e-3)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"ndisp": 64}, (0, 63)),
        ({"ndisp": 64, "vmin": 5.5, "vmax": 40.2}, (5, 41)),
        ({"ndisp": 64, "vmin": 5.0}, (0, 63)),
        ({"ndisp": 64, "vmin": 9.0, "vmax": 3.0}, (0, 63)),
        ({}, None),
    ],
)
def test_disparity_range_is_the_tight_one_if_there_is_one(stated, expected):
    assert Calibration(**stated).disparity_range == expected
