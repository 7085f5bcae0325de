"""The examples in docstrings and in docs/api.md run as they are printed."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

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
    assert {"hybridstereo.stereo", "hybridstereo.labels", "hybridstereo.io.images"} <= set(
        modules_with_examples()
    )


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_of_a_module(module):
    assert doctest.testmod(import_module(module)).failed == 0
