"""Several pairs at a time: the same maps, within the memory, and an end when nobody waits."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hybridstereo.batch import crew as crew_module
from hybridstereo.batch.crew import Crew, Room, StoppedError
from hybridstereo.batch.folders import pairs_below
from hybridstereo.batch.outputs import DisparityFile
from hybridstereo.batch.run import overlapped, run_pairs
from hybridstereo.batch.work import PairWork, load_pair, match_pair
from hybridstereo.io.disparity import read_disparity
from hybridstereo.kernels import max_threads
from hybridstereo.options import MatchOptions
from hybridstereo.stereo import Stereo

several_threads = pytest.mark.skipif(max_threads() < 2, reason="one core")


@pytest.fixture
def work(tmp_path):
    return PairWork(
        str(tmp_path), (DisparityFile("{name}.pfm"),), MatchOptions(disparities=8), check=False
    )


@several_threads
@pytest.mark.parametrize("limit", [None, 0])  # bytes: enough, or too few for two at a time
def test_maps_are_the_same(census, pairs_folder, work, monkeypatch, tmp_path, limit):
    monkeypatch.setattr(crew_module, "usable_memory", lambda *_: (limit, False))
    threads = []
    real = match_pair

    def watched(stereo, *arguments):
        threads.append(stereo.threads)
        return real(stereo, *arguments)

    monkeypatch.setattr(crew_module, "match_pair", watched)
    stereo = Stereo(census.model, census.backend, 2)
    outcomes = list(run_pairs(stereo, pairs_below(pairs_folder), work))
    assert [x.status for x in outcomes] == ["done", "done", "failed", "done"]
    # The pair that cannot be read reaches the model itself.
    assert sorted(threads) == ([1, 1, 1, 2] if limit is None else [2, 2, 2, 2])
    for name in "abd":
        left, right = (str(pairs_folder / side / f"{name}.png") for side in ("left", "right"))
        expected = census.match(left, right, disparities=8).disparity
        np.testing.assert_array_equal(read_disparity(tmp_path / f"{name}.pfm"), expected)


def test_one_thread_matches_one_pair_at_a_time(census, work):
    assert Crew(Stereo(census.model, census.backend, 1), work).size == 1


@several_threads
def test_what_nobody_waits_for_ends(census, pairs_folder, work):
    with Crew(Stereo(census.model, census.backend, 2), work) as crew:
        loaded = load_pair(work, next(iter(pairs_below(pairs_folder))))
        crew.stop()
        with pytest.raises(StoppedError):
            crew.match(loaded)


def test_one_alone_waits_for_the_others_and_they_for_it():
    room, order, inside = Room(), [], threading.Event()

    def alone():
        with room.entered(alone=True):
            order.append("alone")

    def late():
        inside.wait(30)
        with room.entered(alone=False):
            order.append("late")

    with room.entered(alone=False), room.entered(alone=False):
        threads = [threading.Thread(target=function) for function in (alone, late)]
        threads[0].start()
        while not room._waiting:
            pass
        threads[1].start()
        inside.set()
        while len(room._waiting) < 2:
            pass
        order.append("first")
    for thread in threads:
        thread.join(30)
    assert order == ["first", "alone", "late"]


def test_several_are_computed_at_once_in_order():
    meeting = threading.Barrier(2)

    def compute(item):
        meeting.wait(30)  # which only two at the same time can pass
        return 10 * item

    assert list(overlapped(range(6), int, compute, int, at_once=2)) == [0, 10, 20, 30, 40, 50]


def test_the_caller_stops():
    stopped = []
    results = overlapped(range(50), int, int, int, at_once=2, on_stop=lambda: stopped.append(1))
    assert next(results) == 0
    results.close()
    assert stopped == [1]
