"""Middlebury: every kind of download in a small folder, and the real scenes."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from support.pairfiles import H, W, constant_disparity, names, only_pair, picture, tidy_scene

from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.middlebury import scene_name
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
    picture(scene / "Illum1" / "Exp0" / "view1.png")  # a further exposure, without truth
    dataset = open_dataset("middlebury", tmp_path)
    assert dataset.warnings == ()
    pair = only_pair(dataset)
    assert pair.ndisp == -(-256 // divisor)
    assert np.isinf(pair.disparity[0]).all()
    np.testing.assert_allclose(pair.disparity[1:], 5 + 1 / divisor, rtol=1e-6)
    assert not pair.valid[:, :5].any()
    assert pair.valid[1:, 7:].all()
    assert (pair.right_disparity is not None) == (right_truth is not None)


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
    # There the images lie in folders of their lights and exposures, which are not read yet.
    assert all("middlebury-light" in warning for warning in dataset.warnings)
    assert len(dataset.samples) == 7 + 7 + 2 + 6 + 20 + 4
    wanted = ("MiddEval3/trainingQ/Pipes", "middlebury-2001/tsukuba", "middlebury-2006/Baby1")
    for sample in (s for s in dataset.samples if s.name in wanted):
        pair = dataset.load(sample)
        assert 0.6 < pair.valid.mean() < 1
        assert (pair.right_disparity is not None) == (sample.name == wanted[2])
        assert pair.ndisp == (75 if "Pipes" in sample.name else None)


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
