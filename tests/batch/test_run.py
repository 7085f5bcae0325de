"""Many pairs one after the other: order, overlap, failures, results."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from hybridstereo import crew
from hybridstereo.batch import run
from hybridstereo.batch.folders import pairs_below
from hybridstereo.batch.outputs import ColorFile, CostsFile, DisparityFile, MinorantFile
from hybridstereo.batch.run import match_in, run_pairs
from hybridstereo.batch.work import PairWork, load_pair, match_pair, process_pair
from hybridstereo.crew import Crew, StoppedError
from hybridstereo.errors import InputError, OutputError
from hybridstereo.io.disparity import read_disparity
from hybridstereo.kernels import max_threads
from hybridstereo.options import MatchOptions
from hybridstereo.stereo import Stereo


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


# --- several pairs at a time ------------------------------------------------------------------


several_threads = pytest.mark.skipif(max_threads() < 2, reason="one core")


@several_threads
@pytest.mark.parametrize("limit", [None, 0])  # bytes: enough, or too few for two at a time
def test_maps_are_the_same(census, pairs_folder, work, monkeypatch, tmp_path, limit):
    monkeypatch.setattr(crew, "usable_memory", lambda *_: (limit, False))
    threads = []
    real = match_pair

    def watched(stereo, *arguments):
        threads.append(stereo.threads)
        return real(stereo, *arguments)

    monkeypatch.setattr(run, "match_pair", watched)
    stereo = Stereo(census.model, census.backend, 2)
    outcomes = list(run_pairs(stereo, pairs_below(pairs_folder), work))
    assert [x.status for x in outcomes] == ["done", "done", "failed", "done"]
    assert sorted(threads) == ([1, 1, 1] if limit is None else [2, 2, 2])
    for name in "abd":
        left, right = (str(pairs_folder / side / f"{name}.png") for side in ("left", "right"))
        expected = census.match(left, right, disparities=8).disparity
        np.testing.assert_array_equal(read_disparity(tmp_path / "out" / f"{name}.pfm"), expected)


@several_threads
def test_what_nobody_waits_for_ends(census, pairs_folder, work):
    with Crew(Stereo(census.model, census.backend, 2)) as members:
        loaded = load_pair(work, next(iter(pairs_below(pairs_folder))))
        members.stop()
        with pytest.raises(StoppedError):
            match_in(members, work, loaded)
