"""The pairs of folders: of one with a layout that we know, of two, or of two patterns."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import InputError
from ..io.urls import is_url
from .pairs import Pair, PairSource, has_namesake
from .views import FOLDERS, SCENES, SUFFIXES, is_image, right_view

EXPECTED = (
    "Expected are folders such as image_2 and image_3 or left and right (KITTI and others), scenes"
    " with im0.png and im1.png (Middlebury), or names such as 0001_left.png and 0001_right.png"
)
_ALL_VIEWS = {*FOLDERS, *FOLDERS.values()}
# A part of a pattern of glob(): ** stands for any folders, * and ? stop at a slash.
_WILD = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]]+\]")


def pairs_below(root: str | Path, without: str | Path | None = None) -> PairSource:
    """The pairs in a folder and the folders below it.

    Known are, in this order, folders of left and of right images side by side (`FOLDERS`; only one
    such layout of a folder is taken, colour before grey), folders with one pair (`SCENES`), and
    images whose names tell left from right.  Pairs are named by their paths below ``root``, without
    the folder of the left images and without the name that all scenes have.

    Parameters
    ----------
    root
        Where to look; hidden folders are left out.
    without
        A folder that is left out, too: that of the results.

    Raises
    ------
    InputError
        If there is no such folder.
    """
    root = _checked_folder(root)
    left_out = None if without is None else os.path.realpath(without)

    def find() -> Iterator[Pair]:
        for folder, folders, images in _walk(root):
            folders[:] = [x for x in folders if os.path.realpath(folder / x) != left_out]
            views = next((x for x in FOLDERS if {x, FOLDERS[x]} <= set(folders)), None)
            if views is None:
                yield from _in_one_folder(folder, images, root)
            else:
                yield from _matched(folder / views, folder / FOLDERS[views], folder, root)
                # Nor is any other layout gone into: KITTI has its pairs in colour and in grey.
                folders[:] = [x for x in folders if x not in _ALL_VIEWS]

    return PairSource(str(root), find)


def pairs_of_folders(left: str | Path, right: str | Path) -> PairSource:
    """The images of one folder with those of another, by name.

    The right view of ``LEFT/a/0001.png`` is ``RIGHT/a/0001.png``, or a file there that differs in
    the suffix, or the one that the name suggests: ``0001_right.png`` for ``0001_left.png``.

    Raises
    ------
    InputError
        If one of the folders does not exist.
    """
    left, right = _checked_folder(left), _checked_folder(right)
    return PairSource(f"{left} and {right}", lambda: _matched(left, right, left, left))


def pairs_of_patterns(left: str, right: str) -> PairSource:
    """The files that a pattern finds, with those of a second one.

    Both have the same wildcards in the same order; what they stand for in the left path, they stand
    for in the right one.  Pairs are named by the left path below its last folder without wildcards.

    Raises
    ------
    InputError
        If the patterns have different wildcards.
    """
    wild, wild_right = _WILD.findall(left), _WILD.findall(right)
    if len(wild) != len(wild_right):
        raise InputError(
            f"{left} has {len(wild)} wildcards but {right} has {len(wild_right)}",
            "Write the same wildcards in both: what they stand for is the same in both views",
        )
    parse = _as_regex(left)
    between = _WILD.split(right)
    base = os.path.dirname(_WILD.split(left)[0])

    def find() -> Iterator[Pair]:
        for path in sorted(glob.iglob(left, recursive=True)):
            match = parse.fullmatch(path)
            if match is None or not os.path.isfile(path):
                continue
            other = "".join(
                text + (part or "")
                for text, part in zip(between, (*match.groups(), ""), strict=True)
            )
            yield Pair(_name_below(Path(path), Path(base)), path, other)

    return PairSource(f"{left} and {right}", find)


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards, and is not simply the name of a file; a URL has none."""
    return glob.has_magic(path) and not os.path.lexists(path) and not is_url(path)


def _as_regex(pattern: str) -> re.Pattern[str]:
    """An expression whose groups are what the wildcards of a pattern stand for."""
    meaning: dict[str, Callable[[str], str]] = {
        "**/": lambda _: "((?:.*/)?)",
        "**": lambda _: "(.*)",
        "*": lambda _: "([^/]*)",
        "?": lambda _: "([^/])",
    }
    parts = []
    for text in re.split(f"({_WILD.pattern})", pattern):
        if not _WILD.fullmatch(text):
            parts.append(re.escape(text))
        elif text in meaning:
            parts.append(meaning[text](text))
        else:  # [abc], [!a-z]
            inside = text[1:-1].replace("\\", "\\\\")
            parts.append(f"([{'^' + inside[1:] if inside.startswith('!') else inside}])")
    return re.compile("".join(parts), re.DOTALL)


def _walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Folders with the folders and the images in each, sorted, like `os.walk`; nothing hidden.

    Links are followed, except to a folder that they lie in themselves.
    """
    for path, folders, files in os.walk(root, followlinks=True):
        here = os.path.realpath(path)
        folders[:] = sorted(
            x for x in folders
            if not x.startswith(".")
            and not Path(here).is_relative_to(os.path.realpath(os.path.join(path, x)))
        )  # fmt: skip
        yield Path(path), folders, sorted(filter(is_image, files))


def _matched(left: Path, right: Path, named_from: Path, root: Path) -> Iterator[Pair]:
    """The images below ``left`` with those below ``right``; left ones without a right one, too.

    These fail when they are read, and say which file is missing.
    """
    for folder, _, images in _walk(left):
        for file in images:
            image = folder / file
            inside = image.relative_to(left)
            other = _right_of(inside, right, same_folder=left == right)
            if other is not None:
                name = named_from.relative_to(root) / inside
                yield Pair(_without_suffix(name, image), str(image), str(other))


def _right_of(inside: Path, right: Path, same_folder: bool) -> Path | None:
    """The right view of an image; None: in a folder with both views, it is none of the left."""
    suggested = right_view(inside)
    if same_folder:
        return None if suggested is None else right / suggested
    names = [inside] if suggested is None else [inside, Path(suggested)]
    candidates = [right / name for name in names]
    candidates += [path.with_suffix(suffix) for path in candidates for suffix in SUFFIXES]
    return next((path for path in candidates if path.is_file()), right / inside)


def _in_one_folder(folder: Path, files: list[str], root: Path) -> Iterator[Pair]:
    """A scene, or images whose names tell left from right."""
    stems = {Path(file).stem: file for file in reversed(files)}
    scene = next((x for x in SCENES if {x, SCENES[x]} <= stems.keys()), None)
    if scene is not None:
        inside = folder.relative_to(root)
        name = inside.as_posix() if inside.parts else folder.resolve().name or scene
        yield Pair(name, str(folder / stems[scene]), str(folder / stems[SCENES[scene]]))
    for file in files:
        other = right_view(file)
        if other in files and Path(file).stem not in SCENES:
            yield Pair(_name_below(folder / file, root), str(folder / file), str(folder / other))


def _name_below(image: Path, base: Path) -> str:
    return _without_suffix(image.relative_to(base), image)


def _without_suffix(name: Path, image: Path) -> str:
    return (name if has_namesake(image) else name.with_suffix("")).as_posix()


def _checked_folder(path: str | Path) -> Path:
    if not os.path.isdir(path):
        raise InputError(f"{path} does not exist or is not a folder", EXPECTED)
    return Path(path)
