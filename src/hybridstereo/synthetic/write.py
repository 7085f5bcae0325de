"""The command behind ``hstereo synth``: write synthetic scenes to a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hybridstereo.errors import InputError, OutputError
from hybridstereo.synthetic import SceneOptions, generate_scene, write_scene

Progress = Callable[[int, int], None]


def synthesize(
    folder: str | os.PathLike[str],
    count: int = 1,
    seed: int = 0,
    options: SceneOptions | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Generate scenes and write them in the layout of the Middlebury benchmark.

    Scene i goes to ``folder/scene_<i>`` (four digits) and has the seed ``seed + i``; see
    `hybridstereo.synthetic.write_scene` for the files. Scenes that are there already are replaced
    file by file.

    Parameters
    ----------
    folder
        Where to; created if it does not exist.
    count
        How many scenes.
    seed
        Seed of the first scene.
    options
        Size, disparity range and the like; None: the defaults.
    progress
        Called with the number of scenes written so far and ``count``, after each scene.

    Returns
    -------
    list of Path
        All files, in the order in which they were written.

    Raises
    ------
    InputError
        If ``count`` or ``seed`` is out of range.
    OutputError
        If a folder or file cannot be written; no file is ever written half.

    """
    if count < 1:
        raise InputError(f"the number of scenes is {count}", hint="Give at least 1")
    written: list[Path] = []
    for index in range(count):
        # Before the work, so that a folder one may not write to is noticed at once.
        scene_folder = _create_folder(Path(folder) / f"scene_{index:04d}")
        written += write_scene(scene_folder, generate_scene(seed + index, options))
        if progress is not None:
            progress(index + 1, count)
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
