"""Data sets: every layout in a small generated folder, splits, mixtures, and the real data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from hybridstereo import datasets
from hybridstereo.datasets import Dataset, Sample, StereoPair, open_dataset, parse_roots, split
from hybridstereo.datasets_middlebury import scene_name
from hybridstereo.errors import InputError
from hybridstereo.io.disparity import write_disparity
from hybridstereo.io.mask import read_mask
from hybridstereo.stereopair import agree, build_pair, in_front
from hybridstereo.synthetic import SceneOptions, generate_scene, write_scene

H, W = 20, 30
INF = np.inf


def picture(path: Path, value: int = 100, shape: tuple[int, ...] = (H, W, 3)) -> None:
    """An image of one grey value; for OpenCV the suffix picks the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), np.full(shape, value, np.uint8))


def constant_disparity(path: Path, value: float = 4.0, unknown_row: int | None = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    disparity = np.full((H, W), value, np.float32)
    if unknown_row is not None:
        disparity[unknown_row] = INF
    write_disparity(path, disparity)


def only_pair(dataset: Dataset) -> StereoPair:
    assert len(dataset.samples) == 1
    return dataset.load(dataset.samples[0])


def names(samples: Iterable[Sample]) -> list[str]:
    return [sample.name for sample in samples]


# ------------------------------------------------------------------------------------- visibility


def two_planes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A foreground (d = 8, left columns 20 to 39) before a background (d = 2), 60 columns wide.

    Returns the truths of both views and where the left view's pixels are hidden in the right one.
    """
    left, right = np.full((3, 60), 2.0, np.float32), np.full((3, 60), 2.0, np.float32)
    left[:, 20:40] = 8.0
    right[:, 12:32] = 8.0
    hidden = np.zeros((3, 60), bool)
    hidden[:, :2] = True  # outside the right view
    hidden[:, 14:20] = True  # would be at right columns 12 to 17, behind the foreground
    return left, right, hidden


def test_agree_finds_the_hidden_columns() -> None:
    left, right, hidden = two_planes()
    np.testing.assert_array_equal(agree(left, right, -1), ~hidden)
    hidden_right = np.zeros_like(hidden)
    hidden_right[:, 58:] = True  # outside the left view
    hidden_right[:, 32:38] = True  # would be at left columns 34 to 39
    np.testing.assert_array_equal(agree(right, left, 1), ~hidden_right)


def test_in_front_finds_them_from_one_view() -> None:
    left, _, hidden = two_planes()
    np.testing.assert_array_equal(in_front(left), ~hidden)


def test_unknown_truth_is_never_visible() -> None:
    left, right, _ = two_planes()
    left[:, 25] = INF
    right[:, 20] = INF
    seen = agree(left, right, -1)
    assert not seen[:, 25].any()
    assert not seen[:, 28].any()  # its match is unknown
    assert not in_front(left)[:, 25].any()


def test_agree_between_two_pixels_of_the_other_view() -> None:
    left = np.full((1, 10), 2.5, np.float32)
    right = np.full((1, 10), 9.0, np.float32)
    right[0, 3] = 2.5
    assert np.flatnonzero(agree(left, right, -1)[0]).tolist() == [5, 6]  # matches 2.5 and 3.5


def test_build_pair_prefers_the_mask_then_both_truths() -> None:
    left, right, hidden = two_planes()
    image = np.zeros((3, 60, 3), np.float32)
    assert build_pair("p", image, image, left, visible=np.ones((3, 60), bool)).valid.all()
    pair = build_pair("p", image, image, left, right_disparity=right)
    np.testing.assert_array_equal(pair.valid, ~hidden)
    assert pair.right_valid is not None
    assert pair.right_valid.mean() == pytest.approx(52 / 60)
    assert build_pair("p", image, image, left).right_valid is None


@pytest.mark.parametrize("part", ["right", "disparity", "visible", "right_disparity"])
def test_build_pair_names_the_part_of_another_size(part: str) -> None:
    parts = {
        "left": np.zeros((4, 6, 3), np.float32),
        "right": np.zeros((4, 6, 3), np.float32),
        "disparity": np.zeros((4, 6), np.float32),
        "visible": np.ones((4, 6), bool),
        "right_disparity": np.zeros((4, 6), np.float32),
    }
    parts[part] = parts[part][:, :5]
    with pytest.raises(InputError, match=r"/scene: the left image is 6x4 but the .* is 5x4"):
        build_pair("/scene", **parts)


def test_search_range() -> None:
    image = np.zeros((1, 4, 3), np.float32)
    pair = build_pair("p", image, image, np.array([[3.0, 7.5, INF, 0.0]], np.float32))
    assert pair.search_range == 8
    assert replace(pair, ndisp=64).search_range == 64
    unknown = np.full((1, 4), INF, np.float32)
    assert build_pair("p", image, image, unknown).search_range == 1
    assert (pair.height, pair.width) == (1, 4)


# ------------------------------------------------------------------------------------------ masks


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (np.array([[0, 128, 255]], np.uint8), [False, False, True]),
        (np.array([[0, 1, 1]], np.uint8), [False, True, True]),
        (np.array([[0, 128, 0]], np.uint8), [False, False, False]),
        (np.array([[0, 255, 65535]], np.uint16), [False, False, True]),
        (np.full((1, 3, 3), 255, np.uint8), [True, True, True]),
    ],
)
def test_read_mask(tmp_path: Path, stored: np.ndarray, expected: list[bool]) -> None:
    path = tmp_path / "mask.png"
    assert cv2.imwrite(str(path), stored)
    assert read_mask(path)[0].tolist() == expected


def test_read_mask_of_floats(tmp_path: Path) -> None:
    path = tmp_path / "mask.tiff"
    assert cv2.imwrite(str(path), np.ones((2, 2), np.float32))
    with pytest.raises(InputError, match="not a mask"):
        read_mask(path)


# ------------------------------------------------------------------------------------------ KITTI


def kitti_frame(
    training: Path,
    frame: str = "000000_10.png",
    folders: tuple[str, ...] = ("image_2", "image_3", "disp_noc_0", "disp_occ_0"),
) -> None:
    left, right, noc, occ = folders
    picture(training / left / frame, 50)
    picture(training / right / frame, 60)
    constant_disparity(training / noc / frame, unknown_row=1)
    constant_disparity(training / occ / frame, unknown_row=None)


@pytest.mark.parametrize("root", ["", "training", ".."])
def test_kitti_2015(tmp_path: Path, root: str) -> None:
    base = tmp_path / "kitti"
    kitti_frame(base / "training")
    picture(base / "training" / "image_2" / "000000_11.png")  # the next moment, without truth
    dataset = open_dataset("kitti", base / root)
    assert dataset.warnings == ()
    assert names(dataset.samples) == ["2015/000000_10"]
    pair = only_pair(dataset)
    assert pair.left[0, 0].tolist() == [np.float32(50) / 255] * 3
    assert pair.right[0, 0, 0] == np.float32(60) / 255
    assert np.isfinite(pair.disparity).all()
    assert pair.valid.mean() == pytest.approx(1 - 1 / H)
    assert pair.covers_occluded
    assert pair.ndisp == 256
    assert pair.right_disparity is None


@pytest.mark.parametrize("views", [("colored_0", "colored_1"), ("image_0", "image_1")])
def test_kitti_2012(tmp_path: Path, views: tuple[str, str]) -> None:
    kitti_frame(tmp_path / "training", folders=(*views, "disp_noc", "disp_occ"))
    dataset = open_dataset("kitti", {"kitti": str(tmp_path)})
    assert [sample.scene for sample in dataset.samples] == ["kitti2012/000000_10"]
    assert only_pair(dataset).valid.mean() == pytest.approx(1 - 1 / H)


def test_kitti_2012_prefers_colour(tmp_path: Path) -> None:
    for views in (("image_0", "image_1"), ("colored_0", "colored_1")):
        kitti_frame(tmp_path / "training", folders=(*views, "disp_noc", "disp_occ"))
    (sample,) = open_dataset("kitti", tmp_path).samples
    assert sample.files[0].parent.name == "colored_0"


def test_kitti_both_years(tmp_path: Path) -> None:
    kitti_frame(tmp_path / "2015" / "training")
    folders = ("colored_0", "colored_1", "disp_noc", "disp_occ")
    kitti_frame(tmp_path / "2012" / "training", folders=folders)
    dataset = open_dataset("kitti", tmp_path)
    assert names(dataset.samples) == ["2012/000000_10", "2015/000000_10"]
    assert len({sample.scene for sample in dataset.samples}) == 2


def test_kitti_without_occluded_truth(tmp_path: Path) -> None:
    kitti_frame(tmp_path / "training")
    kitti_frame(tmp_path / "training", "000001_10.png")
    (tmp_path / "training" / "disp_occ_0" / "000001_10.png").unlink()
    dataset = open_dataset("kitti", tmp_path)
    (warning,) = dataset.warnings
    assert "1 of 2 frames" in warning
    assert "disp_occ_0" in warning
    pair = dataset.load(dataset.samples[1])
    assert not pair.covers_occluded
    np.testing.assert_array_equal(pair.valid, np.isfinite(pair.disparity))


def test_kitti_with_occluded_truth_only(tmp_path: Path) -> None:
    kitti_frame(tmp_path / "training")
    (tmp_path / "training" / "disp_noc_0" / "000000_10.png").unlink()
    pair = only_pair(open_dataset("kitti", tmp_path))
    assert pair.covers_occluded
    assert not pair.valid[:, :4].any()  # matches lie outside the right view
    assert pair.valid[:, 4:].all()


def test_kitti_partial(tmp_path: Path) -> None:
    for number in range(3):
        kitti_frame(tmp_path / "training", f"{number:06}_10.png")
    gone = tmp_path / "training" / "image_3" / "000001_10.png"
    gone.unlink()
    dataset = open_dataset("kitti", tmp_path)
    assert names(dataset.samples) == ["2015/000000_10", "2015/000002_10"]
    (warning,) = dataset.warnings
    assert str(gone) in warning


def test_kitti_nothing_usable_says_what_is_missing(tmp_path: Path) -> None:
    for number in range(8):
        frame = f"{number:06}_10.png"
        kitti_frame(tmp_path / "training", frame)
        for folder in ("disp_noc_0", "disp_occ_0"):
            (tmp_path / "training" / folder / frame).unlink()
    with pytest.raises(InputError) as caught:
        open_dataset("kitti", tmp_path)
    assert "disp_noc_0/000000_10.png or " in caught.value.message
    assert "and 3 more" in caught.value.message
    assert "data/README.md" in str(caught.value.hint)


# ------------------------------------------------------------------------------------- Middlebury


def tidy_scene(folder: Path, truth: str = "disp0GT.pfm", calib: str | None = "ndisp = 16") -> None:
    picture(folder / "im0.png", 50)
    picture(folder / "im1.png", 60)
    constant_disparity(folder / truth)
    if calib is not None:
        (folder / "calib.txt").write_text(calib)


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


# -------------------------------------------------------------------------------------------- CSV


def csv_files(folder: Path) -> None:
    picture(folder / "a" / "left.png", 50)
    picture(folder / "a" / "right.png", 60)
    constant_disparity(folder / "a" / "truth.pfm")


def test_csv(tmp_path: Path) -> None:
    csv_files(tmp_path)
    picture(tmp_path / "a" / "mask.png", 255, (H, W))
    listing = tmp_path / "pairs.csv"
    listing.write_text(
        "# my pairs\n\n"
        "a/left.png, a/right.png, a/truth.pfm\n"
        ' "a/left.png","a/right.png","a/truth.pfm" , a/mask.png \r\n'
        f"{tmp_path}/a/left.png,a/right.png,a/truth.pfm,\n"
    )
    for root in (listing, tmp_path):
        dataset = open_dataset("csv", root)
        assert names(dataset.samples) == [
            "line 3: a/left.png",
            "line 4: a/left.png",
            f"line 5: {tmp_path}/a/left.png",
        ]
        plain, masked, _ = (dataset.load(sample) for sample in dataset.samples)
        assert not plain.valid[:, :4].any()
        assert masked.valid[1:].all()
        assert plain.ndisp is None
        assert plain.search_range == 5


def test_csv_header_in_any_order_with_scenes(tmp_path: Path) -> None:
    csv_files(tmp_path)
    (tmp_path / "pairs.csv").write_text(
        "\ufeffScene,Disparity,Left,Right\n"
        "kitchen,a/truth.pfm,a/left.png,a/right.png\n"
        "kitchen,a/truth.pfm,a/left.png,a/right.png\n"
        ",a/truth.pfm,a/left.png,a/right.png\n"
    )
    samples = open_dataset("csv", tmp_path / "pairs.csv").samples
    assert len(samples) == 3
    assert samples[0].scene == samples[1].scene != samples[2].scene


@pytest.mark.parametrize(
    "line", ["a/left.png,a/right.png", "l,r,d,m,more", ",a/right.png,a/truth.pfm", "left,right"]
)
def test_csv_malformed_line(tmp_path: Path, line: str) -> None:
    csv_files(tmp_path)
    listing = tmp_path / "pairs.csv"
    listing.write_text(f"a/left.png,a/right.png,a/truth.pfm\n{line}\n")
    with pytest.raises(InputError, match="line 2"):
        open_dataset("csv", listing)


def test_csv_missing_files(tmp_path: Path) -> None:
    csv_files(tmp_path)
    listing = tmp_path / "pairs.csv"
    listing.write_text(
        "a/left.png,a/right.png,a/truth.pfm\na/left.png,a/none.png,a/truth.pfm,a/nomask.png\n"
    )
    dataset = open_dataset("csv", listing)
    assert len(dataset.samples) == 1
    (warning,) = dataset.warnings
    assert "line 2" in warning
    assert "none.png" in warning
    assert "nomask.png" in warning


def test_csv_damaged_truth_is_an_input_error(tmp_path: Path) -> None:
    csv_files(tmp_path)
    truth = tmp_path / "a" / "truth.pfm"
    truth.write_bytes(truth.read_bytes()[:-1])
    (tmp_path / "pairs.csv").write_text("a/left.png,a/right.png,a/truth.pfm\n")
    with pytest.raises(InputError, match=r"truth\.pfm is cut short"):
        only_pair(open_dataset("csv", tmp_path))


def test_csv_unusable_root(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 CSV files"):
        open_dataset("csv", tmp_path)
    empty = tmp_path / "pairs.csv"
    empty.write_text("# nothing\n")
    with pytest.raises(InputError, match="no usable pair"):
        open_dataset("csv", empty)
    empty.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        open_dataset("csv", empty)


# -------------------------------------------------------------------------------------- synthetic


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


# -------------------------------------------------------------------------------- mixtures, roots


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
    with pytest.raises(InputError, match=f"{name} needs to know where"):
        open_dataset(name)
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
    assert parse_roots(["/data"]) == "/data"
    assert parse_roots(["/data=2"]) == "/data=2"
    assert parse_roots(["kitti=/k"]) == {"kitti": "/k"}
    assert parse_roots(["kitti=/k", "csv=a=b.csv"]) == {"kitti": "/k", "csv": "a=b.csv"}
    with pytest.raises(InputError, match="does not say which data set"):
        parse_roots(["kitti=/k", "/data"])
    with pytest.raises(InputError, match="two folders for kitti"):
        parse_roots(["kitti=/k", "kitti=/l"])


def test_names_are_all_known() -> None:
    assert set(datasets.NAMES) == {"kitti", "middlebury", "csv", "synthetic"}


# ------------------------------------------------------------------------------------------ split


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


# -------------------------------------------------------------------------------------- real data


@pytest.mark.shared
def test_real_kitti(shared: Path) -> None:
    dataset = open_dataset("kitti", shared / "data" / "kitti2015")
    assert len(dataset.samples) == 28
    assert len(dataset.warnings) == 1
    assert "25 of 28 frames" in dataset.warnings[0]
    pairs = {s.name: dataset.load(s) for s in dataset.samples[:3]}
    assert [pair.covers_occluded for pair in pairs.values()] == [False, True, True]
    for pair in pairs.values():
        assert 0.1 < pair.valid.mean() < 0.3
        assert (pair.disparity[pair.valid] > 0).all()
    full = pairs["2015/000002_10"]
    assert full.valid.sum() < np.isfinite(full.disparity).sum()


@pytest.mark.shared
def test_real_middlebury(shared: Path) -> None:
    dataset = open_dataset("middlebury", shared / "data")
    assert dataset.warnings == ()
    assert len(dataset.samples) == 7 + 7 + 2 + 6 + 20 + 4
    wanted = ("MiddEval3/trainingQ/Pipes", "middlebury-2001/tsukuba", "middlebury-2006/Baby1")
    for sample in (s for s in dataset.samples if s.name in wanted):
        pair = dataset.load(sample)
        assert 0.6 < pair.valid.mean() < 1
        assert (pair.right_disparity is not None) == (sample.name == wanted[2])
        assert pair.ndisp == (75 if "Pipes" in sample.name else None)


@pytest.mark.shared
def test_real_split_never_separates_versions_of_a_scene(shared: Path) -> None:
    dataset = open_dataset("middlebury", shared / "data")
    for seed in range(5):
        training, validation = split(dataset, 0.3, seed)
        sides = [{s.name.rsplit("/")[-1].lower() for s in side} for side in (training, validation)]
        assert not sides[0] & sides[1]
        for side in sides:
            assert ("art" in side) == ("artl" in side)


@pytest.mark.shared
def test_real_masks_are_close_to_our_own_check(shared: Path) -> None:
    dataset = open_dataset("middlebury", shared / "data" / "middlebury-2006")
    sample = next(s for s in dataset.samples if s.name == "Aloe")
    pair = dataset.load(sample)
    assert pair.right_disparity is not None
    both = agree(pair.disparity, pair.right_disparity, -1)
    one = in_front(pair.disparity)
    assert (both != pair.valid).mean() < 0.01
    assert (one != pair.valid).mean() < 0.02


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


def test_the_sample_of_the_repository(sample: Path) -> None:
    pair = only_pair(open_dataset("csv", sample))
    assert (pair.height, pair.width) == (256, 384)
    assert pair.search_range <= 64
    assert 0.7 < pair.valid.mean() < 1
