from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hybridstereo.errors import OutputError
from hybridstereo.io import atomic
from hybridstereo.io.atomic import atomic_write, check_writable, sweep_leftovers
from hybridstereo.io.locks import try_lock

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX systems")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_file_appears_complete(tmp_path):
    with atomic_write(tmp_path / "map.pfm") as temporary:
        temporary.write_bytes(b"all of it")
        assert not (tmp_path / "map.pfm").exists()
    assert (tmp_path / "map.pfm").read_bytes() == b"all of it"
    assert names(tmp_path) == ["map.pfm"]


def test_accepts_a_string(tmp_path):
    with atomic_write(str(tmp_path / "map.pfm")) as temporary:
        temporary.write_bytes(b"x")
    assert names(tmp_path) == ["map.pfm"]


def test_temporary_is_hidden_and_keeps_folder_and_suffix(tmp_path):
    with atomic_write(tmp_path / "map.pfm") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".pfm"
        assert temporary.name.startswith(".")


def test_long_name_leaves_room_for_the_temporary_one(tmp_path):
    name = "n" * 251 + ".pfm"
    with atomic_write(tmp_path / name) as temporary:
        temporary.write_bytes(b"x")
    assert names(tmp_path) == [name]


def test_two_writers_do_not_share_a_temporary(tmp_path):
    target = tmp_path / "map.pfm"
    with atomic_write(target) as first, atomic_write(target) as second:
        first.write_bytes(b"first")
        second.write_bytes(b"second")
    assert target.read_bytes() == b"first"  # the outer block ends last
    assert names(tmp_path) == ["map.pfm"]


@pytest.mark.parametrize("interruption", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_failure_leaves_the_old_file_and_no_other(tmp_path, interruption):
    target = tmp_path / "map.pfm"
    target.write_bytes(b"old")

    def write() -> None:
        with atomic_write(target) as temporary:
            temporary.write_bytes(b"half")
            raise interruption

    with pytest.raises(interruption):
        write()
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["map.pfm"]


@posix_only
@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_file_follows_the_umask(tmp_path, umask, expected):
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "map.pfm") as temporary:
            temporary.write_bytes(b"x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "map.pfm") == expected


@posix_only
def test_replaced_file_keeps_its_permissions(tmp_path):
    target = tmp_path / "map.pfm"
    target.write_bytes(b"old")
    target.chmod(0o640)
    with atomic_write(target) as temporary:
        temporary.write_bytes(b"new")
    assert mode(target) == 0o640


@posix_only
def test_symbolic_link_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "map.pfm"
    real.write_bytes(b"old")
    link = tmp_path / "link.pfm"
    link.symlink_to(real)
    with atomic_write(link) as temporary:
        temporary.write_bytes(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


@pytest.mark.parametrize("check", [check_writable, lambda path: atomic_write(path).__enter__()])
class TestRefusals:
    def test_missing_folder(self, tmp_path, check):
        with pytest.raises(OutputError, match=r"folder .*nowhere does not exist") as caught:
            check(tmp_path / "nowhere" / "map.pfm")
        assert "Create the folder" in caught.value.hint

    def test_folder_that_is_a_file(self, tmp_path, check):
        (tmp_path / "file").write_bytes(b"x")
        with pytest.raises(OutputError, match=r"map\.pfm"):
            check(tmp_path / "file" / "map.pfm")

    def test_target_is_a_folder(self, tmp_path, check):
        with pytest.raises(OutputError, match="is a folder"):
            check(tmp_path)

    @posix_only
    def test_device_is_not_replaced(self, check):
        with pytest.raises(OutputError, match=r"/dev/null is a device"):
            check("/dev/null")

    def test_null_character_in_the_name(self, tmp_path, check):
        with pytest.raises(OutputError, match="cannot be written"):
            check(f"{tmp_path}/a\0b.pfm")

    def test_no_permission_for_the_folder(self, tmp_path, check, monkeypatch):
        # Simulated, because nothing is forbidden to root, as which containers run the tests.
        monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
        with pytest.raises(OutputError, match="no permission to create files") as caught:
            check(tmp_path / "map.pfm")
        assert "may write to" in caught.value.hint

    def test_write_protected_file(self, tmp_path, check, monkeypatch):
        target = tmp_path / "map.pfm"
        target.write_bytes(b"precious")
        monkeypatch.setattr(os, "access", lambda path, _: Path(path) != target)
        with pytest.raises(OutputError, match="write-protected"):
            check(target)
        assert target.read_bytes() == b"precious"


def test_check_leaves_no_trace(tmp_path):
    assert check_writable(tmp_path / "map.pfm") == tmp_path.resolve() / "map.pfm"
    assert names(tmp_path) == []


def test_folder_that_refuses_although_it_looked_writable(tmp_path, monkeypatch):
    def refuse(path: str, *_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(OutputError, match="Permission denied") as caught,
        atomic_write(tmp_path / "map.pfm"),
    ):
        pass
    assert "may write to" in caught.value.hint


@pytest.mark.parametrize(
    ("code", "hint"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only")]
)
def test_disk_errors_name_the_file_and_the_remedy(tmp_path, code, hint):
    with (
        pytest.raises(OutputError, match=r"map\.pfm cannot be written") as caught,
        atomic_write(tmp_path / "map.pfm"),
    ):
        raise OSError(code, os.strerror(code))
    assert hint in caught.value.hint
    assert names(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a size limit that the kernel enforces")
def test_write_that_the_system_stops_half_way(tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with (
            pytest.raises(OutputError, match="File too large"),
            atomic_write(tmp_path / "map.pfm") as temporary,
        ):
            temporary.write_bytes(bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == []


def test_errors_about_other_files_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "map.pfm"):
        (tmp_path / "some-input.png").read_bytes()
    assert names(tmp_path) == []


def test_failed_rename_removes_the_temporary(tmp_path, monkeypatch):
    def fail(source: Path, target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(source), None, str(target))

    monkeypatch.setattr(os, "replace", fail)
    with (
        pytest.raises(OutputError, match="Input/output error"),
        atomic_write(tmp_path / "map.pfm") as temporary,
    ):
        temporary.write_bytes(b"x")
    assert names(tmp_path) == []


# --- what killed writers leave behind -----------------------------------------------------------

WRITER = """
import os, signal, sys, time
from hybridstereo.io.atomic import atomic_write
with atomic_write(sys.argv[1]) as temporary:
    temporary.write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that is writing map.pfm."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "map.pfm")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@posix_only
def test_leftover_of_a_killed_writer_is_swept_and_that_of_a_living_one_is_not(tmp_path, writer):
    (left,) = names(tmp_path)
    assert sweep_leftovers(tmp_path) == []
    assert names(tmp_path) == [left]
    writer.kill()
    writer.wait()
    assert sweep_leftovers(tmp_path) == [tmp_path / left]
    assert names(tmp_path) == []


@posix_only
def test_next_writer_into_the_folder_sweeps(tmp_path):
    leftover = tmp_path / ".map.0123456789ab.hstereo.pfm"
    leftover.write_bytes(b"half")
    with atomic_write(tmp_path / "other.npy") as temporary:
        temporary.write_bytes(b"x")
    assert names(tmp_path) == ["other.npy"]


@posix_only
def test_only_our_own_files_are_swept(tmp_path):
    kept = [
        "map.0123456789ab.hstereo.pfm", ".map.0123456789ab.pfm", ".hstereo", ".map.hstereo.pfm",
        ".map.0123456789ab.hstereo.pfm.bak",
    ]  # fmt: skip
    for name in kept:
        (tmp_path / name).write_bytes(b"precious")
    (tmp_path / ".map.0123456789ac.hstereo.pfm").symlink_to(tmp_path / kept[0])
    (tmp_path / ".map.0123456789ad.hstereo").mkdir()
    assert sweep_leftovers(tmp_path) == []
    assert len(names(tmp_path)) == len(kept) + 2


@posix_only
def test_nothing_is_swept_where_the_file_system_has_no_locks(tmp_path, monkeypatch):
    def refuse(descriptor: int) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic, "try_lock", refuse)
    (tmp_path / ".map.0123456789ab.hstereo.pfm").write_bytes(b"half")
    with atomic_write(tmp_path / "map.pfm") as temporary:
        temporary.write_bytes(b"x")
    assert names(tmp_path) == [".map.0123456789ab.hstereo.pfm", "map.pfm"]


@posix_only
def test_temporary_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    swept = []

    def lock(descriptor: int) -> bool:
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        return try_lock(descriptor)

    monkeypatch.setattr(atomic, "try_lock", lock)
    with atomic_write(tmp_path / "map.pfm") as temporary:
        temporary.write_bytes(b"x")
    assert len(swept) == 1
    assert names(tmp_path) == ["map.pfm"]


@posix_only
def test_contents_reach_the_disk_before_the_name_and_the_name_before_the_end(tmp_path, monkeypatch):
    calls = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "contents")
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> None:
        calls.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    with atomic_write(tmp_path / "map.pfm") as temporary:
        temporary.write_bytes(b"x")
    assert calls == ["contents", "rename", "folder"]


def test_over_long_names_are_explained(tmp_path):
    with pytest.raises(OutputError, match="too long"):
        check_writable(tmp_path / ("n" * 300 + ".pfm"))
