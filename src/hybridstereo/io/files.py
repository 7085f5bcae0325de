"""Whole files, URLs and standard input as bytes: only regular files, never more than expected."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import BinaryIO

from hybridstereo.errors import InputError, StereoError
from hybridstereo.io.urls import is_url, local_name

COPY_AGAIN = "Copy, download or export the file again"


def is_standard_stream(source: str | os.PathLike[str]) -> bool:
    """Whether `source` is ``-``, which stands for standard input or output."""
    return os.fspath(source) == "-"


def source_name(source: str | os.PathLike[str]) -> str:
    """Name an input in an error message."""
    return "standard input" if is_standard_stream(source) else os.fspath(source)


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
    if is_url(path):
        raise error(
            f"{path} is a URL, but such files are only read from a disk", hint="Copy it to one"
        )
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
    """Read a whole regular file, or a URL; parameters and errors as for `checked_size`."""
    if is_url(path):
        from hybridstereo.io.url_files import read_url

        return read_url(os.fspath(path), max_bytes, error)
    path = local_name(path)
    size = checked_size(path, max_bytes, error)
    try:
        with open(path, "rb") as stream:
            return stream.read(size)
    except (OSError, ValueError) as failure:
        raise explained(path, failure, error) from failure


def check_reachable(path: str) -> None:
    """Refuse a URL of a kind that nothing here can read; other names are not looked at.

    Raises
    ------
    StereoError
        With what to install.
    """
    if is_url(path):
        from hybridstereo.io.url_files import check_url

        check_url(path)


def is_file(path: str) -> bool:
    """Whether there is a file of that name, or at that URL."""
    if is_url(path):
        from hybridstereo.io.url_files import is_url_file

        return is_url_file(path)
    return os.path.isfile(local_name(path))


def open_stream(path: str) -> BinaryIO:
    """A file, or a URL, that is read part by part.

    Raises
    ------
    InputError
        If there is no such file.
    """
    if is_url(path):
        from hybridstereo.io.url_files import open_url

        return open_url(path)
    try:
        return open(local_name(path), "rb")
    except OSError as failure:
        raise explained(path, failure, InputError) from failure


def read_bytes(source: str | Path, max_bytes: int) -> bytes:
    """Read a whole file, or standard input if `source` is ``-``.

    Parameters
    ----------
    source
        A path, a URL or ``-``.
    max_bytes
        The most that is read; a longer input is refused.

    Returns
    -------
    bytes
        The contents, at least one byte.

    Raises
    ------
    InputError
        If there is nothing to read: no such file, a folder, a pipe or a device, no permission, an
        empty file, or more than `max_bytes`.

    """
    if not is_standard_stream(source):
        return read_file(source, max_bytes)
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            "standard input is a terminal, not a file", hint="Pipe a file into the command"
        )
    try:
        data = sys.stdin.buffer.read(max_bytes + 1)
    except OSError as failure:
        raise explained("standard input", failure, InputError) from failure
    if len(data) > max_bytes:
        raise InputError(f"standard input is too large: at most {max_bytes} bytes are read")
    if not data:
        raise InputError("standard input is empty", hint=COPY_AGAIN)
    return data


def unknown_suffix(
    path: str | os.PathLike[str], kind: str, known: Sequence[str], error: type[StereoError]
) -> StereoError:
    """That the name of a file tells no format for files of a kind, as an error of ours."""
    if not os.fspath(path):
        return error("the name of a file is empty", hint="Give the name of a file")
    suffix = PurePath(path).suffix.lower()
    stated = f"the suffix {suffix}" if suffix else "no suffix"
    return error(
        f"{path} has {stated}, which names no format for {kind}",
        hint=f"Use one of {', '.join(known)}",
    )


def explained(
    path: str | os.PathLike[str], failure: OSError | ValueError, error: type[StereoError]
) -> StereoError:
    """What the operating system says about a file that cannot be read, as an error of ours."""
    if not os.fspath(path):
        return error("the name of a file is empty", hint="Give the name of a file")
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
