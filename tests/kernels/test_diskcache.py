"""Compiled kernels on disk: where, whose, and what happens to damaged ones."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybridstereo import __version__
from hybridstereo.kernelcache import tell_compiling
from hybridstereo.kernels import diskcache
from hybridstereo.kernels.cpu.jit import compiled

needs_users = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A cache of our own for this process, empty at first."""
    monkeypatch.setenv(diskcache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    for remembered in (diskcache.cache_folder, diskcache._sweep):
        remembered.cache_clear()
    yield tmp_path / "cache"
    for remembered in (diskcache.cache_folder, diskcache._sweep):
        remembered.cache_clear()


def triple(x):
    return 3 * x


def run_kernel() -> tuple[int, int]:
    """Hits and misses of a process that calls a kernel for the first time."""
    kernel = compiled()(triple)
    assert kernel(14) == 42
    stats = kernel.stats
    return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())


HIT, MISS = (1, 0), (0, 1)


def only_file(root: Path) -> Path:
    (path,) = diskcache.kept_kernels(root)
    return path


# --- where ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "HOME/.cache/hybridstereo"),
        ("linux", {"XDG_CACHE_HOME": "/var/x"}, "/var/x/hybridstereo"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "HOME/.cache/hybridstereo"),
        ("linux", {"XDG_CACHE_HOME": ""}, "HOME/.cache/hybridstereo"),
        ("darwin", {"XDG_CACHE_HOME": "/var/x"}, "HOME/Library/Caches/hybridstereo"),
        ("win32", {"LOCALAPPDATA": "/app"}, "/app/hybridstereo/Cache"),
        ("win32", {}, "HOME/AppData/Local/hybridstereo/Cache"),
        ("linux", {"XDG_CACHE_HOME": "/x", "HSTEREO_CACHE_DIR": "/mine"}, "/mine"),
        ("win32", {"LOCALAPPDATA": "/x", "HSTEREO_CACHE_DIR": "/mine"}, "/mine"),
        ("linux", {"HSTEREO_CACHE_DIR": ""}, "HOME/.cache/hybridstereo"),
    ],
)
def test_the_folder_is_where_the_platform_keeps_such_files(
    monkeypatch, tmp_path, platform, variables, expected
):
    monkeypatch.setattr(diskcache.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", diskcache.FOLDER_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert diskcache._root() == Path(expected.replace("HOME", str(tmp_path)))


def test_every_version_numba_and_cpu_has_a_folder(root):
    import numba
    from llvmlite import binding

    folder = diskcache.cache_folder().folder
    assert folder.parent == root
    for part in (__version__, f"numba{numba.__version__}", binding.get_host_cpu_name()):
        assert part in folder.name


@needs_users
def test_folders_and_files_are_private(root):
    before = os.umask(0)
    try:
        run_kernel()
    finally:
        os.umask(before)
    path = only_file(root)
    modes = [stat.S_IMODE(x.stat().st_mode) for x in (root, path.parent, path)]
    assert modes == [0o700, 0o700, 0o600]


def test_nothing_is_written_beside_the_sources(root):
    sources = Path(diskcache.__file__).parent

    def kept() -> set[Path]:
        return {x for x in sources.rglob("*") if x.suffix in (".nbi", ".nbc", ".kernel")}

    before = kept()  # of versions that had no folder of their own for them
    run_kernel()
    assert kept() == before


# --- what is found again --------------------------------------------------------------------


def test_the_second_time_a_kernel_is_loaded(root):
    assert [run_kernel(), run_kernel()] == [MISS, HIT]


def test_other_sources_are_other_kernels(root, monkeypatch):
    run_kernel()
    monkeypatch.setattr(diskcache, "_sources", lambda: "changed")
    assert run_kernel() == MISS
    monkeypatch.undo()


def test_the_digest_of_the_sources_covers_every_file(tmp_path, monkeypatch):
    for name in ("diskcache.py", "cpu/chains.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("pass")
    monkeypatch.setattr(diskcache, "__file__", str(tmp_path / "diskcache.py"))
    before = diskcache._sources.__wrapped__()
    (tmp_path / "cpu/chains.py").write_text("pass ")
    assert diskcache._sources.__wrapped__() != before


def test_closures_with_other_constants_are_other_kernels(root):
    def times(factor: int):
        def kernel(x):
            return factor * x

        return compiled()(kernel)

    assert [times(2)(10), times(3)(10), times(2)(10)] == [20, 30, 20]
    assert len(list(diskcache.kept_kernels(root))) == 2


def test_recompiling_forgets_what_was_kept(root):
    kernel = compiled()(triple)
    kernel(1)
    kernel.recompile()
    assert sum(kernel.stats.cache_misses.values()) == 2


# --- damage ---------------------------------------------------------------------------------


def whole_but_for(position: int):
    def flip(data: bytes) -> bytes:
        return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]

    return flip


DAMAGE = {
    "empty": lambda data: b"",
    "header cut": lambda data: data[:20],
    "cut": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "one byte more": lambda data: data + b"x",
    "random": lambda data: os.urandom(len(data)),
    "zeros": lambda data: bytes(len(data)),
    "bit of the mark": whole_but_for(0),
    "bit of the length": whole_but_for(15),
    "bit of the checksum": whole_but_for(20),
    "bit of the code": whole_but_for(-100),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_noticed(tmp_path, damage):
    path = tmp_path / "x.kernel"
    diskcache._store(path, bytes(range(200)))
    assert diskcache._read(path) == bytes(range(200))
    path.write_bytes(damage(path.read_bytes()))
    assert diskcache._read(path) is None


@pytest.mark.parametrize("name", ["empty", "cut", "random", "bit of the code"])
def test_a_damaged_kernel_is_compiled_anew_and_replaced(root, name):
    run_kernel()
    path = only_file(root)
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    assert run_kernel() == MISS
    assert only_file(root) == path
    assert run_kernel() == HIT


@needs_users
def test_a_pipe_in_place_of_a_file_does_not_wait(root):
    run_kernel()
    path = only_file(root)
    path.unlink()
    os.mkfifo(path)
    assert run_kernel() == MISS
    assert run_kernel() == HIT


# --- trust ----------------------------------------------------------------------------------


@needs_users
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
@pytest.mark.parametrize("which", ["root", "folder"])
def test_folders_that_others_can_write_are_not_used(root, mode, which):
    folder = diskcache.cache_folder().folder
    os.chmod(root if which == "root" else folder, mode)
    diskcache.cache_folder.cache_clear()
    assert run_kernel() == MISS
    assert list(diskcache.kept_kernels(root)) == []
    assert "can be written by other users" in diskcache.cache_folder().problem


@needs_users
def test_a_folder_of_another_user_is_not_used(root, monkeypatch):
    root.mkdir(mode=0o700)
    me = os.geteuid()
    monkeypatch.setattr(diskcache.os, "geteuid", lambda: me + 1)
    assert run_kernel() == MISS
    assert "belongs to another user" in diskcache.cache_folder().problem


@needs_users
def test_a_file_that_others_could_have_written_is_not_loaded(root):
    run_kernel()
    os.chmod(only_file(root), 0o666)
    assert run_kernel() == MISS
    assert run_kernel() == HIT


def test_a_file_in_place_of_the_folder(root):
    root.write_text("mine")
    assert run_kernel() == MISS
    assert root.read_text() == "mine"
    assert "cannot be written" in diskcache.cache_folder().problem


@pytest.mark.parametrize("name", ["x" * 300, "/proc/none/cache", "/dev/null/cache"])
def test_a_folder_that_cannot_be_made(root, monkeypatch, name):
    monkeypatch.setenv(diskcache.FOLDER_VARIABLE, name)
    assert run_kernel() == MISS
    assert "cannot be written" in diskcache.cache_folder().problem


def test_no_home(root, monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(diskcache.FOLDER_VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(diskcache.sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", fail)
    assert run_kernel() == MISS
    assert diskcache.cache_folder().root is None


def test_a_full_disk_costs_the_cache_and_nothing_else(root, monkeypatch):
    diskcache.cache_folder()

    def fail(path, data):
        path.write_bytes(b"the first part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(diskcache, "_write", fail)
    assert run_kernel() == MISS
    assert list(diskcache.kept_kernels(root)) == []


def test_the_folder_is_removed_while_we_run(root):
    folder = diskcache.cache_folder().folder
    folder.rmdir()
    assert run_kernel() == MISS
    assert run_kernel() == HIT


# --- old kernels ----------------------------------------------------------------------------


def test_unused_kernels_are_removed_when_others_are_added(root):
    folder = diskcache.cache_folder().folder
    other = root / "0.0.1-numba0.60.0-generic-01234567"
    other.mkdir()
    old, recent = folder / "old.kernel", folder / "recent.kernel"
    abandoned, growing = folder / "1.unfinished", folder / "2.unfinished"
    foreign = root / "notes.txt"
    now = time.time()
    for path, age in (
        (old, 31 * 86400), (recent, 29 * 86400), (other / "x.kernel", 31 * 86400),
        (abandoned, 7200), (growing, 60), (foreign, 10 * 365 * 86400),
    ):  # fmt: skip
        path.write_bytes(b"x")
        os.utime(path, (now - age, now - age))
    run_kernel()
    assert not any(path.exists() for path in (old, abandoned, other))
    assert all(path.exists() for path in (recent, growing, foreign))


def test_a_kernel_in_use_stays(root):
    run_kernel()
    path = only_file(root)
    os.utime(path, (0, 0))
    run_kernel()
    assert time.time() - path.stat().st_mtime < 3600


# --- several processes ----------------------------------------------------------------------

PROCESS = """
import sys
from hybridstereo.kernels.cpu.jit import compiled
import numpy as np

def kernel(a, b):
    return a[0] + b[0]

for dtype in (np.float32, np.float64):
    called = compiled()(kernel)
    assert called(np.full(3, 2, dtype), np.full(3, 5, dtype)) == 7
    print(sum(called.stats.cache_hits.values()))
"""


def test_processes_that_compile_at_once_share_one_cache(tmp_path, root):
    script = tmp_path / "script.py"
    script.write_text(PROCESS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start() -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, script], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def hits(process: subprocess.Popen) -> list[str]:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return out.split()

    for process in [start() for _ in range(3)]:
        hits(process)
    assert sorted(path.suffix for path in diskcache.kept_kernels(root)) == [".kernel"] * 2
    assert hits(start()) == ["1", "1"]


# --- who hears of it --------------------------------------------------------------------------


def test_compiling_is_told_when_that_is_what_happens(root):
    told = []
    for expected in (["compiling kernels (once, a few seconds)"], []):
        with tell_compiling(told.append):
            run_kernel()
        assert told == expected
        told.clear()
    only_file(root).rename(only_file(root).with_name("another.kernel"))
    with tell_compiling(told.append):
        run_kernel()
        assert told == ["compiling kernels (once, a few seconds)"]
        compiled()(lambda x: x)(1)  # and once only
    assert len(told) == 1


def test_nothing_is_told_after_the_block(root):
    told = []
    with tell_compiling(told.append):
        pass
    run_kernel()
    assert told == []


def test_compiling_without_a_cache_is_told_without_a_promise(root, monkeypatch):
    root.write_text("not a folder")
    told = []
    with tell_compiling(told.append):
        run_kernel()
    assert told == ["compiling kernels (a few seconds)"]
