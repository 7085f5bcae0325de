"""PLY files, read back by a reader of its own."""

from __future__ import annotations

import numpy as np
import pytest
from support.ply import read_ply

from hybridstereo.errors import OutputError
from hybridstereo.io import points
from hybridstereo.io.points import write_ply


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_points_come_back(tmp_path, rng, count, monkeypatch):
    monkeypatch.setattr(points, "_CHUNK", 300)
    positions = rng.normal(size=(count, 3)).astype(np.float32)
    colors = rng.integers(0, 256, (count, 3), np.uint8)
    write_ply(tmp_path / "a.ply", positions, colors, ("metres", "made here"))
    names, stored = read_ply(tmp_path / "a.ply")
    assert names == ["x", "y", "z", "red", "green", "blue"]
    assert stored == [
        (*map(float, p), *map(int, c)) for p, c in zip(positions, colors, strict=True)
    ]
    assert b"comment metres\ncomment made here\n" in (tmp_path / "a.ply").read_bytes()


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(OutputError, match=r"does not end in \.ply"):
        write_ply(tmp_path / "a.obj", np.zeros((1, 3)), np.zeros((1, 3), np.uint8))
    assert list(tmp_path.iterdir()) == []


def test_shapes_must_agree(tmp_path):
    with pytest.raises(ValueError, match="expected two arrays"):
        write_ply(tmp_path / "a.ply", np.zeros((2, 3)), np.zeros((1, 3), np.uint8))
