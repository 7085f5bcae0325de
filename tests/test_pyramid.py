"""The stage `pyramid`: sizes, labels and truth of the coarser levels, sums and their gradients."""

from __future__ import annotations

from dataclasses import replace

import naive
import numpy as np
import pytest
from support.gradcheck import assert_gradients
from support.networks import as_pairs, network, stereo_model

from hybridstereo import kernels
from hybridstereo.errors import ModelError
from hybridstereo.labels import LabelRange
from hybridstereo.model import StereoModel, with_config
from hybridstereo.pyramid import (
    half_labels,
    half_size,
    half_truth,
    level_statistics,
    pyramid_backward,
    pyramid_forward,
)
from hybridstereo.stereo import Stereo


def test_half_size_is_the_mean_of_four_pixels_and_repeats_the_border(rng):
    image = rng.random((5, 7, 3)).astype(np.float32)
    half = half_size(image)
    assert half.shape == (3, 4, 3)
    np.testing.assert_allclose(half[1, 2], image[2:4, 4:6].mean(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(half[2, 3], image[4, 6], rtol=1e-6)


@pytest.mark.parametrize("labels", [LabelRange(0.0, 8), LabelRange(-3.0, 9, 0.5)])
def test_label_k_reads_label_k_over_2(labels):
    coarse = half_labels(labels)
    np.testing.assert_allclose(2 * coarse.disparities[: -(-labels.count // 2)],
                               labels.disparities[::2])  # fmt: skip
    assert 2 * coarse.maximum >= labels.maximum


def test_truth_is_halved_where_one_surface_is_seen():
    disparity = np.array([[4, 6, 9, 2], [5, np.inf, 9, 2]], np.float32)
    valid = np.array([[1, 0, 1, 1], [1, 1, 1, 1]], bool)
    half, seen = half_truth(disparity, valid)
    np.testing.assert_array_equal(seen, [[True, False]])
    assert half[0, 0] == 2.25
    assert half[0, 1] == np.inf


def test_statistics_of_all_sizes(rng):
    image = rng.random((8, 8, 3))
    whole, half, quarter = level_statistics(image)
    np.testing.assert_allclose(half.mean, whole.mean)
    assert (quarter.scale > half.scale).all()
    assert (half.scale > whole.scale).all()


def test_sums_and_their_gradients(rng):
    backend = kernels.select("cpu")
    shapes, weights = [(6, 7, 9), (3, 4, 5), (2, 2, 3)], np.array([0.4, 0.7])
    levels = {str(i): rng.standard_normal(shape) for i, shape in enumerate(shapes)}
    dcosts = rng.standard_normal(shapes[0])

    def forward():
        return pyramid_forward(backend, list(levels.values()), list(weights), in_place=False)

    expected = levels["1"] + 0.7 * naive.upsampled(levels["2"], shapes[1])
    expected = levels["0"] + 0.4 * naive.upsampled(expected, shapes[0])
    np.testing.assert_allclose(forward()[0], expected)
    dlevels, dweights = pyramid_backward(backend, dcosts, forward(), list(weights))
    gradients = {str(i): x for i, x in enumerate(dlevels)} | {"weights": np.array(dweights)}
    assert_gradients(
        lambda: float((dcosts * forward()[0]).sum()), levels | {"weights": weights}, gradients, rng
    )


def test_model_adds_the_costs_of_smaller_images(backend, rng):
    left = rng.random((9, 14, 3)).astype(np.float32)
    right, labels = np.roll(left, -2, axis=1), LabelRange(0.0, 7)
    model = with_config(stereo_model(rng, "contrast"), half_weight=0.5, quarter_weight=0.25)
    views, levels, at = (left, right), [], labels
    for _ in range(3):
        features = (naive.unary_features(x, as_pairs(model.unary), False) for x in views)
        levels.append(naive.unary_cost(naive.scores(*features, at.disparities)))
        views, at = tuple(half_size(x) for x in views), half_labels(at)
    expected = levels[1] + 0.25 * naive.upsampled(levels[2], levels[1].shape)
    expected = levels[0] + 0.5 * naive.upsampled(expected, levels[0].shape)
    stereo = Stereo(model, backend)
    np.testing.assert_allclose(stereo.matching_costs(left, right, labels), expected, atol=2e-5)
    result = stereo.match(left, right, labels=labels)
    assert "pyramid" in result.seconds
    plain = Stereo(with_config(model, half_weight=0.0, quarter_weight=0.0), backend)
    np.testing.assert_allclose(plain.matching_costs(left, right, labels), levels[0], atol=2e-5)


def test_any_size_has_a_pyramid(backend, rng):
    model = with_config(stereo_model(rng, "cnn"), half_weight=0.5, quarter_weight=0.25)
    for size in ((1, 1), (1, 8), (7, 1), (2, 3)):
        left = rng.random((*size, 3)).astype(np.float32)
        for count in (1, 2, 5):
            result = Stereo(model, backend).match(left, left, count)
            assert np.isfinite(result.disparity).all()


def test_weights_of_levels_are_kept_in_files(rng):
    model = with_config(StereoModel(tuple(network(rng, 1))), half_weight=0.5)
    stored = model.to_file()
    assert StereoModel.from_file(stored, "m").config.pyramid == (0.5,)
    for name in ("half_weight", "quarter_weight"):
        del stored.config[name]  # a file from before
    assert StereoModel.from_file(stored, "m").config.pyramid == ()


@pytest.mark.parametrize(
    "weights", [{"half_weight": -0.1}, {"quarter_weight": 0.5}, {"half_weight": float("nan")}]
)
def test_weights_that_mean_nothing_are_refused(rng, weights):
    model = StereoModel(tuple(network(rng, 1)))
    with pytest.raises(ModelError):
        replace(model, config=replace(model.config, **weights))
