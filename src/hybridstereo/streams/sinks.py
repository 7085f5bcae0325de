"""Where maps of a stream go: a colour video, raw frames, a file per map, a window."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from ..errors import InputError, OutputError
from ..io.atomic import atomic_write, check_distinct, check_writable, create_folder
from ..io.color import colorize, robust_range
from ..io.disparity import check_output, sixteen_bit, write_all, write_disparity
from ..opencv import cv2, open_video, window_problem

VIDEO_CODECS = {".mp4": "mp4v", ".mov": "mp4v", ".mkv": "mp4v", ".avi": "MJPG"}
"""The video files that we write, and the codec in each: those that every OpenCV has."""

DEFAULT_RATE = 25.0
"""Frames per second of a video whose source does not say."""

_COUNTER = re.compile(r"%0?\d*d")
_QUIT = {ord("q"), 27}  # keys that end a stream; 27 is Esc


class MapSink(Protocol):
    """Takes the maps of a stream one after the other."""

    def write(self, number: int, disparity: np.ndarray) -> None:
        """Take the map (H, W) of a frame, counted from 0 over all frames of the stream."""

    def finish(self) -> None:
        """Complete what was written so far; called once, also after an interruption."""


class Colors:
    """Colour pictures of the maps of a sequence, all with the same range.

    Parameters
    ----------
    span
        Disparities of the first and the last colour; None: the 1st and the 99th percentile of the
        first map.
    """

    def __init__(self, span: tuple[float, float] | None = None) -> None:
        self.span = span

    def __call__(self, disparity: np.ndarray) -> np.ndarray:
        """The picture (H, W, 3), RGB, uint8."""
        if self.span is None:
            low, high = robust_range(disparity[np.isfinite(disparity)])
            self.span = low, max(high, low + 1.0)
        return colorize(disparity, *self.span)


class ColorVideo:
    """A colour video, complete or not there at all.

    Parameters
    ----------
    path
        Its suffix is one of `VIDEO_CODECS`.
    rate
        Frames per second.
    colors
        How maps become pictures.

    Raises
    ------
    OutputError
        If it cannot be written.
    """

    def __init__(self, path: str, rate: float, colors: Colors) -> None:
        self.path = path
        self._rate = rate
        self._colors = colors
        self._stack = ExitStack()
        self._writer: cv2.VideoWriter | None = None
        self._temporary: Path | None = None
        self._frames = 0
        self._shown: np.ndarray | None = None
        check_writable(path)

    def write(self, number: int, disparity: np.ndarray) -> None:
        """Append a picture; sides become even, as the codecs want them.

        For frames that were dropped the picture before stays, or the video would be too fast.
        """
        height, width = disparity.shape
        picture = self._colors(disparity)[:, :, ::-1]
        picture = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if self._writer is None:
            self._temporary = self._stack.enter_context(atomic_write(self.path))
            codec = cv2.VideoWriter.fourcc(*VIDEO_CODECS[Path(self.path).suffix.lower()])
            size = picture.shape[1], picture.shape[0]
            self._writer = cv2.VideoWriter(str(self._temporary), codec, self._rate, size)
            if not self._writer.isOpened():
                self._fail(f"{self.path} cannot be written: OpenCV has no encoder for it")
        picture = np.ascontiguousarray(picture)
        before = picture if self._shown is None else self._shown
        for shown in [before] * (number - self._frames) + [picture]:
            self._writer.write(shown)
            self._frames += 1
        self._shown = picture

    def finish(self) -> None:
        """Close the video and give it its name; OpenCV does not say if the disk was full."""
        if self._writer is None:
            return
        self._writer.release()
        written = open_video(str(self._temporary))
        frames = int(written.get(cv2.CAP_PROP_FRAME_COUNT)) if written.isOpened() else 0
        written.release()
        if frames < self._frames:
            self._fail(f"{self.path} could not be written completely")
        self._stack.close()

    def _fail(self, message: str) -> None:
        error = OutputError(message, "Check that the disk has room, or choose another suffix")
        self._stack.__exit__(OutputError, error, None)  # removes the temporary file
        self._writer = None
        raise error


class RawFrames:
    """Raw 16-bit frames, one after the other: FFmpeg's ``gray16le``, 256 times the disparity.

    Parameters
    ----------
    stream
        Where the bytes go, such as ``sys.stdout.buffer``.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, number: int, disparity: np.ndarray) -> None:
        """Append a frame, rows from the top; invalid pixels are 0."""
        frame = sixteen_bit(disparity.astype(np.float32, copy=False), "A stream of raw frames")
        write_all(self._stream, frame.astype("<u2").tobytes())
        self._stream.flush()

    def finish(self) -> None:
        """Nothing is kept back."""


class MapFiles:
    """A file for every map.

    Parameters
    ----------
    pattern
        A folder, for ``000000.pfm`` and so on in it; or a name with a counter, ``maps/%06d.png``,
        whose suffix picks the format.
    inputs
        Files that are read meanwhile.

    Raises
    ------
    OutputError
        If the folder cannot be written, the suffix is unknown, or a map could replace an input.
    """

    def __init__(self, pattern: str, inputs: Sequence[str] = ()) -> None:
        if not _COUNTER.search(Path(pattern).name):
            pattern = os.path.join(pattern, "%06d.pfm")
        folder = create_folder(Path(pattern).parent)
        name = Path(pattern).name
        if len(_COUNTER.findall(name)) != 1 or "%" in _COUNTER.sub("", name):
            raise OutputError(f"{pattern} has no single counter such as %06d")
        self._folder, self._name = folder, name
        check_output(self.name_of(0))
        # How many frames come, nobody knows: any number that the counter can show is refused.
        numbers = {x for path in inputs if (x := self._number_of(path)) is not None}
        check_distinct(inputs, [self.name_of(x) for x in sorted(numbers)])

    def name_of(self, number: int) -> str:
        """The file of a frame."""
        return str(self._folder / (self._name % number))

    def _number_of(self, path: str) -> int | None:
        """The frame whose file `path` would be; None if it is that of none."""
        before, after = _COUNTER.split(self._name)
        digits = re.fullmatch(f"{re.escape(before)}(\\d+){re.escape(after)}", Path(path).name)
        return None if digits is None else int(digits[1])

    def write(self, number: int, disparity: np.ndarray) -> None:
        """Write the file of a frame."""
        write_disparity(self.name_of(number), disparity)

    def finish(self) -> None:
        """Every file is complete already."""


class StopStreamError(Exception):
    """The user has closed the window: the stream ends here."""


class MapWindow:
    """Shows the maps; ``q``, Esc or closing the window ends the stream.

    Raises
    ------
    InputError
        If no window can be opened here.
    """

    _title = "hstereo"

    def __init__(self, colors: Colors) -> None:
        if problem := window_problem():
            raise InputError(*problem)
        self._colors = colors
        self._is_open = False

    def write(self, number: int, disparity: np.ndarray) -> None:
        """Show the picture; raises StopStreamError if the user wants no more."""
        if not self._is_open:
            cv2.namedWindow(self._title, cv2.WINDOW_NORMAL)
            self._is_open = True
        cv2.imshow(self._title, np.ascontiguousarray(self._colors(disparity)[:, :, ::-1]))
        key = cv2.waitKey(1) & 0xFF
        if key in _QUIT or cv2.getWindowProperty(self._title, cv2.WND_PROP_VISIBLE) < 1:
            raise StopStreamError

    def finish(self) -> None:
        """Close the window."""
        if self._is_open:
            cv2.destroyWindow(self._title)
            self._is_open = False


def open_sink(
    target: str,
    rate: float | None,
    colors: Colors,
    raw: BinaryIO,
    inputs: Sequence[str] = (),
) -> MapSink:
    """The sink that a name stands for: ``-``, a video, or a folder or pattern of maps.

    Parameters
    ----------
    target
        As the user gave it.
    rate
        Frames per second of a video; None: `DEFAULT_RATE`.
    colors
        Of a video.
    raw
        What ``-`` stands for.
    inputs
        Files that are read meanwhile, and so are not to be replaced.

    Raises
    ------
    OutputError
        If the name says nothing, cannot be written, or is that of an input.
    """
    if target == "-":
        return RawFrames(raw)
    suffix = Path(target).suffix.lower()
    if suffix in VIDEO_CODECS:
        check_distinct(inputs, [target])
        return ColorVideo(target, rate or DEFAULT_RATE, colors)
    if os.path.isdir(target) or target.endswith(("/", os.sep)) or _COUNTER.search(target):
        return MapFiles(target, inputs)
    raise OutputError(
        f"{target} is neither a video nor a folder of maps",
        f"Use {', '.join(VIDEO_CODECS)}, a folder such as maps/, maps/%06d.png, or - for raw"
        " frames",
    )
