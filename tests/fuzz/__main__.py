"""``python -m tests.fuzz --seconds N [TARGET ...]``: campaigns, two targets at a time."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

_LEAST = 2.0
"""Seconds that are worth another start after an input has ended the process."""
_START = 600
"""Seconds that a process may take beyond its campaign, to start and to end on a busy machine."""
_ENGINES = ("libfuzzer", "python")
_REACHED = re.compile(r"\bcov: (\d+)")
"""How libFuzzer says how much it has reached."""
_FROM_MEMORY = Path("/dev/shm")


def _run(options: argparse.Namespace, name: str, seconds: float, seed: int) -> tuple[str, str]:
    """Run a target in a process of its own; returns how it ended and what it wrote to stderr.

    How it ended is empty if all is well.
    """
    own = [sys.executable, "-m", "tests.fuzz", "--alone", "--engine", options.engine]
    given = ["--seconds", str(seconds), "--seed", str(seed), "--folder", str(options.folder), name]
    memory = _FROM_MEMORY if _FROM_MEMORY.is_dir() else None
    # Its files lie in here, so that nothing is left of a process that an input has ended.
    with tempfile.TemporaryDirectory(prefix="hstereo-fuzz-", dir=memory) as scratch:
        try:
            done = subprocess.run(
                [*own, *given],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds + _START,
                env=os.environ | {"TMPDIR": scratch},
            )
        except subprocess.TimeoutExpired:
            return "the process did not end", ""
    return f"the process ended with {done.returncode}" if done.returncode else "", done.stderr


def _campaign(options: argparse.Namespace, name: str) -> dict:
    """Run a target until the time is used up; an input that ends its process is a finding.

    Returns the tally of the campaign.
    """
    total: dict = {"target": name, "executions": 0, "refused": 0, "reached": 0, "findings": {}}
    end = time.monotonic() + options.seconds
    attempt = 0
    while (rest := end - time.monotonic()) > _LEAST or attempt == 0:
        tally_file = options.folder / f"{name}.json"
        tally_file.unlink(missing_ok=True)
        ended, said = _run(options, name, rest, options.seed + attempt)
        attempt += 1
        if tally_file.exists():
            tally = json.loads(tally_file.read_text())
            total["executions"] += tally["executions"]
            total["refused"] += tally["refused"]
            reached = [tally["reached"], *map(int, _REACHED.findall(said))]
            total["reached"] = max(total["reached"], *reached)
            total["findings"] |= tally["findings"]
        if not ended:
            break
        kept = f"{name}-ended-{attempt}"
        tried = options.folder / f"{name}.input"
        if tried.exists():
            tried.rename(options.folder / kept)
        (options.folder / f"{kept}.txt").write_text(said)
        total["findings"][ended] = kept
        if attempt > 20:
            break
    return total


def main() -> int:
    """Run the campaigns and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--seconds", type=float, default=15, help="for each target")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), help="for findings")
    parser.add_argument(
        "--engine",
        choices=_ENGINES,
        default=_ENGINES[0] if find_spec("atheris") else _ENGINES[1],
        help="what decides on the inputs; default: libfuzzer where atheris is installed",
    )
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.folder = options.folder.resolve()
    if options.alone:
        if options.engine == "libfuzzer":
            from .libfuzzer import run_alone
        else:
            from .engine import run_alone

        run_alone(options.targets[0], options.seconds, options.seed, options.folder)
        return 0
    from .targets import TARGETS

    names = options.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    print(f"{options.engine}, seed {options.seed}, findings in {options.folder}", flush=True)
    found = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(_campaign, options, name) for name in names]
        for run in runs:
            tally = run.result()
            found += len(tally["findings"])
            print(
                f"{tally['target']:<20} {tally['executions']:>8} inputs {tally['refused']:>8}"
                f" refused {tally['reached']:>5} reached {len(tally['findings']):>3} findings",
                flush=True,
            )
            for what, name in tally["findings"].items():
                print(f"    {what}: {options.folder / name}", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
