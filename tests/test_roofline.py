"""The counts behind the roofline of docs/performance.md."""

from __future__ import annotations

import pytest
import roofline

from hybridstereo.bench.run import random_model
from hybridstereo.bench.work import count_work

SIZE = 64, 128, 32


def test_every_stage_is_counted():
    work = roofline.stage_work(random_model(3, 2), *SIZE, iterations=2)
    assert work.keys() == roofline.STAGES.keys()
    assert all(x.bytes > 0 for x in work.values())


def test_convolutions_count_with_winograds_products():
    """36 products for a tile of 5x5, 4 per pixel if direct; the first layer is direct."""
    model = random_model(2)
    direct = count_work(model, *SIZE, 1)["unary_cnn"].flop
    found = roofline.stage_work(model, *SIZE, 1)["unary_cnn"].flop
    second = 2 * 2 * 2 * 2 * 100 * 100 * SIZE[0] * SIZE[1]
    assert found == pytest.approx(direct - second + second * 36 / 25 / 4)


def test_rate_of_minima_is_positive():
    assert roofline.minima_and_sums(1) > 0
