"""Many pairs one after the other: order, overlap, failures, results."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest

from hybridstereo.batch.folders import pairs_below
from hybridstereo.batch.outputs import ColorFile, CostsFile, DisparityFile, MinorantFile
from hybridstereo.batch.run import overlapped, run_pairs
from hybridstereo.batch.work import PairWork, process_pair
from hybridstereo.errors import InputError, OutputError
from hybridstereo.io.disparity import read_disparity
from hybridstereo.options import MatchOptions


@pytest.fixture
def work(tmp_path):
    outputs = (DisparityFile("{name}.pfm"), ColorFile("pictures/{name}.png"))
    return PairWork(str(tmp_path / "out"), outputs, MatchOptions(disparities=8), check=False)


def statuses(outcomes):
    return {outcome.pair.name: outcome.status for outcome in outcomes}


def test_a_pair_that_fails_does_not_stop_the_others(census, pairs_folder, work, tmp_path):
    outcomes = list(run_pairs(census, pairs_below(pairs_folder), work))
    assert statuses(outcomes) == {"a": "done", "b": "done", "c": "failed", "d": "done"}
    assert "c.png does not exist" in str(outcomes[2].error)
    assert outcomes[0].files == {
        "disparity": [str(tmp_path / "out/a.pfm")],
        "color": [str(tmp_path / "out/pictures/a.png")],
    }
    for name in "abd":
        stored = read_disparity(tmp_path / f"out/{name}.pfm")
        left, right = (str(pairs_folder / side / f"{name}.png") for side in ("left", "right"))
        expected = census.match(left, right, disparities=8).disparity
        np.testing.assert_array_equal(stored, expected)


def test_one_pair_in_another_process_is_the_same(census, pairs_folder, work):
    pair = next(iter(pairs_below(pairs_folder)))
    outcome = process_pair(census, *pickle.loads(pickle.dumps((pair, work))))
    again = pickle.loads(pickle.dumps(outcome))
    assert (again.pair, again.status, again.files) == (pair, "done", outcome.files)
    missing = process_pair(census, replace(pair, right="no.png"), work)
    assert "no.png does not exist" in str(pickle.loads(pickle.dumps(missing)).error)


def test_only_what_is_missing_is_done_again(census, pairs_folder, work, tmp_path, monkeypatch):
    list(run_pairs(census, pairs_below(pairs_folder), work))
    (tmp_path / "out/pictures/b.png").unlink()  # a run was killed between the files of a pair
    leftover = tmp_path / "out/.d.0123456789ab.hstereo.pfm"
    leftover.write_bytes(b"half")
    monkeypatch.setattr("hybridstereo.batch.places._swept", set())
    again = run_pairs(census, pairs_below(pairs_folder), replace(work, skip_existing=True))
    assert statuses(again) == {"a": "skipped", "b": "done", "c": "failed", "d": "skipped"}
    assert not leftover.exists()


def test_an_input_is_never_replaced(census, pairs_folder, work):
    onto = replace(work, folder=str(pairs_folder), outputs=(DisparityFile("left/{name}.png"),))
    before = (pairs_folder / "left/a.png").read_bytes()
    (outcome, *_) = run_pairs(census, pairs_below(pairs_folder), onto)
    assert outcome.status == "failed"
    assert "is an input already" in str(outcome.error)
    assert (pairs_folder / "left/a.png").read_bytes() == before


def test_what_the_check_finds(census, pairs_folder, work):
    pair = next(iter(pairs_below(pairs_folder)))
    same = replace(pair, right=pair.left)
    outcome = process_pair(census, same, replace(work, check=True))
    assert [finding.code for finding in outcome.findings] == ["identical"]
    assert outcome.status == "done"
    assert process_pair(census, same, replace(work, check=True, strict=True)).status == "failed"


def test_costs_and_what_is_kept(census, pairs_folder, work, tmp_path):
    outputs = (CostsFile("{name}.npy"), MinorantFile("{name}_crf.npy"))
    kept = replace(work, outputs=outputs, keep=lambda stereo, result: result.label_range.count)
    outcome = process_pair(census, next(iter(pairs_below(pairs_folder))), kept)
    assert outcome.kept == 8
    assert np.load(tmp_path / "out/a.npy").shape == (24, 40, 8)
    assert outcome.files.keys() == {"volume", "volume_crf"}
    argmax = replace(kept, options=MatchOptions(disparities=8, method="argmax"))
    failed = process_pair(census, next(iter(pairs_below(pairs_folder))), argmax)
    assert "no costs after the CRF" in str(failed.error)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (DisparityFile("map.pfm"), InputError),
        (DisparityFile("{name}.xyz"), OutputError),
        (DisparityFile("../{name}.pfm"), OutputError),
        (ColorFile("/x/{name}.png"), OutputError),
        (ColorFile("{name}.pfm"), OutputError),
        (CostsFile("{name}.png"), OutputError),
    ],
)
def test_names_are_refused_before_the_work(tmp_path, output, error):
    with pytest.raises(error):
        output.check(str(tmp_path))


# --- the overlap itself -------------------------------------------------------------------------


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
