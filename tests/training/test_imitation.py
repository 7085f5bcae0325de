from __future__ import annotations

import numpy as np

from hybridstereo.datasets import StereoPair
from hybridstereo.edges import edges_forward, edges_input
from hybridstereo.models.census import census_model
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.training.imitation import imitate_contrast


def pair(seed):
    scene = generate_scene(seed, SceneOptions(height=96, width=128, objects=6))
    return StereoPair(scene.left, scene.right, scene.disparity, ~scene.occlusion)


def test_network_explains_the_contrast_weights_of_new_images(backend):
    model = census_model()
    learnt, explained = imitate_contrast(model, backend, [pair(s) for s in range(3)], seed=0)
    assert 0.6 < explained < 1
    assert learnt.config.edge_model == "cnn"
    assert learnt.config.weight_scale == 1.0
    unseen = pair(9)
    wanted, found = (
        edges_forward(backend, edges_input(unseen.left, x.edges), x.edges) for x in (model, learnt)
    )
    for a, b, cut in ((wanted.wx, found.wx, np.s_[:, :-1]), (wanted.wy, found.wy, np.s_[:-1])):
        assert np.var(a[cut] - b[cut]) < 0.5 * np.var(a[cut])
        assert abs(a[cut].mean() - b[cut].mean()) < 0.1 * a[cut].mean()


def test_deterministic_by_seed(backend):
    pairs = [pair(1)]
    first, second, other = (
        imitate_contrast(census_model(), backend, pairs, seed)[0] for seed in (0, 0, 1)
    )
    for a, b in zip(first.pairwise, second.pairwise, strict=True):
        np.testing.assert_array_equal(a.weight, b.weight)
    assert not np.array_equal(first.pairwise[1].weight, other.pairwise[1].weight)
