"""Files behind URLs: the only import of ``fsspec``; read within limits, written complete.

Which kinds there are depends on what is installed beside fsspec: ``memory://`` is part of it,
``http://`` needs aiohttp, ``s3://`` s3fs, ``gs://`` gcsfs.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from hybridstereo.errors import InputError, InstallError, OutputError, StereoError, shortened

try:
    from fsspec import AbstractFileSystem
    from fsspec.core import url_to_fs
except ImportError as error:
    raise InstallError(
        f"URLs such as s3:// cannot be used, since fsspec cannot be imported ({error})",
        "Install it with `pip install 'hybridstereo[remote]'`, and what it needs for that kind of"
        " URL, such as s3fs",
    ) from error

_READ_ONLY = ("http://", "https://")
_STREAMED = {"block_size": 0}  # of HTTP: as it comes, where a server may not give parts
_BUFFER = 1 << 20


def check_url(url: str) -> None:
    """Refuse a kind of URL that nothing here can use; nothing is asked for yet."""
    _opened(url)


def read_url(url: str, max_bytes: int, error: type[StereoError]) -> bytes:
    """Read a whole file; parameters and errors as for `hybridstereo.io.files.checked_size`.

    Its size is asked for first; where storage does not say it, no more than allowed is read.
    """
    system, path = _opened(url)
    with _explained(url, error):
        about = system.info(path)
    size = about.get("size")
    if about.get("type") == "directory":
        raise error(f"{url} is a folder, not a file", "Give a file in that folder")
    too_large = error(
        f"{url} is too large: at most {max_bytes} bytes are read",
        "Check that it is the file you mean",
    )
    if size is not None and size > max_bytes:
        raise too_large
    with _explained(url, error), _stream(system, url, path) as stream:
        data = _read(stream, max_bytes + 1)
    if len(data) > max_bytes:
        raise too_large
    if not data:
        raise error(f"{url} is empty", "Copy, download or export the file again")
    if size is not None and len(data) != size:
        raise StereoError(f"{url} cannot be read: only {len(data)} of {size} bytes came")
    return data


def open_url(url: str) -> BinaryIO:
    """A file to be read line by line, of which no more than a buffer is held."""
    system, path = _opened(url)
    with _explained(url, InputError):
        return io.BufferedReader(_Raw(_stream(system, url, path), url), _BUFFER)


def is_url_file(url: str) -> bool:
    """Whether there is such a file; a complete one, as `write_url` leaves no others.

    Raises
    ------
    StereoError
        If storage does not answer.
    """
    system, path = _opened(url)
    try:
        with _explained(url, _MissingError):
            return bool(system.info(path).get("type") == "file")
    except _MissingError:
        return False


def check_url_writable(url: str) -> None:
    """As `check_url`, also for what can only be read."""
    if url.startswith(_READ_ONLY):
        raise OutputError(f"{url} can be read but not written", "Use storage such as s3://")
    check_url(url)


@contextmanager
def write_url(url: str) -> Iterator[Path]:
    """Write a file so that the URL never holds a part of it.

    The body writes to a local file, which is sent when the body ends normally.  Object stores show
    an upload when it is complete; where a file grows while it is sent, it is sent under another
    name first, and renamed.

    Yields
    ------
    Path
        An empty folder's file of the same suffix, gone afterwards.

    Raises
    ------
    OutputError
        If it cannot be sent.
    """
    check_url_writable(url)
    system, path = _opened(url)
    with TemporaryDirectory(prefix="hstereo-") as folder:
        local = Path(folder, "file" + Path(path).suffix)
        yield local
        try:
            if type(system).mv is AbstractFileSystem.mv:  # which copies: there is no renaming
                system.put_file(str(local), path)
            else:
                _send_and_rename(system, local, path)
        except Exception as failure:  # each kind of storage has errors of its own
            raise OutputError(f"{url} cannot be written: {_reason(failure)}") from failure


def _send_and_rename(system: AbstractFileSystem, local: Path, path: str) -> None:
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name[:40]}.{secrets.token_hex(6)}.hstereo"
    try:
        system.put_file(str(local), temporary)
        system.mv(temporary, path)
    except BaseException:
        with suppress(Exception):
            system.rm_file(temporary)
        raise


class _MissingError(InputError):
    """There is no such file."""


class _Raw(io.RawIOBase):
    """A stream of fsspec's, of which not all kinds can give lines."""

    def __init__(self, stream: Any, url: str) -> None:
        self._stream, self._url = stream, url

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As many bytes as come, at most as many as there is room for."""
        with _explained(self._url, InputError):
            data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Leave the storage."""
        if not self.closed:
            self._stream.close()
        super().close()


def _opened(url: str) -> tuple[AbstractFileSystem, str]:
    """The storage of a URL and the name of the file there."""
    try:
        system, path = url_to_fs(url)
    except ImportError as failure:  # s3fs and others come separately
        raise InstallError(
            f"{shortened(url)} cannot be used: {_reason(failure)}", "Install that package with pip"
        ) from failure
    except Exception as failure:
        raise InputError(
            f"{shortened(url)} cannot be used: {_reason(failure)}",
            "Give a path, or a URL such as s3://bucket/left.png",
        ) from failure
    return system, path


def _stream(system: AbstractFileSystem, url: str, path: str) -> Any:
    return system.open(path, "rb", **(_STREAMED if url.startswith(_READ_ONLY) else {}))


def _read(stream: Any, most: int) -> bytes:
    """Up to so many bytes; a call may give fewer than it is asked for."""
    parts, rest = [], most
    while rest > 0 and (part := stream.read(min(rest, _BUFFER))):
        parts.append(part)
        rest -= len(part)
    return b"".join(parts)


@contextmanager
def _explained(url: str, error: type[StereoError]) -> Iterator[None]:
    """Failures of storage as errors of ours; what may be over with the next try is no ``error``."""
    try:
        yield
    except StereoError:
        raise
    except FileNotFoundError as failure:
        raise error(f"{url} does not exist", "Check the spelling and the folder") from failure
    except PermissionError as failure:
        raise error(
            f"{url} cannot be read: permission denied", "Check the rights of your account"
        ) from failure
    except Exception as failure:  # each kind of storage has errors of its own
        raise StereoError(f"{url} cannot be read: {_reason(failure)}") from failure


def _reason(failure: Exception) -> str:
    said = str(getattr(failure, "strerror", None) or failure).splitlines()
    return shortened(said[0].rstrip("."), 200) if said else type(failure).__name__
