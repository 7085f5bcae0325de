"""Speed beside accuracy: figures of a data set, the table, the plot, ELAS."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from hybridstereo.bench.accuracy import (
    AccuracyOptions,
    MethodFigures,
    SpeedAccuracy,
    speed_accuracy,
)
from hybridstereo.bench.accuracy_text import draw_accuracy, format_accuracy
from hybridstereo.bench.elas import ElasMethod, ElasUnavailableError, elas_matcher, import_elas
from hybridstereo.bench.peers import PeerUnavailableError, elas_peer, sgbm_peer
from hybridstereo.cli import main
from hybridstereo.datasets import open_dataset
from hybridstereo.errors import InputError
from hybridstereo.evaluation.compare import EvalOptions, evaluate_dataset
from hybridstereo.io.disparity import write_disparity
from hybridstereo.io.images import write_image
from hybridstereo.synthetic import SceneOptions, generate_scene, quantised


def point(name: str, seconds: float, error: float, kind: str = "baseline") -> MethodFigures:
    return MethodFigures(name, "", kind, seconds, seconds, error)


REPORT = SpeedAccuracy(
    "kitti", "d1_noc", 5,
    (
        point("general", 3.0, 4.0, "model"), point("slow", 4.0, 4.0), point("quick", 0.1, 9.0),
        point("middling", 0.3, 6.0), point("poor", 0.3, 20.0),
    ),
    "cpu", 2,
)  # fmt: skip


class FakeElas:
    """Says 3 everywhere, and nothing in the first column."""

    def __init__(self):
        self.disp_min = self.disp_max = -1

    def process(self, left, right):
        assert left.dtype == np.uint8
        assert left.ndim == 2
        assert (self.disp_min, self.disp_max) == (0, 31)
        disparity = np.full(left.shape, 3.0, np.float32)
        disparity[:, 0] = -10
        return disparity, disparity


@pytest.fixture
def fake_elas(monkeypatch):
    monkeypatch.setitem(sys.modules, "elas", SimpleNamespace(Elas=FakeElas))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Two small pairs with truth, as a list."""
    folder = tmp_path_factory.mktemp("pairs")
    lines = []
    for seed in range(2):
        scene = generate_scene(seed, SceneOptions(64, 96, 16.0, min_disparity=0.0))
        write_image(folder / f"{seed}l.png", quantised(scene.left))
        write_image(folder / f"{seed}r.png", quantised(scene.right))
        write_disparity(folder / f"{seed}.pfm", scene.disparity)
        lines.append(f"{seed}l.png,{seed}r.png,{seed}.pfm\n")
    (folder / "pairs.csv").write_text("".join(lines))
    return folder / "pairs.csv"


# --- the figures ----------------------------------------------------------------------------


def test_errors_are_those_of_eval(scenes):
    report = speed_accuracy(
        "csv", (str(scenes),), AccuracyOptions(("census",), ("sgbm", "sgbm-3way"), device="cpu")
    )
    options = EvalOptions(models=("census",), baselines=("sgbm-hh", "sgbm-3way"), device="cpu")
    evaluated = evaluate_dataset("csv", (str(scenes),), options).evaluation
    assert report.figure == evaluated.primary
    assert {x.name: x.error for x in report.methods} == pytest.approx(
        {name: figures[evaluated.primary] for name, figures in evaluated.means.items()}
    )
    assert [x.kind for x in report.methods] == ["model", "baseline", "baseline"]
    assert all(0 < x.seconds <= x.slowest for x in report.methods)
    assert (report.scenes, report.device) == (2, "cpu")


def test_what_is_missing_is_told(scenes, monkeypatch):
    monkeypatch.setitem(sys.modules, "elas", None)
    options = AccuracyOptions(("census",), ("elas",), limit=1, device="cpu")
    report = speed_accuracy("csv", (str(scenes),), options)
    assert report.scenes == 1
    assert [x.name for x in report.methods] == ["census"]
    assert "ELAS is left out: it is not installed." in format_accuracy(report)


def test_pytorch_makes_no_maps():
    with pytest.raises(InputError, match="makes no maps"):
        AccuracyOptions(compare=("torch",))


def test_the_front_is_what_nothing_beats():
    assert [x.name for x in REPORT.front] == ["quick", "middling", "general"]
    told = {x["name"]: x["on_front"] for x in REPORT.as_dict()["methods"]}
    assert told == {
        "general": True, "slow": False, "quick": True, "middling": True, "poor": False,
    }  # fmt: skip


# --- table and plot -------------------------------------------------------------------------


def test_the_table_begins_with_the_most_accurate():
    lines = format_accuracy(REPORT).splitlines()
    assert lines[0].startswith("kitti, 5 pairs; ")
    assert lines[2].split() == ["seconds", "slowest", "pairs/s", "d1_noc", "%"]
    assert lines[3].split() == ["general", "*", "3.000", "3.000", "0.333", "4.00"]
    assert lines[7].split()[0] == "poor"


def test_the_plot_has_a_dot_for_each_method():
    picture = draw_accuracy(REPORT)
    assert picture.shape[1] == 1200
    for color, dots in (((0, 114, 178), 1), ((230, 159, 0), 4)):
        same = (picture == color).all(axis=2).astype(np.uint8)
        same[:140] = 0  # the legend
        assert cv2.connectedComponents(same)[0] - 1 == dots
    border = np.concatenate([picture[:20].ravel(), picture[-20:].ravel(), picture[:, -8:].ravel()])
    assert (border == 255).all()


def test_the_plot_of_one_method():
    alone = replace(REPORT, methods=REPORT.methods[:1])
    assert draw_accuracy(alone).shape == draw_accuracy(REPORT).shape


def test_the_command(scenes, capsys, tmp_path):
    plot = tmp_path / "plot.png"
    arguments = ["bench", "--root", f"csv={scenes}", "--model", "census", "--device", "cpu"]
    with pytest.raises(SystemExit) as done:
        main([*arguments, "--compare", "sgbm-3way", "--plot", str(plot)])
    assert not done.value.code
    assert "sgbm-3way" in capsys.readouterr().out
    assert cv2.imread(str(plot)).shape[1] == 1200


# --- ELAS -----------------------------------------------------------------------------------


def test_another_package_of_that_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "elas", SimpleNamespace())
    with pytest.raises(ElasUnavailableError, match="another package"):
        import_elas()


def test_elas_gets_grey_images_and_the_range(fake_elas, rng):
    left = rng.random((24, 40, 3), np.float32)
    found = elas_matcher(left, left, 32)()
    assert (found[:, 1:] == 3).all()
    peer = elas_peer(left, left, 32)
    assert peer.run() > 0
    assert peer.components == ("total",)
    with pytest.raises(PeerUnavailableError, match="too small"):
        elas_peer(left[:8], left[:8], 32)


def test_holes_of_elas_are_filled(fake_elas, scenes):
    (sample, *_) = open_dataset("csv", (str(scenes),)).samples
    pair = sample.read()
    pair = replace(pair, ndisp=32)
    outcome = ElasMethod().compute(None, pair)
    assert (outcome.disparity == 3).all()
    assert outcome.seconds > 0


def test_sgbm_in_three_ways(rng):
    left = rng.random((24, 80, 3), np.float32)
    assert "MODE_SGBM_3WAY" in sgbm_peer(left, left, 16, 1, "sgbm-3way").label
    assert "MODE_HH" in sgbm_peer(left, left, 16, 1).label
