from __future__ import annotations

from dataclasses import replace

import cuda_emulator
import numpy as np
import pytest
from support import cuda_simulator

from hybridstereo import kernels
from hybridstereo.confidence import (
    KINDS,
    Cues,
    confidence_of,
    cues_of,
    terms_of,
)
from hybridstereo.crf import CrfSolution, Penalties, solve
from hybridstereo.edges import EdgeWeights
from hybridstereo.labels import LabelRange
from hybridstereo.models.confidence_fits import FITS_FILE, JOINT, read_fits
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


@pytest.mark.cudasim
@pytest.mark.skipif(not cuda_emulator.in_simulator(), reason="set NUMBA_ENABLE_CUDASIM=1")
def test_cues_of_arrays_that_are_on_a_gpu(rng):
    """From the CRF to the cues, as `infer --confidence` goes; the fixture copies in between."""
    cuda_simulator.extend_simulator()
    costs = -rng.random((3, 4, 6)).astype(np.float32)
    found = []
    for backend in (kernels.select("cuda"), kernels.select("cpu")):
        weights = backend.to_device(np.full((3, 4), 0.5, np.float32))
        edges, penalties = EdgeWeights(weights, weights), Penalties(0.05, 0.2)
        there = backend.to_device(costs.copy())
        solution = solve(backend, there, edges, penalties, 2, with_rows=True)
        found.append(cues_of(backend, solution, 1.0))
    np.testing.assert_allclose(found[0].margin, found[1].margin, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0].row_difference, found[1].row_difference)


def test_few_labels_have_no_rival(backend):
    volume = backend.to_device(np.full((2, 3, 2), -0.5, np.float32))
    labels = backend.to_device(np.zeros((2, 3), np.int32))
    found = cues_of(backend, CrfSolution(labels, volume, np.zeros(2), labels), 1.0)
    assert np.isfinite(found.margin).all()
    assert (found.margin > 1).all()


JOINT_FIT = read_fits(FITS_FILE)[JOINT]


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
    good = confidence_of(*example(), JOINT_FIT)
    assert good.dtype == np.float32
    assert good.shape == (24, 30)
    assert inner(good) > 0.9
    unsure = confidence_of(*example(margin=0.01), JOINT_FIT)
    contradicted = confidence_of(*example(margin=0.01, other=12.0, background=9.0), JOINT_FIT)
    assert inner(contradicted) < inner(unsure) < inner(good)
    # A contradicted pixel that shows the surface behind was hidden, not mismatched.
    guessed = confidence_of(*example(margin=0.01, other=12.0, background=4.0), JOINT_FIT)
    assert inner(contradicted) < inner(guessed) < inner(good)


def test_every_kind_has_a_calibration_of_its_own():
    maps = example(margin=0.1, other=12.0, background=4.0)
    before = confidence_of(*maps, JOINT_FIT)
    flat = tuple(float(x) for x in np.linspace(-0.01, 0.01, len(JOINT_FIT.knots)))
    for number, kind in enumerate(KINDS):
        calibration = list(JOINT_FIT.calibration)
        calibration[number] = flat
        after = confidence_of(*maps, replace(JOINT_FIT, calibration=tuple(calibration)))
        inside = maps[4] == kind
        np.testing.assert_allclose(after[inside], 0.5, atol=0.01)
        np.testing.assert_array_equal(after[~inside], before[~inside])


def test_a_point_behind_the_background_was_not_seen():
    found = dict(terms_of(*example(disparity=4.0, other=12.0, background=9.0)))
    assert inner(found["behind the background, 1 to 3"]) == 1
    nearer = dict(terms_of(*example(disparity=9.0, other=12.0, background=4.0)))
    assert inner(nearer["behind the background, 1 to 3"]) == 0


def test_cues_of_tiles_are_those_of_the_whole():
    cues = Cues(*np.random.default_rng(5).random((2, 7, 4)).astype(np.float32))
    places = [np.s_[:3, :], np.s_[3:, :1], np.s_[3:, 1:]]
    again = Cues.joined([cues.cropped(*place) for place in places], places, (7, 4))
    for one, other in zip(vars(cues).values(), vars(again).values(), strict=True):
        np.testing.assert_array_equal(one, other)
