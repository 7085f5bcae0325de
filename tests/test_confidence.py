from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.confidence import (
    CALIBRATION_KNOTS,
    KINDS,
    ConfidenceFit,
    Cues,
    confidence_of,
    cues_of,
    terms_of,
)
from hybridstereo.confidence_weights import FITS, JOINT_FIT
from hybridstereo.crf import CrfSolution
from hybridstereo.labels import LabelRange
from hybridstereo.model import fingerprint, with_config
from hybridstereo.models.zoo import available_models, load_model
from hybridstereo.validity import validity_of


def naive_cues(minorant, label_map, row_label_map, step):
    """The definitions, pixel by pixel."""
    height, width, count = minorant.shape
    margin = np.empty((height, width))
    for y in range(height):
        for x in range(width):
            chosen = label_map[y, x]
            rivals = [minorant[y, x, k] for k in range(count) if abs(k - chosen) > 1]
            margin[y, x] = min(rivals) - minorant[y, x, chosen]
    return margin, step * np.abs(row_label_map - label_map)


@pytest.mark.parametrize("at_once", [1, 1 << 22])
def test_cues_against_the_definition(backend, monkeypatch, at_once):
    monkeypatch.setattr("hybridstereo.confidence._BLOCK", at_once)
    generator = np.random.default_rng(2)
    minorant = generator.normal(size=(4, 5, 7)).astype(np.float32)
    label_map = minorant.argmin(axis=2).astype(np.int32)
    assert {0, 6} <= set(label_map.ravel())  # at the ends there is one neighbour only
    rows = generator.integers(0, 7, (4, 5)).astype(np.int32)
    solution = CrfSolution(
        backend.to_device(label_map),
        backend.to_device(minorant),
        np.zeros(2),
        backend.to_device(rows),
    )
    found = cues_of(backend, solution, 0.5)
    expected = naive_cues(minorant, label_map, rows, 0.5)
    for values, wanted in zip(vars(found).values(), expected, strict=True):
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(backend.to_host(solution.minorant), minorant)


def test_few_labels_have_no_rival(backend):
    volume = backend.to_device(np.full((2, 3, 2), -0.5, np.float32))
    labels = backend.to_device(np.zeros((2, 3), np.int32))
    found = cues_of(backend, CrfSolution(labels, volume, np.zeros(2), labels), 1.0)
    assert np.isfinite(found.margin).all()
    assert (found.margin > 1).all()


JOINT = ConfidenceFit(*JOINT_FIT)


def example(margin=0.5, disparity=4.0, other=4.0, background=4.0):
    shape = (24, 30)

    def level(value):
        return np.full(shape, value, np.float32)

    cues = Cues(level(margin), level(0.0))
    maps = level(disparity), level(other), -1
    return *maps, level(background), validity_of(*maps, LabelRange(0.0, 32)), cues


def inner(confidence):
    """Where the match lies inside the other view, and so do its neighbours."""
    return float(confidence[:, 16:].mean())


def test_every_term_has_weights_and_no_other():
    names = [name for name, _ in terms_of(*example())]
    for fit in (JOINT, *(ConfidenceFit(*numbers) for numbers in FITS.values())):
        assert list(fit.weights) == names
        assert {len(x) for x in (*fit.weights.values(), fit.intercepts)} == {len(KINDS)}
        # More evidence never counts for less.
        assert len(fit.calibration) == len(CALIBRATION_KNOTS)
        assert (np.diff(fit.calibration) > 0).all()


def test_fits_are_those_of_shipped_models():
    models = {name: load_model(name) for name in available_models()}
    used = {name: ConfidenceFit.of(fingerprint(model)).model for name, model in models.items()}
    # A fit whose model has changed since would never be used.
    assert {name for name in used if used[name] == name} == {x[0] for x in FITS.values()}
    assert used["general"] == "general"
    assert used["census"] == "all models"


def test_another_model_has_another_fingerprint():
    model = load_model("general-fast")
    before = fingerprint(model)
    assert fingerprint(with_config(model, iterations=3, description="another")) == before
    assert fingerprint(with_config(model, half_weight=0.0, quarter_weight=0.0)) != before
    assert fingerprint(with_config(model, p2=model.config.p2 + 1)) != before
    model.unary[0].weight[0, 0, 0, 0] += 1
    assert fingerprint(model) != before


def test_terms_are_shares():
    generator = np.random.default_rng(4)
    values = [generator.uniform(0, 20, (24, 30)).astype(np.float32) for _ in range(5)]
    maps = values[0], values[1], -1
    validity = validity_of(*maps, LabelRange(0.0, 32))
    terms = list(terms_of(*maps, values[2], validity, Cues(*values[3:])))
    for name, term in terms:
        assert term.dtype == np.float32, name
        assert term.shape == (24, 30), name
        assert term.min() >= 0, name
        assert term.max() <= 1.0001, name


def test_confidence_follows_the_evidence():
    good = confidence_of(*example(), JOINT)
    assert good.dtype == np.float32
    assert good.shape == (24, 30)
    assert inner(good) > 0.9
    unsure = confidence_of(*example(margin=0.01), JOINT)
    contradicted = confidence_of(*example(margin=0.01, other=12.0, background=9.0), JOINT)
    assert inner(contradicted) < inner(unsure) < inner(good)
    # A contradicted pixel that shows the surface behind was hidden, not mismatched.
    guessed = confidence_of(*example(margin=0.01, other=12.0, background=4.0), JOINT)
    assert inner(contradicted) < inner(guessed) < inner(good)


def test_cues_of_tiles_are_those_of_the_whole():
    cues = Cues(*np.random.default_rng(5).random((2, 7, 4)).astype(np.float32))
    places = [np.s_[:3, :], np.s_[3:, :1], np.s_[3:, 1:]]
    again = Cues.joined([cues.cropped(*place) for place in places], places, (7, 4))
    for one, other in zip(vars(cues).values(), vars(again).values(), strict=True):
        np.testing.assert_array_equal(one, other)
