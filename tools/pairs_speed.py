"""How much faster one `hstereo infer --out-dir` is than a shell loop over the same pairs.

    python tools/pairs_speed.py --pairs data/kitti2015/training --limit 8
    python tools/pairs_speed.py --pairs data/kitti2015/training --limit 8 --crop 240x320

In turn, several times: the loop, one run over the pairs, and one over several times as many, the
same again under other names.  What the longer run takes for its additional pairs is what a pair
costs in a run of many; in the shorter one the start of the program counts, too.  Printed are the
seconds of each pair on the clock and of all cores, with their ratios.  On a busy machine only the
latter mean anything: they count work, not waiting.  On an idle one the ratio on the clock is
higher: starting a process keeps one core busy, matching keeps all.  ``--crop 240x320`` cuts the
middle out of the images first.
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
    parser.add_argument("--repeats", type=int, default=4, help="of the pairs, in the longer run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = list(islice(pairs_below(given.pairs), given.limit))
        if given.crop:
            pairs = [cropped(pair, given.crop, folder) for pair in pairs]
        model = ["--model", given.model]
        loop = [[*HSTEREO, x.left, x.right, "-o", f"{name}/map.pfm", *model] for x in pairs]
        short, long = (one_run(pairs, repeats, folder, model) for repeats in (1, given.repeats))
        timed(loop[:1])  # compiles what is not kept yet
        print(f"seconds for each of {len(pairs)} pairs, on the clock and of all cores:")
        for _ in range(given.rounds):
            singly, first, all_of_it = timed(loop), timed([short]), timed([long])
            more = (given.repeats - 1) * len(pairs)
            marginal = [(y - x) / more for x, y in zip(first, all_of_it, strict=True)]
            costs = {
                "loop": [x / len(pairs) for x in singly],
                f"run of {len(pairs)}": [x / len(pairs) for x in first],
                "each further pair": marginal,
            }
            wall, cores = costs["loop"]
            told = [
                f"{kind} {a:.2f} ({b:.2f}), {wall / a:.2f} ({cores / b:.2f}) times"
                for kind, (a, b) in costs.items()
            ]
            print("; ".join(told), flush=True)


def one_run(pairs: list[Pair], repeats: int, folder: Path, model: list[str]) -> list[str]:
    """The command that matches the pairs so many times."""
    lines = [
        f"{Path(x.left).resolve()},{Path(x.right).resolve()},{repeat}/{x.name}"
        for repeat in range(repeats)
        for x in pairs
    ]
    listed = folder / f"pairs{repeats}.csv"
    listed.write_text("\n".join(lines) + "\n")
    return [*HSTEREO, "--pairs", str(listed), "--out-dir", str(folder / "out"), *model]


if __name__ == "__main__":
    main()
