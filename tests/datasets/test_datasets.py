"""Data sets by name: mixtures, roots, generated scenes and splits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.pairfiles import csv_files, kitti_frame, names, tidy_scene

from hybridstereo import datasets
from hybridstereo.cli import cli
from hybridstereo.datasets import (
    Dataset,
    Sample,
    StereoPair,
    open_dataset,
    parse_roots,
    split,
    split_named,
    take_out,
)
from hybridstereo.datasets.splits import scenes_named
from hybridstereo.errors import InputError
from hybridstereo.evaluation.protocol import RULES
from hybridstereo.synthetic import SceneOptions, generate_scene


def test_synthetic() -> None:
    options = SceneOptions(40, 60, max_disparity=12, objects=3)
    dataset = open_dataset("synthetic", scenes=2, scene_options=options)
    first, second = (dataset.load(sample) for sample in dataset.samples)
    scene = generate_scene(0, options)
    np.testing.assert_array_equal(first.disparity, scene.disparity)
    np.testing.assert_array_equal(first.valid, ~scene.occlusion)
    np.testing.assert_allclose(first.left, scene.left, atol=0.5 / 255 + 1e-6)
    np.testing.assert_array_equal(first.left, dataset.load(dataset.samples[0]).left)
    assert first.ndisp == 13
    assert first.right_valid is not None
    assert 0.5 < first.right_valid.mean() < 1
    assert not np.array_equal(first.left, second.left)
    with pytest.raises(InputError, match="number of synthetic scenes"):
        open_dataset("synthetic", scenes=0)


def test_synthetic_has_plain_scenes_after_the_others() -> None:
    options = SceneOptions(40, 60, max_disparity=12, objects=3)
    samples = open_dataset("synthetic", scenes=9, scene_options=options).samples
    assert names(samples[:9]) == [f"seed {seed}" for seed in range(9)]
    assert names(samples[9:]) == ["plain seed 0", "plain seed 1"]
    assert [sample.scene for sample in samples[8:]] == [
        "synthetic/8",
        "synthetic/plain-0",
        "synthetic/plain-1",
    ]
    plain = replace(options, plain=True)
    np.testing.assert_array_equal(samples[10].read().disparity, generate_scene(1, plain).disparity)
    assert len(open_dataset("synthetic", scenes=9, scene_options=plain).samples) == 9
    assert len(open_dataset("synthetic").samples) == 200 + 50  # as data/README.md says


def test_mixture(tmp_path: Path) -> None:
    tidy_scene(tmp_path / "m" / "Teddy")
    csv_files(tmp_path)
    (tmp_path / "pairs.csv").write_text("a/left.png,a/right.png,a/truth.pfm\n")
    dataset = open_dataset(
        "synthetic : 1, middlebury:2,csv:0.5",
        {"middlebury": tmp_path / "m", "csv": tmp_path / "pairs.csv"},
        scenes=3,
    )
    assert dataset.weights == {"synthetic": 1, "middlebury": 2, "csv": 0.5}
    sources = [sample.source for sample in dataset.samples]
    assert sources == ["synthetic"] * 3 + ["middlebury", "csv"]


def test_one_root_for_a_mixture(tmp_path: Path) -> None:
    tidy_scene(tmp_path / "Teddy")
    kitti_frame(tmp_path / "training")
    dataset = open_dataset("middlebury,kitti,synthetic", str(tmp_path), scenes=1)
    assert [s.source for s in dataset.samples] == ["middlebury", "kitti", "synthetic"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "there is no data set ''"),
        ("Kitti", "there is no data set 'Kitti'"),
        ("synthetic,", "there is no data set ''"),
        ("synthetic,synthetic:2", "appears twice"),
        ("synthetic:", "not a positive number"),
        ("synthetic:0", "not a positive number"),
        ("synthetic:nan", "not a positive number"),
        ("synthetic:inf", "not a positive number"),
        ("synthetic:many", "not a positive number"),
    ],
)
def test_wrong_specification(spec: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        open_dataset(spec)
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["kitti", "middlebury", "csv"])
def test_root_missing_or_empty(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name} needs to know where") as caught:
        open_dataset(name)
    assert f"`root={name}=DIR`" in str(caught.value.hint)
    with pytest.raises(InputError, match=r"none, the root of .*, does not exist") as caught:
        open_dataset(name, tmp_path / "none")
    assert "Expected" in str(caught.value.hint)
    with pytest.raises(InputError):
        open_dataset(name, tmp_path)


def test_root_for_something_else() -> None:
    with pytest.raises(InputError, match="kitti, which is not in the mixture"):
        open_dataset("synthetic", {"kitti": "/data"})


def test_parse_roots() -> None:
    assert parse_roots([]) is None
    assert parse_roots(["/data"]) == ("/data",)
    assert parse_roots(["/data=2", "/more"]) == ("/data=2", "/more")
    assert parse_roots(["kitti=/k"]) == {"kitti": ("/k",)}
    assert parse_roots(["kitti=/k", "csv=a=b.csv", "kitti=/l"]) == {
        "kitti": ("/k", "/l"),
        "csv": ("a=b.csv",),
    }
    with pytest.raises(InputError, match="/data` does not say which data set"):
        parse_roots(["kitti=/k", "/data"])


def test_several_roots(tmp_path: Path) -> None:
    old, new = tmp_path / "kitti2012", tmp_path / "more"
    kitti_frame(old / "training", folders=("image_0", "image_1", "disp_noc", "disp_occ"))
    kitti_frame(new / "training")
    kitti_frame(new / "training", "000043_10.png")
    for roots in ((old, new), {"kitti": [str(old), str(new)]}, (old, new, new, tmp_path)):
        dataset = open_dataset("kitti", roots)
        assert names(dataset.samples) == ["2012/000000_10", "2015/000000_10", "2015/000043_10"]
        assert len({sample.scene for sample in dataset.samples}) == 3
    with pytest.raises(InputError, match="nothing, the root of kitti, does not exist"):
        open_dataset("kitti", (old, tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty holds no usable pair for the data set kitti"):
        open_dataset("kitti", (old, tmp_path / "empty"))


def test_pairs_of_the_same_name_in_several_roots(tmp_path: Path) -> None:
    for folder in ("a/Reindeer", "b/Reindeer", "b/Art"):
        tidy_scene(tmp_path / folder)
    dataset = open_dataset("middlebury", [tmp_path / "a", tmp_path / "b"])
    assert names(dataset.samples) == ["a/Reindeer", "Art", "b/Reindeer"]
    assert len({sample.scene for sample in dataset.samples}) == 2
    tidy_scene(tmp_path / "c" / "a" / "Reindeer")
    roots = [tmp_path / "a", tmp_path / "c" / "a"]
    found = names(open_dataset("middlebury", roots).samples)
    assert found == [f"{root.as_posix()}/Reindeer" for root in roots]


def test_names_are_all_known() -> None:
    assert set(datasets.NAMES) == {"kitti", "middlebury", "csv", "synthetic"}


@pytest.mark.parametrize("name", datasets.NAMES)
def test_what_is_known_about_a_data_set_fits_together(name: str) -> None:
    kind = datasets.KINDS[name]
    assert RULES[kind.rules].primary == ("d1_noc" if name == "kitti" else "bad1")
    assert kind.find is None or kind.expected.startswith("Expected ")


@pytest.mark.parametrize("command", ["train", "eval"])
def test_help_names_every_data_set(command: str) -> None:
    shown = CliRunner().invoke(cli, [command, "--help"]).output
    assert all(name in shown for name in datasets.NAMES)


def made_up(scenes: Iterable[tuple[str, str]]) -> Dataset:
    """Samples that cannot be read, with these sources and scenes."""

    def unreadable() -> StereoPair:
        raise AssertionError("a split reads nothing")

    samples = tuple(
        Sample(f"{source} {number}", scene, source, (), unreadable)
        for number, (source, scene) in enumerate(scenes)
    )
    return Dataset(samples, {sample.source: 1.0 for sample in samples})


def test_split_by_scene() -> None:
    dataset = made_up([("a", f"scene{i % 10}") for i in range(30)])
    training, validation = split(dataset, 0.2, seed=1)
    assert len(training) == 24
    assert len(validation) == 6
    assert not {s.scene for s in training} & {s.scene for s in validation}
    assert set(training) | set(validation) == set(dataset.samples)
    assert split(dataset, 0.2, seed=1) == (training, validation)
    chosen = {tuple(s.scene for s in split(dataset, 0.2, seed=seed)[1]) for seed in range(10)}
    assert len(chosen) > 3


def test_split_named() -> None:
    dataset = made_up([("a", "middlebury/teddy"), ("b", "middlebury/teddy"), ("b", "kitti/000001")])
    training, validation = split_named(dataset, ["Teddy"])
    assert [s.scene for s in training] == ["kitti/000001"]
    assert [s.scene for s in validation] == ["middlebury/teddy"] * 2
    assert split_named(dataset, ["kitti/000001"])[0] == validation
    with pytest.raises(InputError, match="no scene 'art'"):
        split_named(dataset, ["teddy", "art"])
    with pytest.raises(InputError, match="no scene is left"):
        split_named(dataset, ["teddy", "000001"])


KITTI_SCENES = [f"kitti2012/{number:06d}_10" for number in (139, 140, 147, 159, 169, 180)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["kitti2012/0001[4-6]*"], [140, 147, 159, 169]),
        (["00014[7-9]_10", "00015*"], [147, 159]),
        (["KITTI2012/000180_10"], [180]),
        (["*_10"], [139, 140, 147, 159, 169, 180]),
    ],
)
def test_names_may_be_patterns(names: list[str], expected: list[int]) -> None:
    dataset = made_up([("kitti", scene) for scene in KITTI_SCENES])
    found = sorted(scenes_named(dataset, names))
    assert [int(scene[10:16]) for scene in found] == expected


def test_the_same_frame_of_two_years_is_told_apart() -> None:
    dataset = made_up([("kitti", f"kitti{year}/000001_10") for year in (2012, 2015)])
    assert scenes_named(dataset, ["kitti2015/000001_10"]) == {"kitti2015/000001_10"}
    assert len(scenes_named(dataset, ["000001_10"])) == 2


def test_test_scenes_are_taken_out_first() -> None:
    dataset = made_up([("a", "m/teddy"), ("b", "m/teddy"), ("a", "m/art"), ("a", "m/cones")])
    rest, test = take_out(dataset, ["teddy"], ["art"])
    assert [s.scene for s in test] == ["m/teddy"] * 2
    assert [s.scene for s in rest.samples] == ["m/art", "m/cones"]
    assert rest.weights == dataset.weights
    assert take_out(dataset, [])[0].samples == dataset.samples
    with pytest.raises(InputError, match="m/art is named for validation and for testing"):
        take_out(dataset, ["ar*"], ["art"])
    with pytest.raises(InputError, match="no scene 'piano'"):
        take_out(dataset, ["piano"])
    with pytest.raises(InputError, match="no scene is left"):
        take_out(dataset, ["*"])


def test_split_does_not_depend_on_the_order_of_samples() -> None:
    scenes = [("a", f"scene{i}") for i in range(10)]
    forward, backward = (split(made_up(s), 0.3, 7)[1] for s in (scenes, scenes[::-1]))
    assert {s.scene for s in forward} == {s.scene for s in backward}


def test_split_is_pinned() -> None:
    # The published models' validation scenes must not change with a new version.
    dataset = made_up([("a", f"scene{i}") for i in range(10)])
    assert [s.scene for s in split(dataset, 0.2, 0)[1]] == ["scene8", "scene9"]


def test_split_takes_from_every_source_and_keeps_shared_scenes_together() -> None:
    scenes = [("a", f"a{i}") for i in range(100)]
    scenes += [("b", f"b{i}") for i in range(5)] + [("b", f"a{i}") for i in range(100)]
    dataset = made_up(scenes)
    training, validation = split(dataset, 0.2, seed=3)
    assert sum(s.scene.startswith("a") for s in validation) == 40
    assert sum(s.scene.startswith("b") for s in validation) == 1
    assert not {s.scene for s in training} & {s.scene for s in validation}


def test_split_limits() -> None:
    two = made_up([("a", "x"), ("a", "y")])
    assert split(two, 0.0, 0) == (two.samples, ())
    assert [len(side) for side in split(two, 0.01, 0)] == [1, 1]
    assert [len(side) for side in split(two, 0.99, 0)] == [1, 1]
    one = made_up([("a", "x")])
    with pytest.raises(InputError, match="1 scene cannot be divided"):
        split(one, 0.2, 0)
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match="validation fraction"):
            split(two, fraction, 0)


def test_split_of_a_lone_scene_beside_others_trains_on_it() -> None:
    dataset = made_up([("a", "x"), ("b", "y"), ("b", "z")])
    training, validation = split(dataset, 0.5, 0)
    assert "x" in {s.scene for s in training}
    assert len(validation) == 1


@pytest.mark.shared
def test_real_split_never_separates_versions_of_a_scene(shared: Path) -> None:
    dataset = open_dataset("middlebury", shared / "data")
    for seed in range(5):
        training, validation = split(dataset, 0.3, seed)
        sides = [{s.name.rsplit("/")[-1].lower() for s in side} for side in (training, validation)]
        assert not sides[0] & sides[1]
        for side in sides:
            assert ("art" in side) == ("artl" in side)
        for scene in ("baby1", "rocks2"):
            beside = {name for name in sides[0] | sides[1] if name.startswith(f"{scene}-")}
            assert len(beside) == 2
            assert beside <= sides[0] if scene in sides[0] else beside <= sides[1]
