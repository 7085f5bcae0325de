"""Which tasks are tried again, in which order, and which the user hears of."""

from __future__ import annotations

import pytest

from hybridstereo.engines import flights as module
from hybridstereo.engines.flights import Flight, Flights, ordered
from hybridstereo.errors import StereoError


class Echo:
    """A job whose results are final unless they are "busy"."""

    def describe(self, task):
        return f"task {task}"

    def is_final(self, result):
        return result != "busy"

    def failed(self, task, error):
        return error


@pytest.fixture
def told():
    return []


@pytest.fixture
def clock(monkeypatch):
    """Seconds that tests set."""
    seconds = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: seconds[0])
    return seconds


def test_what_fails_is_tried_three_times(told):
    flights, flight = Flights(Echo(), told.append), Flight(0, "a")
    for _ in range(2):
        assert flights.failed(flight, "failed with OSError: gone") == (False, None)
        assert flights.again.popleft() is flight
    done, result = flights.failed(flight, "failed with OSError: gone")
    assert done
    assert isinstance(result, StereoError)
    assert str(result) == "It failed with OSError: gone in each of 3 tries."
    assert told == ["task a failed with OSError: gone; it is tried again"] * 2


def test_a_result_that_may_become_better_is_taken_the_third_time(told):
    flights, flight = Flights(Echo(), told.append), Flight(0, "a")
    assert flights.came_back(flight, "busy") == (False, None)
    assert flights.came_back(flight, "busy") == (False, None)
    assert flights.came_back(flight, "busy") == (True, "busy")
    assert Flights(Echo(), told.append).came_back(Flight(0, "b"), "fine") == (True, "fine")


@pytest.mark.parametrize(("deaths_at_once", "tries"), [(1, 3), (4, 2)])
def test_a_killer_is_found_alone(told, deaths_at_once, tries):
    """A scheduler elsewhere has lost several workers when we hear of it; then once more alone."""
    flights, flight = Flights(Echo(), told.append, deaths_at_once), Flight(0, "a")
    for count in range(tries - 1):
        assert flights.killed(flight) == (False, None)
        last = count == tries - 2
        assert (flights.suspects if last else flights.again).popleft() is flight
    done, result = flights.killed(flight)
    assert done
    assert "lost its worker" in str(result)


def test_the_oldest_without_a_result(told):
    flights = Flights(Echo(), told.append)
    assert flights.oldest(7) == 7
    flights.begin(Flight(5, "a"))
    flights.suspects.append(Flight(3, "b"))
    assert flights.oldest(7) == 3


def test_stragglers_are_named_once_with_their_worker(told, clock):
    flights = Flights(Echo(), told.append)
    slow, usual = Flight(0, "slow"), Flight(1, "usual")
    flights.begin(slow)
    for _ in range(8):
        flights.begin(usual)
        clock[0] += 3.0
        flights.came_back(flights.flying.pop(1), "fine")
        if clock[0] <= 15.0:  # five times 3 s
            flights.tell_stragglers(lambda flight: "tcp://a")
            assert told == []
    for _ in range(2):
        flights.tell_stragglers(lambda flight: "tcp://a")
    assert told == ["task slow takes long: 24 s on tcp://a, where 3.0 s are usual"]


def test_quick_tasks_are_no_stragglers(told, clock):
    """Five times a millisecond is nothing that anybody waits for."""
    flights = Flights(Echo(), told.append)
    for _ in range(8):
        flight = Flight(1, "quick")
        flights.begin(flight)
        clock[0] += 0.001
        flights.came_back(flights.flying.pop(1), "fine")
    flights.begin(Flight(2, "slow"))
    clock[0] += 9.0
    flights.tell_stragglers(lambda flight: "")
    assert told == []


def test_order():
    found = [(2, "c", 3), (0, "a", 1), (3, "d", 4), (1, "b", 2)]
    assert list(ordered(found)) == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
