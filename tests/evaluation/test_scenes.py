"""Which scenes there are, and which file belongs to which."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from support.pairfiles import H, W, constant_disparity, csv_files, kitti_frame, tidy_scene

from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.pair import truth_pair
from hybridstereo.errors import InputError
from hybridstereo.evaluation.scenes import (
    MAP_SUFFIXES,
    dataset_scenes,
    find_file,
    folder_scenes,
    load_files,
    select_scenes,
)


def scene_names(scenes):
    return [scene.name for scene in scenes]


def test_names_are_as_short_as_possible(tmp_path):
    tidy_scene(tmp_path / "trainingQ" / "Teddy")
    tidy_scene(tmp_path / "trainingQ" / "Pipes")
    scenes = dataset_scenes(open_dataset("middlebury", tmp_path))
    assert scene_names(scenes) == ["Pipes", "Teddy"]
    tidy_scene(tmp_path / "trainingH" / "Teddy")
    scenes = dataset_scenes(open_dataset("middlebury", tmp_path))
    assert scene_names(scenes) == ["trainingH/Teddy", "trainingQ/Pipes", "trainingQ/Teddy"]


def test_pair_of_a_middlebury_scene(tmp_path):
    tidy_scene(tmp_path / "Teddy", calib="ndisp = 16\nisint = 1")
    pair = dataset_scenes(open_dataset("middlebury", tmp_path))[0].load()
    assert (pair.search_range, pair.isint, pair.dmax) == (16, True, 4.0)
    assert pair.covers_occluded
    assert pair.images()[0].shape == (H, W, 3)


def test_pair_of_a_kitti_frame(tmp_path):
    kitti_frame(tmp_path / "training")
    scene = dataset_scenes(open_dataset("kitti", tmp_path))[0]
    pair = scene.load()
    assert scene.name == "000000_10"
    assert pair.search_range == 256
    assert np.isfinite(pair.disparity).all()
    assert not pair.valid[1].any()


def test_keys_of_a_list_are_the_left_images(tmp_path):
    csv_files(tmp_path)
    (tmp_path / "pairs.csv").write_text("a/left.png,a/right.png,a/truth.pfm\n")
    scene = dataset_scenes(open_dataset("csv", tmp_path / "pairs.csv"))[0]
    assert scene.keys == ("left",)
    assert scene.load().search_range == 5  # enough for the truth


def test_folder_of_files(tmp_path):
    for name in ("b.pfm", "a.png"):
        constant_disparity(tmp_path / name)
    (tmp_path / "notes.txt").write_text("")
    scenes = folder_scenes(tmp_path)
    assert scene_names(scenes) == ["a", "b"]
    assert not scenes[0].load().knows_occlusion


def test_folder_of_middlebury_scenes(tmp_path):
    tidy_scene(tmp_path / "Teddy")
    cv2.imwrite(str(tmp_path / "Teddy" / "mask0nocc.png"), np.full((H, W), 255, np.uint8))
    pair = folder_scenes(tmp_path)[0].load()
    assert pair.ndisp == 16
    assert pair.knows_occlusion
    assert pair.valid[1:].all()
    assert pair.has_left
    with pytest.raises(InputError, match="images"):
        pair.images()


def test_folder_of_masks(tmp_path):
    constant_disparity(tmp_path / "gt" / "a.pfm")
    masks = tmp_path / "masks"
    masks.mkdir()
    with pytest.raises(InputError, match="mask of a"):
        folder_scenes(tmp_path / "gt", masks)
    cv2.imwrite(str(masks / "a.png"), np.zeros((H, W), np.uint8))
    assert not folder_scenes(tmp_path / "gt", masks)[0].load().valid.any()


def test_mask_of_another_size(tmp_path):
    constant_disparity(tmp_path / "a.pfm")
    cv2.imwrite(str(tmp_path / "m.png"), np.zeros((H, W + 1), np.uint8))
    with pytest.raises(InputError, match="31x20"):
        load_files(tmp_path / "a.pfm", tmp_path / "m.png")


def test_useless_folders(tmp_path):
    with pytest.raises(InputError, match=r"not a folder.*`gt`"):
        folder_scenes(tmp_path / "no")
    with pytest.raises(InputError, match="no disparity maps"):
        folder_scenes(tmp_path)
    constant_disparity(tmp_path / "a.pfm")
    constant_disparity(tmp_path / "a.npy")
    with pytest.raises(InputError, match="several truth maps named a"):
        folder_scenes(tmp_path)


def test_selection(tmp_path):
    for name in ("a1", "a2", "b1"):
        constant_disparity(tmp_path / f"{name}.pfm")
    scenes = folder_scenes(tmp_path)
    assert scene_names(select_scenes(scenes, ["a*"], None)) == ["a1", "a2"]
    assert scene_names(select_scenes(scenes, ["b1", "a2"], None)) == ["a2", "b1"]
    assert scene_names(select_scenes(scenes, [], 2)) == ["a1", "a2"]
    with pytest.raises(InputError, match="'c'"):
        select_scenes(scenes, ["c"], None)


def test_maps_are_found_by_name(tmp_path):
    constant_disparity(tmp_path / "x.png")
    constant_disparity(tmp_path / "deep" / "x.pfm")
    constant_disparity(tmp_path / "Teddy" / "disp0mine.pfm")
    constant_disparity(tmp_path / "Teddy" / "disp0GT.pfm")
    assert find_file(tmp_path, ["deep/x", "x"], MAP_SUFFIXES) == tmp_path / "deep" / "x.pfm"
    assert find_file(tmp_path, ["y/x", "x"], MAP_SUFFIXES) == tmp_path / "x.png"
    assert find_file(tmp_path, ["Teddy"], MAP_SUFFIXES).name == "disp0mine.pfm"
    constant_disparity(tmp_path / "x.pfm")
    with pytest.raises(InputError, match="several"):
        find_file(tmp_path, ["x"], MAP_SUFFIXES)
    with pytest.raises(InputError, match=r"no file z\.pfm"):
        find_file(tmp_path, ["z"], MAP_SUFFIXES)


def test_pair_without_any_truth():
    pair = truth_pair(np.full((2, 2), np.inf, np.float32))
    assert (pair.dmax, pair.search_range) == (0.0, 1)
