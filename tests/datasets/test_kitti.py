"""KITTI 2015 and 2012: whole, partial and real."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.pairfiles import H, kitti_frame, names, only_pair, picture

from hybridstereo.datasets import open_dataset
from hybridstereo.errors import InputError


@pytest.mark.parametrize("root", ["", "training", ".."])
def test_kitti_2015(tmp_path: Path, root: str) -> None:
    base = tmp_path / "kitti"
    kitti_frame(base / "training")
    picture(base / "training" / "image_2" / "000000_11.png")  # the next moment, without truth
    dataset = open_dataset("kitti", base / root)
    assert dataset.warnings == ()
    assert names(dataset.samples) == ["2015/000000_10"]
    pair = only_pair(dataset)
    assert pair.left[0, 0].tolist() == pytest.approx([50 / 255] * 3)
    assert pair.right[0, 0, 0] == pytest.approx(60 / 255)
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
def test_real_kitti_of_both_years(shared: Path) -> None:
    roots = [shared / "data" / name for name in ("kitti2012", "kitti2015", "kitti2015-more")]
    dataset = open_dataset("kitti", roots)
    years = [sample.name.partition("/")[0] for sample in dataset.samples]
    assert (years.count("2012"), years.count("2015")) == (116, 28 + 14)
    assert len({sample.scene for sample in dataset.samples}) == 116 + 28 + 14
    assert len(dataset.warnings) == 3  # for figures over all pixels the truth is missing
    grey = dataset.load(dataset.samples[0])
    assert grey.left.shape[2] == 3
    np.testing.assert_array_equal(grey.left[..., 0], grey.left[..., 2])
    assert not grey.covers_occluded
    assert 0.1 < grey.valid.mean() < 0.4
