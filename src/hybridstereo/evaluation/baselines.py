"""OpenCV's matchers with stated settings: what a user would run without this package.

All get the disparity range of the data set (rounded up to a multiple of 16), images padded on the
left so that the leftmost columns have candidates too, and holes filled from the background as
KITTI's development kit does (`metrics.fill_background`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from ..datasets import StereoPair
from ..errors import InputError
from ..metrics import fill_background
from ..opencv import cv2, opencv_threads, penalties, sgbm_matcher, supported_disparities
from ..synthetic import quantised
from .methods import Outcome
from .results import MethodInfo
from .scenes import Scene

_FIXED_POINT = 16.0  # OpenCV stores disparities in sixteenths of a pixel


@dataclass(frozen=True)
class SgbmSettings:
    """Settings of StereoSGBM; P1 and P2 are 8 and 32 times channels times block area."""

    mode: int
    paths: int
    block: int
    grey: bool
    prefilter: int = 63
    uniqueness: int = 10
    left_right: int = 1
    speckle_window: int = 100
    speckle_range: int = 2

    def describe(self) -> str:
        """One line for tables and the report."""
        p1, p2 = penalties(self.block, self._channels)
        return (
            f"OpenCV {cv2.__version__} StereoSGBM, {self.paths} paths, "
            f"{'grey' if self.grey else 'colour'}, block {self.block}, P1 {p1}, "
            f"P2 {p2}, prefilter {self.prefilter}, uniqueness {self.uniqueness} %, "
            f"left-right check {self.left_right} px, speckles {self.speckle_window} px; "
            "left border padded, holes filled from the background"
        )

    def matcher(self, disparities: int) -> cv2.StereoSGBM:
        """The matcher for a number of disparities."""
        return sgbm_matcher(
            self.mode,
            disparities,
            self.block,
            self._channels,
            self.prefilter,
            self.uniqueness,
            self.left_right,
            self.speckle_window,
            self.speckle_range,
        )

    @property
    def _channels(self) -> int:
        return 1 if self.grey else 3


@dataclass(frozen=True)
class BmSettings:
    """Settings of StereoBM, block matching."""

    block: int = 15
    uniqueness: int = 10
    texture: int = 10
    left_right: int = 1
    speckle_window: int = 100
    speckle_range: int = 2
    grey: bool = True

    def describe(self) -> str:
        """One line for tables and the report."""
        return (
            f"OpenCV {cv2.__version__} StereoBM, grey, block {self.block}, "
            f"uniqueness {self.uniqueness} %, texture {self.texture}, "
            f"left-right check {self.left_right} px, speckles {self.speckle_window} px; "
            "left border padded, holes filled from the background"
        )

    def matcher(self, disparities: int) -> cv2.StereoBM:
        """The matcher for a number of disparities."""
        matcher = cv2.StereoBM.create(numDisparities=disparities, blockSize=self.block)
        matcher.setUniquenessRatio(self.uniqueness)
        matcher.setTextureThreshold(self.texture)
        matcher.setDisp12MaxDiff(self.left_right)
        matcher.setSpeckleWindowSize(self.speckle_window)
        matcher.setSpeckleRange(self.speckle_range)
        return matcher


# `sgbm` is what OpenCV's documentation and samples lead to.  `sgbm-hh` has the best settings that
# were found on Middlebury-Q and KITTI: 8 paths, and grey, which beats colour with either mode.
# `sgbm-3way` is the fastest mode, with 3 paths.
SETTINGS: dict[str, SgbmSettings | BmSettings] = {
    "sgbm": SgbmSettings(cv2.STEREO_SGBM_MODE_SGBM, paths=5, block=3, grey=False),
    "sgbm-hh": SgbmSettings(cv2.STEREO_SGBM_MODE_HH, paths=8, block=3, grey=True),
    "sgbm-3way": SgbmSettings(cv2.STEREO_SGBM_MODE_SGBM_3WAY, paths=3, block=3, grey=True),
    "bm": BmSettings(),
}

# The better of the block sizes 3 and 5: small blocks keep the fine structures of indoor scenes.
_SGBM_BLOCKS = {"kitti": 5}


def settings_for(name: str, dataset: str) -> SgbmSettings | BmSettings:
    """The settings of a baseline on a data set."""
    settings = SETTINGS[name]
    if isinstance(settings, SgbmSettings):
        return replace(settings, block=_SGBM_BLOCKS.get(dataset, settings.block))
    return settings


class OpenCvMethod:
    """One of OpenCV's matchers.

    Parameters
    ----------
    name
        A key of `SETTINGS`.
    dataset
        Its settings are those that suit this data set.
    threads
        For OpenCV; None: its default.
    disparities
        Instead of the data set's range.
    """

    def __init__(
        self,
        name: str,
        dataset: str = "",
        threads: int | None = None,
        disparities: int | None = None,
    ) -> None:
        self._settings = settings_for(name, dataset)
        self._threads = threads
        self._disparities = disparities
        self.info = MethodInfo(name, self._settings.describe(), "baseline")

    def compute(self, scene: Scene, pair: StereoPair) -> Outcome:
        """The map, with holes filled, and the seconds that took."""
        left, right = pair.images()
        count = supported_disparities(self._disparities or pair.search_range)
        begin = time.perf_counter()
        try:
            with opencv_threads(self._threads):
                views = [self._prepared(image, count) for image in (left, right)]
                fixed = self._settings.matcher(count).compute(*views)[:, count:]
        except cv2.error as error:
            height, width, _ = left.shape
            raise InputError(
                f"OpenCV cannot match {width}x{height} pixels with {count} disparities:"
                f" {str(error.err or error).strip()}"
            ) from error
        disparity = fixed.astype(np.float32) / np.float32(_FIXED_POINT)
        disparity[fixed < 0] = np.inf
        filled = fill_background(disparity).astype(np.float32)
        return Outcome(filled, time.perf_counter() - begin)

    def _prepared(self, image: np.ndarray, padding: int) -> np.ndarray:
        code = cv2.COLOR_RGB2GRAY if self._settings.grey else cv2.COLOR_RGB2BGR
        pixels = cv2.cvtColor(quantised(image), code)
        return cv2.copyMakeBorder(pixels, 0, 0, padding, 0, cv2.BORDER_REPLICATE)
