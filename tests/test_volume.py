"""The CRF on a given volume is the second half of `model.predict`."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.census import census_model
from hybridstereo.labels import LabelRange
from hybridstereo.model import StageClock, predict, unary_volume
from hybridstereo.volume import predict_from_volume


@pytest.mark.parametrize("method", ["crf", "argmax"])
@pytest.mark.parametrize("refine", [False, True])
def test_same_as_predict(backend, rng, method, refine):
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
