"""Names of pairs: a pair's own, whichever other pairs there are."""

from __future__ import annotations

from weakref import WeakSet

import pytest

from hybridstereo.batch.pairs import Pair, PairSource, distinct, name_of, sharded
from hybridstereo.errors import InputError


def test_the_same_stem_in_different_folders(tmp_path):
    names = {
        name_of(f"{folder}/left/0001.png", f"{folder}/right/0001.png", tmp_path)
        for folder in ("a", "b", "a/b", "/elsewhere", "../up")
    }
    assert len(names) == 5
    assert {"a/left/0001", "b/left/0001", "a/b/left/0001", "elsewhere/left/0001"} < names
    assert not any(name.startswith(("/", "..")) for name in names)


def test_one_left_image_with_several_right_ones(tmp_path):
    names = [name_of("cam1/7.png", f"cam{n}/7.png", tmp_path) for n in (2, 3)]
    assert names[0] != names[1]
    assert all(name.startswith("cam1/7-") for name in names)
    assert names[0] == name_of(str(tmp_path / "cam1/7.png"), "./cam2/7.png", tmp_path)


def test_images_that_differ_in_their_format_only(tmp_path):
    (tmp_path / "left").mkdir()
    for name in ("a.png", "a.jpg", "b.png"):
        (tmp_path / "left" / name).touch()
    pairs = [(f"left/{name}", f"right/{name}") for name in ("a.png", "a.jpg", "b.png")]
    assert [name_of(*pair, tmp_path) for pair in pairs] == ["left/a.png", "left/a.jpg", "left/b"]


def numbered(count):
    return (Pair(str(n), f"l{n}.png", f"r{n}.png") for n in range(count))


def test_two_pairs_of_one_name_are_refused():
    pairs = distinct([Pair("a", "1", "2"), Pair("b", "3", "4"), Pair("A", "5", "6")])
    assert [next(pairs).name, next(pairs).name] == ["a", "b"]
    with pytest.raises(InputError, match="Two pairs are called A; the second one is 5 and 6"):
        next(pairs)


def test_shards_are_disjoint_and_complete():
    shards = [[pair.name for pair in sharded(numbered(11), i, 4)] for i in (1, 2, 3, 4)]
    assert shards[0] == ["0", "4", "8"]
    assert sorted((name for shard in shards for name in shard), key=int) == [
        str(n) for n in range(11)
    ]
    with pytest.raises(InputError, match="no shard 5 of 4"):
        sharded(numbered(3), 5, 4)


def test_pairs_are_not_held():
    alive = WeakSet()

    def counted():
        for pair in numbered(300):
            alive.add(pair)
            yield pair

    source = PairSource("all", counted)
    assert source.count() == 300
    most = max(len(alive) for _ in sharded(source, 1, 3))
    assert most <= 3
