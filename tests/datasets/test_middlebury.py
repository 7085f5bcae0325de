"""Middlebury: every kind of download in a small folder, and the real scenes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.pairfiles import (
    H,
    W,
    constant_disparity,
    lit_scene,
    names,
    only_pair,
    picture,
    tidy_scene,
)

from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.middlebury import scene_name
from hybridstereo.datasets.samples import Conditions
from hybridstereo.errors import InputError
from hybridstereo.synthetic import SceneOptions, generate_scene, write_scene


def test_middlebury_v3(tmp_path: Path) -> None:
    scene = tmp_path / "MiddEval3" / "trainingQ" / "Teddy"
    tidy_scene(scene, calib=" ndisp = 16 \n\n isint= 1")
    mask = np.full((H, W), 255, np.uint8)
    mask[5] = 128
    assert cv2.imwrite(str(scene / "mask0nocc.png"), mask)
    picture(tmp_path / "MiddEval3" / "testQ" / "Australia" / "im0.png")
    for root in (tmp_path, scene.parent, scene):
        dataset = open_dataset("middlebury", root)
        assert dataset.warnings == ()
        pair = only_pair(dataset)
        assert pair.ndisp == 16
        assert pair.isint
        assert np.flatnonzero(~pair.valid.all(axis=1)).tolist() == [0, 5]  # unknown, occluded
    assert names(open_dataset("middlebury", tmp_path).samples) == ["MiddEval3/trainingQ/Teddy"]
    assert names(open_dataset("middlebury", scene).samples) == ["Teddy"]


def test_middlebury_2014_left_right_check(tmp_path: Path) -> None:
    scene = tmp_path / "Piano-perfect"
    tidy_scene(scene, truth="disp0.pfm")
    constant_disparity(scene / "disp1.pfm", unknown_row=None)
    dataset = open_dataset("middlebury", tmp_path)
    assert dataset.samples[0].scene == "middlebury/piano"
    pair = only_pair(dataset)
    assert pair.right_valid is not None
    assert not pair.valid[:, :4].any()
    assert not pair.right_valid[:, -4:].any()
    assert pair.valid[1:, 4:].all()
    assert pair.right_valid[1:, :-4].all()


@pytest.mark.parametrize(
    ("files", "height", "divisor"),
    [
        (("view1.png", "view5.png", "disp1.png", "disp5.png"), 370, 3),
        (("view1.png", "view5.png", "disp1.png", "disp5.png"), 555, 2),
        (("view1.png", "view5.png", "disp1.png", "disp5.png"), 1110, 1),
        (("im2.png", "im6.png", "disp2.png", "disp6.png"), 375, 4),
        (("im2.png", "im6.png", "disp2.png", "disp6.png"), 750, 2),
        (("im2.ppm", "im6.ppm", "disp2.pgm", "disp6.pgm"), 375, 4),
        (("im2.ppm", "im6.ppm", "disp2.pgm", "disp6.pgm"), 381, 8),
        (
            ("scene1.row3.col3.ppm", "scene1.row3.col4.ppm", "truedisp.row3.col3.pgm", None),
            288,
            16,
        ),
    ],
)
def test_middlebury_original_downloads(
    tmp_path: Path, files: tuple[str | None, ...], height: int, divisor: int
) -> None:
    left, right, truth, right_truth = files
    scene = tmp_path / "Scene"
    for view in (left, right):
        picture(scene / str(view), 90, (height, 40, 3))
    stored = np.full((height, 40), 5 * divisor + 1, np.uint8)
    stored[0] = 0
    for name in (truth, right_truth):
        if name is not None:
            assert cv2.imwrite(str(scene / name), stored)
    dataset = open_dataset("middlebury", tmp_path)
    assert dataset.warnings == ()
    pair = only_pair(dataset)
    assert pair.ndisp == -(-256 // divisor)
    assert np.isinf(pair.disparity[0]).all()
    np.testing.assert_allclose(pair.disparity[1:], 5 + 1 / divisor, rtol=1e-6)
    assert not pair.valid[:, :5].any()
    assert pair.valid[1:, 7:].all()
    assert (pair.right_disparity is not None) == (right_truth is not None)


NINE = [f"Illum{light}/Exp{exposure}" for light in (1, 2, 3) for exposure in (0, 1, 2)]


@pytest.mark.parametrize(
    ("conditions", "suffixes"),
    [
        (NINE, ["I2E1", "I1E1-I3E1"]),
        (NINE[3:], ["I3E1", "I2E1-I3E1"]),
        (NINE[3:6], ["I2E1", "I2E1-I2E2"]),
        (NINE[:2], ["I1E1", "I1E0-I1E1"]),
        (NINE[:1], ["I1E0"]),
        (["Illum2/Exp9", "Illum2/Exp10", "Illum2/Exp11"], ["I2E10", "I2E10-I2E11"]),
    ],
)
def test_middlebury_conditions(tmp_path: Path, conditions: list[str], suffixes: list[str]) -> None:
    lit_scene(tmp_path / "m" / "Art", conditions)
    dataset = open_dataset("middlebury", tmp_path)
    assert dataset.warnings == ()
    assert names(dataset.samples) == [f"m/Art-{suffix}" for suffix in suffixes]
    assert {sample.scene for sample in dataset.samples} == {"middlebury/art"}
    for sample, suffix in zip(dataset.samples, suffixes, strict=True):
        pair = dataset.load(sample)
        first, second = (suffix.split("-") * 2)[:2]
        place = [c.replace("Illum", "I").replace("/Exp", "E") for c in conditions].index
        assert pair.left[0, 0, 0] == np.float32(10 * place(first)) / np.float32(255)
        assert pair.right[0, 0, 0] == np.float32(10 * place(second) + 1) / np.float32(255)
        assert pair.ndisp == 86
        assert (pair.disparity == 5).all()
        assert pair.right_disparity is not None
        assert sample.conditions is not None
        assert len(sample.conditions.left) == len(conditions)
        assert sample.conditions.differ == (first != second)


def test_middlebury_conditions_that_are_drawn(tmp_path: Path) -> None:
    lit_scene(tmp_path / "Art", NINE[:3])
    same, different = (s.conditions for s in open_dataset("middlebury", tmp_path).samples)
    assert same is not None
    assert different is not None
    rng = np.random.default_rng(0)

    def drawn(conditions: Conditions) -> dict[tuple[str, str], int]:
        pairs = (conditions.draw(rng) for _ in range(600))
        return Counter((left.parent.name, right.parent.name) for left, right in pairs)

    counts = drawn(same)
    assert set(counts) == {(e, e) for e in ("Exp0", "Exp1", "Exp2")}
    assert min(counts.values()) > 150  # 200 on average, with a standard deviation of 12
    counts = drawn(different)
    exposures = ("Exp0", "Exp1", "Exp2")
    assert set(counts) == {(a, b) for a in exposures for b in exposures if a != b}
    assert min(counts.values()) > 60


def test_middlebury_conditions_beside_the_views_of_the_scene(tmp_path: Path) -> None:
    lit_scene(tmp_path / "Art", NINE[:3])
    for view in ("view1.png", "view5.png"):
        picture(tmp_path / "Art" / view, 90, (370, 24, 3))
    mask = np.full((370, 24), 255, np.uint8)
    mask[7] = 128
    assert cv2.imwrite(str(tmp_path / "Art" / "mask0nocc.png"), mask)
    dataset = open_dataset("middlebury", tmp_path)
    assert names(dataset.samples) == ["Art", "Art-I1E1", "Art-I1E1-I1E2"]
    assert [sample.conditions is None for sample in dataset.samples] == [True, False, False]
    assert not any(dataset.load(sample).valid[7].any() for sample in dataset.samples)


def test_middlebury_incomplete_conditions(tmp_path: Path) -> None:
    lit_scene(tmp_path / "Art", NINE[:3])
    (tmp_path / "Art" / NINE[1] / "view5.png").unlink()
    (tmp_path / "Art" / "Illum1" / "ExpX").mkdir()
    dataset = open_dataset("middlebury", tmp_path)
    assert dataset.warnings == (f"{tmp_path / 'Art' / NINE[1]} is left out: view5.png missing",)
    assert names(dataset.samples) == ["Art-I1E2", "Art-I1E0-I1E2"]
    (tmp_path / "Art" / "disp1.png").unlink()
    with pytest.raises(InputError, match="no usable pair"):
        open_dataset("middlebury", tmp_path)


def test_middlebury_unknown_size_of_original(tmp_path: Path) -> None:
    for view in ("view1.png", "view5.png"):
        picture(tmp_path / view)
    picture(tmp_path / "disp1.png", 30, (H, W))
    dataset = open_dataset("middlebury", tmp_path)
    with pytest.raises(InputError, match="has 20 rows, so the unit of its truth is unknown"):
        dataset.load(dataset.samples[0])


def test_middlebury_coloured_truth(tmp_path: Path) -> None:
    for view in ("view1.png", "view5.png", "disp1.png"):
        picture(tmp_path / view, 30, (370, 20, 3))
    dataset = open_dataset("middlebury", tmp_path)
    with pytest.raises(InputError, match=r"disp1\.png is not a disparity map"):
        dataset.load(dataset.samples[0])


def test_middlebury_what_synth_writes(tmp_path: Path) -> None:
    scene = generate_scene(3, SceneOptions(40, 60, max_disparity=12, objects=3))
    write_scene(tmp_path, scene)
    pair = only_pair(open_dataset("middlebury", tmp_path))
    np.testing.assert_array_equal(pair.disparity, scene.disparity)
    np.testing.assert_array_equal(pair.valid, ~scene.occlusion)
    assert pair.ndisp == 13


def test_middlebury_partial_and_nothing(tmp_path: Path) -> None:
    tidy_scene(tmp_path / "Good")
    tidy_scene(tmp_path / "Bad")
    (tmp_path / "Bad" / "im1.png").unlink()
    dataset = open_dataset("middlebury", tmp_path)
    assert names(dataset.samples) == ["Good"]
    assert dataset.warnings == (f"{tmp_path / 'Bad'} is left out: im1.png missing",)
    with pytest.raises(InputError) as caught:
        open_dataset("middlebury", tmp_path / "Bad")
    assert "im1.png missing" in caught.value.message
    (tmp_path / "Bad" / "disp0GT.pfm").unlink()
    with pytest.raises(InputError, match=r"im1\.png, disp0GT\.pfm missing"):
        open_dataset("middlebury", tmp_path / "Bad")


def test_middlebury_not_too_deep(tmp_path: Path) -> None:
    tidy_scene(tmp_path / "a" / "b" / "c" / "Scene")
    tidy_scene(tmp_path / "a" / "b" / "c" / "d" / "Deeper")
    assert names(open_dataset("middlebury", tmp_path).samples) == ["a/b/c/Scene"]


@pytest.mark.parametrize(
    ("folder", "scene"),
    [
        ("Teddy", "teddy"),
        ("teddyF", "teddy"),
        ("ArtL", "art"),
        ("Art", "art"),
        ("MotorcycleE", "motorcycle"),
        ("PianoL", "piano"),
        ("PlaytableP", "playtable"),
        ("Classroom2E", "classroom2"),
        ("Piano-imperfect", "piano"),
        ("Piano-perfect", "piano"),
        ("Baby1", "baby1"),
        ("bull", "bull"),
    ],
)
def test_scene_name(folder: str, scene: str) -> None:
    assert scene_name(folder) == scene


@pytest.mark.shared
def test_real_middlebury(shared: Path) -> None:
    dataset = open_dataset("middlebury", shared / "data")
    assert dataset.warnings == ()
    lit = [sample for sample in dataset.samples if sample.conditions is not None]
    assert len(dataset.samples) == 7 + 7 + 2 + 6 + 20 + 4 + len(lit)
    assert len(lit) == 2 * 12
    assert {sample.scene for sample in lit} <= {s.scene for s in dataset.samples if s not in lit}
    wanted = ("MiddEval3/trainingQ/Pipes", "middlebury-2001/tsukuba", "middlebury-2006/Baby1")
    for sample in (s for s in dataset.samples if s.name in wanted):
        pair = dataset.load(sample)
        assert 0.6 < pair.valid.mean() < 1
        assert (pair.right_disparity is not None) == (sample.name == wanted[2])
        assert pair.ndisp == (75 if "Pipes" in sample.name else None)


@pytest.mark.shared
def test_real_conditions(shared: Path) -> None:
    dataset = open_dataset("middlebury", shared / "data" / "middlebury-light")
    assert sum(len(s.conditions.left) for s in dataset.samples if s.conditions) == 2 * 69
    plain = open_dataset("middlebury", shared / "data" / "middlebury-2006" / "Baby1").samples[0]
    truth = plain.read()
    for sample in (s for s in dataset.samples if s.name.startswith("Baby1-")):
        pair = dataset.load(sample)
        assert pair.ndisp == 86
        known = np.isfinite(pair.disparity) & np.isfinite(truth.disparity)
        assert known.mean() > 0.9
        difference = np.abs(pair.disparity[known] - truth.disparity[known])
        assert np.mean(difference < 0.34) > 0.95  # they were reduced in different ways


@pytest.mark.shared
def test_real_geometry_matches_the_pixels(shared: Path) -> None:
    """The right image, warped by the truth, looks like the left one; by the flipped sign, not."""
    dataset = open_dataset("middlebury", shared / "data" / "middlebury-2005")
    pair = dataset.load(dataset.samples[0])
    rows, columns = np.nonzero(pair.valid)
    d = np.rint(pair.disparity[rows, columns]).astype(int)

    def difference(match: np.ndarray) -> float:
        inside = (match >= 0) & (match < pair.width)
        right = pair.right[rows[inside], match[inside]]
        return float(np.abs(pair.left[rows[inside], columns[inside]] - right).mean())

    assert difference(columns - d) < 0.4 * difference(columns + d)
