"""Strips of rows: they cover the image once, fit, and begin where the pyramid's pixels do."""

from __future__ import annotations

import pytest

from hybridstereo.model import with_config
from hybridstereo.models.zoo import load_model
from hybridstereo.strips import CRF_ROWS, overlap_of, plan_strips, rows_that_fit


@pytest.mark.parametrize("height", [1, 37, 200, 201, 1000, 4001])
@pytest.mark.parametrize("rows", [16, 130, 180, 400])
@pytest.mark.parametrize("overlap", [4, 52])
def test_strips_cover_every_row_once(height, rows, overlap):
    strips = plan_strips(height, rows, overlap)
    covered = [y for strip in strips for y in range(strip.first, strip.last)]
    assert covered == list(range(height))
    for strip in strips:
        assert strip.top % 4 == 0
        assert strip.top == max(strip.first - overlap, 0)
        assert strip.bottom == min(strip.last + overlap, height)
        if rows >= 2 * overlap + 16:
            assert strip.bottom - strip.top <= max(rows, 0) + 4


def test_an_image_that_fits_is_one_strip():
    assert len(plan_strips(100, 100, 8)) == 1
    assert len(plan_strips(100, 99, 8)) > 1


def test_rows_that_fit_are_the_most():
    def needed(rows):
        return 100 * rows + 7

    assert rows_that_fit(needed, 500, 10, 50_007) == 500
    assert rows_that_fit(needed, 500, 10, 50_006) == 499
    assert rows_that_fit(needed, 500, 10, 3_607) == 36  # twice the overlap, and a useful strip
    assert rows_that_fit(needed, 500, 10, 3_606) is None
    assert rows_that_fit(needed, 30, 10, 100) is None  # an image that low cannot be divided


def test_overlap_is_what_networks_and_crf_see():
    model = load_model("general")
    plain = with_config(model, half_weight=0.0, quarter_weight=0.0)
    deep = with_config(model, half_weight=0.25, quarter_weight=0.5)
    assert overlap_of(plain) >= CRF_ROWS + 4
    assert overlap_of(deep) >= CRF_ROWS + 16
    assert overlap_of(deep) % 4 == 0
