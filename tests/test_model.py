from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.networks import stereo_model

from hybridstereo.edges import edges_forward, edges_input
from hybridstereo.errors import ModelError
from hybridstereo.features import ConvLayer
from hybridstereo.io.weights import WeightFile
from hybridstereo.model import StereoModel, scale_edges


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
        (lambda c, t: c.update(step=0.0), "'step' is 0.0"),
        (lambda c, t: c.update(weight_scale=-1.0), "'weight_scale' is -1.0"),
        (lambda c, t: c.update(iterations=10**9), "'iterations' is 1000000000"),
        (lambda c, t: c.update(disparities=10**9), "'disparities' is 1000000000"),
        (lambda c, t: c.update(min_disparity=-1e9), "'min_disparity' is -1000000000.0"),
        (lambda c, t: c.update(step=1e6), "The largest disparity is"),
        (lambda c, t: c.update(half_weight=1e9), "'half_weight' is"),
        (lambda c, t: c.update(softmax="right"), "unknown softmax 'right'"),
        (lambda c, t: c.update(beta=-0.5), "'beta' is -0.5"),
        (lambda c, t: c.update(method="crf\x1b[2J" + "x" * 5000), "method 'crf\\x1b[2Jx"),
        (lambda c, t: t.update({"unary/0/weight": np.array([1], "f")}), "shape (1,)"),
        (lambda c, t: t.update({"unary/0/weight": np.array(1, "f")}), "shape ()"),
        (lambda c, t: t.update({"unary/0/weight": np.ones((6, 3, 3, 3))}), "biases of float32"),
        (lambda c, t: t.update({"pairwise/2/weight": np.ones((2, 5, 1, 1))}), "different types"),
        (lambda c, t: t.update({"unary/0/weight": np.zeros((6, 3, 32, 3), "f")}), "kernels"),
        (lambda c, t: t.update({"unary/1/weight": np.zeros((5000, 6, 1, 1), "f")}), "filters"),
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
    """docs/model.md 1: 243,400 + 38,848 = 282,248 for the 7-layer model with Pairwise-CNN."""
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


def test_edges_are_scaled_by_direction(backend, rng):
    model, image = stereo_model(rng, "cnn"), rng.random((5, 7, 3)).astype(np.float32)
    scaled = scale_edges(model, 2.0, 0.5)
    before, after = (
        edges_forward(backend, backend.to_device(edges_input(image, x.edges)), x.edges)
        for x in (model, scaled)
    )
    np.testing.assert_allclose(after.wx, 2.0 * np.asarray(before.wx), rtol=1e-5)
    np.testing.assert_allclose(after.wy, 0.5 * np.asarray(before.wy), rtol=1e-5)
