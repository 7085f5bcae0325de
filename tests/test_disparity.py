"""From labels to pixels: the read-out, and the refinement between labels (docs/model.md 7)."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.disparity import (
    cheapest_labels,
    enlarged_disparity,
    label_disparity,
    refined_disparity,
)
from hybridstereo.labels import LabelRange


def refined(backend, costs, labels):
    """Disparities of the cheapest labels, before and after refinement, and the labels."""
    label_map = cheapest_labels(backend, costs)
    unrefined = label_disparity(backend, label_map, labels)
    return (
        unrefined,
        refined_disparity(backend, costs, label_map, unrefined, labels.step),
        label_map,
    )


def test_labels_become_pixels_from_the_minimum_in_steps(backend):
    label_map = np.array([[0, 1, 5]], np.int32)
    disparity = label_disparity(backend, label_map, LabelRange(-2.0, 6, 0.75))
    np.testing.assert_array_equal(disparity, [[-2.0, -1.25, 1.75]])
    assert disparity.dtype == np.float32


def test_cheapest_labels_are_the_lowest_on_ties(backend):
    """Unlike those of the CRF, which follow the published program."""
    costs = np.array([[[3, 1, 1, 2], [0, 0, 0, 0], [2, 2, 2, 1]]], np.float32)
    np.testing.assert_array_equal(cheapest_labels(backend, costs), [[1, 0, 3]])


@pytest.mark.parametrize("labels", [LabelRange(0.0, 6), LabelRange(-1.5, 7, 0.5)], ids=str)
def test_refinement_finds_the_minimum_of_a_parabola(backend, rng, labels):
    """Wherever it lies between the second label and the last but one."""
    truth = rng.uniform(labels.minimum + labels.step, labels.maximum - labels.step, (3, 5))
    curvature = rng.uniform(0.5, 2, (3, 5, 1))
    costs = curvature * (labels.disparities - truth[..., None]) ** 2 - 1
    unrefined, disparity, _ = refined(backend, costs.astype(np.float32), labels)
    np.testing.assert_allclose(disparity, truth, atol=1e-5)
    assert np.abs(unrefined - truth).max() > labels.step / 4
    assert disparity.dtype == np.float32


@pytest.mark.parametrize("step", [1.0, 0.5])
def test_refinement_moves_inner_labels_by_half_a_step_at_most(backend, rng, step):
    labels = LabelRange(-2.0, 5, step)
    costs = -rng.random((6, 8, 5)).astype(np.float32)
    costs[0, :, 1:4] = -1  # as far as it goes: the neighbour costs the same
    unrefined, disparity, label_map = refined(backend, costs, labels)
    moved = np.abs(disparity - unrefined)
    border = (label_map == 0) | (label_map == 4)
    assert border.any()
    np.testing.assert_array_equal(moved[border], 0)
    assert (moved[~border] > 0).any()
    assert moved.max() == pytest.approx(step / 2)


def test_enlarged_plane_is_the_plane():
    """Of views at half size disparities are half as large, and centres lie between pixels."""
    rows, columns = np.mgrid[0:9, 0:13].astype(np.float32)
    small = 3 + 0.25 * columns - 0.125 * rows
    large = enlarged_disparity(small, 2, 18, 25)
    y, x = np.mgrid[0:18, 0:25]
    expected = 2 * (3 + 0.25 * ((x + 0.5) / 2 - 0.5) - 0.125 * ((y + 0.5) / 2 - 0.5))
    inside = np.s_[1:-1, 1:-1]
    np.testing.assert_allclose(large[inside], expected[inside], rtol=1e-6)
    assert large.dtype == np.float32


def test_enlarged_edge_has_no_disparity_in_between():
    small = np.repeat([[2.0, 2.0, 20.0, 20.0]], 3, axis=0).astype(np.float32)
    assert set(enlarged_disparity(small, 4, 12, 16).ravel()) == {8.0, 80.0}


def test_one_pixel_can_be_enlarged():
    assert np.array_equal(enlarged_disparity(np.float32([[3]]), 4, 3, 2), np.full((3, 2), 12.0))
