"""The infer command as a library: outputs, labels, memory, reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hybridstereo import memory
from hybridstereo.errors import DeviceError, InputError, OutOfMemoryError, OutputError
from hybridstereo.infer import InferOptions, choose_labels, default_outputs, infer
from hybridstereo.io.disparity import read_disparity
from hybridstereo.labels import LabelRange
from hybridstereo.models.census import census_model

SMALL = InferOptions(disparities=16)


@pytest.mark.parametrize("suffix", [".pfm", ".npy", ".tif", ".png"])
def test_suffix_picks_the_format(sample_crop, tmp_path, suffix):
    output = str(tmp_path / f"map{suffix}")
    report = infer(*sample_crop, output, None, SMALL)
    stored = read_disparity(output)
    assert report.outputs == {"disparity": output}
    visible = stored < np.inf  # a 16-bit PNG cannot hold disparity 0
    tolerance = 1 / 256 if suffix == ".png" else 0
    expected = report.prediction.disparity
    assert np.abs(stored - expected)[visible].max() <= tolerance
    assert visible.mean() > 0.9


def test_color_picture(sample_crop, tmp_path):
    from hybridstereo.io.images import read_image

    color = str(tmp_path / "c.png")
    report = infer(*sample_crop, str(tmp_path / "d.pfm"), color, SMALL)
    assert report.outputs["color"] == color
    picture = read_image(color)
    assert picture.shape == (40, 60, 3)
    assert picture.std() > 0.1


@pytest.mark.parametrize(("model", "edges"), [("census", "contrast"), ("general", "pairwise_cnn")])
def test_report_for_json(sample_crop, tmp_path, model, edges):
    options = replace(SMALL, model=model)
    report = infer(*sample_crop, str(tmp_path / "d.pfm"), None, options).as_dict()
    assert (report["width"], report["height"]) == (60, 40)
    assert report["labels"] == {
        "count": 16,
        "min_disparity": 0.0,
        "max_disparity": 15.0,
        "step": 1.0,
    }
    assert len(report["lower_bounds"]) == 5
    assert report["lower_bounds"] == report["lower_bounds_per_sweep"][1::2]
    assert report["lower_bounds"][-1] <= report["energy"]
    stages = ["input", "unary_cnn", "correlation", edges, "crf", "refinement", "total"]
    assert list(report["seconds"]) == stages
    assert report["memory"]["volume_bytes"] == 60 * 40 * 16 * 4
    assert report["memory"]["peak_bytes"] > 1e7


def test_argmax_report_has_no_energy(sample_crop, tmp_path):
    options = InferOptions(disparities=8, method="argmax")
    report = infer(*sample_crop, str(tmp_path / "d.pfm"), None, options).as_dict()
    assert report["energy"] is None
    assert report["lower_bounds"] is None
    disparity = read_disparity(tmp_path / "d.pfm")
    np.testing.assert_array_equal(disparity, np.round(disparity))


def test_same_file_twice(sample_crop, tmp_path):
    for name in ("a.pfm", "b.pfm"):
        infer(*sample_crop, str(tmp_path / name), None, SMALL)
    assert (tmp_path / "a.pfm").read_bytes() == (tmp_path / "b.pfm").read_bytes()


@pytest.mark.parametrize(
    ("options", "width", "expected"),
    [
        (InferOptions(), 1000, LabelRange(0, 128)),
        (InferOptions(), 50, LabelRange(0, 50)),
        (InferOptions(), 1, LabelRange(0, 1)),
        (InferOptions(step=0.5), 1000, LabelRange(0, 255, 0.5)),
        (InferOptions(disparities=300), 50, LabelRange(0, 300)),
        (InferOptions(min_disparity=-7.5, disparities=3), 50, LabelRange(-7.5, 3)),
        (InferOptions(disparities=60, paper_labels=True), 50, LabelRange(0, 64)),
    ],
)
def test_labels(options, width, expected):
    assert choose_labels(options, census_model(), width) == expected


def limit_memory(monkeypatch, count):
    """Let the machine have ``count`` bytes left, and our own kernels none in store."""
    monkeypatch.setattr(memory, "available_memory", lambda: count)
    monkeypatch.setattr(memory, "reusable_memory", lambda: 0)


def test_memory_in_store_counts_as_free(monkeypatch):
    limit_memory(monkeypatch, 1_000_000)
    monkeypatch.setattr(memory, "reusable_memory", lambda: 1_000_000_000)
    memory.require_memory(census_model(), 400, 500, 16)


def test_too_many_disparities_for_the_memory(sample_crop, tmp_path, monkeypatch):
    limit_memory(monkeypatch, 10_000_000)
    with pytest.raises(OutOfMemoryError, match="Use --disparities"):
        infer(*sample_crop, str(tmp_path / "d.pfm"), None, InferOptions(disparities=100_000))
    assert not (tmp_path / "d.pfm").exists()


def test_suggested_number_of_disparities_fits(monkeypatch):
    limit_memory(monkeypatch, 400_000_000)
    with pytest.raises(OutOfMemoryError) as caught:
        memory.require_memory(census_model(), 400, 500, 1000)
    suggested = int(str(caught.value).split("--disparities ")[1].split()[0])
    memory.require_memory(census_model(), 400, 500, suggested)
    assert suggested > 100


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
    assert memory.format_bytes(count) == text


def test_cuda_without_a_gpu(sample_crop, tmp_path):
    with pytest.raises(DeviceError, match="--device cpu"):
        infer(*sample_crop, str(tmp_path / "d.pfm"), None, InferOptions(device="cuda"))


def test_too_many_threads(sample_crop, tmp_path):
    with pytest.raises(InputError, match="NUMBA_NUM_THREADS"):
        infer(*sample_crop, str(tmp_path / "d.pfm"), None, InferOptions(threads=10_000))


@pytest.mark.parametrize("output", ["map.xyz", "map", "missing/map.pfm"])
def test_bad_output_is_refused_before_the_work(sample_crop, tmp_path, output, monkeypatch):
    monkeypatch.setattr("hybridstereo.infer.predict", lambda *a, **k: pytest.fail("worked"))
    with pytest.raises(OutputError):
        infer(*sample_crop, str(tmp_path / output), None, SMALL)


def test_failed_write_leaves_the_old_file(sample_crop, tmp_path, monkeypatch):
    output = tmp_path / "d.png"
    output.write_bytes(b"precious")
    options = InferOptions(disparities=4, min_disparity=-20.0)
    with pytest.raises(OutputError):  # negative disparities do not fit a KITTI PNG
        infer(*sample_crop, str(output), None, options)
    assert output.read_bytes() == b"precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.png", "left.png", "right.png"]


def test_default_outputs():
    assert default_outputs("a/b/left.view.png") == (
        "left.view_disparity.pfm",
        "left.view_disparity.png",
    )
    assert default_outputs("-") == ("stdin_disparity.pfm", "stdin_disparity.png")
