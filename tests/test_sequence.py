"""Frames that resemble each other: the range and the dual variables of the frame before."""

from __future__ import annotations

import numpy as np
import pytest
from support.videofiles import DISPARITIES, scenes, views_of

from hybridstereo import crew
from hybridstereo.errors import InputError
from hybridstereo.kernels import max_threads
from hybridstereo.labels import LabelRange
from hybridstereo.sequence import StereoSequence, shown_range
from hybridstereo.stereo import Stereo


@pytest.fixture(scope="module")
def stereo():
    return Stereo("census", "cpu")


@pytest.fixture(scope="module")
def frames():
    return scenes(3)


@pytest.fixture(scope="module")
def pairs(frames):
    return list(zip(*views_of(frames), strict=True))


def matched(stereo, pairs, **options):
    sequence = StereoSequence(stereo, **options)
    return [sequence.match(*pair) for pair in pairs]


def test_without_a_warm_start_frames_are_those_of_match(stereo, pairs):
    for pair, result in zip(pairs, matched(stereo, pairs, disparities=DISPARITIES), strict=True):
        alone = stereo.match(*pair, disparities=DISPARITIES)
        assert result.disparity.tobytes() == alone.disparity.tobytes()


@pytest.mark.parametrize("options", [{"disparities": DISPARITIES}, {}])
def test_frames_side_by_side_are_those_one_after_the_other(stereo, pairs, options):
    several = Stereo(stereo.model, "cpu", max_threads())
    found = list(StereoSequence(several, **options).match_all(2 * pairs, at_once=None))
    for one, other in zip(2 * matched(stereo, pairs, **options), found, strict=True):
        assert one.label_range == other.label_range
        assert one.disparity.tobytes() == other.disparity.tobytes()


def test_no_frames(stereo):
    assert list(StereoSequence(stereo).match_all([], at_once=None)) == []


@pytest.mark.parametrize("options", [{"warm_start": True}, {"range_mode": "tracked"}])
def test_frames_that_need_the_one_before_are_not_matched_side_by_side(stereo, pairs, options):
    sequence = StereoSequence(stereo, **options)
    assert not sequence.independent
    with pytest.raises(InputError, match="one after the other"):
        next(sequence.match_all(pairs, at_once=2))


def test_memory_counts_for_frames_side_by_side(stereo, pairs, monkeypatch):
    """With room for one only, each is matched by all threads."""
    monkeypatch.setattr(crew, "usable_memory", lambda *_: (1, False))
    threads = []
    real = Stereo.match

    def watched(self, *views, **options):
        threads.append(self.threads)
        return real(self, *views, **options)

    monkeypatch.setattr(Stereo, "match", watched)
    several = Stereo(stereo.model, "cpu", max_threads())
    frames = StereoSequence(several, disparities=DISPARITIES, scale=2)
    assert len(list(frames.match_all(pairs, at_once=None))) == len(pairs)
    assert threads == [max_threads()] * len(pairs)


def test_a_still_scene_comes_nearer_to_the_optimum_with_every_frame(stereo, pairs):
    still = [pairs[0]] * 4
    options = {"disparities": DISPARITIES, "iterations": 1}
    warm = matched(stereo, still, warm_start=True, **options)
    bounds = [float(x.bounds[-1]) for x in warm]
    at_once = stereo.match(*pairs[0], disparities=DISPARITIES, iterations=4)
    assert bounds[3] == pytest.approx(float(at_once.bounds[-1]), rel=1e-6)
    assert np.diff(bounds).min() > -1e-6 * abs(bounds[0])
    np.testing.assert_allclose(warm[3].disparity, at_once.disparity, atol=1e-3)


def test_the_bound_stays_a_bound_in_motion(stereo, pairs):
    for pair, result in zip(
        pairs,
        matched(stereo, pairs, disparities=DISPARITIES, iterations=2, warm_start=True),
        strict=True,
    ):
        best = stereo.match(*pair, disparities=DISPARITIES, iterations=40)
        assert result.bounds[-1] <= best.energy + 1e-5 * abs(best.energy)
        assert result.energy >= best.bounds[-1] - 1e-5 * abs(best.energy)


def test_an_unrelated_frame_starts_cold(stereo, pairs, rng):
    other = rng.integers(0, 256, pairs[0][0].shape, np.uint8)
    options = {"disparities": DISPARITIES, "iterations": 2}
    _, last = matched(stereo, [(other, other), pairs[0]], warm_start=True, **options)
    alone = stereo.match(*pairs[0], **options)
    np.testing.assert_allclose(last.disparity, alone.disparity, atol=1e-3)
    assert last.bounds[-1] == pytest.approx(alone.bounds[-1], rel=1e-6)


def test_a_fixed_range_is_that_of_the_first_frame(stereo, pairs, monkeypatch):
    found = [LabelRange(1.0, 12), LabelRange(2.0, 20)]
    monkeypatch.setattr("hybridstereo.stereo.covering_range", lambda *_: found.pop(0))
    results = matched(stereo, pairs)
    assert {x.label_range for x in results} == {LabelRange(1.0, 12)}


def test_a_tracked_range_is_found_anew_in_every_frame(stereo, pairs, monkeypatch):
    found = [LabelRange(1.0, 12), LabelRange(2.0, 20), LabelRange(0.0, 9)]
    expected = list(found)
    monkeypatch.setattr("hybridstereo.stereo.covering_range", lambda *_: found.pop(0))
    results = matched(stereo, pairs, range_mode="tracked")
    assert [x.label_range for x in results] == expected


def test_a_warm_start_takes_the_range_from_the_map_before(stereo, pairs, monkeypatch):
    found = [LabelRange(0.0, 64)]
    monkeypatch.setattr("hybridstereo.stereo.covering_range", lambda *_: found.pop(0))
    results = matched(stereo, pairs, range_mode="tracked", warm_start=True)
    assert results[0].label_range.count == 64
    assert results[1].label_range.count < 40
    assert not found


def test_a_range_that_is_too_short_is_looked_for_again(stereo, pairs, monkeypatch):
    found = [LabelRange(0.0, 4), LabelRange(0.0, 40)]
    monkeypatch.setattr("hybridstereo.stereo.covering_range", lambda *_: found.pop(0))
    results = matched(stereo, pairs[:2], range_mode="tracked", warm_start=True)
    assert results[0].at_range_ends > 0.01
    assert results[1].label_range.maximum >= 39


def test_the_range_that_a_map_shows():
    disparity = np.tile(np.linspace(20, 40, 50, dtype=np.float32), (10, 1))
    assert shown_range(disparity, LabelRange(0.0, 64)) == LabelRange(16.0, 32)
    near_zero = shown_range(disparity - 20, LabelRange(0.0, 64))
    assert near_zero.minimum == 0
    assert shown_range(disparity - 20, LabelRange(-8.0, 64)).minimum == -8
    assert shown_range(disparity, LabelRange(0.0, 64, 0.5)).count == 64


@pytest.mark.parametrize(
    "options", [{"range_mode": "loose"}, {"range_mode": "tracked", "disparities": 16}]
)
def test_options_that_contradict_each_other(stereo, options):
    with pytest.raises(InputError):
        StereoSequence(stereo, **options)
