"""Whole files as bytes: regular files only, and never more than expected."""

from __future__ import annotations

import os
import stat

from hybridstereo.errors import InputError, StereoError

COPY_AGAIN = "Copy, download or export the file again"


def checked_size(
    path: str | os.PathLike[str], max_bytes: int, error: type[StereoError] = InputError
) -> int:
    """The size of a regular file that is neither empty nor too large, before it is opened.

    Opening a pipe would wait for ever, and a device such as ``/dev/zero`` has no end.

    Parameters
    ----------
    path
        The file.
    max_bytes
        The largest size that makes sense for it.
    error
        What to raise.

    Raises
    ------
    StereoError
        If there is no such file, it is something else than a file, empty or too large.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError) as failure:
        raise explained(path, failure, error) from failure
    if not stat.S_ISREG(status.st_mode):
        raise error(
            f"{path} is {_kind(status.st_mode)}, not a file",
            hint="Give a file in that folder"
            if stat.S_ISDIR(status.st_mode)
            else "Give the name of a file",
        )
    if status.st_size == 0:
        raise error(f"{path} is empty", hint=COPY_AGAIN)
    if status.st_size > max_bytes:
        raise error(
            f"{path} is too large: it has {status.st_size} bytes, and at most {max_bytes} are read",
            hint="Check that it is the file you mean",
        )
    return status.st_size


def read_file(
    path: str | os.PathLike[str], max_bytes: int, error: type[StereoError] = InputError
) -> bytes:
    """Read a whole regular file; parameters and errors as for `checked_size`."""
    size = checked_size(path, max_bytes, error)
    try:
        with open(path, "rb") as stream:
            return stream.read(size)
    except (OSError, ValueError) as failure:
        raise explained(path, failure, error) from failure


def explained(
    path: str | os.PathLike[str], failure: OSError | ValueError, error: type[StereoError]
) -> StereoError:
    """What the operating system says about a file that cannot be read, as an error of ours."""
    if isinstance(failure, FileNotFoundError):
        return error(f"{path} does not exist", hint="Check the spelling and the folder")
    if isinstance(failure, PermissionError):
        return error(
            f"{path} cannot be read: permission denied", hint="Check the file's permissions"
        )
    reason = getattr(failure, "strerror", None) or failure
    return error(f"{path} cannot be read: {reason}")


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for holds, name in kinds if holds(mode)), "a device")
