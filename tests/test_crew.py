"""Several pairs at a time: the same maps, within the memory, and an end when nobody waits."""

from __future__ import annotations

import threading

import pytest

from hybridstereo import crew as crew_module
from hybridstereo.crew import Crew, Room, StoppedError
from hybridstereo.kernels import max_threads
from hybridstereo.stereo import Stereo

several_threads = pytest.mark.skipif(max_threads() < 2, reason="one core")


@pytest.fixture(scope="module")
def census():
    return Stereo("census", "cpu")


def test_one_thread_matches_one_pair_at_a_time(census):
    assert Crew(Stereo(census.model, census.backend, 1)).size == 1


@several_threads
def test_no_more_than_asked_for(census):
    stereo = Stereo(census.model, census.backend, 2)
    assert [Crew(stereo, most=most).size for most in (1, 2, 5, None)] == [1, 2, 2, 2]


@several_threads
@pytest.mark.parametrize(("need", "threads"), [(lambda *_: 10, 1), (lambda *_: 60, 2), (None, 2)])
def test_who_needs_too_much_is_alone(census, monkeypatch, need, threads):
    monkeypatch.setattr(crew_module, "usable_memory", lambda *_: (150, False))
    with Crew(Stereo(census.model, census.backend, 2)) as crew, crew.place(need) as stereo:
        assert stereo.threads == threads


@several_threads
def test_nobody_enters_after_the_end(census):
    with Crew(Stereo(census.model, census.backend, 2)) as crew:
        crew.stop()
        with pytest.raises(StoppedError), crew.place(None):
            pass
        with pytest.raises(StoppedError):
            crew.go_on("CRF")


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
