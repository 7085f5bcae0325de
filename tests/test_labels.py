from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.labels import LabelRange


def test_disparities():
    labels = LabelRange(-2.0, 4, 0.5)
    np.testing.assert_array_equal(labels.disparities, [-2, -1.5, -1, -0.5])
    assert labels.maximum == -0.5
    np.testing.assert_array_equal(labels.to_disparity(np.array([[0, 3]])), [[-2, -0.5]])
    assert labels.to_disparity(np.array([[0, 3]])).dtype == np.float32


@pytest.mark.parametrize(
    ("count", "rounded"),
    [(1, 1), (2, 2), (3, 4), (60, 64), (64, 64), (65, 128), (190, 256), (500, 256)],
)
def test_paper_rounding(count, rounded):
    assert LabelRange(1.0, count, 0.5).paper_rounding() == LabelRange(1.0, rounded, 0.5)
