"""Synthetic scenes as files, in the layout of the Middlebury benchmark."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import OutputError
from hybridstereo.io.atomic import atomic_write
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
        scene_folder = _create_folder(Path(folder) / f"scene_{index:04d}")
        written += write_scene(scene_folder, generate_scene(seed + index, options))
        if on_scene is not None:
            on_scene(index + 1, count)
    return written


def _create_folder(folder: Path) -> Path:
    """Create a folder and those above it; raise OutputError if that, or writing there, fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(
            f"the folder {folder} cannot be created: {reason}",
            hint="Choose a folder that you may write to",
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(
            f"the folder {folder} is write-protected",
            hint="Choose a folder that you may write to",
        )
    return folder


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
    cameras = [
        f"[{geometry.focal:.6f} 0 {centre:.6f}; 0 {geometry.focal:.6f} {y:.6f}; 0 0 1]"
        for centre in (x, x + geometry.doffs)
    ]
    lines = {
        "cam0": cameras[0],
        "cam1": cameras[1],
        "doffs": f"{geometry.doffs:.6f}",
        "baseline": f"{_BASELINE_MM:g}",
        "width": geometry.width,
        "height": geometry.height,
        "ndisp": max(math.floor(geometry.max_disparity) + 1, 1),
        "isint": 0,
        "vmin": math.floor(scene.disparity.min()),
        "vmax": math.ceil(scene.disparity.max()),
        "dyavg": 0,
        "dymax": 0,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())
