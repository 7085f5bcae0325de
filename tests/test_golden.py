"""Intermediate tensors of the published weights: accuracy alone does not show wrong conventions."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.crf import energy, solve
from hybridstereo.edges import edges_forward, edges_input
from hybridstereo.features import features_forward, network_input
from hybridstereo.io.images import read_image
from hybridstereo.labels import LabelRange
from hybridstereo.models.convert import convert
from hybridstereo.stereo import Stereo

pytestmark = pytest.mark.shared

CASES = {
    "teddy_crf": "middlebury-3-cnn",
    "teddy_full": "middlebury-3-full",
    "kitti_joint": "kitti-3-joint",
}


@pytest.fixture(params=CASES.items(), ids=CASES.keys())
def case(request, shared, tmp_path):
    name, parameters = request.param
    folder = shared / "official" / parameters
    model = convert(folder / "params.npz", folder / "crf.cfg", tmp_path / "model.h5")
    golden = dict(np.load(shared / "official" / "golden" / f"{name}.npz"))
    left, right = (
        read_image(shared / "official" / "golden" / f"{name}_{side}.png")
        for side in ("left", "right")
    )
    return model, left, right, golden


def test_tensors(backend, case):
    model, left, right, golden = case
    labels = LabelRange(float(golden["min_disparity"]), golden["f"].shape[2])
    for image, side in ((left, "left"), (right, "right")):
        features = features_forward(backend, network_input(image, model.unary), model.unary)
        np.testing.assert_allclose(features[::3, ::3], golden[f"features_{side}"], atol=1e-5)
    costs = Stereo(model, backend).matching_costs(left, right, labels)
    np.testing.assert_allclose(costs, golden["f"], atol=1e-5)
    edges = edges_forward(backend, edges_input(left, model.edges), model.edges)
    np.testing.assert_allclose(edges.wx[:, :-1], golden["wx"][:, :-1], atol=1e-4)
    np.testing.assert_allclose(edges.wy[:-1], golden["wy"][:-1], atol=1e-4)
    solution = solve(backend, costs, edges, model.config.penalties, 5)
    np.testing.assert_allclose(solution.minorant, golden["F"], atol=1e-4)
    np.testing.assert_allclose(solution.bounds, golden["bound_trace"], rtol=1e-5)
    found = energy(backend, costs, edges, model.config.penalties, solution.label_map)
    assert found == pytest.approx(float(golden["energy"]), rel=1e-5)
    assert (solution.label_map != golden["labels"]).mean() <= 5e-4


def test_disparities(backend, case):
    model, left, right, golden = case
    labels = LabelRange(float(golden["min_disparity"]), golden["f"].shape[2])
    for refine, key in ((False, "disparity"), (True, "refined")):
        prediction = Stereo(model, backend).match(left, right, labels=labels, refine=refine)
        differs = np.abs(prediction.disparity - golden[key]) > 1e-2
        assert differs.mean() <= 5e-4
