"""Corrected right views: found once, the same for all conditions of a scene, cached."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.misaligned import lowered
from support.pairfiles import tidy_scene

from hybridstereo.datasets import Dataset, Sample, StereoPair, open_dataset, rectified
from hybridstereo.datasets.loader import PairCache
from hybridstereo.datasets.pair import build_pair, truth_pair
from hybridstereo.datasets.samples import Conditions
from hybridstereo.io.images import write_image
from hybridstereo.rectification import Camera
from hybridstereo.synthetic import SceneOptions, generate_scene, quantised


@pytest.fixture(scope="module")
def pair() -> StereoPair:
    """A right view that is one and a half rows too low."""
    scene = generate_scene(5, SceneOptions(240, 320, 40.0))
    return build_pair("scene", scene.left, lowered(scene.right, 1.5), scene.disparity)


FILES = (Path("left.png"), Path("right.png"), Path("truth.pfm"))


def dataset_of(*samples: Sample) -> Dataset:
    return Dataset(samples, {"x": 1.0})


def test_right_views_are_corrected_when_they_are_read(pair):
    dataset = rectified(dataset_of(Sample("a", "a", "x", FILES, lambda: pair)))
    better = dataset.load(dataset.samples[0])
    assert better.rectification.corrects
    assert better.rectification.before == pytest.approx(1.5, abs=0.2)
    assert better.rectification.after < 0.25
    assert not np.array_equal(better.right, pair.right)
    for name in ("left", "disparity", "valid"):
        assert getattr(better, name) is getattr(pair, name)
    assert pair.rectification is None


def test_cached_pairs_are_the_corrected_ones(pair, monkeypatch):
    calls = []
    module = "hybridstereo.datasets.rectifying.estimate"
    monkeypatch.setattr(module, partial(_counted, calls))
    dataset = rectified(dataset_of(Sample("a", "a", "x", FILES, lambda: pair)))
    caches = [PairCache(dataset, size) for size in (1 << 30, 0)]
    loaded = [cache.load(dataset.samples[0]) for cache in caches for _ in range(2)]
    assert len(calls) == 1
    for one in loaded[1:]:
        np.testing.assert_array_equal(one.right, loaded[0].right)
        assert one.rectification == loaded[0].rectification


def _counted(calls: list, *arguments):
    from hybridstereo.rectification import estimate

    calls.append(arguments)
    return estimate(*arguments)


def test_all_conditions_share_the_correction_of_the_first_sample(pair, tmp_path):
    """Whichever is asked for first: a resumed run sees what the first one saw."""
    paths = []
    for light in (1.0, 0.5):
        for name, view in (("left", pair.left), ("right", pair.right)):
            paths.append(tmp_path / f"{name}{light}.png")
            write_image(str(paths[-1]), quantised(light * view))
    left, right = tuple(paths[::2]), tuple(paths[1::2])

    def opened() -> Dataset:
        same, different = (
            Sample(name, "a", "x", FILES, lambda: pair, (), Conditions(left, right, differ))
            for name, differ in (("same", False), ("different", True))
        )
        return rectified(dataset_of(same, different))

    dataset = opened()
    views: tuple[Path, Path] = left[0], right[1]
    first = PairCache(dataset).load(dataset.samples[0], views)
    other = opened()
    cache = PairCache(other)
    for _ in range(2):
        second = cache.load(other.samples[1], views)
        np.testing.assert_array_equal(first.right, second.right)
    as_it_is = Sample("same", "a", "x", FILES, lambda: pair, (), Conditions(left, right, False))
    plain = PairCache(dataset_of(as_it_is)).load(as_it_is, views)
    assert not np.array_equal(first.right, plain.right)


def test_a_truth_without_images_has_nothing_to_correct(pair):
    bare = truth_pair(pair.disparity)
    dataset = rectified(dataset_of(Sample("a", "a", "x", FILES, lambda: bare)))
    assert dataset.load(dataset.samples[0]) is bare


def test_generated_scenes_are_exact_already():
    dataset = open_dataset("synthetic", scenes=2)
    assert rectified(dataset).samples == dataset.samples
    assert all(x.correct_right is None for x in rectified(dataset).samples)


def test_middlebury_states_the_camera(tmp_path):
    matrix = "cam1=[500 0 17; 0 500 11; 0 0 1]"
    tidy_scene(tmp_path / "Teddy", calib=f"ndisp=16\n{matrix}")
    tidy_scene(tmp_path / "Pipes")
    dataset = open_dataset("middlebury", tmp_path)
    cameras = {x.name: dataset.load(x).right_camera for x in dataset.samples}
    assert cameras == {"Teddy": Camera(500.0, 17.0, 11.0), "Pipes": None}
