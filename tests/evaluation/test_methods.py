"""Models, folders of maps and folders of volumes as methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hybridstereo.datasets.pair import truth_pair
from hybridstereo.errors import InputError
from hybridstereo.evaluation.methods import (
    FileMethod,
    MapsMethod,
    ModelMethod,
    RefinedAndNot,
    VolumesMethod,
)
from hybridstereo.evaluation.scenes import Scene
from hybridstereo.io.disparity import write_disparity
from hybridstereo.io.volumes import write_volume
from hybridstereo.labels import LabelRange
from hybridstereo.model import with_config
from hybridstereo.models.census import census_model
from hybridstereo.options import MatchOptions
from hybridstereo.stereo import Stereo


@pytest.fixture
def target(rng):
    left = rng.random((24, 32, 3), np.float32)
    truth = np.full((24, 32), 3, np.float32)
    return truth_pair(truth, left=left, right=np.roll(left, -3, axis=1), ndisp=7)


@pytest.fixture
def scene(target):
    return Scene("s", ("s",), lambda: target)


def test_labels_cover_the_range():
    """Those of `labels.labels_for`, with the range of the data set."""

    def labels(options=None, **config):
        stereo = Stereo(with_config(census_model(), **config), "cpu")
        return stereo.label_range(1000, options or MatchOptions(), 60)

    assert labels() == LabelRange(census_model().config.min_disparity, 60)
    assert labels(MatchOptions(paper_labels=True)).count == 64
    assert labels(MatchOptions(disparities=10)).count == 10
    assert labels(min_disparity=-4.0).maximum == 59
    assert labels(min_disparity=0.0, step=0.5) == LabelRange(0.0, 120, 0.5)


def test_model_gives_what_match_gives(backend, scene, target):
    model = census_model()
    outcome = ModelMethod("m", Stereo(model, backend), MatchOptions(iterations=2)).compute(
        scene, target
    )
    labels = LabelRange(model.config.min_disparity, 7)
    expected = Stereo(model, backend).match(target.left, target.right, labels=labels, iterations=2)
    np.testing.assert_array_equal(outcome.disparity, expected.disparity)
    assert outcome.seconds > 0


def test_refined_and_not_share_one_run(backend, scene, target, monkeypatch):
    model, options = census_model(), MatchOptions(iterations=2)
    alone = [
        ModelMethod("m", Stereo(model, backend), replace(options, refine=refine)).compute(
            scene, target
        )
        for refine in (False, True)
    ]
    runs = []
    whole = ModelMethod.match

    def counted(self, target):
        runs.append(target)
        return whole(self, target)

    monkeypatch.setattr(ModelMethod, "match", counted)
    both = RefinedAndNot("m", Stereo(model, backend), options)
    assert [both.unrefined.info.name, both.refined.info.name] == ["m", "m, refined"]
    for method, expected in zip((both.unrefined, both.refined), alone, strict=True):
        found = method.compute(scene, target).disparity
        np.testing.assert_array_equal(found, expected.disparity)
    assert runs == [target]
    other = replace(target, left=target.right)
    both.refined.compute(scene, other)
    assert runs == [target, other]


def test_model_says_how_it_is_run(backend):
    info = ModelMethod("m", Stereo(census_model(), backend), MatchOptions(iterations=2)).info
    assert (info.name, info.kind) == ("m", "model")
    assert "2 iterations" in info.settings
    assert "refined" in info.settings
    way = MatchOptions(method="argmax", paper_labels=True)
    info = ModelMethod("m", Stereo(census_model(), backend), way, baseline=True).info
    assert info.kind == "baseline"
    assert "no CRF, not refined, labels rounded" in info.settings


def test_model_needs_images(backend, scene):
    with pytest.raises(InputError, match="no images"):
        ModelMethod("m", Stereo(census_model(), backend)).compute(
            scene, truth_pair(np.zeros((2, 2)))
        )


def test_maps_of_a_folder(tmp_path, scene, target):
    write_disparity(tmp_path / "s.pfm", target.disparity)
    for method in (MapsMethod("m", tmp_path), FileMethod(tmp_path / "s.pfm")):
        outcome = method.compute(scene, target)
        np.testing.assert_array_equal(outcome.disparity, target.disparity)
        assert outcome.seconds is None
        assert method.info.kind == "folder"


@pytest.mark.parametrize("way", ["crf", "argmax"])
@pytest.mark.parametrize("suffix", [".npy", ".h5", ".bin"])
def test_our_own_volumes_give_our_own_map(tmp_path, backend, scene, target, way, suffix):
    model, labels = census_model(), LabelRange(0.0, 7)
    costs = Stereo(model, backend).matching_costs(target.left, target.right, labels)
    write_volume(tmp_path / f"s{suffix}", costs / 2, labels.minimum, labels.step)
    options = MatchOptions(method=way)
    method = VolumesMethod("v", tmp_path, Stereo(model, backend), options, scale=2.0)
    expected = Stereo(model, backend).match(target.left, target.right, labels=labels, method=way)
    np.testing.assert_array_equal(method.compute(scene, target).disparity, expected.disparity)
    assert method.info.kind == "volume"


def test_volume_with_unknown_labels(tmp_path, backend, scene, target):
    costs = np.ones((24, 32, 7), np.float32)
    costs[:, :, 3] = 0
    costs[:, :3, 3:] = np.nan  # MC-CNN knows nothing beyond the border
    write_volume(tmp_path / "s.bin", costs, 0, 1)
    method = VolumesMethod("v", tmp_path, Stereo(census_model(), backend))
    disparity = method.compute(scene, target).disparity
    assert np.isfinite(disparity).all()
    np.testing.assert_allclose(disparity[:, 4:], 3, atol=0.01)


def test_volume_needs_the_left_image(tmp_path, backend, scene):
    method = VolumesMethod("v", tmp_path, Stereo(census_model(), backend))
    with pytest.raises(InputError, match="left image"):
        method.compute(scene, truth_pair(np.zeros((2, 2))))


def test_checked_filled_and_confident_maps_of_a_model(scene, target):
    stereo = Stereo(census_model(), "cpu")
    plain = ModelMethod("m", stereo).compute(scene, target)
    assert plain.unfilled is None
    assert plain.confidence is None
    options = MatchOptions(fill=True, confidence=True)
    method = ModelMethod("m", stereo, options)
    filled = method.compute(scene, target)
    assert "left-right check, filled" in method.info.settings
    np.testing.assert_array_equal(filled.unfilled, plain.disparity)
    assert np.isfinite(filled.disparity).all()
    assert (filled.disparity != plain.disparity).any()
    assert filled.confidence.shape == plain.disparity.shape
    checked = ModelMethod("m", stereo, MatchOptions(lr_check=True)).compute(scene, target)
    assert not np.isfinite(checked.disparity).all()
