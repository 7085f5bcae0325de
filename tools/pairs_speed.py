"""How much faster one `hstereo infer --out-dir` is than a shell loop over the same pairs.

    python tools/pairs_speed.py --pairs data/kitti2015/training --limit 8 --model general-fast

Both are run in turn, several times; wall-clock seconds and those of all cores are printed, with
their ratios.  On a busy machine only the latter mean anything: they count work, not waiting.  On an
idle one the ratio of wall-clock seconds is higher, since starting a process keeps one core busy and
matching keeps all.  ``--crop 240x320`` cuts the middle out of the images first.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import cv2

from hybridstereo.batch.folders import pairs_below
from hybridstereo.batch.pairs import Pair

HSTEREO = [sys.executable, "-m", "hybridstereo", "infer"]


def cropped(pair: Pair, size: str, folder: Path) -> Pair:
    """The middle of both views, in files of their own."""
    height, width = map(int, size.split("x"))
    paths = []
    for side, path in (("left", pair.left), ("right", pair.right)):
        image = cv2.imread(path, cv2.IMREAD_UNCHANGED)
        top, start = ((a - b) // 2 for a, b in zip(image.shape, (height, width), strict=False))
        paths.append(str(folder / f"{pair.name.replace('/', '_')}_{side}.png"))
        cv2.imwrite(paths[-1], image[top : top + height, start : start + width])
    return Pair(pair.name, *paths)


def timed(commands: list[list[str]]) -> tuple[float, float]:
    """Seconds on the clock, and of all cores, of commands one after the other."""
    wall, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - wall, cores


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", required=True, help="a folder with pairs")
    parser.add_argument("--limit", type=int, default=8)
    parser.add_argument("--crop", help="HxW")
    parser.add_argument("--model", default="general")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = list(islice(pairs_below(given.pairs), given.limit))
        if given.crop:
            pairs = [cropped(pair, given.crop, folder) for pair in pairs]
        lines = [f"{Path(x.left).resolve()},{Path(x.right).resolve()},{x.name}" for x in pairs]
        (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
        model = ["--model", given.model]
        loop = [[*HSTEREO, x.left, x.right, "-o", f"{name}/map.pfm", *model] for x in pairs]
        many = [[*HSTEREO, "--pairs", f"{name}/pairs.csv", "--out-dir", f"{name}/out", *model]]
        timed(loop[:1])  # compiles what is not kept yet
        for _ in range(given.rounds):
            a, b = timed(loop), timed(many)
            print(
                f"{len(pairs)} pairs: loop {a[0]:.1f} s ({a[1]:.1f} s of all cores), "
                f"one run {b[0]:.1f} s ({b[1]:.1f} s); {a[0] / b[0]:.2f} times ({a[1] / b[1]:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
