from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.labels import LabelRange
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.validity import (
    GOOD,
    INVALID,
    OCCLUDED,
    masked_disparity,
    validity_of,
    view_difference,
)

LABELS = LabelRange(-4.0, 16)


def naive_difference(disparity, other, direction):
    """The definition, pixel by pixel."""
    height, width = disparity.shape
    found = np.full((height, width), np.inf)
    for y in range(height):
        for x in range(width):
            match = x + direction * float(disparity[y, x])
            for column in (int(np.floor(match)), int(np.ceil(match))):
                if 0 <= column < width:
                    difference = other[y, column] - disparity[y, x]
                    if abs(difference) < abs(found[y, x]):
                        found[y, x] = difference
    return found


def naive_validity(disparity, other, direction, tolerance):
    height, width = disparity.shape
    difference = naive_difference(disparity, other, direction)
    found = np.full((height, width), OCCLUDED)
    for y in range(height):
        for x in range(width):
            claims = [column - direction * float(other[y, column]) for column in range(width)]
            if any(x in (np.floor(claim), np.ceil(claim)) for claim in claims):
                found[y, x] = INVALID
            if abs(difference[y, x]) <= tolerance:
                found[y, x] = GOOD
    return found


@pytest.mark.parametrize("direction", [-1, 1])
@pytest.mark.parametrize("step", [0.5, 1.0, 2.0])
def test_against_the_definition(direction, step):
    generator = np.random.default_rng(3)
    disparity, other = generator.uniform(-4, 9, (2, 5, 17)).astype(np.float32)
    disparity[0], other[0] = 2, 2  # and some that agree, on whole columns
    other[1] = disparity[1].round()
    np.testing.assert_allclose(
        view_difference(disparity, other, direction),
        naive_difference(disparity, other, direction),
        atol=1e-5,
    )
    labels = LabelRange(-4.0, 16, step)
    found = validity_of(disparity, other, direction, labels)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(
        found, naive_validity(disparity, other, direction, max(1.0, step))
    )
    assert {GOOD, INVALID, OCCLUDED} == set(np.unique(found))


def test_exact_maps_of_a_scene_show_its_occlusion():
    scene = generate_scene(5, SceneOptions(width=96, height=48, max_disparity=20))
    for own, other, hidden, direction in (
        (scene.disparity, scene.right_disparity, scene.occlusion, -1),
        (scene.right_disparity, scene.disparity, None, 1),
    ):
        validity = validity_of(own, other, direction, LABELS)
        if hidden is not None:
            # Rays decide there, whole pixels here: they may differ along the edges of objects.
            assert np.mean((validity == GOOD) == ~hidden) > 0.97
            assert 0.02 < hidden.mean() < 0.5
            assert np.mean(validity[hidden] == OCCLUDED) > 0.7
        else:
            assert 0.5 < np.mean(validity == GOOD) < 1


def test_left_margin_is_occluded_not_contradicted():
    flat = np.full((2, 12), 4, np.float32)
    validity = validity_of(flat, flat, -1, LABELS)
    assert (validity[:, :4] == OCCLUDED).all()
    assert (validity[:, 4:] == GOOD).all()
    mirrored = validity_of(flat, flat, 1, LABELS)
    np.testing.assert_array_equal(mirrored, validity[:, ::-1])


def test_what_is_not_good_becomes_invalid():
    disparity = np.array([[1, 2, 3]], np.float32)
    validity = np.array([[GOOD, OCCLUDED, INVALID]], np.uint8)
    np.testing.assert_array_equal(masked_disparity(disparity, validity), [[1, np.inf, np.inf]])
