"""Strips of rows: they cover the image once, fit, and begin where the pyramid's pixels do."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo import stereo as stereo_module
from hybridstereo.errors import InputError, OutOfMemoryError
from hybridstereo.features import ConvLayer
from hybridstereo.kernels import reusable_memory
from hybridstereo.memory import inference_memory
from hybridstereo.model import StereoModel, with_config
from hybridstereo.models.zoo import load_model
from hybridstereo.stereo import Stereo
from hybridstereo.strips import CRF_ROWS, overlap_of, plan_strips
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.system import resident_memory


@pytest.mark.parametrize("height", [1, 37, 200, 201, 1000, 4001])
@pytest.mark.parametrize("rows", [16, 130, 180, 400])
@pytest.mark.parametrize("overlap", [4, 52])
def test_strips_cover_every_row_once(height, rows, overlap):
    strips = plan_strips(height, rows, overlap)
    covered = [y for strip in strips for y in range(strip.first, strip.last)]
    assert covered == list(range(height))
    for strip in strips:
        assert strip.top % 4 == 0
        assert strip.top == max(strip.first - overlap, 0)
        assert strip.bottom == min(strip.last + overlap, height)
        if rows >= 2 * overlap + 16:
            assert strip.bottom - strip.top <= max(rows, 0) + 4


def test_an_image_that_fits_is_one_strip():
    assert len(plan_strips(100, 100, 8)) == 1
    assert len(plan_strips(100, 99, 8)) > 1


def test_overlap_is_what_networks_and_crf_see():
    model = load_model("general")
    plain = with_config(model, half_weight=0.0, quarter_weight=0.0)
    deep = with_config(model, half_weight=0.25, quarter_weight=0.5)
    assert overlap_of(plain) >= CRF_ROWS + 4
    assert overlap_of(deep) >= CRF_ROWS + 16
    assert overlap_of(deep) % 4 == 0


@pytest.fixture(scope="module")
def pair():
    scene = generate_scene(5, SceneOptions(width=96, height=330, max_disparity=16))
    return scene.left, scene.right


def divided(monkeypatch, rows: int) -> None:
    """Let no more than so many rows fit at once."""
    monkeypatch.setattr(stereo_module, "rows_at_once", lambda *_, **__: rows)


@pytest.mark.parametrize("pyramid", [(0.0, 0.0), (0.25, 0.5)])
def test_strips_give_the_costs_of_the_whole(pair, monkeypatch, pyramid):
    """Without a CRF nothing couples far rows, so that a strip is what the whole image is."""
    weights = dict(zip(("half_weight", "quarter_weight"), pyramid, strict=True))
    stereo = Stereo(with_config(load_model("general-fast"), **weights), device="cpu")
    whole = stereo.match(*pair, 16, method="argmax", refine=True)
    divided(monkeypatch, 160)
    seen = []
    parts = stereo.match(
        *pair, 16, method="argmax", refine=True, on_strip=lambda *x: seen.append(x)
    )
    assert parts.strips == len(seen) > 1
    assert seen[-1] == (parts.strips - 1, parts.strips)
    assert (parts.energy, parts.bounds) == (None, None)
    assert np.mean(np.abs(parts.disparity - whole.disparity) > 1e-3) < 1e-3


def test_strips_know_where_they_lie(pair, monkeypatch, rng):
    """A network that is given coordinates gets those of the whole image."""
    layers = (ConvLayer(rng.standard_normal((8, 5, 3, 3)).astype(np.float32), None),)
    stereo = Stereo(StereoModel(layers), device="cpu")
    whole = stereo.match(*pair, 16, method="argmax")
    divided(monkeypatch, 160)
    assert np.mean(stereo.match(*pair, 16, method="argmax").disparity != whole.disparity) < 1e-3


def test_crf_in_strips_is_close_to_that_of_the_whole(pair, monkeypatch):
    stereo = Stereo("general-fast", device="cpu")
    whole = stereo.match(*pair, 16)
    divided(monkeypatch, 180)
    parts = stereo.match(*pair, 16)
    assert parts.strips > 1
    assert np.mean(np.abs(parts.disparity - whole.disparity) > 1) < 0.03


def test_memory_that_is_given_is_kept_to(pair):
    stereo = Stereo("general-fast", device="cpu")
    stereo.match(*pair, 16)  # compiled, buffers in place
    in_use = resident_memory() - reusable_memory()
    height, width, _ = pair[0].shape
    needed = inference_memory(stereo.model, height, width, 16)
    assert stereo.match(*pair, 16, max_memory=2 * in_use + 2 * needed).strips == 1
    with pytest.raises(OutOfMemoryError):
        stereo.match(*pair, 16, max_memory=in_use // 2)


def test_volumes_are_never_divided(pair, monkeypatch):
    divided(monkeypatch, 160)
    result = Stereo("census", device="cpu").match(*pair, 8, volumes=True)
    assert result.strips == 1
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
