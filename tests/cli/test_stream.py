"""`hstereo stream`: options, outputs, messages and exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from support.videofiles import (
    DISPARITIES,
    HEIGHT,
    WIDTH,
    read_video,
    scenes,
    views_of,
    write_images,
    write_video,
)

from hybridstereo.cli import cli
from hybridstereo.io.disparity import read_disparity
from hybridstereo.opencv import cv2

MODEL = ["--model", "census", "--disparities", str(DISPARITIES), "--device", "cpu"]


@pytest.fixture(scope="module")
def frames():
    return scenes(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, frames):
    """Both views as images and as one video."""
    place = tmp_path_factory.mktemp("stream")
    left, right = views_of(frames)
    write_images(place / "left", left)
    write_images(place / "right", right)
    both = [np.concatenate(x, axis=1) for x in zip(left, right, strict=True)]
    write_video(place / "both.avi", both)
    return place


def run(folder, monkeypatch, *arguments):
    monkeypatch.chdir(folder)
    return CliRunner().invoke(cli, ["stream", *arguments, *MODEL])


def test_images_to_maps_video_and_json(folder, frames, monkeypatch, tmp_path):
    outputs = [str(tmp_path / "out.mp4"), str(tmp_path / "maps") + "/"]
    result = run(folder, monkeypatch, "left", "right", "-o", outputs[0], "-o", outputs[1], "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["frames"], report["dropped"], report["ending"]) == (3, 0, "end")
    assert (report["width"], report["height"]) == (WIDTH, HEIGHT)
    assert report["outputs"] == outputs
    assert report["latency"]["median"] <= report["latency"]["max"]
    assert "3 frames in" in result.stderr
    assert "frames/s, latency" in result.stderr
    assert "\nframe 3/3  " in result.stderr
    assert len(read_video(outputs[0])) == 3
    for number, frame in enumerate(frames):
        shown = read_disparity(tmp_path / "maps" / f"{number:06d}.pfm")
        wrong = np.abs(shown - frame.disparity)[~frame.occlusion] > 1
        assert wrong.mean() < 0.25


def test_several_at_once_are_the_same_in_order(folder, monkeypatch, tmp_path):
    maps = {}
    for number in ("1", "2"):
        target = tmp_path / number
        result = run(folder, monkeypatch, "left", "right", "-o", f"{target}/", "--at-once", number)
        assert result.exit_code == 0, result.output
        maps[number] = [path.read_bytes() for path in sorted(target.iterdir())]
    assert len(maps["1"]) == 3
    assert maps["1"] == maps["2"]


def test_frames_that_need_the_one_before_are_one_at_a_time(folder, monkeypatch, tmp_path):
    options = ["-o", f"{tmp_path}/maps/", "--warm-start"]
    result = run(folder, monkeypatch, "left", "right", *options, "--at-once", "2")
    assert result.exit_code == 2
    assert "leave out --at-once" in result.stderr
    assert not (tmp_path / "maps").exists()
    assert run(folder, monkeypatch, "left", "right", *options).exit_code == 0


def test_raw_frames_on_standard_output(folder, monkeypatch, tmp_path):
    maps = str(tmp_path / "%d.png")
    result = run(folder, monkeypatch, "both.avi", "--side-by-side", "-o", "-", "-o", maps)
    assert result.exit_code == 0, result.output
    raw = np.frombuffer(result.stdout_bytes, "<u2").reshape(3, HEIGHT, WIDTH)
    assert f"gray16le -video_size {WIDTH}x{HEIGHT}" in result.stderr
    for number in range(3):
        stored = cv2.imread(str(tmp_path / f"{number}.png"), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(raw[number], stored)


def test_warm_start_tracked_range_and_a_number_of_frames(folder, monkeypatch, tmp_path):
    result = CliRunner().invoke(
        cli,
        [
            "stream",
            str(folder / "left"),
            str(folder / "right"),
            "-o",
            str(tmp_path / "o.mp4"),
            "--warm-start",
            "--range",
            "tracked",
            "--frames",
            "2",
            "--model",
            "census",
            "--json",
        ],
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["frames"], report["ending"]) == (2, "limit")


def test_a_damaged_stream_gives_what_was_done_and_exit_code_3(
    folder, frames, monkeypatch, tmp_path
):
    write_images(tmp_path / "left", views_of(frames)[0])
    (tmp_path / "left" / "f10.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    video = tmp_path / "out.avi"
    result = run(folder, monkeypatch, str(tmp_path / "left"), "right", "-o", str(video))
    assert result.exit_code == 3, result.output
    assert "f10.png is a PNG file that is damaged" in result.stderr
    assert "ended early; 2 frames" in result.stderr
    assert len(read_video(video)) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["left"], "Give LEFT and RIGHT, or one stream"),
        (["left", "right", "more", "-o", "x.mp4"], "LEFT and RIGHT are two names, but 3 are given"),
        (["left", "right", "--top-bottom", "-o", "x.mp4"], "Give LEFT and RIGHT, or one stream"),
        (["left", "--side-by-side", "--top-bottom", "-o", "x.mp4"], "contradict each other"),
        (["left", "right"], "Nothing to do: give -o FILE or --show."),
        (["left", "right", "-o", "-", "--json"], "both want standard output"),
        (["left", "right", "-o", "x.gif"], "neither a video nor a folder of maps"),
        (["left", "none", "-o", "x.mp4"], "none does not exist"),
        (["left", "right", "-o", "x.mp4", "--range", "tracked"], "cannot be given and tracked"),
        (["left", "right", "-o", "x.mp4", "-o", "x.mp4"], "x.mp4 is an output already"),
        (["left", "right", "-o", "left/f%d.png"], "left/f8.png is an input already"),
    ],
)
def test_what_is_refused(folder, monkeypatch, arguments, message):
    result = run(folder, monkeypatch, *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (folder / "x.mp4").exists()


def test_the_last_of_some_frames_is_the_end_of_the_way(folder, monkeypatch, tmp_path):
    options = ["-o", f"{tmp_path}/maps/", "--frames", "2"]
    assert "\nframe 2/2  " in run(folder, monkeypatch, "left", "right", *options).stderr


def test_interrupted_before_the_first_map(folder, monkeypatch, tmp_path):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("hybridstereo.stereo.Stereo.match", interrupt)
    video = str(tmp_path / "out.mp4")
    result = run(folder, monkeypatch, "left", "right", "-o", video)
    assert (result.exit_code, result.stdout) == (130, "")
    assert "interrupted; no frame was matched\n" in result.stderr
    assert list(tmp_path.iterdir()) == []
    result = run(folder, monkeypatch, "left", "right", "-o", video, "--json")
    assert json.loads(result.stdout)["outputs"] == []


def test_no_window_without_a_display(folder, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    result = run(folder, monkeypatch, "left", "right", "--show")
    assert result.exit_code == 1
    assert "window" in result.output
