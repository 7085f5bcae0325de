"""Whole-model gradients against float64 central differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.gradcheck import assert_gradients
from support.networks import network, pairwise_network

from hybridstereo.datasets import StereoPair
from hybridstereo.features import ConvLayer, Statistics, normalise
from hybridstereo.labels import LabelRange
from hybridstereo.model import ModelConfig, StereoModel, with_config
from hybridstereo.stereo import Stereo
from hybridstereo.training.steps import (
    HingeOptions,
    MinorantOptions,
    minorant_step,
    parameters_of,
    structured_step,
    unary_step,
)


def in_float64(model: StereoModel) -> StereoModel:
    def wide(layers):
        return tuple(
            ConvLayer(x.weight.astype(float), None if x.bias is None else x.bias.astype(float))
            for x in layers
        )

    return replace(model, unary=wide(model.unary), pairwise=wide(model.pairwise))


def make_pair(rng, height, width, highest):
    left, right = rng.random((2, height, width, 3))
    disparity = rng.uniform(0, highest, (height, width)).astype(np.float32)
    valid = rng.random((height, width)) > 0.2
    return StereoPair(left, right, disparity, valid)


@pytest.mark.parametrize("layers", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [(3, 5), (7, 9)])
@pytest.mark.parametrize(("soft", "step"), [(True, 1.0), (False, 0.5)])
def test_cross_entropy_model(backend, rng, layers, size, soft, step):
    model = in_float64(StereoModel(tuple(network(rng, layers, filters=4))))
    labels = LabelRange(-1.0, 6, step)
    pair = make_pair(rng, *size, labels.maximum)
    result = unary_step(model, backend, pair, labels, soft)
    assert set(result.gradients) == set(model.to_file().tensors)
    assert_gradients(
        lambda: unary_step(model, backend, pair, labels, soft).loss,
        parameters_of(model),
        result.gradients,
        rng,
    )


def test_with_xy_channels(backend, rng):
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4, inputs=5))))
    labels = LabelRange(0.0, 5)
    pair = make_pair(rng, 5, 8, 4)
    result = unary_step(model, backend, pair, labels, True)
    assert_gradients(
        lambda: unary_step(model, backend, pair, labels, True).loss,
        parameters_of(model),
        result.gradients,
        rng,
    )


def test_cross_entropy_is_that_of_the_left_softmax(backend, rng):
    model = in_float64(StereoModel(tuple(network(rng, 2, filters=4))))
    pair, labels = make_pair(rng, 5, 9, 4), LabelRange(0.0, 5)
    losses = {
        unary_step(with_config(model, softmax=softmax), backend, pair, labels, True).loss
        for softmax in ("left", "mutual")
    }
    assert len(losses) == 1


def test_levels_of_a_pyramid_share_the_network(backend, rng):
    config = ModelConfig(half_weight=0.5, quarter_weight=0.25)
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4)), config=config))
    labels = LabelRange(0.0, 6)
    pair = make_pair(rng, 8, 12, 5)
    result = unary_step(model, backend, pair, labels, True)
    assert_gradients(
        lambda: unary_step(model, backend, pair, labels, True).loss,
        parameters_of(model),
        result.gradients,
        rng,
    )


@pytest.mark.parametrize("softmax", ["left", "mutual"])
def test_structured_step_through_a_pyramid_is_the_derivative(backend, rng, softmax):
    """One row, where inference is exact: of the network at all levels, and of their weights."""
    levels = {"half_weight": 0.5, "quarter_weight": 0.25}
    config = ModelConfig(weight_scale=0.3, p1=0.5, p2=1.5, softmax=softmax, **levels)
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4)), config=config))
    pair = replace(make_pair(rng, 1, 9, 4), valid=np.ones((1, 9), bool))
    labels, options = LabelRange(0.0, 5), HingeOptions(0.2, 2.0, 2)
    result = structured_step(model, backend, pair, labels, options)
    assert {"half_weight", "quarter_weight"} <= set(result.gradients)

    def loss(**changes: float) -> float:
        changed = with_config(model, **changes)
        return structured_step(changed, backend, pair, labels, options).loss

    networks = {k: v for k, v in result.gradients.items() if "/" in k}
    assert_gradients(loss, parameters_of(model), networks, rng, rtol=1e-4, atol=1e-7)
    for name in ("half_weight", "quarter_weight"):
        at, step = getattr(config, name), 1e-5
        numeric = (loss(**{name: at + step}) - loss(**{name: at - step})) / (2 * step)
        assert result.gradients[name][0] == pytest.approx(numeric, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("edge_model", ["contrast", "cnn"])
def test_structured_step_on_a_row_is_the_derivative(backend, rng, edge_model):
    """One row: inference is exact, so the chain rule through the whole model must hold."""
    pairwise = tuple(pairwise_network(rng)) if edge_model == "cnn" else ()
    config = ModelConfig(edge_model=edge_model, weight_scale=0.3, p1=0.5, p2=1.5)
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4)), pairwise, config))
    pair = make_pair(rng, 1, 9, 4)
    pair = replace(pair, valid=np.ones((1, 9), bool))
    labels = LabelRange(0.0, 5)
    options = HingeOptions(0.2, 2.0, 2)
    result = structured_step(model, backend, pair, labels, options)
    networks = {k: v for k, v in result.gradients.items() if "/" in k}
    assert any(k.startswith("pairwise/") for k in networks) == (edge_model == "cnn")
    assert any(np.abs(v).max() > 1e-4 for v in networks.values())
    assert_gradients(
        lambda: structured_step(model, backend, pair, labels, options).loss,
        parameters_of(model),
        networks,
        rng,
        rtol=1e-4,
        atol=1e-7,
    )


@pytest.mark.parametrize(
    ("edge_model", "softmax", "levels", "exponent"),
    [
        ("contrast", "left", {}, 0.3),
        ("cnn", "mutual", {"half_weight": 0.5, "quarter_weight": 0.25}, 1.0),
    ],
)
def test_minorant_step_is_the_derivative(backend, rng, edge_model, softmax, levels, exponent):
    pairwise = tuple(pairwise_network(rng)) if edge_model == "cnn" else ()
    config = ModelConfig(
        edge_model=edge_model, weight_scale=0.3, p1=0.5, p2=1.5, softmax=softmax, **levels
    )
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4)), pairwise, config))
    pair, labels = make_pair(rng, 5, 9, 4), LabelRange(0.0, 5)
    options = MinorantOptions(sharpness=5.0, exponent=exponent, iterations=2)
    result = minorant_step(model, backend, pair, labels, options)
    assert result.loss_name == "error_rate"
    assert set(result.gradients) == set(parameters_of(model))

    def loss(**changes: float) -> float:
        return minorant_step(with_config(model, **changes), backend, pair, labels, options).loss

    networks = {k: v for k, v in result.gradients.items() if "/" in k}
    assert any(np.abs(v).max() > 1e-4 for v in networks.values())
    assert_gradients(loss, parameters_of(model), networks, rng, rtol=1e-4, atol=1e-7)
    for name in ("p1", "p2", *levels):
        at, step = getattr(config, name), 1e-6
        numeric = (loss(**{name: at + step}) - loss(**{name: at - step})) / (2 * step)
        assert result.gradients[name][0] == pytest.approx(numeric, rel=1e-4, abs=1e-7)


def test_minorant_step_can_leave_the_edges_alone(backend, rng):
    """And its figures are those of the CRF that it trains."""
    config = ModelConfig(edge_model="cnn", weight_scale=0.3, p1=0.5, p2=1.5)
    pairwise = tuple(pairwise_network(rng))
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4)), pairwise, config))
    pair, labels, options = make_pair(rng, 7, 11, 4), LabelRange(0.0, 5), MinorantOptions()
    both, unary = (
        minorant_step(model, backend, pair, labels, options, train_edges=train_edges)
        for train_edges in (True, False)
    )
    missing = set(both.gradients) - set(unary.gradients)
    assert missing
    assert all(name.startswith("pairwise/") for name in missing)
    for name, gradient in unary.gradients.items():
        np.testing.assert_array_equal(gradient, both.gradients[name])
    scored = structured_step(
        model, backend, pair, labels, HingeOptions(iterations=options.iterations), score=True
    )
    for pixels in (1, 2, 3, 4):
        assert both.figures[f"bad{pixels}"] == scored.figures[f"bad{pixels}"]
    assert 0 <= both.figures["disagreement"] <= 1


def test_statistics_of_the_complete_views_are_used(backend, rng):
    """Given statistics are applied: as if the views had been normalised with them beforehand."""
    config = ModelConfig(edge_model="cnn", weight_scale=0.3, p1=0.5, p2=1.5)
    unary, pairwise = tuple(network(rng, 3, filters=4)), tuple(pairwise_network(rng))
    model = in_float64(StereoModel(unary, pairwise, config))
    labels, options = LabelRange(0.0, 5), HingeOptions(0.2, 2.0, 2)
    pair = make_pair(rng, 5, 9, 4)
    left, right = (Statistics(rng.random(3), 1 + rng.random(3)) for _ in range(2))
    part = replace(pair, left_statistics=(left,), right_statistics=(right,))
    done = Statistics(np.zeros(3), np.ones(3))
    before = replace(
        pair,
        left=normalise(pair.left, left),
        right=normalise(pair.right, right),
        left_statistics=(done,),
        right_statistics=(done,),
    )
    steps = [structured_step(model, backend, x, labels, options) for x in (part, before, pair)]
    for name, gradient in steps[0].gradients.items():
        np.testing.assert_allclose(gradient, steps[1].gradients[name], rtol=1e-9, atol=1e-12)
    assert steps[0].loss == pytest.approx(steps[1].loss)
    assert steps[0].loss != pytest.approx(steps[2].loss)


def test_penalties_have_gradients(backend, rng):
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4))))
    pair = make_pair(rng, 6, 9, 4)
    step = structured_step(model, backend, pair, LabelRange(0.0, 5), HingeOptions())
    assert step.gradients["p1"].shape == step.gradients["p2"].shape == (1,)
    assert {"task_loss", "disagreement"} == set(step.figures)


def test_penalties_learn_from_sparse_truth_only_if_it_is_completed(backend, rng):
    """No two known pixels are neighbours: no edge has a truth of its own."""
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4))))
    pair = make_pair(rng, 8, 12, 4)
    sparse = np.zeros(pair.valid.shape, bool)
    sparse[::2, ::2] = True
    pair = replace(pair, valid=sparse)
    ignored, inferred = (
        structured_step(model, backend, pair, LabelRange(0.0, 5), HingeOptions(infer_unknown=x))
        for x in (False, True)
    )
    assert ignored.gradients["p1"] == ignored.gradients["p2"] == 0
    assert inferred.gradients["p1"] != 0 or inferred.gradients["p2"] != 0


def test_training_error_of_the_plain_solution_on_request(backend, rng):
    """The error is that of `Stereo.match`, without refinement, and leaves the gradients alone."""
    model = in_float64(StereoModel(tuple(network(rng, 3, filters=4))))
    pair = make_pair(rng, 7, 11, 4)
    labels = LabelRange(0.0, 5)
    plain, scored = (
        structured_step(model, backend, pair, labels, HingeOptions(), score=score)
        for score in (False, True)
    )
    for name, gradient in plain.gradients.items():
        np.testing.assert_array_equal(gradient, scored.gradients[name])
    prediction = Stereo(model, backend).match(
        pair.left, pair.right, labels=labels, method="crf", refine=False
    )
    error = np.abs(prediction.disparity - pair.disparity)[pair.valid]
    assert {f"bad{x}" for x in (1, 2, 3, 4)} == set(scored.figures) - set(plain.figures)
    for pixels in (1, 2, 3, 4):
        assert scored.figures[f"bad{pixels}"] == pytest.approx(100 * (error > pixels).mean())


def test_updating_the_parameters_updates_the_model(rng):
    model = StereoModel(tuple(network(rng, 2)))
    parameters_of(model)["unary/1/weight"][...] = 7
    assert (model.unary[1].weight == 7).all()
