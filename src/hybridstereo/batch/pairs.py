"""The pairs of a list, of folders or of patterns: found one by one, each with a name of its own.

A name says where the results of a pair go.  It follows from the paths of the pair alone, never from
the other pairs of a run, so that a pair has the same name in every run, whichever part of the pairs
it takes.  Nothing here holds all pairs: a list of a million is read line by line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path, PurePath

from ..errors import InputError, shortened
from ..io.urls import is_url, joined, place_of
from .views import SUFFIXES, right_view

_LONGEST_NAME = 200  # in a message
_PLACE = re.compile(r"\{(name|dir|stem)(?::\.([0-9]{1,3}))?\}")


@dataclass(frozen=True)
class Pair:
    """Two image files, and what their results are called.

    Attributes
    ----------
    name
        A relative path without suffix, such as ``Teddy`` or ``seq1/000001``.
    left, right
        Paths or URLs of the images.
    """

    name: str
    left: str
    right: str

    def fill(self, pattern: str) -> str:
        """The name of another file of this pair.

        Parameters
        ----------
        pattern
            With ``{name}`` for the name of the pair, ``{dir}`` for the folder of the left image and
            ``{stem}`` for its name without suffix; ``{stem:.6}`` are the first six characters.

        Examples
        --------
        >>> Pair("a", "train/image_2/000007_10.png", "").fill("{dir}/../calib/{stem:.6}.txt")
        'train/image_2/../calib/000007.txt'
        """
        folder, file = os.path.split(self.left)
        places = {"name": self.name, "dir": folder or ".", "stem": os.path.splitext(file)[0]}

        def filled(place: re.Match[str]) -> str:
            return places[place[1]][: int(place[2]) if place[2] else None]

        return _PLACE.sub(filled, pattern)


@dataclass(frozen=True)
class PairSource:
    """Pairs that can be gone through, in a fixed order.

    Attributes
    ----------
    described
        What to call it in a message: ``pairs.csv``, ``standard input``.
    find
        Begins at the first pair with each call.
    only_once
        There is no second call: what came through a pipe is gone.
    """

    described: str
    find: Callable[[], Iterator[Pair]]
    only_once: bool = False

    def __iter__(self) -> Iterator[Pair]:
        """The pairs.

        Raises
        ------
        InputError
            If two pairs have one name, or what describes them cannot be read.
        """
        return distinct(self.find())

    def count(self) -> int | None:
        """How many pairs there are; None: nobody knows before the last one."""
        return None if self.only_once else sum(1 for _ in self)


def sharded(pairs: Iterable[Pair], index: int, count: int) -> Iterator[Pair]:
    """Every ``count``-th pair from the ``index``-th on, both counted from 1.

    The shards 1 to ``count`` are disjoint and all pairs together, on however many machines.

    Raises
    ------
    InputError
        If there is no such shard.
    """
    if not 1 <= index <= count:
        raise InputError(f"There is no shard {index} of {count}", "Shards are counted from 1")
    return islice(pairs, index - 1, None, count)


def distinct(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """The same pairs, until two have one name: the second would replace the first one's results.

    Names that differ only in upper and lower case are one: some file systems do not tell them
    apart.
    """
    seen: set[int] = set()  # hashes, not names: 70 MB for a million
    for pair in pairs:
        mark = hash(pair.name.casefold())
        if mark in seen:
            raise InputError(
                f"Two pairs are called {shortened(pair.name, _LONGEST_NAME)}; the second one is"
                f" {shortened(pair.left, _LONGEST_NAME)} and"
                f" {shortened(pair.right, _LONGEST_NAME)}",
                "Give each pair a name of its own in the third column of a list",
            )
        seen.add(mark)
        yield pair


def name_of(left: str, right: str, base: str | os.PathLike[str] = ".") -> str:
    """What the results of a pair are called if nobody says.

    That is the path of the left image below ``base``, without its suffix; its whole path if it lies
    elsewhere.  If the path does not suggest the right one (`right_view`), a hash of the latter
    follows: a left image may be matched with several.  The suffix stays where the folder has
    another image that differs in nothing else; behind a URL nobody looks, which would take nine
    questions for each pair.

    Parameters
    ----------
    left, right
        The images.
    base
        The folder that paths are relative to.

    Examples
    --------
    >>> name_of("seq/left/0001.png", "seq/right/0001.png")
    'seq/left/0001'
    >>> name_of("a/0001.png", "b/0001.png")
    'a/0001-a3928a97'

    Raises
    ------
    InputError
        If the left one is a root or the base itself.
    """
    inside = _below(left, base)
    if not inside.name:
        raise InputError(
            f"{shortened(left)} is a folder, not an image", "Give the files of both images"
        )
    name = inside.name if has_namesake(joined(base, left)) else inside.stem
    other = _below(right, base)
    if right_view(inside) != str(other):
        mark = blake2b(other.as_posix().encode(errors="surrogateescape"), digest_size=4)
        name += f"-{mark.hexdigest()}"
    return inside.with_name(name).as_posix()


def _below(path: str, base: str | os.PathLike[str]) -> PurePath:
    """A path relative to a folder; that from the root, without its slash, if it is elsewhere."""
    whole = joined(base, path)
    if is_url(whole):
        inside = PurePath(place_of(whole))
        folder = place_of(os.fspath(base)) if is_url(base) else None
        return inside.relative_to(folder) if folder and inside.is_relative_to(folder) else inside
    absolute = Path(os.path.abspath(whole))
    folder = os.path.abspath(base)
    if absolute.is_relative_to(folder):
        return absolute.relative_to(folder)
    return PurePath(*absolute.parts[1:])


def has_namesake(image: str | os.PathLike[str]) -> bool:
    """Whether an image of another format has the same name: ``a.jpg`` beside ``a.png``."""
    if is_url(image):
        return False
    stem, suffix = os.path.splitext(os.fspath(image))
    others = [x.upper() if suffix.isupper() else x for x in SUFFIXES]
    return any(os.path.exists(stem + other) for other in others if other != suffix)


def checked_name(name: str, where: str) -> str:
    """A name that somebody gave, unless it would lead out of the folder of the results."""
    path = PurePath(name)
    if not name or path.is_absolute() or ".." in path.parts or not path.name:
        raise InputError(
            f"{where}: '{shortened(name)}' is not a name for results",
            "Give a relative path without '..', such as seq1/000001",
        )
    return path.as_posix()
