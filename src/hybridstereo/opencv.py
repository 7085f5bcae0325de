"""OpenCV: the only import of ``cv2``, and its semi-global matcher, which stands beside ours.

Of its two wheels `opencv-python` needs libraries of a desktop, which small containers lack;
`opencv-python-headless` does not.  We open no windows, so either will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import InstallError

try:
    import cv2
except ImportError as error:
    raise InstallError(
        f"OpenCV cannot be imported ({str(error).splitlines()[0]})",
        "Install the system's libraries with `apt-get install libgl1 libglib2.0-0`, or the wheel "
        "that needs none with `pip install opencv-python-headless`",
    ) from error

__all__ = ["cv2", "opencv_threads", "penalties", "sgbm_matcher", "supported_disparities"]

_STEP = 16  # the number of disparities must be a multiple of it


def supported_disparities(count: int) -> int:
    """The least number of disparities that OpenCV accepts and that is not below ``count``."""
    return -(-count // _STEP) * _STEP


def penalties(block: int, channels: int) -> tuple[int, int]:
    """``P1`` and ``P2`` of StereoSGBM as OpenCV's documentation suggests them."""
    area = channels * block**2
    return 8 * area, 32 * area


def sgbm_matcher(
    mode: int,
    disparities: int,
    block: int,
    channels: int,
    prefilter: int = 0,
    uniqueness: int = 0,
    left_right: int = 0,
    speckle_window: int = 0,
    speckle_range: int = 0,
) -> cv2.StereoSGBM:
    """A StereoSGBM from disparity 0 on; the defaults are those of OpenCV itself."""
    p1, p2 = penalties(block, channels)
    return cv2.StereoSGBM.create(
        minDisparity=0,
        numDisparities=disparities,
        blockSize=block,
        P1=p1,
        P2=p2,
        disp12MaxDiff=left_right,
        preFilterCap=prefilter,
        uniquenessRatio=uniqueness,
        speckleWindowSize=speckle_window,
        speckleRange=speckle_range,
        mode=mode,
    )


@contextmanager
def opencv_threads(threads: int | None) -> Iterator[None]:
    """Limit OpenCV to so many threads inside a ``with`` statement; None: as many as before."""
    before = cv2.getNumThreads()
    if threads is not None:
        cv2.setNumThreads(threads)
    try:
        yield
    finally:
        cv2.setNumThreads(before)
