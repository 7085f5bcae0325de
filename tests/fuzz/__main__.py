"""``python -m tests.fuzz --seconds N [TARGET ...]``: campaigns, two targets at a time."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_LEAST = 2.0
"""Seconds that are worth another start after an input has ended the process."""
_START = 120
"""Seconds that a process may take beyond its campaign, to start and to end."""


def _campaign(name: str, seconds: float, seed: int, folder: Path) -> dict:
    """Run a target in processes of its own until the time is used up; what ends one is a finding.

    Returns the tally of the campaign.
    """
    total: dict = {"target": name, "executions": 0, "refused": 0, "lines": 0, "findings": {}}
    end = time.monotonic() + seconds
    attempt = 0
    while (rest := end - time.monotonic()) > _LEAST or attempt == 0:
        tally_file = folder / f"{name}.json"
        tally_file.unlink(missing_ok=True)
        own = [sys.executable, "-m", "tests.fuzz", "--alone", "--seconds", str(rest)]
        command = [*own, "--seed", str(seed + attempt), "--folder", str(folder), name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=rest + _START)
        attempt += 1
        if tally_file.exists():
            tally = json.loads(tally_file.read_text())
            total["executions"] += tally["executions"]
            total["refused"] += tally["refused"]
            total["lines"] = max(total["lines"], tally["lines"])
            total["findings"] |= tally["findings"]
        if done.returncode == 0:
            break
        kept = f"{name}-ended-{attempt}"
        tried = folder / f"{name}.input"
        if tried.exists():
            tried.rename(folder / kept)
        (folder / f"{kept}.txt").write_text(done.stderr)
        total["findings"][f"the process ended with {done.returncode}"] = kept
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
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.alone:
        from .engine import run_alone

        run_alone(options.targets[0], options.seconds, options.seed, options.folder.resolve())
        return 0
    from .targets import TARGETS

    names = options.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    print(f"seed {options.seed}, findings in {options.folder}", flush=True)
    found = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [
            pool.submit(_campaign, name, options.seconds, options.seed, options.folder.resolve())
            for name in names
        ]
        for run in runs:
            tally = run.result()
            found += len(tally["findings"])
            print(
                f"{tally['target']:<20} {tally['executions']:>8} inputs {tally['refused']:>8}"
                f" refused {tally['lines']:>5} lines {len(tally['findings']):>3} findings",
                flush=True,
            )
            for what, name in tally["findings"].items():
                print(f"    {what}: {options.folder / name}", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
