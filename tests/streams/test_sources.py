"""Videos, cameras, images: what can be opened, in which order frames come, and how it ends."""

from __future__ import annotations

import numpy as np
import pytest
from support.videofiles import HEIGHT, WIDTH, scenes, views_of, write_images, write_video

from hybridstereo.errors import InputError
from hybridstereo.io.images import write_image
from hybridstereo.streams.sources import FramePairs, in_order, open_pair, open_source


@pytest.fixture(scope="module")
def views():
    return views_of(scenes(4))


def frames_of(source):
    frames = []
    while (frame := source.read()) is not None:
        frames.append(frame)
    source.close()
    return frames


def test_images_of_a_folder_come_in_the_order_of_their_numbers(tmp_path, views):
    source = open_source(write_images(tmp_path / "left", views[0]))
    assert (source.stated, source.rate, source.live) == (4, None, False)
    for frame, expected in zip(frames_of(source), views[0], strict=True):
        np.testing.assert_allclose(frame, expected / 255, atol=1e-6)


@pytest.mark.parametrize("pattern", ["f*.png", "f%d.png", "f%02d.png", "f[0-9]*.png"])
def test_patterns_of_images(tmp_path, views, pattern):
    folder = tmp_path / "left"
    write_images(folder, views[0])
    write_image(folder / "f_mask.png", views[0][0])
    source = open_source(str(folder / pattern))
    assert source.stated == (5 if pattern == "f*.png" else 4)


def test_numbers_are_compared_as_numbers():
    assert sorted(["a10", "a9", "b1", "a09x"], key=in_order) == ["a9", "a09x", "a10", "b1"]


def test_a_video_has_the_frames_that_were_written(tmp_path, views):
    source = open_source(write_video(tmp_path / "left.avi", views[0]))
    assert source.stated == 4
    assert source.rate == pytest.approx(20)
    frames = frames_of(source)
    assert len(frames) == 4
    # RGB, and not BGR: JPEG changes values a little.
    assert np.abs(frames[0].astype(int) - views[0][0]).mean() < 6


@pytest.mark.parametrize(
    ("layout", "axis", "columns", "rows"),
    [("side-by-side", 1, WIDTH, HEIGHT), ("top-bottom", 0, WIDTH, HEIGHT)],
)
def test_one_stream_with_both_views(tmp_path, views, layout, axis, columns, rows):
    both = [np.concatenate(x, axis=axis) for x in zip(*views, strict=True)]
    source = open_pair(write_images(tmp_path / "both", both), None, layout)
    left, right = source.read()
    assert left.shape == right.shape == (rows, columns, 3)
    np.testing.assert_allclose(left, views[0][0] / 255, atol=1e-6)
    np.testing.assert_allclose(right, views[1][0] / 255, atol=1e-6)


def test_an_odd_number_of_columns_has_no_halves(tmp_path, views):
    source = open_pair(write_images(tmp_path / "x", [views[0][0][:, :-1]]), None, "side-by-side")
    with pytest.raises(InputError, match="63 columns, which cannot be halved"):
        source.read()


def test_different_lengths_are_said(tmp_path, views):
    left = write_images(tmp_path / "left", views[0])
    right = write_images(tmp_path / "right", views[1][:2])
    source = open_pair(left, right)
    assert len(frames_of(source)) == 2
    assert source.notes == [f"{right} ended after frame 2, {left} is longer: its rest is not used"]
    assert not source.damaged


def test_a_damaged_image_ends_the_stream_with_a_note(tmp_path, views):
    left = write_images(tmp_path / "left", views[0])
    right = write_images(tmp_path / "right", views[1])
    (tmp_path / "right" / "f10.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    source = open_pair(left, right)
    assert len(frames_of(source)) == 2
    assert source.damaged
    assert "f10.png is a PNG file that is damaged" in source.notes[0]


class Short:
    """A video that states nine frames and has fewer."""

    rate, stated, live = 25.0, 9, False

    def __init__(self, left, name="short.mp4"):
        self.left, self.name, self.files = left, name, (name,)

    def read(self):
        self.left -= 1
        return None if self.left < 0 else np.zeros((4, 6, 3), np.uint8)

    def close(self):
        pass


def test_a_video_that_states_more_frames_than_it_has():
    source = FramePairs(Short(3), Short(3))
    assert len(frames_of(source)) == 3
    assert source.damaged
    assert source.notes[0].startswith("short.mp4 states 9 frames, but only 3 can be read")


@pytest.mark.parametrize(
    ("name", "hint"), [("a.mp4", "can be played"), ("http://x/a.mp4", "begin with its index")]
)
def test_no_frame_at_all(name, hint):
    with pytest.raises(InputError, match=f"No frame can be read from {name}") as caught:
        FramePairs(Short(0, name), Short(0, name)).read()
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.mp4", "none.mp4 does not exist"),
        ("nothing_%03d.png", "There are no images in"),
        ("nothing*.png", "There are no images in"),
        ("777", "There is no camera 777"),
        ("rubbish.mp4", "not a video that can be read"),
        ("empty.mp4", "is empty"),
    ],
)
def test_what_cannot_be_opened(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rubbish.mp4").write_bytes(b"not a video" * 100)
    (tmp_path / "empty.mp4").write_bytes(b"")
    with pytest.raises(InputError, match=message):
        open_source(name)


def test_frames_that_are_too_large_are_refused(tmp_path, views):
    path = write_video(tmp_path / "left.avi", views[0])
    with pytest.raises(InputError, match="at most 100 are read"):
        open_source(path, max_pixels=100)


def test_one_stream_must_say_where_the_views_are(tmp_path):
    with pytest.raises(InputError, match="Two streams have their own views"):
        open_pair("a.mp4", None)
    with pytest.raises(InputError, match="Two streams have their own views"):
        open_pair("a.mp4", "b.mp4", "top-bottom")
