"""``tools/fit_confidence.py`` on made-up pixels, whose probabilities are known."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from confidence_evidence import Evidence, Scene, pixels_of
from confidence_regression import KNOTS, confidence_of, logistic, pool
from fit_confidence import fitted, tenths, write_fits

from hybridstereo.confidence import KINDS, term_names
from hybridstereo.models.confidence_fits import FITS_FILE, JOINT, read_fits

TERMS = len(term_names())


@pytest.fixture(scope="module")
def scenes():
    """The first term counts for a pixel, more so for some kinds; the others mean nothing."""
    generator = np.random.default_rng(3)
    made = []
    for number in range(6):
        terms = generator.random((2000, TERMS)).astype(np.float32)
        kind = generator.integers(0, len(KINDS), 2000)
        right = generator.random(2000) < logistic((2 + kind) * terms[:, 0] - 1.5)
        evidence = Evidence(
            terms, np.where(right, 0.0, 9.0), terms[:, 0], terms[:, 1], kind, np.array(6000)
        )
        made.append(
            Scene("KITTI 2012" if number % 2 else "generated", str(number), False, evidence)
        )
    return made


@pytest.fixture(scope="module")
def fit(scenes):
    return fitted(scenes, "made up", pixels_of(scenes))


def test_the_confidence_is_calibrated_where_it_can_be(scenes, fit):
    confidence = np.concatenate([confidence_of(x.evidence, fit) for x in scenes])
    right = np.concatenate([x.right for x in scenes])
    found = tenths(confidence, right, np.ones(right.size))
    assert found[:, 1].sum() == pytest.approx(100)
    assert (found[:, 1] > 1).sum() >= 6
    assert np.abs(found[found[:, 1] > 1, 0]).max() < 8
    # Terms keep their meaning: the first one is a margin, of which more is better.
    assert min(fit.weights[term_names()[0]]) > 1
    assert fit.knots == KNOTS


def _scene(name, sure, right):
    count = len(sure)
    evidence = Evidence(
        np.zeros((count, TERMS)), np.where(right, 0.0, 9.0), np.ones(count), np.ones(count),
        np.zeros(count, int), np.array(count),
    )  # fmt: skip
    return Scene("generated", name, False, evidence), np.log(sure / (1 - sure))


def test_what_few_scenes_tell_apart_is_pooled():
    generator = np.random.default_rng(5)
    made = []
    for number in range(12):
        # Scenes agree above 0.5; below, each has more or less right in every tenth.
        sure = generator.uniform(0.02, 0.98, 4000)
        offsets = np.append(generator.uniform(-0.3, 0.3, 5), np.zeros(5))
        right = generator.random(4000) < sure + offsets[(10 * sure).astype(int)]
        made.append(_scene(str(number), sure, right))
    scenes, evidence = zip(*made, strict=True)
    none = np.tile(KNOTS, (len(KINDS), 1))
    limits = {"largest_error": 0.03, "least_share": 0.0}
    before, after = pool(scenes, pixels_of(scenes), evidence, none, **limits)
    assert np.all(np.diff(before) > 0)
    assert np.all(np.diff(after) > 0)
    pooled = np.interp(np.linspace(0.05, 0.95, 19), before, after).round(2)
    assert len(set(pooled[:9])) < len(set(pooled[10:]))
    np.testing.assert_allclose(pooled[10:], np.linspace(0.55, 0.95, 9), atol=0.1)
    # Whatever the scenes agree on stays as fine as it is.
    limits["largest_error"] = 1.0
    fine = pool(scenes, pixels_of(scenes), evidence, none, **limits)
    assert len(fine[0]) > len(before)


@pytest.mark.parametrize("least", [0.02, 0.2])
def test_every_step_holds_a_share_of_the_pixels(least):
    generator = np.random.default_rng(6)
    made = []
    for number in range(8):
        sure = generator.beta(6, 1, 4000)  # few lie at the low end, but the scenes agree on them
        made.append(_scene(str(number), sure, generator.random(4000) < sure))
    scenes, evidence = zip(*made, strict=True)
    none = np.tile(KNOTS, (len(KINDS), 1))
    before, after = pool(scenes, pixels_of(scenes), evidence, none, 1.0, least)
    sure = np.concatenate([logistic(x) for x in evidence])
    step = np.searchsorted(before[::2], sure, side="right")
    shares = np.bincount(step, minlength=len(before) // 2 + 1)[1:] / sure.size
    assert shares.min() >= 0.95 * least  # a margin between two steps belongs to neither
    assert len(shares) > 1
    # What a step is worth is what is right there, and the order of the pixels stays.
    order = np.argsort(sure)
    assert np.all(np.diff(np.interp(sure[order], before, after)) > 0)


def test_tenths_count_by_weight():
    found = tenths(np.array([0.25, 0.25, 1.0]), np.array([True, False, True]), np.array([3, 1, 4]))
    np.testing.assert_allclose(found[2], [50, 50])
    np.testing.assert_allclose(found[9], [0, 50])
    assert not found[[0, 1, 3, 4, 5, 6, 7, 8]].any()


def test_stored_fits_are_read_again(tmp_path, fit):
    path = tmp_path / "confidence.json"
    shutil.copy(FITS_FILE, path)
    before = dict(read_fits(path))
    write_fits({JOINT: fit, "of no model": fit}, path)
    assert read_fits(path) == {**before, JOINT: fit}
    assert path.read_text(encoding="utf-8").count("\n") < 80 * len(before)  # a term is a line
