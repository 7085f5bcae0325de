"""Synthetic scenes as files, in the layout of the Middlebury benchmark."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridstereo.io.atomic import atomic_write, create_folder
from hybridstereo.io.calib import Calibration, calibration_text
from hybridstereo.io.disparity import write_disparity
from hybridstereo.io.images import encode_pixels, write_image
from hybridstereo.limits import SCENES, SEED
from hybridstereo.synthetic.scene import SceneOptions, StereoScene, generate_scene, quantised

OnScene = Callable[[int, int], None]
"""Called with the number of scenes written so far and of all scenes, after each scene."""

_BASELINE_MM = 100.0  # what calib.txt states; the scene itself has no scale


def synthesize(
    folder: str | os.PathLike[str],
    count: int = 1,
    seed: int = 0,
    options: SceneOptions | None = None,
    on_scene: OnScene | None = None,
) -> list[Path]:
    """Generate scenes and write them in the layout of the Middlebury benchmark.

    Scene i goes to ``folder/scene_<i>`` (four digits) and has the seed ``seed + i``; see
    `write_scene` for the files. Existing scenes are replaced file by file.

    Parameters
    ----------
    folder
        Where to; created if it does not exist.
    count
        How many scenes.
    seed
        Seed of the first scene.
    options
        Size, disparity range and so on; None: the defaults.
    on_scene
        Called after each scene.

    Returns
    -------
    list of Path
        All files, in the order in which they were written.

    Raises
    ------
    InputError
        If ``count`` or ``seed`` is out of range.
    OutputError
        If a folder or file cannot be written; files are never left half written.

    """
    SCENES.check(count, "the number of scenes is")
    SEED.check(seed, "the seed is")
    written: list[Path] = []
    for index in range(count):
        # Before the work, so that a read-only folder fails at once.
        scene_folder = create_folder(Path(folder) / f"scene_{index:04d}")
        written += write_scene(scene_folder, generate_scene(seed + index, options))
        if on_scene is not None:
            on_scene(index + 1, count)
    return written


def write_scene(folder: str | Path, scene: StereoScene) -> list[Path]:
    """Write a scene in the layout of the Middlebury benchmark.

    Parameters
    ----------
    folder
        An existing folder.
    scene
        What to write.

    Returns
    -------
    list of Path
        ``im0.png``, ``im1.png`` (8 bit), ``disp0GT.pfm``, ``disp1GT.pfm``, ``mask0nocc.png``
        (255 visible in both views, 128 occluded) and ``calib.txt``.

    Raises
    ------
    OutputError
        If a file cannot be written; files are never left half written.

    """
    folder = Path(folder)
    names = ("im0.png", "im1.png", "disp0GT.pfm", "disp1GT.pfm", "mask0nocc.png", "calib.txt")
    paths = [folder / name for name in names]
    left, right, disparity, right_disparity, mask, calibration = paths
    write_image(left, quantised(scene.left))
    write_image(right, quantised(scene.right))
    write_disparity(disparity, scene.disparity)
    write_disparity(right_disparity, scene.right_disparity)
    _write_mask(mask, scene.occlusion)
    with atomic_write(calibration) as temporary:
        temporary.write_text(_calibration(scene), encoding="ascii")
    return paths


def _write_mask(path: str | Path, occlusion: NDArray[np.bool_]) -> None:
    """Write an occlusion mask as Middlebury does: 255 visible in both views, 128 occluded."""
    pixels = np.where(occlusion, 128, 255).astype(np.uint8)
    encoded = encode_pixels(pixels, ".png", str(path))
    with atomic_write(path) as temporary:
        temporary.write_bytes(encoded)


def _calibration(scene: StereoScene) -> str:
    """The text of Middlebury's calib.txt."""
    geometry = scene.geometry
    x, y = geometry.centre
    cam0, cam1 = (
        ((geometry.focal, 0.0, centre), (0.0, geometry.focal, y), (0.0, 0.0, 1.0))
        for centre in (x, x + geometry.doffs)
    )
    stated = Calibration(
        cam0=cam0,
        cam1=cam1,
        doffs=geometry.doffs,
        baseline=_BASELINE_MM,
        width=geometry.width,
        height=geometry.height,
        ndisp=max(math.floor(geometry.max_disparity) + 1, 1),
        isint=False,
        vmin=math.floor(scene.disparity.min()),
        vmax=math.ceil(scene.disparity.max()),
    )
    return calibration_text(stated) + "dyavg=0\ndymax=0\n"
