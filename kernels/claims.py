"""Which process compiles a kernel: others that need it wait for it instead of compiling it, too.

A claim is a lock on one byte of a file in the folder of the compiled kernels.  The system releases
it when its process ends, however it ends.  A kernel is claimed before the kernels that it calls,
and these never call it, so processes cannot wait for each other in a circle.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

__all__ = ["LOCK_NAME", "claim", "claim_or_wait", "release"]

LOCK_NAME = "compiling.lock"

_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 120.0  # then a process that holds a claim is taken for a stopped one


class _Claims:
    """The claims of this process in one folder."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        # Never closed: that would release all claims.
        self._file = os.open(folder / LOCK_NAME, flags, 0o600)
        self._mutex = threading.Lock()

    def take(self, byte: int) -> bool:
        return self._locked(byte, take=True)

    def release(self, byte: int) -> None:
        self._locked(byte, take=False)

    def _locked(self, byte: int, take: bool) -> bool:
        """Lock or unlock a byte, without waiting; whether nobody else has it."""
        try:
            with self._mutex:
                if sys.platform == "win32":
                    import msvcrt

                    os.lseek(self._file, byte, os.SEEK_SET)
                    msvcrt.locking(self._file, msvcrt.LK_NBLCK if take else msvcrt.LK_UNLCK, 1)
                else:
                    import fcntl

                    command = fcntl.LOCK_EX | fcntl.LOCK_NB if take else fcntl.LOCK_UN
                    fcntl.lockf(self._file, command, 1, byte)
        except OSError as error:
            if error.errno in _HELD:
                return False
            # The file system knows no locks: everybody compiles.
        return True


@cache
def _claims_in(folder: Path, process: int) -> _Claims | None:
    """Those of a folder; None if it cannot be written.  A forked process has claims of its own."""
    try:
        return _Claims(folder)
    except OSError:
        return None


def _byte_of(path: Path) -> int:
    """The place of a kernel's byte; Windows and NFS have offsets of 31 bits at least."""
    return int(path.stem[-24:][:7], 16)


def claim(path: Path) -> bool:
    """Whether this process may compile the kernel of a file; until `release`, no other one may."""
    claims = _claims_in(path.parent, os.getpid())
    return claims is None or claims.take(_byte_of(path))


def release(path: Path) -> None:
    """Let others have the kernel, which is compiled and kept now."""
    claims = _claims_in(path.parent, os.getpid())
    if claims is not None:
        claims.release(_byte_of(path))


def claim_or_wait(path: Path, read: Callable[[Path], bytes | None]) -> bytes | None:
    """The kernel, once another process has compiled it; None if it is up to this one.

    Parameters
    ----------
    path
        The file of the kernel.
    read
        Its contents, or None if it is not there.
    """
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while not claim(path):
        if time.monotonic() > give_up:
            return None
        time.sleep(_POLL_SECONDS)
    # Whoever had it may just have finished, or have been stopped.
    payload = read(path)
    if payload is not None:
        release(path)
    return payload
