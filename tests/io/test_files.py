"""Reading bytes: regular files and standard input, bounded."""

from __future__ import annotations

import io
import os
import socket
import sys
from pathlib import Path

import pytest

from hybridstereo.datasets.csvlist import find_samples
from hybridstereo.errors import InputError, ModelError, StereoError
from hybridstereo.io.calib import read_calibration
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.files import read_bytes, read_file
from hybridstereo.io.images import read_image
from hybridstereo.io.mask import read_mask
from hybridstereo.io.volumes import read_volume
from hybridstereo.io.weights import read_weights
from hybridstereo.models.published import read_published_config, read_published_parameters
from hybridstereo.models.zoo import load_model

READERS = {
    "image.png": read_image,
    "map.pfm": read_disparity,
    "map.png": read_disparity,
    "map.npy": read_disparity,
    "map.tif": read_disparity,
    "mask.png": read_mask,
    "costs.npy": lambda path: read_volume(path, 2, 2),
    "costs.h5": lambda path: read_volume(path, 2, 2),
    "costs.bin": lambda path: read_volume(path, 2, 2),
    "calib.txt": read_calibration,
    "pairs.csv": find_samples,
    "model.h5": read_weights,
    "named.h5": load_model,
    "params.npz": read_published_parameters,
    "model.cfg": read_published_config,
}
"""Every reader of a single file, by the name of a file for it."""


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
def test_only_regular_files_are_read(tmp_path, monkeypatch, name, kind):
    """A pipe would wait for a writer for ever, and /dev/zero has no end."""
    monkeypatch.chdir(tmp_path)  # the name of a socket has 108 bytes at most
    path = Path(name)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
    elif name == "pairs.csv":
        pytest.skip("a folder stands for the list in it")
    else:
        path.mkdir()
    with pytest.raises(StereoError, match=rf"{kind}, not a file|holds no model"):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_empty_and_missing_files(tmp_path, name):
    with pytest.raises(StereoError, match="does not exist"):
        READERS[name](tmp_path / name)
    (tmp_path / name).touch()
    with pytest.raises(StereoError, match="is empty"):
        READERS[name](tmp_path / name)


def test_a_longer_file_is_not_opened(tmp_path, monkeypatch):
    path = tmp_path / "long"
    path.write_bytes(bytes(11))
    assert read_file(path, 11) == bytes(11)
    monkeypatch.setattr("builtins.open", None)
    with pytest.raises(ModelError, match="is too large: it has 11 bytes, and at most 10"):
        read_file(path, 10, ModelError)


def test_no_permission(tmp_path, monkeypatch):
    # Simulated, because root may read everything.
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "left.png").write_bytes(b"x")
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match=r"left\.png cannot be read: permission denied"):
        read_image(tmp_path / "left.png")


def test_disk_that_fails_while_reading(tmp_path, monkeypatch):
    def fail(path: Path, mode: str) -> None:
        raise OSError(5, "Input/output error")

    (tmp_path / "left.png").write_bytes(b"x")
    monkeypatch.setattr("builtins.open", fail)
    with pytest.raises(InputError, match="cannot be read: Input/output error"):
        read_file(tmp_path / "left.png", 100)


class Endless(io.RawIOBase):
    """Standard input from a program that never stops writing."""

    given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self.given += len(buffer)
        return len(buffer)


def test_standard_input_is_read_up_to_the_limit(monkeypatch):
    endless = Endless()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    with pytest.raises(InputError, match="standard input is too large: at most 1000 bytes"):
        read_bytes("-", 1000)
    assert endless.given < 100_000
