"""Where the results of many pairs go: folders that are made, and swept, as they are needed."""

from __future__ import annotations

from pathlib import Path

from ..io.atomic import create_folder, sweep_leftovers
from ..io.urls import is_url, local_name

# Folders that were looked through for what a killed run left; once is enough.
_swept: set[str] = set()


def folder_of_results(folder: str) -> str:
    """A folder that results can be written to, created if it does not exist.

    Behind a URL there is nothing to create: folders there are parts of names, or appear with the
    first file.

    Raises
    ------
    OutputError
        If it cannot be created or written to.
    """
    return folder if is_url(folder) else str(create_folder(Path(local_name(folder))))


def sweep_once(folder: str) -> None:
    """Remove what an earlier run left half-written, also where this one writes nothing."""
    if folder not in _swept and not is_url(folder):
        _swept.add(folder)
        sweep_leftovers(local_name(folder))
