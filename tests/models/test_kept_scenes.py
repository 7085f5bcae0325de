"""Validation and test scenes of the shipped models: apart from each other, by scene and place."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from kept_scenes import KITTI_FOLDERS, NEIGHBOURS, TEST, VALIDATION, groups_of

from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.splits import scenes_named

SCRIPT = Path(__file__).parents[2] / "tools" / "train_models.sh"


def names(groups) -> list[str]:
    return [name for group in groups for name in group.training_names]


def test_no_scene_is_named_twice():
    for one, other in combinations((VALIDATION, TEST, NEIGHBOURS), 2):
        assert set(names(one)).isdisjoint(names(other))
    assert len(set(names(TEST))) == len(names(TEST))


def test_the_test_block_has_no_trained_neighbour():
    block = next(group for group in TEST if group.folder == "kitti2012")
    frames = sorted(int(scene[:6]) for scene in block.scenes)
    beside = sorted(int(scene[:6]) for group in NEIGHBOURS for scene in group.scenes)
    assert beside[0] < frames[0] <= frames[-1] < beside[-1]
    others = [int(x[10:16]) for x in names(VALIDATION) if x.startswith("kitti2012/")]
    assert not [x for x in others if beside[0] <= x <= beside[-1]]


def test_the_training_script_takes_its_scenes_from_here():
    text = SCRIPT.read_text()
    assert "kept_scenes.py" in text
    assert not re.search(r"Jadeplant|Pipes|Adirondack|Teddy|00014", text)
    for folder in KITTI_FOLDERS:
        assert folder in text


@pytest.mark.shared
@pytest.mark.parametrize("dataset", ["middlebury", "kitti"])
def test_all_scenes_exist_once_below_the_data(shared, dataset):
    folders = {"middlebury": ["MiddEval3"], "kitti": KITTI_FOLDERS}[dataset]
    opened = open_dataset(dataset, [shared / "data" / folder for folder in folders])
    for groups in (VALIDATION, TEST, NEIGHBOURS):
        wanted = names(groups_of(groups, [dataset]))
        assert len(scenes_named(opened, wanted)) == len(wanted)


@pytest.mark.shared
def test_the_test_block_is_complete(shared):
    """All frames between the neighbours, so that none of the block is trained on."""
    opened = open_dataset("kitti", shared / "data/kitti2012")
    numbers = [int(sample.scene[10:16]) for sample in opened.samples]
    kept = {int(x[10:16]) for x in names((*TEST, *NEIGHBOURS)) if x.startswith("kitti2012/")}
    assert {x for x in numbers if min(kept) <= x <= max(kept)} == kept
