"""Tables, exponents and the picture of reports with invented times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hybridstereo.bench.peers import Peer
from hybridstereo.bench.report import (
    COMPONENTS,
    BenchReport,
    PeerComparison,
    Run,
    Scaling,
    Setting,
    Timing,
    growth_exponent,
    paper_seconds,
)
from hybridstereo.bench.run import SIZES, random_model
from hybridstereo.bench.text import draw_report, format_report
from hybridstereo.bench.work import Peaks, count_work

KITTI = SIZES["kitti"]


def invented_report(*settings: Setting, seconds: float = 0.1, sgbm: float = 0.2) -> BenchReport:
    """A report in which component i of every run takes (i + 1) * seconds, and SGBM ``sgbm``."""
    runs = []
    for setting in settings:
        names = [name for name in COMPONENTS if name != "pyramid" or setting.pyramid]
        timings = {
            name: Timing((0.9 * t, t, 1.2 * t))
            for name, t in zip(names, seconds * np.arange(1, len(names) + 1), strict=True)
        }
        size = setting.height, setting.width, setting.disparities, setting.iterations
        work = count_work(random_model(setting.layers, setting.pyramid), *size)
        peer = Peer("sgbm", "SGBM", ("crf", "total"), lambda: 0.0)
        compared = tuple(
            PeerComparison(peer, name, timings[name], Timing((sgbm,))) for name in peer.components
        )
        runs.append(Run(setting, timings, work, 3 << 20, 2 << 20, compared))
    return BenchReport(tuple(runs), 3, "cpu", 2, Peaks(200e9, 20e9))


def test_a_pyramid_has_a_row_of_its_own():
    setting = Setting(64, 48, 16, 3, 5, pyramid=2)
    text = format_report(invented_report(setting))
    assert "3 layers, 2 coarser levels, 5 iterations" in text
    assert [line.split()[0] for line in text.splitlines() if line.startswith("pyramid")]
    assert "pyramid" not in format_report(invented_report(Setting(64, 48, 16, 3, 5)))
    flat, taller = (draw_report(invented_report(x)) for x in (replace(setting, pyramid=0), setting))
    assert taller.shape[0] > flat.shape[0]


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
    for index, label in enumerate((x for x in COMPONENTS.values() if x != "pyramid"), start=1):
        median, low, _, high = rows[label][len(label.split()) :][:4]
        assert float(median) == pytest.approx(100 * index)
        assert (float(low), float(high)) == pytest.approx((90 * index, 120 * index))
    assert rows["CRF"][-1] == "309.0"
    assert rows["total"][-1] == "754.6"
    assert "0.80 times the paper's 754.6 ms on a GTX Titan X" in text
    assert "ours includes the Pairwise-CNN" not in text
    # 242.7 kMAC per pixel and image (docs/model.md 3) in 0.3 s, beside 200 GFLOP/s
    rate = 2 * 2 * 242.7e3 * KITTI.pixels / 0.3 / 1e9
    assert float(rows["Unary-CNN"][5]) == pytest.approx(rate, rel=0.02)
    assert float(rows["Unary-CNN"][6].rstrip("%")) == pytest.approx(100 * rate / 200, rel=0.02)
    assert rows["peak, measured"] == ["peak,", "measured", "200.0", "20.0"]
    assert "3.0 MB at the peak" in text


def test_text_of_the_real_time_setting():
    text = format_report(invented_report(SIZES["realtime"], seconds=0.1))
    assert "2.11 times the paper's 285.0 ms on a GTX Titan X" in text
    assert "ours includes the Pairwise-CNN" in text


def test_text_without_a_match_leaves_the_paper_out():
    text = format_report(invented_report(Setting(64, 48, 16, 3, 5)))
    assert "Titan X" not in text
    assert "CRF" in text


def test_text_of_a_comparison_says_who_is_faster():
    text = format_report(invented_report(KITTI))
    assert "2.50x slower" in text  # CRF 500 ms, SGBM 200 ms
    assert "3.00x slower" in text  # total 600 ms
    text = format_report(invented_report(KITTI, sgbm=1.0))
    assert "2.00x faster" in text
    assert "slower" not in text


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
