"""A folder with small files of the names that the documents use, so that their examples run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.calibrated import (
    as_taken,
    camera_pair_of,
    named_matrices,
    write_kitti,
    write_opencv,
    write_ros,
)
from support.networks import published_arrays
from support.videofiles import DISPARITIES, scenes, views_of, write_images, write_video

from hybridstereo.io.disparity import write_disparity
from hybridstereo.io.images import write_image
from hybridstereo.models.zoo import load_model, save_model

Picture = NDArray[Any]


def build(folder: Path) -> None:
    """Put everything into an empty folder."""
    frames = scenes(2)
    left, right = views_of(frames)
    for name, view in (("left", left), ("right", right)):
        write_image(folder / f"{name}.png", view[0])
        write_video(folder / f"{name}.mp4", view, "mp4v")
        (folder / "sequence").mkdir(exist_ok=True)
        write_images(folder / "sequence" / name, view)
        (folder / "frames").mkdir(exist_ok=True)
        for number, frame in enumerate(view, 1):
            write_image(folder / "frames" / f"{name}_{number:04d}.png", frame)
    write_video(folder / "both.mp4", [np.hstack(x) for x in zip(left, right, strict=True)], "mp4v")
    (folder / "data").mkdir()
    write_disparity(folder / "truth.pfm", frames[0].disparity)
    write_disparity(folder / "prediction.pfm", frames[0].disparity)
    write_image(folder / "mask.png", np.full((*frames[0].disparity.shape, 3), 255, np.uint8))
    (folder / "DIR").mkdir()
    write_disparity(folder / "DIR" / "scene.pfm", frames[0].disparity)
    (folder / "pairs.csv").write_text("left,right,disparity\nleft.png,right.png,truth.pfm\n")
    (folder / "calib.txt").write_text(
        f"cam0=[60 0 31.5; 0 60 23.5; 0 0 1]\ncam1=[60 0 31.5; 0 60 23.5; 0 0 1]\ndoffs=0\n"
        f"baseline=100\nwidth=64\nheight=48\nndisp={DISPARITIES}\n"
    )
    for side, view in (("left", left), ("right", right)):
        write_images(folder / side, view)
        write_images(folder / f"{side}_dir", view)
    for number, view in ((2, left), (3, right)):  # as KITTI and Middlebury have them
        (folder / "testing").mkdir(exist_ok=True)
        write_images(folder / "testing" / f"image_{number}", view)
    (folder / "trainingQ" / "Teddy").mkdir(parents=True)
    for number, view in enumerate((left, right)):
        write_image(folder / "trainingQ" / "Teddy" / f"im{number}.png", view[0])
    (folder / "run").mkdir()
    for name in ("run/best.h5", "a.h5", "b.h5"):
        save_model(folder / name, load_model("census"))
    costs = np.random.default_rng(0).random((DISPARITIES, *frames[0].disparity.shape), np.float32)
    costs.tofile(folder / "left.bin")
    np.save(folder / "costs.npy", np.ascontiguousarray(costs.transpose(1, 2, 0)))
    costs.tofile(folder / "DIR" / "000000_10.bin")
    write_disparity(folder / "DIR" / "000000_10.png", frames[0].disparity)
    _write_benchmarks(folder / "data", left[0], right[0], frames[0].disparity)
    np.savez(folder / "params.npz", *published_arrays(np.random.default_rng(0), 3))
    (folder / "crf.cfg").write_text("num-layers = 3\nmatching = COLORCNN\ninference = ARGMAX")
    _write_cameras(folder, frames[0])


def _write_benchmarks(folder: Path, left: Picture, right: Picture, disparity: Picture) -> None:
    """A scene as KITTI has it, and as Middlebury does."""
    kitti, scene = folder / "kitti2015" / "training", folder / "MiddEval3" / "trainingQ" / "Teddy"
    for path, view in (
        (kitti / "image_2", left),
        (kitti / "image_3", right),
        (scene / "im0.png", left),
        (scene / "im1.png", right),
    ):
        file = path if path.suffix else path / "000000_10.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_image(file, view)
    for name in ("disp_noc_0", "disp_occ_0"):
        (kitti / name).mkdir()
        write_disparity(kitti / name / "000000_10.png", disparity)
    write_disparity(scene / "disp0GT.pfm", disparity)
    (scene / "calib.txt").write_text(f"ndisp = {DISPARITIES}")


def _write_cameras(folder: Path, scene: object) -> None:
    """Calibrations in all formats, and images as the cameras took them."""
    pair = camera_pair_of(scene)
    matrices = named_matrices(pair)
    write_opencv(folder / "stereo.yml", matrices)
    write_opencv(folder / "intrinsics.yml", {k: v for k, v in matrices.items() if k[0] in "KD"})
    write_opencv(folder / "extrinsics.yml", {k: v for k, v in matrices.items() if k[0] not in "KD"})
    write_ros(folder, pair)
    write_kitti(folder / "calib_cam_to_cam.txt", pair)
    for side, name in enumerate(("image_02", "image_03")):
        place = folder / name / "data"
        place.mkdir(parents=True)
        view = scene.right if side else scene.left
        write_image(place / "0.png", np.rint(255 * as_taken(pair, side, view)).astype(np.uint8))
