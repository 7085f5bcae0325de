"""Tiles: they cover the image once, fit, and begin where the pyramid's pixels do."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo import memory
from hybridstereo import stereo as stereo_module
from hybridstereo.errors import InputError, OutOfMemoryError
from hybridstereo.features import ConvLayer
from hybridstereo.kernels import reusable_memory
from hybridstereo.labels import LabelRange
from hybridstereo.memory import inference_memory, tiles_that_fit
from hybridstereo.model import StereoModel, with_config
from hybridstereo.models.zoo import load_model
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.system import resident_memory
from hybridstereo.tiles import (
    CRF_PIXELS,
    fewest_columns,
    fewest_rows,
    network_reach,
    overlap_of,
    plan_tiles,
)
from hybridstereo.work import stage_work


@pytest.fixture(scope="module")
def model():
    return load_model("general-fast")


@pytest.mark.parametrize("size", [(1, 37), (37, 1), (200, 900), (1001, 313)])
@pytest.mark.parametrize("most", [(16, 70), (130, 10_000), (400, 400), (10_000, 181)])
@pytest.mark.parametrize("labels", [LabelRange(0.0, 64), LabelRange(-70.0, 90), LabelRange(500, 9)])
def test_tiles_cover_every_pixel_once(model, size, most, labels):
    tiles = plan_tiles(*size, most, labels, model)
    times = np.zeros(size, int)
    overlap = overlap_of(model)
    for tile in tiles:
        times[tile.rows.kept, tile.columns.kept] += 1
        for extent, length, limit, fewest in zip(
            (tile.rows, tile.columns),
            size,
            most,
            (fewest_rows(model), fewest_columns(model)),
            strict=True,
        ):
            assert extent.begin == max(extent.first - overlap, 0)
            assert extent.end == min(extent.last + overlap, length)
            assert extent.begin % 4 == 0
            assert extent.length <= max(limit, fewest)
    assert (times == 1).all()


@pytest.mark.parametrize("labels", [LabelRange(0.0, 64), LabelRange(-70.0, 90), LabelRange(500, 9)])
def test_labels_see_the_same_columns_as_in_the_whole(model, labels):
    """And so do the networks, unless the view ends there."""
    width, reach = 900, network_reach(model)
    for tile in plan_tiles(100, width, (100, 300), labels, model):
        first, last = tile.other
        assert first % 4 == 0
        for x in (tile.columns.begin, tile.columns.end - 1):
            for disparity in (labels.minimum, labels.maximum):
                at = int(x - disparity)
                if 0 <= at < width:
                    assert first == 0 or at - first >= reach
                    assert last == width or last - at > reach
                else:
                    assert not first <= at < last


def test_an_image_that_fits_is_one_tile(model):
    assert len(plan_tiles(100, 90, (100, 90), LabelRange(0.0, 8), model)) == 1
    assert len(plan_tiles(100, 90, (99, 90), LabelRange(0.0, 8), model)) > 1


def test_overlap_is_what_networks_and_crf_see():
    model = load_model("general")
    plain = with_config(model, half_weight=0.0, quarter_weight=0.0)
    deep = with_config(model, half_weight=0.25, quarter_weight=0.5)
    assert overlap_of(plain) >= CRF_PIXELS + 4
    assert overlap_of(deep) >= CRF_PIXELS + 16
    assert overlap_of(deep) % 4 == 0


def total_work(model, tiles, labels: int) -> float:
    return sum(sum(stage_work(model, tile, labels).values()) for tile in tiles)


def test_narrow_tiles_are_taken_where_low_ones_would_waste_work(model, monkeypatch):
    """24 megapixels with 512 labels and 4 GiB."""
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    monkeypatch.setattr(memory, "resident_memory", lambda: 900_000_000)
    labels = LabelRange(0.0, 512)
    tiles = tiles_that_fit(model, 4000, 6000, labels, max_memory=4 << 30)
    whole = plan_tiles(4000, 6000, (4000, 6000), labels, model)
    assert total_work(model, tiles, 512) < 1.5 * total_work(model, whole, 512)
    for tile in tiles:
        right = tile.other[1] - tile.other[0]
        needed = inference_memory(
            model, tile.rows.length, tile.columns.length, 512, right_width=right
        )
        assert needed < 0.8 * ((4 << 30) - 900_000_000)


@pytest.fixture(scope="module")
def pair():
    scene = generate_scene(5, SceneOptions(width=330, height=260, max_disparity=16))
    return scene.left, scene.right


def divided(monkeypatch, rows: int, columns: int) -> None:
    """Let no more than so many rows and columns fit at once."""

    def tiles_that_fit(model, height, width, labels, *_):
        return plan_tiles(height, width, (rows, columns), labels, model)

    monkeypatch.setattr(stereo_module, "tiles_that_fit", tiles_that_fit)


SIZES = [(160, 400), (400, 180), (180, 200)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pyramid", [(0.0, 0.0), (0.25, 0.5)])
def test_tiles_give_the_costs_of_the_whole(pair, monkeypatch, pyramid, size):
    """Without a CRF nothing couples far pixels, so that a tile is what the whole image is."""
    weights = dict(zip(("half_weight", "quarter_weight"), pyramid, strict=True))
    stereo = Stereo(with_config(load_model("general-fast"), **weights), device="cpu")
    labels = LabelRange(-3.0, 24)
    whole = stereo.match(*pair, labels=labels, method="argmax", refine=True)
    divided(monkeypatch, *size)
    seen = []
    parts = stereo.match(
        *pair, labels=labels, method="argmax", refine=True, on_tile=lambda *x: seen.append(x)
    )
    assert parts.tiles == len(seen) > 1
    assert seen[-1] == (parts.tiles - 1, parts.tiles)
    assert (parts.energy, parts.bounds) == (None, None)
    assert np.mean(np.abs(parts.disparity - whole.disparity) > 1e-3) < 1e-3


def test_tiles_know_where_they_lie(pair, monkeypatch, rng):
    """A network that is given coordinates gets those of the whole image."""
    layers = (ConvLayer(rng.standard_normal((8, 5, 3, 3)).astype(np.float32), None),)
    stereo = Stereo(StereoModel(layers), device="cpu")
    whole = stereo.match(*pair, 16, method="argmax")
    divided(monkeypatch, 180, 200)
    assert np.mean(stereo.match(*pair, 16, method="argmax").disparity != whole.disparity) < 1e-3


@pytest.mark.parametrize("size", SIZES)
def test_crf_in_tiles_is_close_to_that_of_the_whole(pair, monkeypatch, size):
    stereo = Stereo("general-fast", device="cpu")
    whole = stereo.match(*pair, 16)
    divided(monkeypatch, *size)
    parts = stereo.match(*pair, 16)
    assert parts.tiles > 1
    assert np.mean(np.abs(parts.disparity - whole.disparity) > 1) < 0.03


def test_memory_that_is_given_is_kept_to(pair):
    stereo = Stereo("general-fast", device="cpu")
    stereo.match(*pair, 16)  # compiled, buffers in place
    in_use = resident_memory() - reusable_memory()
    height, width, _ = pair[0].shape
    needed = inference_memory(stereo.model, height, width, 16)
    assert stereo.match(*pair, 16, max_memory=2 * in_use + 2 * needed).tiles == 1
    with pytest.raises(OutOfMemoryError, match=r"that the program holds.*more `max_memory`"):
        stereo.match(*pair, 16, max_memory=in_use // 2)


def test_volumes_are_never_divided(pair, monkeypatch):
    divided(monkeypatch, 160, 400)
    result = Stereo("census", device="cpu").match(*pair, 8, volumes=True)
    assert result.tiles == 1
    assert result.costs.shape == (*pair[0].shape[:2], 8)


@pytest.mark.parametrize("scale", [2, 4])
def test_smaller_views_give_a_map_of_the_same_size(scale):
    scene = generate_scene(8, SceneOptions(width=301, height=203, max_disparity=40))
    stereo = Stereo("general-fast", device="cpu")
    whole = stereo.match(scene.left, scene.right, 48)
    small = stereo.match(scene.left, scene.right, 48, scale=scale)
    assert small.disparity.shape == whole.disparity.shape
    assert small.label_range == whole.label_range
    known = np.isfinite(scene.disparity) & ~scene.occlusion
    error = np.abs(small.disparity - scene.disparity)[known]
    assert np.median(error) < 0.3 * scale
    assert np.mean(error > 2 * scale) < 0.25


def test_scales_that_mean_nothing(pair):
    stereo = Stereo("census", device="cpu")
    with pytest.raises(InputError, match="scale"):
        stereo.match(*pair, 8, scale=3)
    with pytest.raises(InputError, match="volumes"):
        stereo.match(*pair, 8, scale=2, volumes=True)
