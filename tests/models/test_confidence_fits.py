from __future__ import annotations

import json

import pytest

from hybridstereo.errors import ModelError
from hybridstereo.model import fingerprint, with_config
from hybridstereo.models.confidence_fits import FITS_FILE, JOINT, confidence_fit, read_fits
from hybridstereo.models.zoo import available_models, load_model


def test_fits_are_those_of_shipped_models():
    models = {name: load_model(name) for name in available_models()}
    used = {name: confidence_fit(fingerprint(model)).model for name, model in models.items()}
    # A fit whose model has changed since would never be used.
    own = {name for name in used if used[name] == name}
    assert own == {fit.model for key, fit in read_fits(FITS_FILE).items() if key != JOINT}
    assert used["general"] == "general"
    assert used["census"] == "all models"


def test_another_model_has_another_fingerprint():
    model = load_model("general-fast")
    before = fingerprint(model)
    assert fingerprint(with_config(model, iterations=3, description="another")) == before
    assert fingerprint(with_config(model, half_weight=0.0, quarter_weight=0.0)) != before
    other = {"left": "mutual", "mutual": "left"}[model.config.softmax]
    assert fingerprint(with_config(model, softmax=other)) != before
    assert fingerprint(with_config(model, p2=model.config.p2 + 1)) != before
    model.unary[0].weight[0, 0, 0, 0] += 1
    assert fingerprint(model) != before


def _rename_term(fit):
    fit["weights"]["luck"] = fit["weights"].pop("outside the other view")


def _fall(fit):
    fit["calibration"][1][2] = fit["calibration"][1][0]


def _short(fit):
    fit["intercepts"].pop()


def _words(fit):
    fit["knots"][0] = "low"


def _no_step(fit):
    fit["steps"][0].append(2.0)


def _no_probability(fit):
    fit["steps"] = [[0.0, 1.0], [0.0, 1.5]]


@pytest.mark.parametrize(
    "damage",
    [_rename_term, _fall, _short, _words, _no_step, _no_probability, dict.clear, None],
)
def test_damaged_files_are_refused(tmp_path, damage):
    stored = json.loads(FITS_FILE.read_text(encoding="utf-8"))
    if damage:
        damage(stored[JOINT])
    else:
        del stored[JOINT]
    path = tmp_path / "confidence.json"
    path.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(ModelError, match="weights of the confidence"):
        read_fits(path)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"joint": 3}'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "confidence.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match="weights of the confidence"):
        read_fits(path)
