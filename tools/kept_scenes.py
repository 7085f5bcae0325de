"""The scenes that no shipped model is trained on, in one place.

Validation picks: the best state of a run, the numbers of a grid search, the stage that ships. Test
only reports. Both are divided by scene and place: neighbouring frames of a drive show the same
street. Everything else below DATA is for training.

python tools/kept_scenes.py validation|test [middlebury] [kitti] prints the names for `hstereo train
--val-scenes` and `--test-scenes`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

FIGURES = {"middlebury": "bad1", "kitti": "d1_noc"}
"""What each data set is ranked by."""


@dataclass(frozen=True)
class Group:
    """Scenes that are reported together.

    Attributes
    ----------
    title
        For tables.
    dataset, folder
        As `hstereo eval` calls the data set, and where it is below DATA.
    scenes
        As `hstereo eval --scenes` takes them.
    """

    title: str
    dataset: str
    folder: str
    scenes: tuple[str, ...]

    @property
    def figure(self) -> str:
        """What it is ranked by."""
        return FIGURES[self.dataset]

    @property
    def training_names(self) -> list[str]:
        """The scenes as `hstereo train` calls them: the frames of two years have equal numbers."""
        if self.dataset != "kitti":
            return list(self.scenes)
        return [f"{self.folder.partition('-')[0]}/{scene}" for scene in self.scenes]


def frames(*numbers: int) -> tuple[str, ...]:
    """Names of KITTI's frames."""
    return tuple(f"{number:06d}_10" for number in numbers)


VALIDATION = (
    Group("Middlebury v3", "middlebury", "MiddEval3", ("Adirondack", "Teddy")),
    Group("KITTI 2015, near", "kitti", "kitti2015", frames(5, 13)),
    Group("KITTI 2015, elsewhere", "kitti", "kitti2015-more", frames(0, 900006)),
    Group("KITTI 2012", "kitti", "kitti2012", frames(67, 70, 74)),
)
TEST = (
    Group("Middlebury v3", "middlebury", "MiddEval3", ("Jadeplant", "Pipes")),
    # Between frames that are trained on, so of the same streets.
    Group("KITTI 2015, near", "kitti", "kitti2015", frames(1, 9, 17, 25)),
    Group(
        "KITTI 2015, elsewhere", "kitti", "kitti2015-more", frames(43, 48, 53, 900009, 900010)
    ),
    # All frames from 147 to 169 that the collection has: one stretch of the recordings.
    Group(
        "KITTI 2012", "kitti", "kitti2012",
        frames(147, 149, 150, 152, 154, 155, 157, 159, 160, 162, 164, 165, 167, 169),
    ),
)  # fmt: skip
# Next to the stretch: neither trained on nor reported.
NEIGHBOURS = (Group("beside the test", "kitti", "kitti2012", frames(144, 145, 170, 172)),)

KITTI_FOLDERS = ("kitti2012", "kitti2015", "kitti2015-more")
"""Where KITTI is, below DATA."""


def groups_of(groups: Iterable[Group], datasets: Iterable[str]) -> list[Group]:
    """Those of some data sets."""
    wanted = set(datasets)
    return [group for group in groups if group.dataset in wanted]


def main() -> None:
    """Print the names for the options of `hstereo train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("purpose", choices=["validation", "test"])
    parser.add_argument("datasets", nargs="*")
    arguments = parser.parse_args()
    unknown = set(arguments.datasets) - FIGURES.keys()
    if unknown:
        parser.error(f"there is no data set {', '.join(sorted(unknown))}")
    chosen = VALIDATION if arguments.purpose == "validation" else (*TEST, *NEIGHBOURS)
    found = groups_of(chosen, arguments.datasets or FIGURES)
    print(",".join(name for group in found for name in group.training_names))


if __name__ == "__main__":
    main()
