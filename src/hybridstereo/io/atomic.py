"""Files that appear complete or not at all, even if the program is killed or the power fails.

What is written goes to a temporary file beside the target, then to the disk, then to its name. A
program that is killed leaves its temporary file behind; the next one that writes into the same
folder removes it. It knows them by their names, and that nobody uses one any more by the lock that
a writer holds on its own until the end: a lock ends with its process, also with one on another
machine or in another container, where process numbers would say nothing.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hybridstereo.errors import OutputError
from hybridstereo.io.locks import try_lock
from hybridstereo.io.urls import is_url, local_name

_HINTS = {
    errno.ENOSPC: "The disk is full: free some space or choose another folder",
    errno.EDQUOT: "Your disk quota is used up: free some space or choose another folder",
    errno.EFBIG: "The file exceeds the size limit of the file system or of this process",
    errno.EROFS: "The file system is read-only: choose another folder",
    errno.ENAMETOOLONG: "Choose a shorter file name",
}
_OTHER_FOLDER = "Choose a folder that you may write to"

_MARK = ".hstereo"
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{12}" + re.escape(_MARK) + r"(\.[^.]*)?", re.DOTALL)
_WINDOWS = sys.platform == "win32"  # where an open file can be neither renamed nor removed
# Once is enough: a folder may hold many files, and a program writes many.
_swept: set[Path] = set()


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Check that a file can be created or replaced at `path`, without touching anything.

    Called before the work starts, so that a misspelt folder costs a second and not an hour.

    Parameters
    ----------
    path
        Where the file will be written; of a URL only its kind is checked.

    Returns
    -------
    Path
        The file that writing will create or replace: `path` with symbolic links followed.

    Raises
    ------
    OutputError
        If the folder is missing or not writable, or `path` is something other than a file.

    """
    if is_url(path):
        from hybridstereo.io.url_files import check_url_writable

        check_url_writable(os.fspath(path))
        return Path(path)
    path = local_name(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:
        raise write_error(path, error) from error

    if mode is not None:
        if stat.S_ISDIR(mode):
            raise OutputError(f"{path} is a folder", hint="Give the name of a file in it")
        if not stat.S_ISREG(mode):
            # os.replace would swap a device such as /dev/null for an ordinary file.
            raise OutputError(
                f"{path} is a device or a pipe, not a file", hint="Give the name of a file"
            )
        if not os.access(path, os.W_OK):
            raise OutputError(
                f"{path} exists and is write-protected",
                hint="Make it writable or choose another name",
            )

    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise OutputError(
            f"{path} cannot be written: the folder {target.parent} does not exist",
            hint="Create the folder first or correct its name",
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(
            f"{path} cannot be written: no permission to create files in {target.parent}",
            hint=_OTHER_FOLDER,
        )
    return target


def create_folder(folder: Path) -> Path:
    """Create a folder and those above it; raise OutputError if that, or writing there, fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(
            f"the folder {folder} cannot be created: {reason}",
            hint=_OTHER_FOLDER,
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(
            f"the folder {folder} is write-protected",
            hint=_OTHER_FOLDER,
        )
    return folder


def check_distinct(
    inputs: Iterable[str | os.PathLike[str] | None],
    outputs: Iterable[str | os.PathLike[str] | None],
) -> None:
    """Refuse outputs that would replace an input or each other; None and ``-`` are no files."""
    files = [
        [str(x) for x in paths if x is not None and str(x) != "-"] for paths in (inputs, outputs)
    ]
    taken = {os.path.realpath(local_name(path)): "an input" for path in files[0]}
    for path in files[1]:
        place = os.path.realpath(local_name(path))
        if place in taken:
            raise OutputError(f"{path} is {taken[place]} already", hint="Choose another name")
        taken[place] = "an output"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file so that `path` never holds a part of it.

    The body writes to a temporary file, which replaces `path` when the body ends normally and is
    removed when it raises anything, including KeyboardInterrupt. Until then, whatever was at `path`
    stays untouched. As with `open`, symbolic links are followed, and the file gets the permissions
    of the one it replaces or, if it is new, those that the umask leaves.

    Parameters
    ----------
    path
        Where the finished file will be; a URL gets it when it is complete
        (`hybridstereo.io.url_files.write_url`).

    Yields
    ------
    Path
        An empty, hidden file in the same folder and with the same suffix as `path`; for a URL, one
        in a temporary folder.

    Raises
    ------
    OutputError
        If the file cannot be written: missing folder, no permission, disk full.

    Examples
    --------
    >>> with atomic_write("disparity.npy") as temporary:  # doctest: +SKIP
    ...     temporary.write_bytes(data)

    """
    if is_url(path):
        from hybridstereo.io.url_files import write_url

        with write_url(os.fspath(path)) as local:
            yield local
        return
    target = check_writable(path)
    if target.parent not in _swept:
        sweep_leftovers(target.parent)
        _swept.add(target.parent)
    temporary = target
    descriptor = None
    try:
        while descriptor is None:
            temporary = _temporary_name(target)
            descriptor = _create(temporary, like=target)
        yield temporary
        # Else a power failure could leave a renamed but empty file.
        os.fsync(descriptor)
        if _WINDOWS:
            os.close(descriptor)
            descriptor = None
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except BaseException as error:
        if descriptor is not None and _WINDOWS:
            os.close(descriptor)
            descriptor = None
        if temporary != target:
            with suppress(OSError):
                temporary.unlink()
        if isinstance(error, OSError) and _concerns(error, temporary):
            raise write_error(path, error) from error
        raise
    finally:
        if descriptor is not None:
            os.close(descriptor)


def sweep_leftovers(folder: str | os.PathLike[str]) -> list[Path]:
    """Remove the temporary files in a folder whose writers are dead, killed while they wrote.

    Files of living writers are locked and stay, as do those in a file system without locks and
    those that belong to somebody else.

    Parameters
    ----------
    folder
        Where to look; not below it.

    Returns
    -------
    list of Path
        What was removed.

    """
    try:
        with os.scandir(folder) as entries:
            found = [
                Path(entry.path)
                for entry in entries
                if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:  # a folder that may be written but not listed
        return []
    return [path for path in found if _remove_abandoned(path)]


def _remove_abandoned(temporary: Path) -> bool:
    """Remove a temporary file unless its writer lives; returns whether it is gone."""
    try:
        if _WINDOWS:  # refuses to remove what somebody has open
            temporary.unlink()
            return True
        descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if not try_lock(descriptor):
            return False
        temporary.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _temporary_name(target: Path) -> Path:
    """A hidden name beside the target that nobody else uses and that `sweep_leftovers` knows."""
    short = target.stem.lstrip(".")[:40]
    return target.with_name(f".{short}.{secrets.token_hex(6)}{_MARK}{target.suffix}")


def _create(temporary: Path, like: Path) -> int | None:
    """Create an empty, locked file with the permissions that `open(like, "w")` would leave.

    Returns its descriptor, or None if somebody swept the file away before it was locked.
    """
    # Not `tempfile`, whose files are always 0600: here the kernel applies umask and default ACL.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    try:
        with suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(like).st_mode))
        kept = True
        with suppress(OSError):  # without locks nobody sweeps either
            kept = try_lock(descriptor)
        if kept and temporary.exists():
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _sync_folder(folder: Path) -> None:
    """Force a new name in a folder to disk; until then a power failure can bring back the old."""
    if _WINDOWS:
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # it may be written but not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network drives
            raise
    finally:
        os.close(descriptor)


def _concerns(error: OSError, temporary: Path) -> bool:
    """Whether an error comes from the file being written, not from another one the body used."""
    return error.filename is None or str(error.filename) == str(temporary)


def write_error(path: str | os.PathLike[str], error: OSError | ValueError) -> OutputError:
    """Turn an error of the operating system into one that names the file the user asked for."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        hint = _HINTS.get(error.errno or 0)
        if isinstance(error, PermissionError):
            hint = _OTHER_FOLDER
    else:  # os.stat raises ValueError for a name with a null character
        reason, hint = str(error), None
    return OutputError(f"{path} cannot be written: {reason}", hint=hint)
