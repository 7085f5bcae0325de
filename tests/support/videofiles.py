"""Small stereo videos and sequences of images, for tests that read them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from hybridstereo.io.images import write_image
from hybridstereo.opencv import cv2
from hybridstereo.synthetic import SceneOptions, generate_sequence, quantised

WIDTH, HEIGHT, DISPARITIES = 64, 48, 16
OPTIONS = SceneOptions(HEIGHT, WIDTH, max_disparity=14.0, min_disparity=1.0, objects=2)


def scenes(count: int, travel: float = 0.05) -> list:
    """Frames of cameras that move slowly, with truth."""
    return list(islice(generate_sequence(3, OPTIONS, travel), count))


def views_of(frames: list) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Left and right views, uint8 RGB."""
    return [quantised(x.left) for x in frames], [quantised(x.right) for x in frames]


def write_video(path: Path, frames: list[np.ndarray], codec: str = "MJPG", rate: float = 20) -> str:
    height, width = frames[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*codec), rate, (width, height))
    assert writer.isOpened()
    for frame in frames:
        writer.write(np.ascontiguousarray(frame[:, :, ::-1]))
    writer.release()
    return str(path)


def read_video(path: str | Path) -> list[np.ndarray]:
    """The frames of a video, RGB."""
    capture = cv2.VideoCapture(str(path))
    frames = []
    while True:
        done, frame = capture.read()
        if not done:
            return frames
        frames.append(frame[:, :, ::-1])


def write_images(folder: Path, frames: list[np.ndarray]) -> str:
    folder.mkdir()
    for number, frame in enumerate(frames, 8):  # so that 10 comes after 9 in numbers only
        write_image(folder / f"f{number}.png", frame)
    return str(folder)
