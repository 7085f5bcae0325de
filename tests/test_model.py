from __future__ import annotations

from dataclasses import replace

import naive
import numpy as np
import pytest
from support.networks import as_pairs, network, pairwise_network

from hybridstereo.errors import ModelError
from hybridstereo.features import ConvLayer
from hybridstereo.io.weights import WeightFile
from hybridstereo.labels import LabelRange
from hybridstereo.model import (
    ModelConfig,
    StageClock,
    StereoModel,
    predict,
    predict_from_volume,
    unary_volume,
)
from hybridstereo.models.census import census_model

LABELS = LabelRange(-1.0, 6)


def images(rng, height=9, width=14):
    left = rng.random((height, width, 3)).astype(np.float32)
    return left, np.roll(left, -2, axis=1)


def stereo_model(rng, edge_model):
    pairwise = tuple(pairwise_network(rng)) if edge_model == "cnn" else ()
    return StereoModel(tuple(network(rng, 3)), pairwise, ModelConfig(edge_model=edge_model))


@pytest.mark.parametrize("edge_model", ["contrast", "cnn"])
@pytest.mark.parametrize("labels", [LABELS, LabelRange(0, 9, 0.5)])
def test_prediction_equals_naive_model(backend, rng, edge_model, labels):
    model = stereo_model(rng, edge_model)
    config = model.config
    left, right = images(rng)
    prediction = predict(model, backend, left, right, labels=labels)

    pairs = as_pairs(model.unary)
    phi0, phi1 = (naive.unary_features(image, pairs, False) for image in (left, right))
    f = naive.unary_cost(naive.scores(phi0, phi1, labels.disparities))
    if edge_model == "cnn":
        padding = naive.unary_padding(pairs)
        wx, wy = naive.pairwise_cnn_weights(
            left, as_pairs(model.pairwise), config.weight_scale, padding
        )
    else:
        wx, wy = naive.contrast_weights(left, config.weight_scale, config.alpha, config.beta)
    minorant, bounds = naive.dual_mm(f, wx, wy, config.p1, config.p2, config.iterations)
    chosen = naive.read_out_ties(minorant)
    expected = naive.refine(minorant, chosen, labels.minimum, labels.step)
    np.testing.assert_allclose(prediction.disparity, expected, atol=2e-3)
    np.testing.assert_allclose(prediction.bounds, bounds, rtol=1e-5)
    energy = naive.energy(f, wx, wy, config.p1, config.p2, chosen)
    assert prediction.energy == pytest.approx(energy, rel=1e-5)


def test_argmax_is_the_network_alone(backend, rng):
    model = stereo_model(rng, "contrast")
    left, right = images(rng)
    prediction = predict(model, backend, left, right, labels=LABELS, method="argmax")
    phi0, phi1 = (naive.unary_features(x, as_pairs(model.unary), False) for x in (left, right))
    scores = naive.scores(phi0, phi1, LABELS.disparities)
    np.testing.assert_array_equal(prediction.disparity, scores.argmax(axis=2) - 1.0)
    assert prediction.energy is None
    assert prediction.bounds is None


def test_refinement_can_be_switched(backend, rng):
    model = stereo_model(rng, "contrast")
    left, right = images(rng)
    plain = predict(model, backend, left, right, labels=LABELS, refine=False).disparity
    refined = predict(model, backend, left, right, labels=LABELS).disparity
    np.testing.assert_array_equal(plain, np.round(plain))
    assert 0 < np.abs(refined - plain).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("size", [(1, 1), (1, 8), (8, 1), (2, 3)])
@pytest.mark.parametrize("count", [1, 2, 17])
@pytest.mark.parametrize("edge_model", ["contrast", "cnn"])
def test_any_size_and_any_number_of_labels(backend, rng, size, count, edge_model):
    left, right = images(rng, *size)
    labels = LabelRange(0, count)
    prediction = predict(stereo_model(rng, edge_model), backend, left, right, labels=labels)
    assert prediction.disparity.shape == size
    assert np.isfinite(prediction.disparity).all()
    assert prediction.disparity.min() >= 0
    assert prediction.disparity.max() <= count - 1


def test_stages_are_timed_and_announced_in_order(backend, rng):
    left, right = images(rng)
    seen = []
    prediction = predict(
        stereo_model(rng, "cnn"), backend, left, right, labels=LABELS, on_stage=seen.append
    )
    assert list(dict.fromkeys(seen)) == list(prediction.seconds)
    expected = ["input", "unary_cnn", "correlation", "pairwise_cnn", "crf", "refinement"]
    assert list(prediction.seconds) == expected


@pytest.mark.parametrize("edge_model", ["contrast", "cnn"])
def test_file_round_trip(rng, edge_model):
    model = stereo_model(rng, edge_model)
    again = StereoModel.from_file(model.to_file(), "x.h5")
    assert again.config == model.config
    assert again.parameter_count == model.parameter_count
    for a, b in zip(model.unary + model.pairwise, again.unary + again.pairwise, strict=True):
        np.testing.assert_array_equal(a.weight, b.weight)
        assert (a.bias is None) == (b.bias is None)


def broken(change):
    stored = stereo_model(np.random.default_rng(0), "cnn").to_file()
    config, tensors = dict(stored.config), dict(stored.tensors)
    change(config, tensors)
    return WeightFile(config, tensors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c, t: c.pop("p1"), "'p1' is missing"),
        (lambda c, t: c.update(p1="one"), "'p1' is not a float"),
        (lambda c, t: c.update(iterations=2.5), "'iterations' is not a int"),
        (lambda c, t: c.update(iterations=True), "'iterations' is not a int"),
        (lambda c, t: c.update(p1=9.0), "0 <= P1 <= P2"),
        (lambda c, t: c.update(alpha=float("nan")), "'alpha' is nan"),
        (lambda c, t: c.update(edge_model="magic"), "edge model 'magic'"),
        (lambda c, t: c.update(method="magic"), "method 'magic'"),
        (lambda c, t: c.update(step=0.0), "must be positive"),
        (lambda c, t: c.update(weight_scale=-1.0), "below zero"),
        (lambda c, t: t.clear(), "takes 0 channels"),
        (lambda c, t: t.pop("unary/1/weight"), "belongs to no layer"),
        (lambda c, t: [t.pop(k) for k in list(t) if k.startswith("pairwise")], "no weights"),
        (lambda c, t: t.update({"unary/0/weight": np.zeros((6, 4, 3, 3), "f")}), "3 (RGB) or 5"),
        (lambda c, t: t.update({"unary/1/weight": np.zeros((6, 7, 2, 2), "f")}), "takes 7"),
        (lambda c, t: t.update({"unary/1/weight": np.zeros((6, 6, 2), "f")}), "shape"),
        (lambda c, t: t.update({"unary/1/bias": np.zeros(5, "f")}), "biases"),
        (lambda c, t: t.update({"unary/1/bias": np.zeros(6, "i4")}), "floating-point"),
        (lambda c, t: t.update({"pairwise/2/weight": np.zeros((3, 5, 1, 1), "f")}), "2 outputs"),
    ],
)
def test_file_that_is_no_model_is_refused(change, words):
    with pytest.raises(ModelError) as caught:
        StereoModel.from_file(broken(change), "broken.h5")
    assert "broken.h5 is not a usable model" in str(caught.value)
    assert words in str(caught.value)


def test_paper_parameter_count():
    """SPEC 1: 243,400 + 38,848 = 282,248 for the 7-layer model with Pairwise-CNN."""
    shapes = [(100, 3, 3, 3)] + 6 * [(100, 100, 2, 2)]
    unary = [ConvLayer(np.zeros(s, np.float32), np.zeros(s[0], np.float32)) for s in shapes]
    pairwise = [
        ConvLayer(np.zeros((64, 3, 3, 3), np.float32), np.zeros(64, np.float32)),
        ConvLayer(np.zeros((64, 64, 3, 3), np.float32), np.zeros(64, np.float32)),
        ConvLayer(np.zeros((2, 64, 1, 1), np.float32), None),
    ]
    model = StereoModel(tuple(unary), tuple(pairwise))
    assert model.parameter_count == 282_248
    assert replace(model, pairwise=()).parameter_count == 243_400


@pytest.mark.parametrize("method", ["crf", "argmax"])
@pytest.mark.parametrize("refine", [False, True])
def test_prediction_from_a_volume_is_the_second_half_of_predict(backend, rng, method, refine):
    left = rng.random((16, 24, 3), np.float32)
    right = np.roll(left, -2, axis=1)
    model, labels = census_model(), LabelRange(0.0, 6)
    expected = predict(model, backend, left, right, labels=labels, method=method, refine=refine)
    costs = unary_volume(model, backend, left, right, labels, StageClock())
    before = costs.copy()
    found = predict_from_volume(model, backend, left, costs, labels, method=method, refine=refine)
    np.testing.assert_array_equal(found.prediction.disparity, expected.disparity)
    np.testing.assert_array_equal(costs, before)
    assert found.prediction.energy == expected.energy
    assert (found.minorant is None) == (method == "argmax")


def test_labels_say_what_the_volume_stands_for(backend):
    costs = np.ones((8, 8, 4), np.float32)
    costs[:, :, 3] = 0
    found = predict_from_volume(
        census_model(),
        backend,
        np.zeros((8, 8, 3), np.float32),
        costs,
        LabelRange(-1.0, 4, 0.5),
        refine=False,
    )
    np.testing.assert_array_equal(found.prediction.disparity, np.full((8, 8), 0.5))
