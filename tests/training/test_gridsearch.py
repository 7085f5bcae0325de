from __future__ import annotations

import pytest

from hybridstereo.datasets import Dataset, Sample, StereoPair
from hybridstereo.datasets.loader import PairCache
from hybridstereo.model import with_config
from hybridstereo.models.census import census_model
from hybridstereo.models.zoo import load_model
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.training import gridsearch
from hybridstereo.training.imitation import imitate_contrast
from hybridstereo.training.validation import validate


@pytest.fixture(scope="module")
def data():
    scene = generate_scene(5, SceneOptions(height=48, width=72, max_disparity=14, objects=4))
    pair = StereoPair(scene.left, scene.right, scene.disparity, ~scene.occlusion)
    sample = Sample("scene", "scene", "synthetic", (), lambda: pair)
    dataset = Dataset((sample,), {"synthetic": 1.0})
    return PairCache(dataset), [sample]


def test_best_point_wins_and_every_point_is_reported(backend, data):
    cache, samples = data
    table = []
    found = gridsearch.search(
        census_model(),
        gridsearch.LocalJudge(census_model(), backend, cache, samples),
        "bad1",
        lambda p, f: table.append((p, f["bad1"])),
    )
    assert 30 < len(table) <= gridsearch.plan_length(census_model())
    best_point, best = min(table, key=lambda row: row[1])
    config = found.config
    assert {name: getattr(config, name) for name in best_point} == best_point
    assert validate(found, backend, cache, samples, "crf")["bad1"] == pytest.approx(best)
    start = validate(census_model(), backend, cache, samples, "crf")["bad1"]
    assert best <= start
    assert all(point["p1"] <= point["p2"] for point, _ in table)
    assert len({tuple(point.values()) for point, _ in table}) == len(table)


def test_edges_are_kept_if_asked_for(backend, data):
    cache, samples = data
    model = with_config(load_model("general-fast"), half_weight=0.25)
    table = []
    found = gridsearch.search(
        model,
        gridsearch.LocalJudge(model, backend, cache, samples),
        "bad1",
        lambda p, f: table.append(p),
        keep_edges=True,
    )
    assert found.config.edge_model == "cnn"
    assert found.pairwise[:-1] == model.pairwise[:-1]
    assert set(table[0]) == {
        "wx_factor", "wy_factor", "p1", "p2", "half_weight", "quarter_weight",
    }  # fmt: skip
    assert {(x["wx_factor"], x["wy_factor"]) for x in table} > {(1.0, 1.0), (2.0, 0.7)}
    assert 10 < len(table) <= gridsearch.plan_length(model, keep_edges=True)


def test_the_best_imitation_wins(backend, data):
    cache, samples = data
    model = census_model()
    pairs = [cache.load(sample) for sample in samples]
    table = []
    found = gridsearch.search_imitation(
        model,
        gridsearch.LocalJudge(model, backend, cache, samples),
        "bad1",
        lambda p, f: table.append((p, f["bad1"])),
        lambda contrast: imitate_contrast(contrast, backend, pairs, seed=0)[0],
    )
    start, config = model.config, found.config
    unchanged = {"alpha": start.alpha, "p1": start.p1, "p2": start.p2}
    assert any(point == pytest.approx(unchanged) for point, _ in table)
    assert len({tuple(point.values()) for point, _ in table}) == len(table) == 12 + 8
    best_point, best = min(table, key=lambda row: row[1])
    assert config.edge_model == "cnn"
    assert (config.p1, config.p2) == (best_point["p1"], best_point["p2"])
    assert validate(found, backend, cache, samples, "crf")["bad1"] == pytest.approx(best)
