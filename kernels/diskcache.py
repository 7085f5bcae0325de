"""Compiled kernels on disk, so that only the first process that needs one compiles it.

A kernel and the types of its arguments make one file.  Its name holds a digest of everything that
the machine code depends on, so that processes which compile at the same time write the same file,
and a changed source looks for another one.  The contents are checked before they are used: what was
cut off or overwritten is compiled anew and replaced.

The files are machine code and pickles.  Whoever can write them can run code as us, and no checksum
helps against that, so nothing is read from a folder or a file that is not ours alone.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import secrets
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hybridstereo import __version__

from .claims import LOCK_NAME, claim_or_wait, release

__all__ = [
    "FOLDER_VARIABLE",
    "CacheFolder",
    "KernelCache",
    "cache_folder",
    "heard_when_compiling",
    "kept_kernels",
    "nothing_kept",
    "remove_kernels",
    "why_not_private",
]

FOLDER_VARIABLE = "HSTEREO_CACHE_DIR"
"""The environment variable that names another folder."""

# Our own folders and files, by their names; nothing else is ever removed.
_FOLDER_NAME = re.compile(r"[\w.+]+-numba[\w.+]+-[\w.+-]+")
_SUFFIX = ".kernel"
_UNFINISHED = ".unfinished"

_UNUSED_SECONDS = 30 * 24 * 3600  # then a kernel is taken for one of an old version
_ABANDONED_SECONDS = 3600  # no file takes that long to write

_HEADER = struct.Struct(">8sQ32s")  # mark, length and SHA-256 of what follows
_MARK = b"HSTEREO1"


_listeners: list[Callable[[], None]] = []


@contextmanager
def heard_when_compiling(listener: Callable[[], None]) -> Iterator[None]:
    """Inside the block, call a function before each kernel that is compiled, or waited for."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@dataclass(frozen=True)
class CacheFolder:
    """Where compiled kernels are kept, or why they are not.

    Attributes
    ----------
    root
        The folder of all versions; None if the system names no place for it.
    folder
        The one of this version, this Numba and this CPU, inside it; None if it is not used.
    problem
        Why no kernels are kept; empty if they are.
    """

    root: Path | None
    folder: Path | None
    problem: str = ""


@cache
def cache_folder() -> CacheFolder:
    """The folder that this process uses, which is made if it is not there."""
    try:
        root = _root()
    except RuntimeError:  # no home folder
        return CacheFolder(None, None, "the home folder is unknown")
    folder = root / _folder_name()
    try:
        for path in (root, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if problem := why_not_private(path):
                return CacheFolder(root, None, problem)
        _write(folder / f"{secrets.token_hex(8)}{_UNFINISHED}", b"x").unlink()
    except OSError as error:
        return CacheFolder(root, None, f"{root} cannot be written: {error.strerror}")
    except ValueError as error:  # a null character in the name
        return CacheFolder(root, None, f"{str(root)!r} cannot be written: {error}")
    return CacheFolder(root, folder)


def why_not_private(path: Path) -> str:
    """Why a folder cannot be trusted to hold only what we wrote; empty if it can."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a folder"
    if not hasattr(os, "getuid"):  # Windows: profiles are private by their access lists
        return ""
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written by other users"
    return ""


def kept_kernels(root: Path) -> Iterator[Path]:
    """The files of all versions below ``root``, complete or not; nothing that is not ours."""
    folders = [entry for entry in _scan(root) if _FOLDER_NAME.fullmatch(entry.name)]
    for folder in folders:
        if folder.is_dir(follow_symlinks=False):
            for entry in _scan(folder.path):
                if entry.name.endswith((_SUFFIX, _UNFINISHED)):
                    yield Path(entry.path)


def nothing_kept() -> bool:
    """Whether kernels could be kept, as far as one can tell without Numba, and none of ours are."""
    try:
        root = _root()
        above = next(path for path in (root, *root.parents) if path.exists())
        if not os.access(above, os.W_OK) or (above == root and why_not_private(root)):
            return False
    except (OSError, RuntimeError, ValueError):
        return False
    ours = f"{_as_name(__version__)}-"
    return not any(path.parent.name.startswith(ours) for path in kept_kernels(root))


def remove_kernels(root: Path, unused_seconds: float = 0.0) -> int:
    """Remove kernels that nobody used for so long, and folders that are empty then.

    Returns
    -------
    int
        Bytes that were freed.
    """
    freed = 0
    now = time.time()
    for path in list(kept_kernels(root)):
        limit = unused_seconds
        if path.name.endswith(_UNFINISHED):
            limit = min(limit, _ABANDONED_SECONDS)
        with suppress(FileNotFoundError):  # another process was faster
            status = path.lstat()
            if now - status.st_mtime >= limit:
                path.unlink()
                freed += status.st_size
    for entry in _scan(root):
        if _FOLDER_NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            with suppress(OSError):  # not empty
                if [x.name for x in _scan(entry.path)] == [LOCK_NAME]:
                    os.unlink(os.path.join(entry.path, LOCK_NAME))
                os.rmdir(entry.path)
    return freed


class KernelCache:
    """Keeps one kernel's machine code; takes the place of Numba's own cache in its dispatcher.

    Numba's own lies beside the sources, fails where these cannot be written, does not notice damage
    or a change of a function in another file, and two processes may mix up their files.

    Parameters
    ----------
    function
        The kernel's Python function.
    dumps
        Pickles what Numba makes of functions; each engine has one.
    compiler
        Name and version of what compiles, beside Numba.
    """

    def __init__(
        self, function: Callable[..., Any], dumps: Callable[[Any], bytes], compiler: str
    ) -> None:
        self._function = function
        self._dumps = dumps
        self._compiler = compiler
        place = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._stem = re.sub(r"[^\w.]", "", place)  # of "outer.<locals>.inner"

    # What an engine has to say.

    def reduce(self, compiled: Any) -> Any:
        """What can be pickled of a compiled kernel; None if it cannot be kept."""
        raise NotImplementedError

    def rebuild(self, target_context: Any, reduced: Any) -> Any:
        """The compiled kernel again."""
        raise NotImplementedError

    # What dispatchers call.

    @property
    def cache_path(self) -> str | None:
        """The folder, if there is one."""
        folder = cache_folder().folder
        return None if folder is None else str(folder)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The kernel for these types of arguments, or None if it has to be compiled."""
        target_context.refresh()  # Numba's own cache does so: loading needs the registries
        path = self._path(signature, target_context.codegen())
        payload = None if path is None else _read(path)
        if payload is None:
            for listener in list(_listeners):
                listener()
            payload = None if path is None else claim_or_wait(path, _read)
        return None if payload is None else self.rebuild(target_context, pickle.loads(payload))

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a kernel that was compiled; without room or permission it is not kept."""
        path = self._path(signature, compiled.codegen)
        if path is None:
            return
        reduced = self.reduce(compiled)
        with suppress(OSError):
            if reduced is not None:
                path.parent.mkdir(mode=0o700, exist_ok=True)  # it may have been cleared meanwhile
                _store(path, self._dumps(reduced))
                _sweep(path.parents[1])
        release(path)

    def enable(self) -> None:
        """Numba's caches can be switched; this one is always on."""

    disable = enable

    def flush(self) -> None:
        """Forget all versions of this kernel."""
        if (folder := cache_folder().folder) is not None:
            for path in folder.glob(f"{self._stem}-*{_SUFFIX}"):
                path.unlink(missing_ok=True)

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        """The file of these types of arguments; None without a folder."""
        folder = cache_folder().folder
        if folder is None:
            return None
        cells = [cell.cell_contents for cell in self._function.__closure__ or ()]
        parts = (
            sys.implementation.cache_tag,
            self._compiler,
            np.__version__,  # arrays may be among the constants
            repr(codegen.magic_tuple()),
            repr(signature),
            self._function.__code__.co_firstlineno,
            self._function.__code__.co_code,
            hashlib.sha256(self._dumps(cells)).hexdigest() if cells else "",
            _sources(),
        )
        key = hashlib.sha256(repr(parts).encode()).hexdigest()
        return folder / f"{self._stem}-{key[:24]}{_SUFFIX}"


def _root() -> Path:
    """The folder of all versions, where the platform keeps such files."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(os.path.abspath(named))
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData/Local") / "hybridstereo/Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/hybridstereo"
    named = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "hybridstereo"


def _folder_name() -> str:
    """The version, Numba's and the kind of CPU: its name and a digest of its instructions."""
    import numba
    from llvmlite import binding

    features = binding.get_host_cpu_features().flatten()
    digest = hashlib.sha256(features.encode()).hexdigest()[:8]
    name = f"{__version__}-numba{numba.__version__}-{binding.get_host_cpu_name()}-{digest}"
    return _as_name(name)


def _as_name(text: str) -> str:
    return re.sub(r"[^\w.+-]", "_", text)


@cache
def _sources() -> str:
    """A digest of all kernels' sources: compiled functions contain others, of other files."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def _sweep(root: Path) -> None:
    """Once in a process that compiled something: remove what no version uses any more."""
    remove_kernels(root, _UNUSED_SECONDS)


def _read(path: Path) -> bytes | None:
    """What was stored under this name; None if it is not there, not ours or not whole."""
    # Opening a pipe would wait for its other end.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None
            mark, length, digest = _HEADER.unpack(header)
            if mark != _MARK or length != os.fstat(file.fileno()).st_size - _HEADER.size:
                return None
            payload = file.read(length)
        if hashlib.sha256(payload).digest() != digest:
            return None
        os.utime(path)  # it is in use: see `_sweep`
    except OSError:
        return None
    return payload


def _is_ours(status: os.stat_result) -> bool:
    """Whether an open file is an ordinary one that only we can have written."""
    if not stat.S_ISREG(status.st_mode):
        return False
    mine = not hasattr(os, "getuid") or status.st_uid == os.geteuid()
    return mine and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _store(path: Path, payload: bytes) -> None:
    """Write a file for `_read` that is complete or not there at all."""
    header = _HEADER.pack(_MARK, len(payload), hashlib.sha256(payload).digest())
    unfinished = path.with_name(f"{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        os.replace(_write(unfinished, header + payload), path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def _write(path: Path, data: bytes) -> Path:
    """Write a new file that nobody else may read or change."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
    return path


def _scan(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """The entries of a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
