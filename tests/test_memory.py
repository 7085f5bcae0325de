from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import memory_check
import numpy as np
import pytest

from hybridstereo import memory, system
from hybridstereo.errors import OutOfMemoryError
from hybridstereo.kernels import gradient_scratch, select
from hybridstereo.model import with_config
from hybridstereo.models.census import census_model
from hybridstereo.models.zoo import load_model
from hybridstereo.stereo import Stereo


def limit_memory(monkeypatch, count):
    """Let the machine have ``count`` bytes left, and our own kernels none in store."""
    monkeypatch.setattr(memory, "available_memory", lambda: count)
    monkeypatch.setattr(memory, "reusable_memory", lambda: 0)


def test_memory_in_store_counts_as_free(monkeypatch):
    limit_memory(monkeypatch, 1_000_000)
    monkeypatch.setattr(memory, "reusable_memory", lambda: 1_000_000_000)
    memory.require_memory(census_model(), 400, 500, 16)


def test_too_many_disparities_for_the_memory(sample_crop, monkeypatch):
    limit_memory(monkeypatch, 30_000_000)
    with pytest.raises(OutOfMemoryError, match="Use at most `disparities="):
        Stereo("census", "cpu").match(*sample_crop, disparities=60_000)


@pytest.mark.parametrize("method", ["crf", "argmax"])
def test_suggested_number_of_disparities_is_the_largest_that_fits(monkeypatch, method):
    """And the same whatever was asked for."""
    limit_memory(monkeypatch, 400_000_000)
    advice = set()
    for asked in (1000, 512, 511):
        with pytest.raises(OutOfMemoryError) as caught:
            memory.require_memory(census_model(), 400, 500, asked, method=method)
        advice.add(int(str(caught.value).split("`disparities=")[1].split("`")[0]))
    (suggested,) = advice
    memory.require_memory(census_model(), 400, 500, suggested, method=method)
    assert suggested > 100
    with pytest.raises(OutOfMemoryError):
        memory.require_memory(census_model(), 400, 500, suggested + 1, method=method)


@pytest.mark.parametrize("pyramid", [{}, {"half_weight": 0.25, "quarter_weight": 0.5}])
@pytest.mark.parametrize("method", ["crf", "argmax"])
def test_more_labels_never_need_less(pyramid, method):
    model = with_config(load_model("general-fast"), **pyramid)
    needs = [memory.inference_memory(model, 300, 400, k, method) for k in range(1, 600)]
    assert needs == sorted(needs)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    "row",
    [
        ("general", False, "crf", 640, 480, 64, 2, "one"),
        ("general-fast", True, "crf", 640, 480, 64, 2, "one"),
        ("general-fast", False, "crf", 640, 480, 64, 2, "both"),
        ("general-fast", False, "crf", 640, 480, 64, 2, "both, confidence, filled"),
    ],
)
def test_estimate_is_what_a_prediction_takes(row):
    """Within a quarter here; docs/reliability.md has the figures."""
    number = str(memory_check.GRID.index(row))
    command = [sys.executable, memory_check.__file__, "--row", number]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    estimated, taken = map(int, done.stdout.split())
    assert 0.8 < estimated / taken < 1.25


def test_image_too_large_for_the_memory(monkeypatch):
    limit_memory(monkeypatch, 1_000_000)
    with pytest.raises(OutOfMemoryError, match="Use smaller images"):
        memory.require_memory(census_model(), 4000, 5000, 1)


def test_memory_estimate_is_at_most_three_volumes_and_features():
    volume = 375 * 1242 * 128 * 4
    features = 2 * 375 * 1242 * 100 * 4
    assert memory.inference_memory(census_model(), 375, 1242, 128) <= 3 * volume + features


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 B"), (1536, "1.5 kB"), (3 << 30, "3.0 GB"), (1 << 42, "4096.0 GB")]
)
def test_bytes_are_readable(count, text):
    assert system.format_bytes(count) == text


def test_costs_from_elsewhere_leave_room_for_the_crf(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    monkeypatch.setattr(memory, "reusable_memory", lambda: 0)
    assert memory.volume_memory() == 500
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    assert memory.volume_memory() is None


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("pyramid", [{}, {"half_weight": 0.25}])
def test_training_through_the_minorant_keeps_two_volumes_of_every_iteration(on_device, pyramid):
    model = with_config(load_model("general-fast"), **pyramid)
    height, width, labels = 100, 200, 256
    volume = 4 * height * width * labels
    plain = memory.training_memory(model, height, width, labels)
    needs = [
        memory.training_memory(model, height, width, labels, iterations, on_device)
        for iterations in (1, 2, 5)
    ]
    assert np.diff(needs).tolist() == [2 * volume, 6 * volume]
    assert needs[0] > plain


def test_scratch_of_a_gpu_is_bounded():
    for size in ((200, 400), (1000, 1500)):
        assert gradient_scratch(*size, 256, on_device=True) <= 512 << 20
    assert gradient_scratch(4, 5, 6, on_device=True) < 1 << 20


def test_training_through_the_minorant_is_refused_where_the_hinge_fits(monkeypatch):
    model, size = load_model("general-fast"), (100, 200, 256)
    limit_memory(monkeypatch, memory.training_memory(model, *size))
    cpu = select("cpu")
    memory.require_training_memory(model, *size, cpu)
    with pytest.raises(OutOfMemoryError, match="A training step on 200x100 pixels"):
        memory.require_training_memory(model, *size, cpu, minorant_iterations=1)
