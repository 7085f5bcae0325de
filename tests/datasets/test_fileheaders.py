from __future__ import annotations

import os

import pytest

from hybridstereo.datasets import open_dataset
from hybridstereo.datasets.fileheaders import check_files
from hybridstereo.errors import InputError
from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize


@pytest.fixture
def scene(tmp_path):
    synthesize(tmp_path, 1, 3, SceneOptions(height=12, width=16, max_disparity=5, objects=1))
    return tmp_path / "scene_0000"


def test_good_files_pass(scene):
    check_files(open_dataset("middlebury", str(scene)).samples)
    check_files(open_dataset("synthetic", scenes=1).samples)


@pytest.mark.parametrize("name", ["im1.png", "disp0GT.pfm", "mask0nocc.png"])
@pytest.mark.parametrize(
    ("contents", "problem"), [(b"", "is empty"), (b"not an image", "does not begin like")]
)
def test_bad_starts_are_found(scene, name, contents, problem):
    samples = open_dataset("middlebury", str(scene)).samples
    (scene / name).write_bytes(contents)
    with pytest.raises(InputError, match=f"{name} {problem}"):
        check_files(samples)


def test_missing_files_are_found(scene):
    samples = open_dataset("middlebury", str(scene)).samples
    (scene / "im0.png").unlink()
    with pytest.raises(InputError, match=r"im0\.png does not exist"):
        check_files(samples)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_pipe_does_not_block(scene):
    samples = open_dataset("middlebury", str(scene)).samples
    (scene / "im0.png").unlink()
    os.mkfifo(scene / "im0.png")
    with pytest.raises(InputError, match="is a pipe"):
        check_files(samples)


def test_an_image_with_the_suffix_of_another_format_passes(scene):
    samples = open_dataset("middlebury", str(scene)).samples
    (scene / "im0.png").write_bytes(b"\xff\xd8\xff rest of a JPEG")
    check_files(samples)
