from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.errors import ModelError
from hybridstereo.zoo import DEFAULT_MODEL, available_models, load_model, save_model


def test_default_model_is_available():
    assert DEFAULT_MODEL in available_models()
    for name in available_models():
        assert load_model(name).config.description


def test_unknown_name():
    with pytest.raises(ModelError, match=r"There is no model 'nonsense'.*census"):
        load_model("nonsense")


def test_missing_file(tmp_path):
    with pytest.raises(ModelError, match=r"gone\.h5"):
        load_model(str(tmp_path / "gone.h5"))


def test_saved_model_is_the_same(tmp_path):
    model = load_model("census")
    save_model(tmp_path / "m.h5", model)
    again = load_model(str(tmp_path / "m.h5"))
    assert again.config == model.config
    for a, b in zip(model.unary, again.unary, strict=True):
        np.testing.assert_array_equal(a.weight, b.weight)
        np.testing.assert_array_equal(a.bias, b.bias)
