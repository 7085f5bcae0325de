"""Where maps go: videos, raw frames, files; and what is refused before the work."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
from support.videofiles import read_video

from hybridstereo import opencv
from hybridstereo.errors import InputError, OutputError
from hybridstereo.io.disparity import read_disparity
from hybridstereo.streams.sinks import (
    Colors,
    ColorVideo,
    MapFiles,
    MapWindow,
    RawFrames,
    open_sink,
)


@pytest.fixture
def ramp():
    return np.tile(np.linspace(2, 40, 33, dtype=np.float32), (21, 1))


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv", ".avi"])
def test_colour_video(tmp_path, ramp, suffix):
    path = tmp_path / f"out{suffix}"
    video = ColorVideo(str(path), 10.0, Colors())
    for number in range(3):
        video.write(number, ramp + number)
    assert not path.exists()  # until it is complete
    video.finish()
    frames = read_video(path)
    assert len(frames) == 3
    assert frames[0].shape == (22, 34, 3)  # odd sides are widened, nothing is cut off
    # The codec loses a little; the order of the channels it keeps.
    expected = Colors((2.38, 39.62))(ramp)
    assert np.abs(frames[0][:21, :33].astype(int) - expected).mean() < 25


def test_colours_keep_the_range_of_the_first_map(ramp):
    colors = Colors()
    first = colors(ramp)
    np.testing.assert_array_equal(colors(ramp), first)
    assert (colors(ramp + 10) != first).any()
    np.testing.assert_array_equal(Colors((0, 50))(ramp), Colors((0, 50))(ramp))
    flat = Colors()
    flat(np.full((4, 4), 3.0, np.float32))
    assert flat.span == (3.0, 4.0)


def test_a_video_keeps_the_time_of_dropped_frames(tmp_path, ramp):
    video = ColorVideo(str(tmp_path / "out.avi"), 10.0, Colors((0, 100)))
    for number, shift in ((1, 0), (4, 50)):
        video.write(number, ramp + shift)
    video.finish()
    frames = [frame.astype(int) for frame in read_video(tmp_path / "out.avi")]
    assert len(frames) == 5
    changes = [np.abs(x - y).mean() for x, y in pairwise(frames)]
    assert [change > 25 for change in changes] == [False, False, False, True]


def test_a_video_without_frames_is_not_there(tmp_path):
    ColorVideo(str(tmp_path / "out.mp4"), 10.0, Colors()).finish()
    assert list(tmp_path.iterdir()) == []


def test_a_video_that_could_not_be_written_completely_is_not_left(tmp_path, ramp, monkeypatch):
    video = ColorVideo(str(tmp_path / "out.mp4"), 10.0, Colors())
    video.write(0, ramp)
    video._frames = 1000  # as if the disk had been full
    with pytest.raises(OutputError, match="could not be written completely"):
        video.finish()
    assert list(tmp_path.iterdir()) == []


def test_raw_frames_are_little_endian_and_256_times_the_disparity():
    stream = io.BytesIO()
    sink = RawFrames(stream)
    sink.write(0, np.array([[1.0, 2.5, np.inf]], np.float32))
    sink.write(1, np.array([[0.0, 255.99, 3.0]], np.float32))
    sink.finish()
    values = np.frombuffer(stream.getvalue(), "<u2").tolist()
    assert values == [256, 640, 0, 1, 65533, 768]
    with pytest.raises(OutputError, match="negative disparities"):
        sink.write(2, np.array([[-1.0]], np.float32))


@pytest.mark.parametrize(
    ("target", "name"), [("maps/", "000007.pfm"), ("maps/d_%03d.png", "d_007.png")]
)
def test_a_file_for_every_map(tmp_path, ramp, target, name):
    sink = MapFiles(f"{tmp_path}/{target}")
    sink.write(7, ramp)
    sink.finish()
    np.testing.assert_allclose(read_disparity(tmp_path / "maps" / name), ramp, atol=1 / 256)


@pytest.mark.parametrize("target", ["map.gif", "map", "map.pfm"])
def test_what_is_neither_a_video_nor_a_folder(tmp_path, target):
    with pytest.raises(OutputError, match="neither a video nor a folder of maps"):
        open_sink(str(tmp_path / target), None, Colors(), io.BytesIO())


@pytest.mark.parametrize("target", ["maps/%d.gif", "maps/%d_%d.pfm", "maps/%s_%d.pfm"])
def test_patterns_that_say_nothing(tmp_path, target):
    with pytest.raises(OutputError):
        open_sink(str(tmp_path / target), None, Colors(), io.BytesIO())


@pytest.mark.parametrize(
    ("target", "of_an_input"),
    [
        ("left_%d.png", True),  # left_7.png is the map of frame 7
        ("left_%02d.png", False),  # left_07.png is another file
        ("left_%d.npy", False),
        ("maps/left_%d.png", False),
        ("left.mp4", True),
    ],
)
def test_no_map_replaces_a_frame(tmp_path, target, of_an_input):
    (tmp_path / "link").symlink_to(tmp_path)
    inputs = [f"{tmp_path}/{x}" for x in ("left_7.png", "left_x.png", "right/left_7.png")]
    inputs += [f"{tmp_path}/left.mp4"]
    arguments = f"{tmp_path}/link/{target}", None, Colors(), io.BytesIO(), inputs
    if not of_an_input:
        open_sink(*arguments)
        return
    with pytest.raises(OutputError, match="is an input already"):
        open_sink(*arguments)


def test_no_window_with_the_headless_wheel(monkeypatch):
    monkeypatch.setattr(opencv.cv2, "getBuildInformation", lambda: "  GUI:    NONE\n")
    with pytest.raises(InputError, match=r"headless wheel\. Install .opencv-python."):
        MapWindow(Colors())


def test_no_window_without_a_display(monkeypatch):
    monkeypatch.setattr(opencv.cv2, "getBuildInformation", lambda: "  GUI:    QT5\n")
    monkeypatch.setattr(opencv.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="no display"):
        MapWindow(Colors())
    monkeypatch.setenv("DISPLAY", ":0")
    assert opencv.window_problem() is None
