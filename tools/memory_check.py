"""Compare the estimate of `hybridstereo.memory` with the memory that predictions really take.

    python tools/memory_check.py              # the table of docs/reliability.md; Linux only
    python tools/memory_check.py --quick      # three rows of it

Each prediction runs in a process of its own, after a small one that loads and compiles everything.
What counts is the highest resident size meanwhile, less that just before, with both images loaded:
that is when `Stereo.match` asks whether the memory suffices.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

PYRAMID = {"half_weight": 0.25, "quarter_weight": 0.5}

OPTIONS: dict[str, dict[str, object]] = {
    "one": {},
    "both": {"view": "both"},
    "both, confidence, filled": {"view": "both", "confidence": True, "fill": True},
}
"""Of the views, one of which is the other one shifted but for a fifth of the rows."""

# Model, with a pyramid, method, width, height, labels, threads.
QUICK = [
    ("general", False, "crf", 640, 480, 64, 2),
    ("general-fast", True, "crf", 640, 480, 64, 2),
    ("census", False, "argmax", 640, 480, 64, 2),
]
ONE_VIEW = [
    *QUICK,
    ("general", False, "crf", 400, 250, 32, 2),
    ("general", False, "crf", 400, 250, 512, 2),
    ("general", True, "crf", 400, 250, 128, 1),
    ("general", False, "argmax", 400, 250, 32, 1),
    ("census", False, "crf", 1242, 375, 128, 2),
    ("general-fast", False, "crf", 1242, 375, 128, 2),
    ("general-fast", True, "crf", 1242, 375, 128, 2),
    ("general-fast", False, "argmax", 1242, 375, 64, 2),
    ("kitti", False, "crf", 1242, 375, 192, 2),
    ("kitti-fast", True, "argmax", 1242, 375, 256, 2),
    ("middlebury", False, "crf", 1242, 375, 32, 2),
    ("middlebury-fast", False, "crf", 1242, 375, 512, 2),
    ("general-fast", False, "crf", 1500, 1000, 256, 2),
    ("general-fast", True, "crf", 1500, 1000, 64, 2),
    ("general-fast", False, "argmax", 2400, 1600, 128, 2),
    ("general-fast", False, "crf", 2400, 1600, 128, 2),
    ("general-fast", True, "crf", 2400, 1600, 192, 2),
]
BOTH_VIEWS = [
    ("general-fast", False, "crf", 400, 250, 32, 2),
    ("general", False, "crf", 400, 250, 256, 1),
    ("general-fast", False, "crf", 640, 480, 64, 2),
    ("general", False, "crf", 640, 480, 64, 2),
    ("general-fast", False, "crf", 1242, 375, 128, 2),
    ("kitti", False, "crf", 1242, 375, 192, 2),
    ("general-fast", False, "crf", 1500, 1000, 32, 2),
    ("middlebury", False, "crf", 1500, 1000, 128, 2),
    ("general-fast", False, "crf", 2400, 1600, 16, 2),
    ("general-fast", False, "crf", 2400, 1600, 128, 2),
]
GRID = [(*row, "one") for row in ONE_VIEW] + [
    (*row, views) for row in BOTH_VIEWS for views in OPTIONS if views != "one"
]


def resident(key: str) -> int:
    """A figure of /proc/self/status in bytes: VmRSS, or its peak VmHWM."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{key}:\s+(\d+) kB", status)
    assert found is not None
    return 1024 * int(found[1])


def measure(
    name: str,
    pyramid: bool,
    method: str,
    width: int,
    height: int,
    labels: int,
    threads: int,
    views: str,
) -> tuple[int, int]:
    """Estimated and measured bytes of one prediction; call it once in a process."""
    import numpy as np

    from hybridstereo.memory import inference_memory
    from hybridstereo.model import with_config
    from hybridstereo.models.zoo import load_model
    from hybridstereo.stereo import Stereo

    model = load_model(name)
    if pyramid:
        model = with_config(model, **PYRAMID)
    stereo = Stereo(model, "cpu", threads)
    random = np.random.default_rng(0).random
    for size in ((40, 60, 3), (height, width, 3)):
        left = random(size, np.float32)
        right = np.roll(left, -3, axis=1)
        right[: size[0] // 5] = random((size[0] // 5, *size[1:]), np.float32)  # to be filled
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before = resident("VmRSS")
        # The iterations change the time only.
        stereo.match(left, right, labels, method=method, iterations=1, **OPTIONS[views])
    taken = resident("VmHWM") - before
    count = 1 if views == "one" else 2
    return inference_memory(model, height, width, labels, method, threads, views=count), taken


def main() -> None:
    """Print the table, or measure the row that is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rows only")
    parser.add_argument("--row", type=int, help="measure this row, in this process")
    options = parser.parse_args()
    if options.row is not None:
        print(*measure(*GRID[options.row]))
        return
    print("| model | method | size | labels | threads | views | estimated | measured | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    ratios = []
    rows = range(len(QUICK) if options.quick else len(GRID))
    for row in rows:
        name, pyramid, method, width, height, labels, threads, views = GRID[row]
        command = [sys.executable, __file__, "--row", str(row)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        estimated, taken = map(int, done.stdout.split())
        ratios.append(estimated / taken)
        print(
            f"| {name}{' + pyramid' if pyramid else ''} | {method} | {width}x{height} | {labels}"
            f" | {threads} | {views} | {estimated / 1e6:.0f} MB | {taken / 1e6:.0f} MB"
            f" | {ratios[-1]:.2f} |",
            flush=True,
        )
    print(f"\nfrom {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
