"""The examples in docstrings and in docs/api.md run as they are printed."""

from __future__ import annotations

import doctest
import re
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from support.calibrated import camera_pair, named_matrices, write_opencv

import hybridstereo
from hybridstereo import kernels

SOURCE = Path(hybridstereo.__file__).parent
ROOT = Path(__file__).resolve().parents[1]


def modules_with_examples() -> list[str]:
    found = []
    folders = (("hybridstereo", SOURCE), ("hybridstereo.kernels", Path(kernels.__file__).parent))
    for package, folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8"):
                inside = path.relative_to(folder).with_suffix("").parts
                found.append(".".join([package, *inside]).removesuffix(".__init__"))
    return found


def test_the_api_has_examples():
    assert {"hybridstereo.stereo", "hybridstereo.labels", "hybridstereo.io.pixels"} <= set(
        modules_with_examples()
    )


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_of_a_module(module):
    assert doctest.testmod(import_module(module)).failed == 0


def python_blocks(document: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)


@pytest.mark.parametrize("document", ["README.md", "docs/api.md"])
def test_examples_of_a_document(document, sample_crop, tmp_path, monkeypatch):
    """Each runs by itself, in a folder with the files that it names."""
    monkeypatch.chdir(tmp_path)
    np.save("costs.npy", np.random.default_rng(0).random((40, 60, 16), np.float32))
    for side, path in zip(("left", "right"), sample_crop, strict=True):
        (tmp_path / "sequence" / side).mkdir(parents=True)
        shutil.copy(path, tmp_path / "sequence" / side / "000.png")
    write_opencv(tmp_path / "stereo.yml", named_matrices(camera_pair(40, 60, 60.0)))
    (tmp_path / "calib.txt").write_text("cam0=[60 0 30; 0 60 20; 0 0 1]\nbaseline=100\n")
    blocks = python_blocks(document)
    assert blocks
    for block in blocks:
        exec(compile(block, document, "exec"), {"__name__": "example"})
