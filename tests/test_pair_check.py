"""What is found in generated pairs that were spoilt, and that nothing is found in good ones."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import get_args

import cv2
import numpy as np
import pytest
from support.misaligned import lowered, misaligned

from hybridstereo.pair_check import Code, check_pair
from hybridstereo.rectification import matched_points
from hybridstereo.search_range import CoarseMatch
from hybridstereo.synthetic import SceneOptions, generate_scene, quantised

HEIGHT, WIDTH = 240, 320


@pytest.fixture(scope="module")
def views() -> tuple[np.ndarray, np.ndarray]:
    scene = generate_scene(5, SceneOptions(HEIGHT, WIDTH, 40.0))
    return scene.left, scene.right


def no_coarse_match(left, right, halvings):
    pytest.fail("points should have told")


def coarse(share: float, disparity: float = 5.0):
    """A coarse match of which so much is believed."""
    mask = np.arange(1000).reshape(20, 50) < 1000 * share
    return CoarseMatch(np.full(mask.shape, disparity, np.float32), mask, 4)


def answers(*results):
    """A coarse match that gives these results in turn."""
    left_over = list(results)
    return lambda left, right, halvings: left_over.pop(0)


def codes(left, right, coarse_match=no_coarse_match) -> list[str]:
    return [finding.code for finding in check_pair(left, right, coarse_match)]


def turned(view: np.ndarray, degrees: float, scale: float = 1.0) -> np.ndarray:
    """Clockwise about the centre."""
    height, width, _ = view.shape
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -degrees, scale)
    return cv2.warpAffine(view, matrix, (width, height), None, cv2.INTER_LINEAR, cv2.BORDER_REFLECT)


def test_nothing_is_wrong_with_a_generated_pair(views):
    assert codes(*views) == []


@pytest.mark.parametrize(
    ("rows", "looks"), [(0.0, [120]), (0.9, [120, 240]), (1.2, [120, 240]), (-6.0, [120, 240])]
)
def test_a_quick_look_may_only_say_that_all_is_well(rows, looks, monkeypatch):
    """Near a limit and beyond it the views are looked at thoroughly, and that alone counts."""
    scene = generate_scene(6, SceneOptions(HEIGHT, WIDTH, 40.0))
    heights = []

    def counted(first, second, *rest):
        heights.append(first.shape[0])
        return matched_points(first, second, *rest)

    monkeypatch.setattr("hybridstereo.pair_rows.matched_points", counted)
    check_pair(scene.left, lowered(scene.right, rows), no_coarse_match)
    assert heights == looks


@pytest.mark.parametrize("change", ["dark", "pale", "noisy", "reduced"])
def test_nothing_is_wrong_with_a_good_pair_under_bad_conditions(views, change, rng):
    def changed(view):
        if change == "dark":
            view = 0.1 * view
        elif change == "pale":
            view = 0.6 + 0.1 * view
        elif change == "noisy":
            view = np.clip(view + rng.normal(0, 0.02, view.shape), 0, 1)
        else:
            view = cv2.resize(view, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC).clip(0, 1)
        return quantised(view).astype(np.float32) / 255

    assert codes(*map(changed, views)) == []


@pytest.mark.parametrize("rows", [1.5, -3, 10])
def test_vertical_offset(views, rows):
    left, right = views
    (found,) = check_pair(left, lowered(right, rows), no_coarse_match)
    assert found.code == "vertical-offset"
    assert found.figure == pytest.approx(rows, abs=0.2)
    assert f"{abs(found.figure):.1f} px too {'low' if rows > 0 else 'high'}" in found.message
    assert found.correctable
    assert "`rectify=True`" in found.hint


def test_what_rectify_cannot_correct_needs_the_calibration(views):
    left, right = views
    for spoilt, degrees in ((lowered(right, 20), 0), (turned(right, 5), 5)):
        (found,) = check_pair(left, spoilt, no_coarse_match)
        assert found.figure == pytest.approx(degrees or 20, abs=0.3)
        assert not found.correctable
        assert "calibration" in found.hint


@pytest.mark.parametrize("degrees", [0.5, -1, 3])
def test_rotation(views, degrees):
    left, right = views
    (found,) = check_pair(left, turned(right, degrees), no_coarse_match)
    assert found.code == "rotation"
    assert found.figure == pytest.approx(degrees, abs=0.15)  # there are 80 points
    assert ("counter" in found.message) == (degrees < 0)
    assert found.correctable


@pytest.mark.parametrize("scale", [1.03, 0.97])
def test_scale(views, scale):
    left, right = views
    (found,) = check_pair(left, turned(right, 0, scale), no_coarse_match)
    assert found.code == "scale"
    assert found.figure == pytest.approx(scale, abs=0.003)
    assert ("larger" in found.message) == (scale > 1)
    assert not found.correctable


def test_several_things_at_once(views):
    left, right = views
    spoilt = 0.25 * lowered(turned(right, 1), 4)
    assert codes(left, spoilt) == ["vertical-offset", "rotation", "exposure"]
    assert codes(spoilt, left) == ["swapped", "vertical-offset", "rotation", "exposure"]


def test_small_differences_are_not_worth_a_word(views):
    left, right = views
    assert codes(left, misaligned(right, lambda x, y: 0.4 + 0.6 * x + 0.5 * y)) == []


def test_swapped(views):
    left, right = views
    (found,) = check_pair(right, left, no_coarse_match)
    assert found.code == "swapped"
    assert found.figure < -1


def test_views_of_which_some_points_are_behind_infinity_are_not_swapped(views):
    """Cameras that converge."""
    left, right = views
    disparity = 12
    assert codes(left[:, disparity:], right[:, :-disparity]) == []


def test_identical(views):
    left, _ = views
    assert codes(left, left) == ["identical"]
    pixels = quantised(left)
    again = cv2.imdecode(cv2.imencode(".jpg", pixels)[1], cv2.IMREAD_COLOR)
    (found,) = check_pair(left, again.astype(np.float32) / 255, no_coarse_match)
    assert found.code == "identical"
    assert 0 < found.figure < 0.5


@pytest.mark.parametrize("which", ["left", "right", "both"])
def test_blank(views, which, rng):
    """Also with the noise of a sensor under its cap."""
    plain = np.clip(0.02 + rng.normal(0, 0.004, views[0].shape), 0, 1).astype(np.float32)
    left, right = (plain if which in (x, "both") else view for x, view in
                   zip(("left", "right"), views, strict=True))  # fmt: skip
    (found,) = check_pair(left, right, no_coarse_match)
    assert found.code == "blank"
    assert ("Both" if which == "both" else f"The {which}") in found.message
    assert found.figure < 1


@pytest.mark.parametrize(("factor", "word"), [(0.25, "darker"), (None, "brighter")])
def test_exposure(views, factor, word):
    left, right = views
    pair = (left, factor * right) if factor else (0.2 * left, right)
    (found,) = check_pair(*pair, no_coarse_match)
    assert found.code == "exposure"
    assert word in found.message


def test_half_the_light_is_no_finding(views):
    left, right = views
    assert codes(left, 0.5 * right) == []


# --- where points do not tell -------------------------------------------------------------------


@pytest.fixture
def plain(rng) -> tuple[np.ndarray, np.ndarray]:
    """Views in which no points match: noise."""
    return tuple(rng.random((HEIGHT, WIDTH, 3), np.float32) for _ in range(2))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([coarse(0.2), coarse(0.2)], ["unrelated"]),
        ([coarse(0.6)], []),
        ([coarse(0.35), coarse(0.35)], []),
        ([coarse(0.6, -4)], ["swapped"]),
        ([coarse(0.2), coarse(0.6)], ["swapped"]),
        ([coarse(0.35), coarse(0.45)], []),
        ([coarse(0.6, 0.2)], []),
    ],
    ids=["unrelated", "good", "hardly", "negative", "reversed", "hardly reversed", "far away"],
)
def test_a_coarse_match_tells_where_points_do_not(plain, results, expected):
    assert codes(*plain, answers(*results)) == expected


def test_views_of_two_scenes_have_too_few_points_in_common(views):
    other = generate_scene(6, SceneOptions(HEIGHT, WIDTH, 40.0)).right
    assert codes(views[0], other, answers(coarse(0.2), coarse(0.2))) == ["unrelated"]


def test_a_wallpaper_tells_nothing(views):
    """Its points match anywhere: that the views agree nowhere says nothing."""
    wall = np.tile(views[0][80:104, 80:104], (10, 15, 1))
    assert codes(wall[:, :WIDTH], wall[:, 7 : WIDTH + 7]) == []


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1), (2, 3), (9, 9), (40, 300)])
def test_small_images_tell_nothing(rng, size):
    left, right = (rng.random((*size, 3), np.float32) for _ in range(2))
    assert codes(left, right) == (["blank"] if size == (1, 1) else [])  # a single value spans none


def test_points_on_one_line_tell_nothing():
    """Nor do they fail: a row of different dots on a plain ground."""
    left = np.full((HEIGHT, WIDTH, 3), 0.5, np.float32)
    for index, x in enumerate(range(20, WIDTH - 20, 9)):
        cv2.circle(left, (x, HEIGHT // 2), 2 + index % 3, (index / 40, 0.1, 1 - index / 40), -1)
    right = np.roll(left, -4, axis=1)
    assert codes(left, right, partial(lambda result, *_: result, coarse(0.9))) == []


def test_every_finding_is_explained():
    page = Path(__file__).parents[1] / "docs" / "messages.md"
    listed = re.findall(r"^\| `([a-z-]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(get_args(Code))


def test_same_findings_for_any_number_of_threads(views):
    left, right = views
    spoilt = lowered(turned(right, 1), 4)
    before, results = cv2.getNumThreads(), []
    try:
        for threads in (1, 2, 4):
            cv2.setNumThreads(threads)
            results.append(tuple(check_pair(left, spoilt, no_coarse_match)))
    finally:
        cv2.setNumThreads(before)
    assert len(results[0]) == 2
    assert len(set(results)) == 1
