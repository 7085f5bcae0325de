"""Training by the ranks that a real mpirun starts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from crash_campaign import MODELS, differences

from hybridstereo.io.weights import read_weights
from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
MPIRUN = shutil.which("mpirun", path=PATH)
pytestmark = [
    pytest.mark.engines,
    pytest.mark.slow,
    # Importing it would start MPI in this process, too.
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs the extra mpi"),
    pytest.mark.skipif(MPIRUN is None, reason="needs mpirun"),
]
UNARY_MODELS = MODELS[:3]
RARELY = ("--validate-every", "1000", "--checkpoint-every", "10")  # files take most of the time


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    synthesize(folder, 5, 3, SceneOptions(height=40, width=56, max_disparity=11, objects=4))
    return folder


def training(scenes: Path, output: Path, *more: str) -> list[str]:
    return ["train", "middlebury", "--root", str(scenes), "-o", str(output), "--layers", "2",
            "--filters", "6", "--steps", "4", "--crop", "24x32", "--validate-every", "2",
            "--checkpoint-every", "2", "--iterations", "2", "--val-fraction", "0.4",
            *more]  # fmt: skip


def started(ranks: int, arguments: list[str]) -> subprocess.Popen:
    """`mpirun -n RANKS hstereo ARGUMENTS`, or without mpirun for one rank."""
    program = [sys.executable, "-m", "hybridstereo", *arguments]
    if ranks > 1:
        program = [*mpirun(ranks), *program]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def mpirun(ranks: int) -> list[str]:
    """What starts a program several times."""
    help_text = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True).stdout
    allowed = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in help_text else []
    return [MPIRUN, *allowed, "-n", str(ranks)]


def finished(ranks: int, arguments: list[str]) -> tuple[int, str, str]:
    with started(ranks, arguments) as process:
        out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def accumulated(scenes, tmp_path_factory):
    """All stages by one process, with two pairs for each step."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    code, _, err = finished(1, training(scenes, folder, "--batch", "2"))
    assert code == 0, err
    return folder


def test_two_ranks_equal_one_that_accumulates(scenes, accumulated, tmp_path):
    """To the bit, in all stages, with validation and grid searches shared out."""
    code, out, err = finished(2, training(scenes, tmp_path / "two"))
    assert code == 0, err
    assert out.splitlines() == [str(tmp_path / "two" / "best.h5")]  # one rank speaks
    assert differences(accumulated, tmp_path / "two") == []
    configs = [json.loads((x / "config.json").read_text()) for x in (accumulated, tmp_path / "two")]
    assert configs[0] == configs[1]
    for name in ("crf_grid.json", "full_grid.json"):
        assert (accumulated / name).read_text() == (tmp_path / "two" / name).read_text()


def test_more_ranks_and_uneven_shares(scenes, tmp_path):
    """Four ranks with a pair each: to the bit; three ranks for four pairs: to rounding."""
    unary = ("--stage", "unary", "--batch", "4")
    for ranks in (1, 3, 4):
        code, _, err = finished(ranks, training(scenes, tmp_path / str(ranks), *unary))
        assert code == 0, err
    assert differences(tmp_path / "1", tmp_path / "4", UNARY_MODELS) == []
    one, three = (read_weights(tmp_path / x / "last.h5").tensors for x in ("1", "3"))
    assert one.keys() == three.keys()
    for name, tensor in one.items():
        np.testing.assert_allclose(three[name], tensor, rtol=2e-4, atol=2e-6, err_msg=name)


def test_a_killed_rank_ends_the_job_and_the_run_resumes(scenes, tmp_path):
    """Within ten seconds; another number of ranks goes on, to the bytes of a run in one piece."""
    steps = ("--stage", "unary", "--batch", "2", "--steps", "150", *RARELY)
    code, _, err = finished(1, training(scenes, tmp_path / "whole", *steps))
    assert code == 0, err
    run = tmp_path / "parts"
    with started(2, training(scenes, run, *steps)) as process:
        wait_for_steps(run, 20)
        os.kill(rank_process(process.pid, 1), signal.SIGKILL)
        begun = time.monotonic()
        process.communicate(timeout=60)
        seconds = time.monotonic() - begun
    assert process.returncode != 0
    assert seconds < 10
    code, _, err = finished(1, ["train", "--resume", "-o", str(run)])
    assert code == 0, err
    assert differences(tmp_path / "whole", run, UNARY_MODELS) == []


def test_a_rank_that_waits_leaves_its_core_alone():
    """The first waits a second for the second one, in every kind of call."""
    script = """
import time
import numpy as np
from hybridstereo.engines.ranks import join

ranks = join()
calls = (
    lambda: ranks.summed([np.ones(1000, np.float32)])[0][0],
    lambda: len(ranks.gathered("x")),
    lambda: ranks.first(lambda: 2),
    lambda: ranks.most(ranks.rank + 1.0),
)
for call in calls:
    if ranks.rank == 1:
        time.sleep(1.0)
    begun = time.process_time()
    assert call() == 2
    if ranks.rank == 0:
        print(time.process_time() - begun)
"""
    done = subprocess.run(
        [*mpirun(2), sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    seconds = [float(line) for line in done.stdout.splitlines()]
    assert len(seconds) == 4
    assert max(seconds) < 0.08, seconds  # MPI's own waiting: all that a busy machine lets it have


def rank_process(launcher: int, rank: int) -> int:
    """The process of a rank, which is a descendant of its launcher."""
    for status in Path("/proc").glob("[0-9]*/environ"):
        try:
            told = status.read_bytes().split(b"\0")
            number = int(status.parent.name)
            command = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        ranks = (b"OMPI_COMM_WORLD_RANK=%d" % rank, b"PMI_RANK=%d" % rank)
        ours = b"hybridstereo" in command and any(x in told for x in ranks)
        if ours and launcher in ancestors(number):
            return number
    raise AssertionError(f"no process is rank {rank}")


def ancestors(number: int) -> set[int]:
    found: set[int] = set()
    while number > 1:
        number = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
        found.add(number)
    return found


def test_a_failing_rank_says_why_and_ends_the_job(scenes, tmp_path):
    """The second of two validation pairs, which the second rank reads, is damaged."""
    shutil.copytree(scenes, tmp_path / "scenes")
    damaged = sorted((tmp_path / "scenes").rglob("im1.png"))
    for path in damaged:
        path.write_bytes(path.read_bytes()[:200])
    code, _, err = finished(2, training(tmp_path / "scenes", tmp_path / "run"))
    assert code != 0
    said = [line for line in err.splitlines() if line.startswith("hstereo: rank")]
    assert said
    assert "of 2 failed" in said[0]
    assert "im1.png" in said[0]
    assert "Traceback" not in err


def test_more_ranks_than_pairs_are_refused(scenes, accumulated, tmp_path):
    shutil.copytree(accumulated, tmp_path / "run")
    code, _, err = finished(3, ["train", "--resume", "-o", str(tmp_path / "run")])
    assert code != 0
    assert "A step of this run has 2 pairs, too few for 3 processes" in err


def test_two_ranks_continue_what_one_process_began(scenes, tmp_path):
    steps = ("--stage", "unary", "--batch", "2", "--steps", "100", *RARELY)
    code, _, err = finished(1, training(scenes, tmp_path / "whole", *steps))
    assert code == 0, err
    run = tmp_path / "parts"
    with started(1, training(scenes, run, *steps)) as process:
        wait_for_steps(run, 20)
        process.kill()
        process.communicate()
    code, _, err = finished(2, ["train", "--resume", "-o", str(run)])
    assert code == 0, err
    assert differences(tmp_path / "whole", run, UNARY_MODELS) == []


def wait_for_steps(run: Path, steps: int) -> None:
    deadline = time.monotonic() + 120
    log = run / "log.jsonl"
    while not log.exists() or log.read_bytes().count(b"\n") < steps:
        assert time.monotonic() < deadline
        time.sleep(0.002)
