"""Pairs of folders and patterns."""

from __future__ import annotations

import os

import pytest

from hybridstereo.batch.folders import pairs_below, pairs_of_folders, pairs_of_patterns
from hybridstereo.errors import InputError


def made(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def found(source, root):
    return {
        pair.name: (os.path.relpath(pair.left, root), os.path.relpath(pair.right, root))
        for pair in source
    }


def test_kitti(tmp_path):
    made(tmp_path, *(
        f"{split}/{folder}/00000{n}_10.png"
        for split in ("training", "testing")
        for folder in ("image_0", "image_1", "image_2", "image_3", "disp_noc_0")
        for n in (0, 1)
    ))  # fmt: skip
    pairs = found(pairs_below(tmp_path), tmp_path)
    assert list(pairs) == [
        "testing/000000_10", "testing/000001_10", "training/000000_10", "training/000001_10",
    ]  # fmt: skip
    assert pairs["testing/000001_10"] == (
        "testing/image_2/000001_10.png", "testing/image_3/000001_10.png",
    )  # fmt: skip
    assert list(found(pairs_below(tmp_path / "testing"), tmp_path)) == ["000000_10", "000001_10"]


def test_grey_kitti_and_raw_kitti(tmp_path):
    made(tmp_path, "a/image_0/0.png", "a/image_1/0.png")
    made(tmp_path, "b/image_02/data/7.png", "b/image_03/data/7.png", "b/image_02/timestamps.txt")
    assert found(pairs_below(tmp_path), tmp_path) == {
        "a/0": ("a/image_0/0.png", "a/image_1/0.png"),
        "b/data/7": ("b/image_02/data/7.png", "b/image_03/data/7.png"),
    }


def test_middlebury(tmp_path):
    made(tmp_path, "Q/Teddy/im0.png", "Q/Teddy/im1.png", "Q/Teddy/mask0nocc.png", "Q/Half/im0.png")
    made(tmp_path, "2006/Aloe/Illum1/Exp0/view1.png", "2006/Aloe/Illum1/Exp0/view5.png")
    assert found(pairs_below(tmp_path), tmp_path) == {
        "2006/Aloe/Illum1/Exp0": (
            "2006/Aloe/Illum1/Exp0/view1.png", "2006/Aloe/Illum1/Exp0/view5.png",
        ),
        "Q/Teddy": ("Q/Teddy/im0.png", "Q/Teddy/im1.png"),
    }  # fmt: skip
    assert list(found(pairs_below(tmp_path / "Q/Teddy"), tmp_path)) == ["Teddy"]


def test_left_and_right_in_the_names(tmp_path):
    made(tmp_path, "s/1_left.png", "s/1_right.png", "s/2_left.jpg", "s/2_left.png", "s/2_right.jpg")
    made(tmp_path, ".hidden/1_left.png", ".hidden/1_right.png", "out/a_left.png", "out/a_right.png")
    pairs = found(pairs_below(tmp_path, without=tmp_path / "out"), tmp_path)
    assert pairs == {
        "s/1_left": ("s/1_left.png", "s/1_right.png"),
        "s/2_left.jpg": ("s/2_left.jpg", "s/2_right.jpg"),
    }


def test_a_link_to_a_folder_above(tmp_path):
    made(tmp_path, "a/left/1.png", "a/right/1.png")
    (tmp_path / "a/again").symlink_to(tmp_path)
    assert list(found(pairs_below(tmp_path), tmp_path)) == ["a/1"]


def test_two_folders(tmp_path):
    made(tmp_path, "l/1.png", "r/1.png", "l/b/2.png", "r/b/2.jpg", "l/3_left.png", "r/3_right.png")
    made(tmp_path, "l/4.png", "r/5.png", "l/notes.txt")
    assert found(pairs_of_folders(tmp_path / "l", tmp_path / "r"), tmp_path) == {
        "1": ("l/1.png", "r/1.png"),
        "3_left": ("l/3_left.png", "r/3_right.png"),
        "4": ("l/4.png", "r/4.png"),  # not there: fails when it is read
        "b/2": ("l/b/2.png", "r/b/2.jpg"),
    }


def test_one_folder_twice(tmp_path):
    made(tmp_path, "1_l.png", "1_r.png", "2.png")
    assert found(pairs_of_folders(tmp_path, tmp_path), tmp_path) == {"1_l": ("1_l.png", "1_r.png")}


def test_patterns(tmp_path):
    made(tmp_path, "s1/l/a1.png", "s1/r/b1.png", "s2/l/a9.png", "s2/l/x.png")
    pairs = pairs_of_patterns(f"{tmp_path}/s*/l/a[0-9].png", f"{tmp_path}/s*/r/b[0-9].png")
    assert found(pairs, tmp_path) == {
        "s1/l/a1": ("s1/l/a1.png", "s1/r/b1.png"),
        "s2/l/a9": ("s2/l/a9.png", "s2/r/b9.png"),
    }
    anywhere = pairs_of_patterns(f"{tmp_path}/**/a?.png", f"{tmp_path}/**/z?.png")
    assert found(anywhere, tmp_path)["s1/l/a1"][1] == "s1/l/z1.png"
    with pytest.raises(InputError, match="has 1 wildcards but"):
        pairs_of_patterns("l/*.png", "r/*/*.png")


@pytest.mark.parametrize("find", [pairs_below, lambda path: pairs_of_folders(".", path)])
def test_a_folder_that_is_not_there(tmp_path, find):
    with pytest.raises(InputError, match="does not exist"):
        find(tmp_path / "no")
