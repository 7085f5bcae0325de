from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.errors import InputError
from hybridstereo.features import features_forward, network_input
from hybridstereo.training.grow import add_coordinates, deepen
from hybridstereo.training.stages import new_model


@pytest.mark.parametrize("layers", [3, 5, 7])
def test_features_stay_where_they_are(backend, rng, layers):
    """The deeper network starts with the shallow one's features, at the same pixels."""
    shallow = new_model(layers=3, filters=12, with_xy=False, seed=0, iterations=1)
    deep = deepen(shallow, layers)
    assert len(deep.unary) == layers
    image = rng.random((14, 17, 3)).astype(np.float32)
    before, after = (
        features_forward(backend, network_input(image, model.unary), model.unary)
        for model in (shallow, deep)
    )
    # Padding differs, and with it the statistics and the border.
    inner = np.s_[4:-4, 4:-4]
    assert np.corrcoef(before[inner].ravel(), after[inner].ravel())[0, 1] > 0.9
    clear = np.abs(before[inner]) > 0.3
    np.testing.assert_array_equal(np.sign(before[inner])[clear], np.sign(after[inner])[clear])


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_depths_that_cannot_be_reached(layers):
    model = new_model(layers=3, filters=4, with_xy=False, seed=0, iterations=1)
    with pytest.raises(InputError, match="3 layers cannot become one of"):
        deepen(model, layers)


def test_coordinates_change_nothing_at_first(backend, rng):
    colours = new_model(layers=3, filters=12, with_xy=False, seed=0, iterations=1)
    placed = add_coordinates(colours)
    image = rng.random((14, 17, 3)).astype(np.float32)
    given = network_input(image, placed.unary)
    assert given.shape[2] == 5
    before, after = (
        features_forward(backend, network_input(image, model.unary), model.unary)
        for model in (colours, placed)
    )
    np.testing.assert_allclose(after, before, atol=1e-6)
    assert add_coordinates(placed) is placed
