"""KITTI stereo 2015 and 2012: finding and reading the training frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hybridstereo.datasets.pair import StereoPair, build_pair
from hybridstereo.datasets.samples import Sample
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import read_pair

EXPECTED = (
    "Expected are training/image_2, image_3 and disp_noc_0 (and disp_occ_0 for figures over all "
    "pixels) of KITTI 2015, or training/colored_0, colored_1 (grey: image_0, image_1) and disp_noc "
    "(disp_occ) of KITTI 2012, with files such as 000000_10.png; see data/README.md"
)

# The 16-bit files hold disparities below 256, and the paper searches 0 to 255.
_NDISP = 256
_DEPTH = 2  # folders between the root and `training`, at most


@dataclass(frozen=True)
class _Layout:
    """The names of the folders in ``training``."""

    year: str
    left: str
    right: str
    visible: str
    all: str


_LAYOUTS = (
    _Layout("2015", "image_2", "image_3", "disp_noc_0", "disp_occ_0"),
    _Layout("2012", "colored_0", "colored_1", "disp_noc", "disp_occ"),
    _Layout("2012", "image_0", "image_1", "disp_noc", "disp_occ"),
)


def find_samples(root: Path) -> tuple[list[Sample], list[str]]:
    """Find the frames below a folder.

    Parameters
    ----------
    root
        A ``training`` folder, or one that holds such folders at most three levels down.

    Returns
    -------
    samples
        Of the frames whose images and truth exist.
    warnings
        What is missing, one sentence for each incomplete frame.

    """
    samples: list[Sample] = []
    warnings: list[str] = []
    for training in _training_folders(root):
        layout = _layout_of(training)
        if layout is None:
            continue
        found, missing = _frames(training, layout)
        samples += found
        warnings += missing
    return samples, warnings


def _training_folders(root: Path) -> Iterator[Path]:
    """Yield the root and every folder ``training`` not too far below it."""
    yield root
    for depth in range(_DEPTH + 1):
        yield from sorted(root.glob("*/" * depth + "training"))


def _layout_of(training: Path) -> _Layout | None:
    """The layout with the most folders present; grey images of 2012 only if there are no others."""

    def present(layout: _Layout) -> int:
        folders = (layout.left, layout.right, layout.visible, layout.all)
        return sum((training / folder).is_dir() for folder in folders)

    best = max(_LAYOUTS, key=present)
    return best if present(best) else None


def _frames(training: Path, layout: _Layout) -> tuple[list[Sample], list[str]]:
    folders = (layout.left, layout.right, layout.visible, layout.all)
    # Only _10 has truth; _11 is the next moment, for optical flow.
    frames = sorted({path.name for name in folders for path in (training / name).glob("*_10.png")})
    samples, warnings, visible_only = [], [], 0
    for frame in frames:
        left, right, visible, all_known = (training / folder / frame for folder in folders)
        missing = [str(path) for path in (left, right) if not path.is_file()]
        truths = [path for path in (visible, all_known) if path.is_file()]
        if not truths:
            missing.append(f"{visible} or {all_known}")
        if missing:
            warnings.append(f"Frame {frame} is left out: {', '.join(missing)} missing")
            continue
        visible_only += all_known not in truths
        stem = Path(frame).stem
        samples.append(
            Sample(
                name=f"{layout.year}/{stem}",
                scene=f"kitti{layout.year}/{stem}",
                source="kitti",
                files=(left, right, *truths),
                read=partial(
                    _read, left, right, truths[-1], visible if visible in truths else None
                ),
            )
        )
    if visible_only:
        warnings.append(
            f"{visible_only} of {len(samples)} frames in {training} have no {layout.all}: their "
            "truth covers non-occluded pixels only"
        )
    return samples, warnings


def _read(left: Path, right: Path, truth: Path, visible: Path | None) -> StereoPair:
    """Read a frame with its most complete truth; `visible` may be the same file."""
    disparity = read_disparity(truth)
    seen = None
    if visible is not None:
        seen = np.isfinite(disparity if visible == truth else read_disparity(visible))
    return build_pair(
        str(left),
        *read_pair(left, right),
        disparity,
        visible=seen,
        ndisp=_NDISP,
        covers_occluded=visible != truth,
    )
