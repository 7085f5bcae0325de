"""Where frames come from: videos, cameras, URLs and images, for two views or for one stereo file.

All frames are RGB.  What ends early, is damaged or has another length than its partner is noted,
not raised: the frames before it are good.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from ..errors import InputError, StereoError
from ..io.files import checked_size
from ..io.images import read_image
from ..io.pixels import check_same_size
from ..limits import pixel_limit
from ..opencv import cv2, open_video

Layout = Literal["two", "side-by-side", "top-bottom"]
"""Where the views are: two streams, or one whose frames hold both."""

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".ppm", ".pgm", ".webp")
_MOST_BYTES = 1 << 44  # of a video, which is not read at once
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_COUNTER = re.compile(r"%0?\d*d")
_LIKELY_RATES = 1.0, 1000.0  # frames per second that a file may state


class FrameSource(Protocol):
    """One stream of frames."""

    name: str
    rate: float | None
    """Frames per second, None if the source does not say."""
    stated: int | None
    """Number of frames that it says to have; None if unknown."""
    live: bool
    """Whether frames come at their own pace and do not wait."""
    files: list[str]
    """Where the frames are kept, in their order; nothing of a camera or a URL."""

    def read(self) -> np.ndarray | None:
        """The next frame (H, W, 3), RGB; None at the end."""

    def close(self) -> None:
        """Let go of files and devices."""


class VideoSource:
    """What OpenCV opens: a video file, a URL, a camera.

    Parameters
    ----------
    name
        As the user gave it.
    source
        A file or URL, or the number of a camera.
    max_pixels
        Larger frames are refused.

    Raises
    ------
    InputError
        If it cannot be opened.
    """

    def __init__(self, name: str, source: str | int, max_pixels: int | None = None) -> None:
        self.name = name
        self.live = isinstance(source, int) or bool(_URL.match(source))
        self.files = [] if self.live else [name]
        self._max_pixels = pixel_limit(max_pixels)
        self._capture = open_video(source)
        if not self._capture.isOpened():
            raise _cannot_open(name, source)
        width, height, rate, count = (
            self._capture.get(x)
            for x in (
                cv2.CAP_PROP_FRAME_WIDTH,
                cv2.CAP_PROP_FRAME_HEIGHT,
                cv2.CAP_PROP_FPS,
                cv2.CAP_PROP_FRAME_COUNT,
            )
        )
        self._check_size(width * height)
        self.rate = rate if _LIKELY_RATES[0] <= rate <= _LIKELY_RATES[1] else None
        self.stated = int(count) if count > 0 and not self.live else None

    def _check_size(self, pixels: float) -> None:
        if pixels > self._max_pixels:
            raise InputError(
                f"{self.name} has frames of {int(pixels)} pixels, and at most"
                f" {self._max_pixels} are read",
                "Allow more with `max_pixels`",
            )

    def read(self) -> np.ndarray | None:
        """The next frame, or None at the end or where the video is damaged."""
        try:
            done, frame = self._capture.read()
        except cv2.error:
            return None
        if not done or frame is None or frame.ndim not in (2, 3):
            return None
        self._check_size(frame.shape[0] * frame.shape[1])
        if frame.ndim == 2:
            return np.repeat(frame[:, :, np.newaxis], 3, axis=2)
        return np.ascontiguousarray(frame[:, :, 2::-1])

    def close(self) -> None:
        """Close the file or the camera."""
        self._capture.release()


class ImageSource:
    """Image files, one per frame.

    Parameters
    ----------
    name
        As the user gave it.
    paths
        In their order.
    max_pixels
        An image whose header states more is refused, and not decoded.
    """

    live = False

    def __init__(self, name: str, paths: list[str], max_pixels: int | None = None) -> None:
        self.name = name
        self.rate: float | None = None
        self.stated: int | None = len(paths)
        self.files = paths
        self._paths = iter(paths)
        self._max_pixels = max_pixels

    def read(self) -> np.ndarray | None:
        """The next image; raises InputError if it is damaged."""
        path = next(self._paths, None)
        return None if path is None else read_image(path, self._max_pixels)

    def close(self) -> None:
        """Nothing is open between two images."""


def open_source(text: str, max_pixels: int | None = None) -> FrameSource:
    """Open what a user names.

    Parameters
    ----------
    text
        A video file, a folder of images, a pattern of image files (``left_*.png``,
        ``left_%04d.png``), the number of a camera, or a URL.
    max_pixels
        Of a frame.

    Raises
    ------
    InputError
        If there is no such thing, or it cannot be opened.
    """
    if _URL.match(text):
        return VideoSource(text, text, max_pixels)
    if text.isdecimal() and len(text) < 4 and not os.path.exists(text):
        return VideoSource(text, int(text), max_pixels)
    if os.path.isdir(text):
        found = [str(x) for x in Path(text).iterdir() if x.suffix.lower() in IMAGE_SUFFIXES]
        return _images(text, found, max_pixels)
    if not os.path.exists(text) and (glob.has_magic(text) or _COUNTER.search(text)):
        pattern = _COUNTER.sub("*", glob.escape(text)) if _COUNTER.search(text) else text
        found = [x for x in glob.glob(pattern) if _numbered(text, x)]
        return _images(text, found, max_pixels)
    checked_size(text, _MOST_BYTES)
    if text.lower().endswith(IMAGE_SUFFIXES):
        return ImageSource(text, [text], max_pixels)
    return VideoSource(text, text, max_pixels)


def _numbered(pattern: str, path: str) -> bool:
    """Whether the counter of a pattern such as ``left_%04d.png`` stands for a number in a path."""
    if not _COUNTER.search(pattern):
        return True
    parts = [re.escape(x) for x in _COUNTER.split(pattern)]
    return re.fullmatch(r"\d+".join(parts), path) is not None


def _images(text: str, found: list[str], max_pixels: int | None) -> ImageSource:
    if not found:
        raise InputError(
            f"There are no images in {text}", f"Images end in {', '.join(IMAGE_SUFFIXES)}"
        )
    return ImageSource(text, sorted(found, key=in_order), max_pixels)


def in_order(name: str) -> list[Any]:
    """A key by which ``frame10`` comes after ``frame9``."""
    return [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", name)]


def _cannot_open(name: str, source: str | int) -> InputError:
    if isinstance(source, int):
        return InputError(
            f"There is no camera {source}, or another program is using it",
            "Give the number of a camera, 0 for the first one, or a video file",
        )
    if _URL.match(source):
        return InputError(f"{name} cannot be opened", "Check that it is there and can be reached")
    return InputError(
        f"{name} is not a video that can be read, or it is damaged",
        "Give a video that FFmpeg reads, a folder of images, a camera's number or a URL",
    )


class FramePairs:
    """Frames of both views, from two streams or from one whose frames hold both.

    Parameters
    ----------
    left
        The stream of the left view, or of both.
    right
        That of the right view; None if the left stream holds both.
    layout
        Where the views are.

    Attributes
    ----------
    files
        Where the frames of all streams are kept.
    notes
        What is to be said about the streams, after the last frame.
    damaged
        Whether a stream ended before the frames that it states, or with a damaged one.
    """

    def __init__(
        self, left: FrameSource, right: FrameSource | None, layout: Layout = "two"
    ) -> None:
        self.sources = [left] if right is None else [left, right]
        self.layout: Layout = layout
        self.rate = left.rate or (right.rate if right is not None else None)
        self.live = any(x.live for x in self.sources)
        self.files = [path for source in self.sources for path in source.files]
        counts = [x.stated for x in self.sources]
        known = [x for x in counts if x is not None]
        self.stated = min(known) if known else None
        self.notes: list[str] = []
        self.damaged = False
        self._read = 0

    def read(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The next frame of both views, of one size; None at the end of either.

        Raises
        ------
        InputError
            If the very first frame cannot be used.
        """
        try:
            frames = [source.read() for source in self.sources]
            if any(x is None for x in frames):
                self._note_the_end([x is None for x in frames])
                return None
            pair = self._views([x for x in frames if x is not None])
        except StereoError as error:
            if self._read == 0:
                raise
            self.damaged = True
            self.notes.append(str(error).removesuffix("."))
            return None
        self._read += 1
        return pair

    def close(self) -> None:
        """Close all streams."""
        for source in self.sources:
            source.close()

    def _views(self, frames: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        if self.layout == "two":
            names = self.sources[0].name, self.sources[1].name
            check_same_size(frames[0], frames[1], names)
            return frames[0], frames[1]
        (frame,) = frames
        axis = 1 if self.layout == "side-by-side" else 0
        size = frame.shape[axis]
        if size % 2:
            raise InputError(
                f"A frame of {self.sources[0].name} has {size}"
                f" {'columns' if axis else 'rows'}, which cannot be halved",
                "Both views must have the same size",
            )
        first, second = np.split(frame, 2, axis=axis)
        return np.ascontiguousarray(first), np.ascontiguousarray(second)

    def _note_the_end(self, ended: list[bool]) -> None:
        """Say which stream ended early, if one did."""
        for source, has_ended in zip(self.sources, ended, strict=True):
            if has_ended and source.stated is not None and self._read < source.stated:
                self.damaged = True
                self.notes.append(
                    f"{source.name} states {source.stated} frames, but only {self._read} can be"
                    " read: it is damaged or cut short"
                )
        if len(ended) == 2 and ended[0] != ended[1] and not self.damaged:
            short, long = (0, 1) if ended[0] else (1, 0)
            self.notes.append(
                f"{self.sources[short].name} ended after frame {self._read},"
                f" {self.sources[long].name} is longer: its rest is not used"
            )
        if self._read == 0:
            names = " and ".join(x.name for x in self.sources)
            raise InputError(
                f"No frame can be read from {names}",
                "A video behind a URL has to begin with its index, as"
                " 'ffmpeg -i in.mp4 -c copy -movflags +faststart out.mp4' writes it; or download it"
                if any("://" in x.name for x in self.sources)
                else "Check that it can be played",
            )


def open_pair(
    left: str, right: str | None, layout: Layout = "two", max_pixels: int | None = None
) -> FramePairs:
    """Open the streams of both views; see `open_source` and `FramePairs`.

    Raises
    ------
    InputError
        If one of them cannot be opened.
    """
    if (right is None) == (layout == "two"):
        raise InputError(
            "Two streams have their own views, one has to say where they are",
            "Give LEFT and RIGHT, or one file and `side_by_side` or `top_bottom`",
        )
    first = open_source(left, max_pixels)
    if right is None:
        return FramePairs(first, None, layout)
    try:
        return FramePairs(first, open_source(right, max_pixels), layout)
    except StereoError:
        first.close()
        raise
