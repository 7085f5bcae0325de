"""The cache of compiled kernels, as a user sees it: where it is, how large, and how to empty it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .errors import OutputError
from .kernels.diskcache import (
    FOLDER_VARIABLE,
    cache_folder,
    heard_when_compiling,
    kept_kernels,
    remove_kernels,
    why_not_private,
)


def describe_cache() -> dict[str, str | int | bool | None]:
    """Folder, contents and state of the cache, ready for JSON."""
    place = cache_folder()
    sizes = []
    for path in [] if place.root is None else kept_kernels(place.root):
        with suppress(FileNotFoundError):  # another process has replaced it
            sizes.append(path.lstat().st_size)
    return {
        "folder": None if place.root is None else str(place.root),
        "used": not place.problem,
        "problem": place.problem,
        "kernels": len(sizes),
        "bytes": sum(sizes),
    }


def explain_no_cache() -> str:
    """Why kernels are compiled anew by every process, and what helps; empty if they are kept."""
    problem = cache_folder().problem
    if not problem:
        return ""
    return (
        f"compiled kernels are not kept, so every run compiles them anew: {problem};"
        f" set {FOLDER_VARIABLE} to a folder that only you can write"
    )


@contextmanager
def tell_compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """Until the block ends, tell once that kernels are being compiled; see docs/performance.md."""
    told = False

    def on_compiling() -> None:
        nonlocal told
        if told:
            return
        told = True
        kept = cache_folder().folder is not None  # else `explain_no_cache` has said so
        tell(f"compiling kernels ({'once, ' if kept else ''}a few seconds)")

    with heard_when_compiling(on_compiling):
        yield


def clear_cache() -> int:
    """Remove the compiled kernels of all versions, and nothing else.

    Returns
    -------
    int
        Bytes that were freed.

    Raises
    ------
    OutputError
        If there is no such folder, or others could have put anything there.
    """
    root = cache_folder().root
    if root is None:
        raise OutputError("The home folder is unknown", f"Set {FOLDER_VARIABLE}")
    try:
        problem = why_not_private(root)
        if problem:
            raise OutputError(
                f"The cache is not cleared, since {problem}",
                "Remove it yourself if you know what it holds",
            )
        return remove_kernels(root)
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise OutputError(f"{root} cannot be cleared: {error}") from error
