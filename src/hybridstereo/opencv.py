"""OpenCV: the only import of ``cv2``, and its semi-global matcher, which stands beside ours.

Of its two wheels `opencv-python` needs libraries of a desktop, which small containers lack;
`opencv-python-headless` does not.  Only `hstereo stream --show` opens a window; for all else either
will do.
"""

from __future__ import annotations

import os
import sys
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

__all__ = [
    "cv2",
    "open_video",
    "opencv_threads",
    "penalties",
    "sgbm_matcher",
    "supported_disparities",
    "window_problem",
]

_STEP = 16  # the number of disparities must be a multiple of it
_SILENT = 0  # level of messages


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


def open_video(source: str | int) -> cv2.VideoCapture:
    """A video file, a URL or the camera of a number; without the messages of OpenCV and FFmpeg.

    Our own error says it better, and says it once.
    """
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    # OpenCV 5 has these functions in a module that OpenCV 4 does not have.
    logging = cv2 if hasattr(cv2, "setLogLevel") else cv2.utils.logging
    level = logging.getLogLevel()
    logging.setLogLevel(_SILENT)
    try:
        return cv2.VideoCapture(source)
    finally:
        logging.setLogLevel(level)


def window_problem() -> tuple[str, str] | None:
    """Why no window can be opened, and what helps; None if one can.

    Asked before a window is opened: without a display, Qt would end the program.
    """
    interface = [x for x in cv2.getBuildInformation().splitlines() if x.strip().startswith("GUI:")]
    if interface and "NONE" in interface[0].upper():
        return (
            "This OpenCV cannot open windows: it is the headless wheel",
            "Install `opencv-python` instead of `opencv-python-headless`, or write a video",
        )
    needs_display = sys.platform.startswith(("linux", "freebsd"))
    if needs_display and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "There is no display to open a window on", "Write a video instead"
    return None
