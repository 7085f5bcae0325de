"""How reliable the check of a pair is: python tools/check_campaign.py DATA

Pairs of KITTI and Middlebury below DATA as they are, as they would be at night, pale or out of
focus, under other lights and exposures, plain and repeated ones: nothing should be found. Then
twelve kinds of bad pair, made of twenty of them: each should be found. The tables of
docs/messages.md go to standard output, and a line for each wrong answer to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from mdtable import markdown_table

from hybridstereo import Stereo, read_pair
from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.samples import Sample
from hybridstereo.models.zoo import SCOUT_MODEL
from hybridstereo.pair_check import Finding
from hybridstereo.synthetic import quantised

Views = tuple[np.ndarray, np.ndarray]
Loader = Callable[[], Views]
Change = Callable[[np.ndarray, np.ndarray], Views]

MIDDLEBURY = (
    "MiddEval3",
    "middlebury-2001",
    "middlebury-2003",
    "middlebury-2005",
    "middlebury-2006",
)
KITTI = ("kitti2012", "kitti2015", "kitti2015-more")
LIGHTS = "middlebury-light"
EVERY = 3  # frame of KITTI: neighbours show the same street
BAD_PAIRS, PLAIN_PAIRS = 20, 10
PERIOD, SHIFT = 24, 7  # of the repeated pattern, in pixels


def recorded(view: np.ndarray) -> np.ndarray:
    """As an 8-bit camera stores it."""
    return quantised(np.clip(view, 0, 1)).astype(np.float32) / 255


# --- good pairs ---------------------------------------------------------------------------------


def at_night(left: np.ndarray, right: np.ndarray) -> Views:
    """A tenth of the light, and noise of two grey levels."""
    rng = np.random.default_rng(left.shape[1])
    return tuple(recorded(0.1 * x + rng.normal(0, 2 / 255, x.shape)) for x in (left, right))


def pale(left: np.ndarray, right: np.ndarray) -> Views:
    """A tenth of the contrast, as in fog."""
    return tuple(recorded(0.6 + 0.1 * (x - 0.5)) for x in (left, right))


def out_of_focus(left: np.ndarray, right: np.ndarray) -> Views:
    """Without any fine texture."""
    return tuple(recorded(cv2.GaussianBlur(x, (0, 0), 6)) for x in (left, right))


def repeated(left: np.ndarray, right: np.ndarray) -> Views:
    """A wallpaper, made of a small part of the left view."""
    height, width, _ = left.shape
    y, x = height // 2, width // 2
    rows, columns = height // PERIOD + 1, width // PERIOD + 2
    wall = np.tile(left[y : y + PERIOD, x : x + PERIOD], (rows, columns, 1))
    return wall[:height, :width], np.ascontiguousarray(wall[:height, SHIFT : SHIFT + width])


def changed(load: Loader, change: Change) -> Views:
    return change(*load())


def files_of(sample: Sample) -> Loader:
    return partial(read_pair, *map(str, sample.files[:2]))


def exposures(samples: list[Sample], steps: int) -> Iterator[tuple[str, Loader]]:
    """Pairs of one light whose exposures differ; a step is four times the light."""
    for sample in samples:
        conditions = sample.conditions
        if conditions is None or not conditions.differ:
            continue
        pairs = zip(conditions.left[:-steps], conditions.right[steps:], strict=True)
        for left, right in pairs:
            if left.parents[1] == right.parents[1]:
                name = f"{sample.scene} {left.parents[0].name} {right.parents[0].name}"
                yield name, partial(read_pair, str(left), str(right))


def good_pairs(data: Path) -> tuple[dict[str, list[tuple[str, Loader]]], list[tuple[str, Loader]]]:
    """Groups of pairs in which nothing should be found, and the pairs that bad ones are made of."""
    middlebury = open_dataset("middlebury", [str(data / name) for name in MIDDLEBURY]).samples
    kitti = open_dataset("kitti", [str(data / name) for name in KITTI]).samples[::EVERY]
    lit = list(open_dataset("middlebury", str(data / LIGHTS)).samples)
    plain = [
        sample
        for sample in open_dataset("synthetic", scenes=4 * PLAIN_PAIRS).samples
        if "plain" in sample.name
    ]
    named = {
        "Middlebury 2001 to 2006, v3": [(x.name, files_of(x)) for x in middlebury],
        "KITTI 2012 and 2015, every third": [(x.name, files_of(x)) for x in kitti],
    }
    recordings = [pair for group in named.values() for pair in group]
    for title, change in (
        ("all of these at night", at_night), ("pale", pale),
        ("out of focus", out_of_focus),
    ):  # fmt: skip
        named[title] = [(name, partial(changed, load, change)) for name, load in recordings]
    for title, differ in (("other lights, same for both", False), ("different lights", True)):
        named[title] = [
            (x.name, files_of(x)) for x in lit if x.conditions and x.conditions.differ == differ
        ]
    named["4 times the exposure"] = list(exposures(lit, 1))
    named[STRONG] = list(exposures(lit, 2))
    every = len(recordings) // BAD_PAIRS
    chosen = recordings[::every][:BAD_PAIRS]
    named["repeated pattern"] = [(name, partial(changed, load, repeated)) for name, load in chosen]
    named["generated, plain"] = [(x.name, lambda x=x: x.read().images()) for x in plain]
    return named, chosen


STRONG = "16 times the exposure (`exposure` allowed)"

# --- bad pairs ----------------------------------------------------------------------------------


def moved(
    left: np.ndarray, right: np.ndarray, lower: float = 0, degrees: float = 0, scale: float = 1
) -> Views:
    """The right view lower, turned clockwise about its centre, larger."""
    height, width, _ = right.shape
    centre = (width - 1) / 2, (height - 1) / 2
    matrix = cv2.getRotationMatrix2D(centre, -degrees, scale)
    matrix[1, 2] += lower
    border = {"flags": cv2.INTER_CUBIC, "borderMode": cv2.BORDER_REFLECT}
    return left, recorded(cv2.warpAffine(right, matrix, (width, height), **border))


def unrelated(pairs: list[tuple[str, Loader]], index: int) -> Views:
    """A left view and the right one of another pair, cut to one size."""
    left, right = pairs[index][1]()[0], pairs[(index + 3) % len(pairs)][1]()[1]
    height, width = (min(left.shape[axis], right.shape[axis]) for axis in (0, 1))
    return left[:height, :width], right[:height, :width]


BAD: dict[str, tuple[str, Change | None]] = {
    "right view 1.5 px lower": ("vertical-offset", partial(moved, lower=1.5)),
    "3 px lower": ("vertical-offset", partial(moved, lower=3)),
    "10 px lower": ("vertical-offset", partial(moved, lower=10)),
    "turned by 0.3 degrees": ("rotation", partial(moved, degrees=0.3)),
    "turned by 1 degree": ("rotation", partial(moved, degrees=1)),
    "turned by 3 degrees": ("rotation", partial(moved, degrees=3)),
    "3 % larger": ("scale", partial(moved, scale=1.03)),
    "views swapped": ("swapped", lambda left, right: (right, left)),
    "views of two scenes": ("unrelated", None),
    "the same view twice": ("identical", lambda left, right: (left, left)),
    "right view blank": ("blank", lambda left, right: (left, recorded(0 * right + 0.1))),
    "a quarter of the values": ("exposure", lambda left, right: (left, recorded(right / 4))),
}


def codes(findings: list[Finding]) -> str:
    return ", ".join(f"{x.code} {x.figure:.3g}" for x in findings)


def judge_good(stereo: Stereo, groups: dict[str, list[tuple[str, Loader]]]) -> list[list[str]]:
    """Rows of the table of false alarms."""
    rows, pairs, alarms = [], 0, 0
    for title, group in groups.items():
        allowed = {"exposure"} if title == STRONG else set()
        wrong = 0
        for name, load in group:
            findings = [x for x in stereo.check(*load()) if x.code not in allowed]
            wrong += bool(findings)
            if findings:
                print(f"{title}: {name}: {codes(findings)}", file=sys.stderr)
        rows.append([title, str(len(group)), str(wrong)])
        print(*rows[-1], file=sys.stderr)
        pairs, alarms = pairs + len(group), alarms + wrong
    return [*rows, ["all", str(pairs), f"{alarms} ({100 * alarms / pairs:.1f} %)"]]


def judge_bad(stereo: Stereo, pairs: list[tuple[str, Loader]]) -> list[list[str]]:
    """Rows of the table of bad pairs that are found."""
    rows = []
    for title, (code, change) in BAD.items():
        others, found = 0, []
        for index, (name, load) in enumerate(pairs):
            views = unrelated(pairs, index) if change is None else change(*load())
            findings = stereo.check(*views)
            right = [x for x in findings if x.code == code]
            found += right
            others += len(findings) > len(right)
            if not right or len(findings) > 1:
                print(f"{title}: {name}: {codes(findings) or 'nothing'}", file=sys.stderr)
        measured = ""
        if found:
            low, high = (f"{pick(x.figure for x in found):.3g}" for pick in (min, max))
            measured = f"{low} to {high} {found[0].unit}"
        rows.append([title, f"`{code}`", f"{len(found)}", measured, str(others)])
        print(*rows[-1], file=sys.stderr)
    return rows


def main() -> None:
    """Check and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    groups, chosen = good_pairs(parser.parse_args().data)
    stereo = Stereo(SCOUT_MODEL, device="cpu")
    found = f"found, of {len(chosen)}"
    header = ["bad pairs", "finding", found, "measured", "another finding, too"]
    print(markdown_table(header, judge_bad(stereo, chosen)), end="\n\n", flush=True)
    header = ["good pairs", "number", "false alarms"]
    print(markdown_table(header, judge_good(stereo, groups)))


if __name__ == "__main__":
    main()
