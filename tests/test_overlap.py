"""Items in order, few at a time, and complete when something goes wrong."""

from __future__ import annotations

import threading

import pytest

from hybridstereo.overlap import overlapped


def test_order_is_kept():
    results = overlapped(range(20), lambda x: x + 1, lambda x: x * 10, lambda x: x + 5)
    assert list(results) == [10 * (x + 1) + 5 for x in range(20)]


def test_reading_and_writing_go_on_while_computing():
    next_is_read, first_is_written = threading.Event(), threading.Event()

    def read(item):
        if item == 1:
            next_is_read.set()
        return item

    def compute(item):
        if item == 0:
            assert next_is_read.wait(30)
        if item == 1:
            assert first_is_written.wait(30)
        return item

    def write(item):
        if item == 0:
            first_is_written.set()
        return item

    assert list(overlapped(range(3), read, compute, write)) == [0, 1, 2]


def test_results_are_told_while_the_next_item_is_awaited():
    go_on = threading.Event()

    def slow():
        yield 1
        assert go_on.wait(30)
        yield 2

    results = overlapped(slow(), int, int, int)
    assert next(results) == 1
    go_on.set()
    assert list(results) == [2]


def test_few_items_are_held():
    held, most = set(), 0
    lock = threading.Lock()

    def read(item):
        nonlocal most
        with lock:
            held.add(item)
            most = max(most, len(held))
        return item

    def write(item):
        with lock:
            held.discard(item)

    list(overlapped(range(100), read, lambda x: x, write, ahead=2))
    assert most <= 2 + 1 + 3


@pytest.mark.parametrize("step", ["items", "read", "compute", "write"])
def test_an_exception_comes_after_the_results_before_it(step):
    def fails(name):
        def function(item):
            if item == 3 and name == step:
                raise ValueError(name)
            return item

        return function

    items = (fails("items")(x) for x in range(6))
    results = overlapped(items, fails("read"), fails("compute"), fails("write"))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match=step):
        next(results)


def test_what_is_computed_is_written_when_the_caller_stops():
    written = []
    results = overlapped(range(10), int, int, lambda x: written.append(x) or x)
    assert next(results) == 0
    results.close()
    assert written == list(range(len(written)))
    assert threading.active_count() < 50


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
