"""Maps of the right view, the left-right check, filling and confidence, as `Stereo` gives them."""

from __future__ import annotations

import numpy as np
import pytest
from support.networks import stereo_model

from hybridstereo import stereo as stereo_module
from hybridstereo.errors import InputError
from hybridstereo.labels import LabelRange
from hybridstereo.memory import device_memory, inference_memory
from hybridstereo.model import with_config
from hybridstereo.models.census import census_model
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.tiles import plan_tiles
from hybridstereo.validity import GOOD, OCCLUDED


@pytest.fixture(scope="module")
def scene():
    return generate_scene(5, SceneOptions(width=96, height=64, max_disparity=20))


@pytest.fixture(scope="module")
def stereo():
    return Stereo("general-fast", "cpu")


@pytest.fixture(scope="module")
def everything(stereo, scene):
    return stereo.match(scene.left, scene.right, 24, view="both", confidence=True)


@pytest.mark.parametrize(
    "labels", [LabelRange(0.0, 7), LabelRange(-3.0, 8), LabelRange(-1.5, 9, 0.5)]
)
@pytest.mark.parametrize(("pyramid", "softmax"), [(0.0, "left"), (0.5, "left"), (0.5, "mutual")])
def test_right_view_is_a_left_one_with_mirrored_labels(backend, rng, labels, pyramid, softmax):
    left = rng.random((9, 14, 3)).astype(np.float32)
    right = np.roll(left, -2, axis=1)
    levels = {"half_weight": pyramid, "quarter_weight": pyramid / 2}
    model = with_config(stereo_model(rng, "contrast"), softmax=softmax, **levels)
    stereo = Stereo(model, backend)
    expected = stereo.match(right, left, labels=labels.mirrored(), volumes=True)
    found = stereo.match(left, right, labels=labels, view="right", volumes=True)
    assert (found.view, found.label_range, found.right) == ("right", labels, None)
    np.testing.assert_array_equal(found.disparity, -expected.disparity)
    np.testing.assert_array_equal(found.minorant, expected.minorant[..., ::-1])
    both = stereo.match(left, right, labels=labels, view="both")
    np.testing.assert_array_equal(both.right.disparity, found.disparity)
    alone = stereo.match(left, right, labels=labels)
    np.testing.assert_array_equal(both.disparity, alone.disparity)
    assert alone.right is None


def test_confidence_on_any_device(backend, rng):
    left = rng.random((9, 14, 3)).astype(np.float32)
    right = np.roll(left, -2, axis=1)
    model = stereo_model(rng, "contrast")
    expected, found = (
        Stereo(model, device).match(left, right, 6, view="both", confidence=True)
        for device in ("cpu", backend)
    )
    for one, other in ((expected, found), (expected.right, found.right)):
        np.testing.assert_array_equal(one.validity, other.validity)
        np.testing.assert_allclose(one.cues.margin, other.cues.margin, atol=1e-5)
        np.testing.assert_allclose(one.confidence, other.confidence, atol=1e-4)


def test_both_views_are_right(everything, scene):
    for result, truth in (
        (everything, scene.disparity),
        (everything.right, scene.right_disparity),
    ):
        error = np.abs(result.disparity - truth)
        seen = result.validity == GOOD
        assert np.mean(error[seen] <= 1) > 0.88
        # What the other view does not confirm is wrong more often, and the confidence knows.
        assert np.mean(error[~seen] <= 1) < 0.7
        assert result.confidence[seen].mean() > 0.85 > result.confidence[~seen].mean()
        right = error <= 2
        assert result.confidence[right].mean() > result.confidence[~right].mean() + 0.15
    assert np.mean(everything.validity[scene.occlusion] == OCCLUDED) > 0.5


def test_checked_and_filled_maps(stereo, scene, everything):
    checked = stereo.match(scene.left, scene.right, 24, lr_check=True)
    good = checked.validity == GOOD
    np.testing.assert_array_equal(checked.validity, everything.validity)
    np.testing.assert_array_equal(np.isfinite(checked.disparity), good)
    np.testing.assert_array_equal(checked.disparity[good], everything.disparity[good])
    filled = stereo.match(scene.left, scene.right, 24, fill=True)
    assert np.isfinite(filled.disparity).all()
    np.testing.assert_array_equal(filled.disparity[good], everything.disparity[good])
    assert {"check", "filling"} <= set(filled.seconds)
    before, after = (
        np.mean(np.abs(x.disparity - scene.disparity) > 1) for x in (everything, filled)
    )
    assert after < before - 0.02
    # The right view is filled the same way.
    right = everything.filled().right
    assert np.isfinite(right.disparity).all()
    assert not np.isfinite(everything.masked().right.disparity).all()


def test_right_view_can_be_checked_too(stereo, scene, everything):
    result = stereo.match(scene.left, scene.right, 24, view="right", confidence=True, lr_check=True)
    np.testing.assert_array_equal(result.confidence, everything.right.confidence)
    np.testing.assert_array_equal(np.isfinite(result.disparity), result.validity == GOOD)


def test_features_are_computed_once(scene, monkeypatch):
    from hybridstereo import pipeline

    calls = []
    real = pipeline.features_of_views
    monkeypatch.setattr(
        pipeline, "features_of_views", lambda *arguments: calls.append(0) or real(*arguments)
    )
    Stereo("census", "cpu").match(scene.left, scene.right, 8, view="both", lr_check=True)
    assert len(calls) == 1


@pytest.mark.parametrize("size", [(160, 400), (160, 200)])
def test_tiles(scene, monkeypatch, size):
    """Each view in tiles of its own; the right one looks to the other side."""
    stereo = Stereo("census", "cpu")
    tall = [np.tile(view, (4, 3, 1)) for view in (scene.left, scene.right)]
    options = {"disparities": 20, "view": "both", "confidence": True, "fill": True}
    whole = stereo.match(*tall, **options)
    monkeypatch.setattr(
        stereo_module,
        "tiles_that_fit",
        lambda model, height, width, labels, *_: plan_tiles(height, width, size, labels, model),
    )
    told = []
    tiles = stereo.match(*tall, **options, on_tile=lambda *x: told.append(x))
    assert tiles.tiles > 1
    assert told == [(done, 2 * tiles.tiles) for done in range(2 * tiles.tiles)]
    for one, other in ((whole, tiles), (whole.right, tiles.right)):
        assert np.mean(np.abs(one.disparity - other.disparity) > 1) < 0.02
        assert np.mean(np.abs(one.confidence - other.confidence)) < 0.05
        assert np.mean(one.validity != other.validity) < 0.02


def test_reduced_views(scene):
    result = Stereo("census", "cpu").match(
        scene.left[:63, :95], scene.right[:63, :95], 20, scale=2, confidence=True, fill=True
    )
    assert result.disparity.shape == result.confidence.shape == result.validity.shape == (63, 95)
    assert np.isfinite(result.disparity).all()
    checked = Stereo("census", "cpu").match(
        scene.left[:63, :95], scene.right[:63, :95], 20, scale=2, lr_check=True
    )
    np.testing.assert_array_equal(np.isfinite(checked.disparity), checked.validity == GOOD)


def test_any_size(rng):
    stereo = Stereo("census", "cpu")
    for size in ((1, 1), (1, 8), (7, 1), (2, 3)):
        image = rng.random((*size, 3)).astype(np.float32)
        for count in (1, 2, 5):
            result = stereo.match(image, image, count, view="both", confidence=True, fill=True)
            assert np.isfinite(result.disparity).all()
            assert ((result.confidence >= 0) & (result.confidence <= 1)).all()


def test_what_cannot_be_is_refused(scene):
    stereo = Stereo("census", "cpu")
    with pytest.raises(InputError, match="no view 'top'"):
        stereo.match(scene.left, scene.right, 8, view="top")
    with pytest.raises(InputError, match="no confidence with `method=argmax`"):
        stereo.match(scene.left, scene.right, 8, confidence=True, method="argmax")
    result = stereo.match(scene.left, scene.right, 8, method="argmax", lr_check=True)
    assert not np.isfinite(result.disparity).all()
    plain = stereo.match(scene.left, scene.right, 8)
    with pytest.raises(InputError, match="The views were not compared"):
        plain.filled()


def test_memory_of_two_views():
    model = census_model()
    volume = 4 * 300 * 400 * 512
    for need in (inference_memory, device_memory):
        one, two = need(model, 300, 400, 512), need(model, 300, 400, 512, views=2)
        assert one + 0.5 * volume < two < one + 2.2 * volume
