"""Which file is the right view of a left one, by the names that people give to both."""

from __future__ import annotations

import re
from pathlib import PurePath

FOLDERS = {
    "image_2": "image_3",
    "colored_0": "colored_1",
    "image_02": "image_03",
    "image_0": "image_1",
    "image_00": "image_01",
    "cam0": "cam1",
    "left": "right",
    "Left": "Right",
    "LEFT": "RIGHT",
}
"""Folders of left images, and of right ones beside them; colour before grey, as KITTI has both."""

SCENES = {"im0": "im1", "view1": "view5", "im2": "im6", "left": "right"}
"""File names, without the suffix, of the only pair of a folder (Middlebury, ETH3D)."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".ppm", ".pgm", ".webp")
"""Of the files in a folder that are taken for images."""

_SIDES = {"left": "right", "Left": "Right", "LEFT": "RIGHT", "l": "r", "L": "R"}
# A word of its own, or a single letter at an end: 0001_left, leftImage, L-0001, but not bottle_1.
_WORD = re.compile(
    r"(?<![A-Za-z])(left|Left|LEFT)(?![a-z])|(?<=[^A-Za-z0-9])([lL])$|^([lL])(?=[^A-Za-z])"
)


def is_image(name: str) -> bool:
    """Whether a file's name is that of an image; hidden files are none."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def right_view(left: str | PurePath) -> str | None:
    """The path of the right view as the path of the left one suggests; None: it suggests none.

    Parameters
    ----------
    left
        The left image; nothing is looked up.

    Examples
    --------
    >>> right_view("image_2/000000_10.png"), right_view("Teddy/im0.png")
    ('image_3/000000_10.png', 'Teddy/im1.png')
    >>> right_view("left/0001_left.png"), right_view("rig_left/0001.png"), right_view("a/b.png")
    ('right/0001_right.png', 'rig_right/0001.png', None)
    """
    path = PurePath(left)
    folders, stem = path.parts[:-1], path.stem
    if not path.name:  # a root, or nothing
        return None
    other = SCENES.get(stem) or _other_side(stem)
    found = [FOLDERS.get(folder, folder) for folder in folders]
    if other is None and found == list(
        folders
    ):  # else a word inside the name of the nearest folder
        for index in reversed(range(len(folders))):
            if turned := _other_side(folders[index]):
                found[index] = turned
                break
        else:
            return None
    new_name = (other or stem) + path.suffix
    return str(PurePath(*found, new_name))


def _other_side(word: str) -> str | None:
    """A name with "left" in it, or with an L at one end, as that of the right view."""
    turned = _WORD.sub(lambda match: _SIDES[match[0]], word)
    return None if turned == word else turned
