"""Small stereo pairs on disk, in the layouts of the data sets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

from hybridstereo.datasets import Dataset, Sample, StereoPair
from hybridstereo.io.disparity import write_disparity

H, W = 20, 30
INF = np.inf


def picture(path: Path, value: int = 100, shape: tuple[int, ...] = (H, W, 3)) -> None:
    """An image of one grey value; for OpenCV the suffix picks the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), np.full(shape, value, np.uint8))


def constant_disparity(path: Path, value: float = 4.0, unknown_row: int | None = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    disparity = np.full((H, W), value, np.float32)
    if unknown_row is not None:
        disparity[unknown_row] = INF
    write_disparity(path, disparity)


def only_pair(dataset: Dataset) -> StereoPair:
    assert len(dataset.samples) == 1
    return dataset.load(dataset.samples[0])


def names(samples: Iterable[Sample]) -> list[str]:
    return [sample.name for sample in samples]


def kitti_frame(
    training: Path,
    frame: str = "000000_10.png",
    folders: tuple[str, ...] = ("image_2", "image_3", "disp_noc_0", "disp_occ_0"),
) -> None:
    left, right, noc, occ = folders
    picture(training / left / frame, 50)
    picture(training / right / frame, 60)
    constant_disparity(training / noc / frame, unknown_row=1)
    constant_disparity(training / occ / frame, unknown_row=None)


def tidy_scene(folder: Path, truth: str = "disp0GT.pfm", calib: str | None = "ndisp = 16") -> None:
    picture(folder / "im0.png", 50)
    picture(folder / "im1.png", 60)
    constant_disparity(folder / truth)
    if calib is not None:
        (folder / "calib.txt").write_text(calib)


def lit_scene(folder: Path, conditions: Iterable[str], size: tuple[int, int] = (370, 24)) -> None:
    """A scene of 2005: in condition i the left view has the grey value 10 i, the right 10 i + 1."""
    for number, condition in enumerate(conditions):
        picture(folder / condition / "view1.png", 10 * number, (*size, 3))
        picture(folder / condition / "view5.png", 10 * number + 1, (*size, 3))
    for truth in ("disp1.png", "disp5.png"):
        picture(folder / truth, 15, size)


def csv_files(folder: Path) -> None:
    picture(folder / "a" / "left.png", 50)
    picture(folder / "a" / "right.png", 60)
    constant_disparity(folder / "a" / "truth.pfm")
