"""Locks on open files, which the system releases when their process ends, however it ends."""

from __future__ import annotations

import errno
import os
import sys

# Windows keeps others from touching the bytes that are locked: this one lies beyond all contents.
_FAR_BYTE = 1 << 30
_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


def try_lock(descriptor: int) -> bool:
    """Lock an open file for its holder alone, without waiting; closing it releases the lock.

    The lock belongs to the opened file, not to the process: whoever opens the same file again, in
    this process or in another container on this machine, does not get it.

    Parameters
    ----------
    descriptor
        Of a file that is open for writing.

    Returns
    -------
    bool
        Whether the lock was free.

    Raises
    ------
    OSError
        If the file system knows no locks.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise
    return True
