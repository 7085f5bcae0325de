"""`hstereo cache`, and what commands do without a cache or with a damaged one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from support.commands import assert_one_sentence, run

from hybridstereo.kernels import diskcache

needs_users = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache of this process for one test."""
    monkeypatch.setenv(diskcache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    diskcache.cache_folder.cache_clear()
    yield tmp_path / "cache"
    diskcache.cache_folder.cache_clear()


OPTIONS = "--model", "census", "--disparities", "40", "--device", "cpu", "-o"


def infer(capsys, sample_crop, tmp_path) -> tuple[int, str, str]:
    return run(capsys, "infer", *sample_crop, *OPTIONS, tmp_path / "d.npy")


@pytest.fixture
def map_of_crop(capsys, sample_crop, tmp_path):
    """A map, made with the cache that all tests use: its kernels are there then."""
    assert infer(capsys, sample_crop, tmp_path)[0] == 0
    made = (tmp_path / "d.npy").read_bytes()
    (tmp_path / "d.npy").unlink()  # a file that is replaced would be said
    return made


def test_the_folder_its_size_and_its_state_are_shown(capsys, folder):
    (diskcache.cache_folder().folder / "x.kernel").write_bytes(bytes(2048))
    line = f"{folder}: 1 compiled kernels, 2.0 kB, used"
    assert run(capsys, "cache") == (0, f"{line}\n", "")
    assert line in run(capsys, "info")[1]


def test_clearing_removes_our_files_only(capsys, folder, tmp_path):
    own = diskcache.cache_folder().folder
    older = folder / "0.0.1-numba0.60.0-generic-01234567"
    foreign = [folder / "notes.txt", folder / "mine" / "x.kernel", own / "readme"]
    linked = tmp_path / "elsewhere"
    for path in [own / "a.kernel", own / "b.unfinished", older / "c.kernel", *foreign]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    linked.mkdir()
    (linked / "d.kernel").write_bytes(b"x")
    (folder / "0.0.2-numba0.60.0-generic-01234567").symlink_to(linked)
    code, out, err = run(capsys, "cache", "--clear")
    assert (code, err) == (0, "hstereo: freed 3 B.\n")
    assert "0 compiled kernels" in out
    assert all(path.exists() for path in [*foreign, linked / "d.kernel"])
    assert not older.exists()
    assert [path.name for path in own.iterdir()] == ["readme"]


def test_a_cache_that_was_never_used_can_be_cleared(capsys, folder):
    assert run(capsys, "cache", "--clear")[0] == 0


@needs_users
def test_a_folder_that_others_can_write_is_not_cleared(capsys, folder):
    kept = diskcache.cache_folder().folder / "x.kernel"
    kept.write_bytes(b"x")
    folder.chmod(0o777)
    result = run(capsys, "cache", "--clear")
    assert_one_sentence(*result, "can be written by other users")
    assert kept.exists()


def test_a_file_is_not_cleared(capsys, folder):
    folder.write_bytes(b"x.kernel")
    assert_one_sentence(*run(capsys, "cache", "--clear"), "is not a folder")
    assert folder.read_bytes() == b"x.kernel"


# --- commands that compute ------------------------------------------------------------------


def test_without_a_folder_there_is_one_line_of_warning(
    capsys, map_of_crop, folder, sample_crop, tmp_path
):
    folder.write_bytes(b"in the way")
    code, out, err = infer(capsys, sample_crop, tmp_path)
    assert (code, out.split()) == (0, [str(tmp_path / "d.npy")])
    warnings = [line for line in err.splitlines() if "not kept" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("hstereo: compiled kernels are not kept")
    assert "HSTEREO_CACHE_DIR" in warnings[0]
    assert "not used" in run(capsys, "info")[1]


def test_with_a_folder_there_is_no_warning(capsys, map_of_crop, folder, sample_crop, tmp_path):
    assert "not kept" not in infer(capsys, sample_crop, tmp_path)[2]


def test_the_library_says_nothing(capfd, sample_crop, folder):
    import hybridstereo as hs

    folder.write_bytes(b"in the way")
    hs.Stereo("census", device="cpu").match(*sample_crop, disparities=4, method="argmax")
    assert diskcache.cache_folder().problem
    assert capfd.readouterr() == ("", "")


def test_a_damaged_cache_costs_seconds_only(map_of_crop, sample_crop, tmp_path):
    """In a process of its own, which has to load what this one has compiled."""
    copy = tmp_path / "cache"
    shutil.copytree(diskcache.cache_folder().root, copy)
    copy.chmod(0o700)
    damages = {
        "edges_cpu._weights": b"",
        "pixels.read_out_rows": b"\x80\x04",
        "pixels.row_energies": bytes(50_000),
    }

    def infer_again() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hybridstereo", "infer", *sample_crop, *OPTIONS, "again.npy"],
            env={**os.environ, diskcache.FOLDER_VARIABLE: str(copy)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    assert infer_again().returncode == 0  # this process may have compiled with another folder
    (tmp_path / "again.npy").unlink()
    before = {}
    for path in diskcache.kept_kernels(copy):
        damage = damages.get(path.name.partition("-")[0])
        if damage is not None:
            before[path] = damage
            path.write_bytes(damage)
    done = infer_again()
    assert (done.returncode, done.stdout) == (0, "again.npy\n")
    assert "hstereo: compiling kernels (once, a few seconds)" in done.stderr.splitlines()
    assert (tmp_path / "again.npy").read_bytes() == map_of_crop
    # Others are of other sources or another Python, and stay as they are.
    replaced = {path.name.partition("-")[0] for path in before if path.read_bytes() != before[path]}
    assert replaced == damages.keys()
