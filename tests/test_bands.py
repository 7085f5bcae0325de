from __future__ import annotations

import numpy as np
import pytest

from hybridstereo import bands
from hybridstereo.bands import rows_in_bands
from hybridstereo.confidence import Cues, confidence_of
from hybridstereo.features import normalise, statistics
from hybridstereo.filling import filled_disparity
from hybridstereo.labels import LabelRange
from hybridstereo.models.confidence_fits import FITS_FILE, JOINT, read_fits
from hybridstereo.validity import GOOD, validity_of


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (3, 4, 3), (0, 4)])
@pytest.mark.parametrize("at_once", [1, 12, 1000])
def test_every_row_is_in_one_band(monkeypatch, shape, at_once):
    monkeypatch.setattr(bands, "_AT_ONCE", at_once)
    parts = list(rows_in_bands(shape))
    assert [row for part in parts for row in range(shape[0])[part]] == list(range(shape[0]))
    assert all(1 <= part.stop - part.start <= max(at_once // shape[1], 1) for part in parts)


def everything():
    """What is computed in bands, of maps with holes, some of them without any good pixel."""
    generator = np.random.default_rng(8)
    disparity = np.cumsum(generator.normal(0, 0.3, (23, 40)), axis=1).astype(np.float32) + 12
    other = disparity + generator.choice([0, 0, 0, 9], disparity.shape).astype(np.float32)
    disparity[4:6] = 39
    labels = LabelRange(0.0, 40)
    validity = validity_of(disparity, other, -1, labels)
    background = filled_disparity(disparity, validity == GOOD, labels)
    cues = Cues(*generator.random((2, 23, 40)).astype(np.float32))
    fit = read_fits(FITS_FILE)[JOINT]
    image = generator.random((23, 40, 3)).astype(np.float32)
    return (
        validity,
        background,
        confidence_of(disparity, other, -1, background, validity, cues, fit),
        normalise(image, statistics(image)),
    )


@pytest.mark.parametrize("at_once", [1, 100])
def test_bands_do_not_change_a_bit(monkeypatch, at_once):
    whole = everything()
    assert len(np.unique(whole[0])) == 3
    monkeypatch.setattr(bands, "_AT_ONCE", at_once)
    for one, other in zip(whole, everything(), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
