"""The user's own pairs, listed in a CSV file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pairfiles import H, W, csv_files, names, only_pair, picture

from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.csvlist import find_samples
from hybridstereo.errors import InputError


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


def test_the_sample_of_the_repository(sample: Path) -> None:
    pair = only_pair(open_dataset("csv", sample))
    assert (pair.height, pair.width) == (256, 384)
    assert pair.search_range <= 64
    assert 0.7 < pair.valid.mean() < 1


@pytest.mark.parametrize("cell", ["x" * 5000, "/dev/zero", "..", "\x1b[2J"])
def test_names_that_no_file_has(tmp_path, cell):
    path = tmp_path / "pairs.csv"
    path.write_text(f"{cell},right.png,truth.pfm\n")
    samples, warnings = find_samples(path)
    assert samples == []
    assert len(warnings) == 1
    assert warnings[0].isprintable()
    assert len(warnings[0]) < 1000


def test_null_characters_are_no_text(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("a\0b,right.png,truth.pfm\n")
    with pytest.raises(InputError, match="not a text file"):
        find_samples(path)


def test_a_line_of_nonsense_is_quoted_in_part(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("x" * 200_000)  # more than the csv module takes in one cell
    with pytest.raises(InputError) as caught:
        find_samples(path)
    assert len(str(caught.value)) < 500
