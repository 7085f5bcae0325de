"""Dask's workers: real processes, some of which are killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.commands import run
from support.engine_jobs import Square, Where

from hybridstereo.cli import main
from hybridstereo.errors import InputError, StereoError

pytest.importorskip("distributed", reason="needs the extra dask")
pytestmark = [pytest.mark.engines, pytest.mark.slow]


@pytest.fixture(scope="module")
def notes():
    return []


@pytest.fixture(scope="module")
def engine(notes):
    from hybridstereo.engines.dask_workers import DaskWorkers

    with DaskWorkers(workers=2, threads=1, tell=notes.append) as workers:
        yield workers


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A list of twelve small pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    rng = np.random.default_rng(0)
    lines = []
    for index in range(12):
        left = cv2.GaussianBlur(rng.integers(0, 256, (48, 80, 3), np.uint8), (0, 0), 1)
        cv2.imwrite(str(folder / f"{index}_left.png"), left)
        cv2.imwrite(str(folder / f"{index}_right.png"), np.roll(left, -3, axis=1))
        lines.append(f"{index}_left.png,{index}_right.png,pair{index}\n")
    (folder / "pairs.csv").write_text("".join(lines))
    return folder


def infer(pairs: Path, out: Path, *more: str) -> list[str]:
    return ["infer", "--pairs", str(pairs / "pairs.csv"), "--out-dir", str(out),
            "--model", "census", "--threads", "1", *more]  # fmt: skip


def maps(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.pfm")}


@pytest.fixture(scope="module")
def single_process(pairs, tmp_path_factory):
    """The maps as this process makes them."""
    out = tmp_path_factory.mktemp("single")
    with pytest.raises(SystemExit):
        main(infer(pairs, out, "-q"))
    return maps(out)


def test_a_killed_worker_costs_no_pair(engine, notes, pairs, single_process, tmp_path):
    """Two processes, one is killed in the middle: twelve results, each once, the same bytes."""
    from hybridstereo.batch.lists import listed_pairs
    from hybridstereo.batch.outputs import DisparityFile
    from hybridstereo.batch.remote import PairJob, run_pairs_on
    from hybridstereo.batch.work import PairWork

    work = PairWork(str(tmp_path / "out"), (DisparityFile("{name}.pfm"),))
    (tmp_path / "out").mkdir()
    outcomes = []
    for outcome in run_pairs_on(
        engine, listed_pairs(pairs / "pairs.csv"), PairJob("census", "cpu", work)
    ):
        outcomes.append(outcome)
        if len(outcomes) == 4:
            processes = engine._client.run(os.getpid)
            assert len(processes) == 2
            os.kill(next(iter(processes.values())), signal.SIGKILL)
    assert sorted(outcome.pair.name for outcome in outcomes) == sorted(
        f"pair{index}" for index in range(12)
    )
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert maps(tmp_path / "out") == single_process
    assert sorted(x.name for x in (tmp_path / "out").iterdir()) == sorted(single_process)
    assert any("lost its worker" in note for note in notes)


def test_a_task_that_kills_workers_is_given_up_and_the_rest_goes_on(engine, tmp_path):
    job = Square(str(tmp_path), killers=(5,), failing=(9,))
    found = dict(engine.results(job, iter(range(20))))
    assert found.keys() == set(range(20))
    assert {x: found[x] for x in found if x not in (5, 9)} == {
        x: x * x for x in range(20) if x not in (5, 9)
    }
    assert isinstance(found[5], StereoError)
    assert "lost its worker in each of 3 tries" in str(found[5])
    assert "ZeroDivisionError: a bug in each of 3 tries" in str(found[9])
    known, killing, failing = (len(list(tmp_path.glob(f"call-{x}-*"))) for x in (0, 5, 9))
    assert known == 0
    assert 1 <= killing <= 3  # it may have waited behind another one when the worker died
    assert failing == 3


def test_a_task_that_kills_one_worker_is_done_by_another(engine, tmp_path):
    found = dict(engine.results(Square(str(tmp_path), survivors=(7,)), range(12)))
    assert found == {x: x * x for x in range(12)}
    assert len(list(tmp_path.glob("call-7-*"))) == 2


def test_results_in_order_and_prepared_once_for_each_process(engine, tmp_path):
    found = list(engine.results(Square(str(tmp_path)), range(40), in_order=True))
    assert found == [(x, x * x) for x in range(40)]
    assert 1 <= len(list(tmp_path.glob("prepared-*"))) <= 2


def test_each_local_process_has_its_share_of_the_cores(engine):
    """So that two processes do not use four threads on two cores; `--threads` says otherwise."""
    from hybridstereo.engines.dask_workers import DaskWorkers

    with DaskWorkers(workers=2) as shared:
        found = [placement for _, placement in shared.results(Where(), range(12))]
    assert {x.threads for x in found} == {max(len(os.sched_getaffinity(0)) // 2, 1)}
    assert {x.processes for x in found} == {2}
    assert {x.index for x in found} == {0, 1}  # which GPU each takes, too
    assert {x.threads for _, x in engine.results(Where(), range(4))} == {1}


def test_what_cannot_be_prepared_ends_the_work(engine, tmp_path):
    with pytest.raises(InputError, match="There is no model"):
        list(engine.results(Square(str(tmp_path), unprepared=True), range(1, 9)))


def test_a_source_that_fails_does_so_after_the_results_before(engine, tmp_path):
    def source():
        yield from range(1, 6)
        raise InputError("line 6 is no pair")

    found = []
    results = engine.results(Square(str(tmp_path)), source())
    with pytest.raises(InputError, match="line 6"):
        found.extend(task for task, _ in results)
    assert sorted(found) == [1, 2, 3, 4, 5]


def test_stragglers_are_named(engine, notes, tmp_path):
    job = Square(str(tmp_path), slow=(12,))
    assert dict(engine.results(job, range(1, 14)))[12] == 144
    assert any(note.startswith("number 12 takes long") for note in notes)


def test_two_thousand_pairs_take_a_bounded_part_of_memory(engine, pairs, tmp_path):
    """Of the list no more is read, and of the results no more kept, than is in flight."""
    from hybridstereo.batch.outputs import DisparityFile
    from hybridstereo.batch.pairs import Pair
    from hybridstereo.batch.remote import PairJob, run_pairs_on
    from hybridstereo.batch.work import PairWork
    from hybridstereo.options import MatchOptions

    read = 0

    def many():
        nonlocal read
        for read in range(1, 2001):
            image = [str(pairs / f"tiny_{side}.png") for side in ("left", "right")]
            yield Pair(f"p{read}", *image)

    tiny = np.random.default_rng(1).integers(0, 256, (12, 24, 3), np.uint8)
    cv2.imwrite(str(pairs / "tiny_left.png"), tiny)
    cv2.imwrite(str(pairs / "tiny_right.png"), np.roll(tiny, -2, axis=1))
    options = MatchOptions(disparities=4, iterations=1)
    work = PairWork(str(tmp_path), (DisparityFile("{name}.npy"),), options, check=False)
    engine.most_in_flight = 0
    done, ahead, memory = 0, 0, {}
    for outcome in run_pairs_on(engine, many(), PairJob("census", "cpu", work)):
        assert outcome.status == "done", outcome.error
        done += 1
        ahead = max(ahead, read - done)
        if done in (500, 2000):
            memory[done] = resident_bytes()
    assert done == 2000
    assert len(list(tmp_path.glob("*.npy"))) == 2000
    assert engine.most_in_flight <= 4
    assert ahead <= 5
    # The scheduler is in this process, too.
    assert memory[2000] - memory[500] < 10e6, memory


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_scheduler_elsewhere_and_only_what_is_missing(pairs, single_process, tmp_path, capsys):
    """`dask scheduler` and `dask worker` as an administrator starts them."""
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    environment = {**os.environ, "DASK_DISTRIBUTED__DASHBOARD__LINK": ""}
    started = [
        subprocess.Popen([*dask, "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                          "--scheduler-file", str(file)],
                         stderr=subprocess.DEVNULL, env=environment),
        subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "2",
                          "--no-dashboard", "--scheduler-file", str(file)],
                         stderr=subprocess.DEVNULL, env=environment, cwd=tmp_path),
    ]  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not (file.exists() and file.read_text().rstrip().endswith("}")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        code, out, _ = run(capsys, *infer(pairs, tmp_path / "out", "--scheduler", address))
        assert code == 0
        assert len(out.splitlines()) == 12
        assert maps(tmp_path / "out") == single_process
        (tmp_path / "out" / "pair3.pfm").unlink()
        code, out, err = run(
            capsys, *infer(pairs, tmp_path / "out", "--scheduler", address, "--skip-existing")
        )
        assert (code, out.strip()) == (0, str(tmp_path / "out" / "pair3.pfm"))
        assert "1 done, 11 skipped" in err
        assert maps(tmp_path / "out") == single_process
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(20)


@pytest.fixture
def sigint_is_heard():
    """A shell lets what it runs in the background ignore SIGINT, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_is_heard")
def test_interrupt_cancels_and_ends_all_processes(pairs, tmp_path):
    lines = "".join(
        f"{pairs}/{index % 12}_left.png,{pairs}/{index % 12}_right.png,p{index}\n"
        for index in range(5000)
    )
    (tmp_path / "pairs.csv").write_text(lines)
    command = [sys.executable, "-m", "hybridstereo",
               *infer(tmp_path, tmp_path / "out", "--workers", "2")]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        for _ in range(3):
            assert process.stdout.readline().endswith(".pfm\n")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=180)  # a busy machine takes its time to end processes
    assert process.returncode == 130
    assert "--skip-existing the same command goes on from there" in err
    assert "Traceback" not in err
    assert is_gone(process.pid)
    assert not list((tmp_path / "out").glob(".*"))


def is_gone(group: int) -> bool:
    """Whether nobody is left of a group of processes, within seconds."""
    for _ in range(50):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_no_scheduler_is_one_sentence(pairs, tmp_path, capsys, monkeypatch):
    from hybridstereo.engines import dask_workers

    monkeypatch.setattr(dask_workers, "_CONNECT", "1s")
    code, out, err = run(
        capsys, *infer(pairs, tmp_path / "out", "--scheduler", "tcp://127.0.0.1:9")
    )
    assert code == 1
    assert out == ""
    assert "No Dask scheduler answers at tcp://127.0.0.1:9" in err
    assert "Traceback" not in err
