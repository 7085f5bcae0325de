"""Pairs and frames per second: what is run, and how it is told."""

from __future__ import annotations

import os

import numpy as np
import pytest

from hybridstereo.bench.report import Setting
from hybridstereo.bench.run import synthetic_pair
from hybridstereo.bench.text import format_report
from hybridstereo.bench.throughput import Throughput, measure_throughput
from hybridstereo.errors import StereoError
from hybridstereo.options import MatchOptions
from hybridstereo.stereo import Stereo
from tests.bench.test_report import invented_report

OPTIONS = MatchOptions(disparities=8, iterations=1)


@pytest.fixture(scope="module")
def stereo() -> Stereo:
    return Stereo("census", "cpu")


def test_every_pair_is_read_matched_and_written(stereo, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    calls, match = [], Stereo.match

    def counted(self, left, right, *arguments, **options):
        calls.append((left.shape, options["iterations"]))
        return match(self, left, right, *arguments, **options)

    monkeypatch.setattr(Stereo, "match", counted)  # of all that take part
    steps = []
    found = measure_throughput(stereo, synthetic_pair(40, 24, 8), OPTIONS, 3, steps.append)
    assert calls == [((24, 40, 3), 1)] * (1 + 3 + 3)  # one to warm up
    assert len(found.latencies) == found.pairs == 3
    assert min(found.latencies) > 0
    assert found.pairs_seconds > 0
    assert len(steps) == 3
    assert os.listdir(tmp_path) == []  # nothing is left behind


def test_a_pair_that_fails_is_an_error(stereo, monkeypatch):
    def fail(*arguments, **options):
        raise StereoError("No")

    monkeypatch.setattr(Stereo, "match", fail)
    with pytest.raises(StereoError, match="No"):
        measure_throughput(stereo, synthetic_pair(40, 24, 8), OPTIONS, 1, lambda step: None)


def test_rates_and_quantiles():
    latencies = tuple(np.linspace(0.1, 0.2, 101))
    found = Throughput(4, 2.0, 8.0, latencies)
    assert (found.pairs_per_second, found.frames_per_second) == (2.0, 0.5)
    assert found.latency(0.5) == pytest.approx(0.15)
    assert found.as_dict()["latency"] == pytest.approx({"p50": 0.15, "p99": 0.199, "max": 0.2})


def test_the_table_has_both():
    report = invented_report(Setting(64, 48, 16, 3, 5))
    assert "frames, as stream runs" not in format_report(report)
    vars(report)["throughput"] = Throughput(4, 2.0, 8.0, (0.1, 0.3))
    lines = format_report(report).splitlines()
    (pairs,) = [x.split() for x in lines if x.startswith("pairs, as infer")]
    (frames,) = [x.split() for x in lines if x.startswith("frames, as stream")]
    assert pairs[-3:] == ["2", "-", "-"]
    assert frames[-3:] == ["0.5", "200.0", "298.0"]
