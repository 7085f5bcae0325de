from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hybridstereo.errors import InputError, OutputError
from hybridstereo.io.disparity import read_disparity
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.synthetic.write import synthesize

TINY = SceneOptions(height=12, width=16, max_disparity=31.0, min_disparity=1.0)


def test_synthesize_writes_numbered_scenes(tmp_path):
    calls: list[tuple[int, int]] = []
    written = synthesize(
        tmp_path / "new" / "set", 2, 7, TINY, lambda done, total: calls.append((done, total))
    )
    assert calls == [(1, 2), (2, 2)]
    assert len(written) == 12
    assert all(path.is_file() for path in written)
    for index in range(2):
        folder = tmp_path / "new" / "set" / f"scene_{index:04d}"
        truth = generate_scene(7 + index, TINY).disparity
        np.testing.assert_array_equal(read_disparity(folder / "disp0GT.pfm"), truth)
    assert synthesize(tmp_path / "new" / "set", 2, 7, TINY) == written  # again: replaced


def test_synthesize_into_a_file_instead_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="file"):
        synthesize(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path) == ["file"]


def test_synthesize_into_a_protected_folder(tmp_path, monkeypatch):
    (tmp_path / "scene_0000").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)  # permissions do not bind root
    with pytest.raises(OutputError, match="scene_0000 is write-protected"):
        synthesize(tmp_path)
    assert os.listdir(tmp_path / "scene_0000") == []


def test_synthesize_when_the_disk_fills_up(tmp_path, monkeypatch):
    def full(self: Path, data: bytes) -> int:
        with open(self, "wb") as stream:
            stream.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"im0\.png"):
        synthesize(tmp_path, options=TINY)
    assert os.listdir(tmp_path / "scene_0000") == []


@pytest.mark.parametrize("arguments", [{"count": 0}, {"seed": -1}])
def test_synthesize_with_wrong_numbers(tmp_path, arguments):
    with pytest.raises(InputError):
        synthesize(tmp_path, **arguments)
