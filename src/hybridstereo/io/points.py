"""Point clouds as PLY files, which MeshLab, CloudCompare, Open3D and others read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import OutputError
from hybridstereo.io.atomic import atomic_write, check_writable

_POINT = np.dtype(
    [(name, "<f4") for name in ("x", "y", "z")]
    + [(name, "u1") for name in ("red", "green", "blue")]
)
_TYPES = {"<f4": "float", "|u1": "uchar"}
# Points that are put together at once: 15 MB.
_CHUNK = 1 << 20


def check_ply_output(path: str | Path) -> None:
    """Check that `write_ply` will be able to write to ``path``, before the work starts.

    Raises
    ------
    OutputError
        If the suffix is another one, or the folder is missing or not writable.
    """
    if Path(path).suffix.lower() != ".ply":
        raise OutputError(f"{path} does not end in .ply", "Point clouds are written as PLY only")
    check_writable(path)


def write_ply(
    path: str | Path,
    positions: NDArray[np.floating],
    colors: NDArray[np.uint8],
    comments: tuple[str, ...] = (),
) -> None:
    """Write coloured points, binary and little-endian.

    Parameters
    ----------
    path
        A name that ends in ``.ply``.
    positions
        (N, 3).
    colors
        (N, 3), RGB.
    comments
        Lines for the header, in ASCII.

    Raises
    ------
    OutputError
        If the suffix is another one or the file cannot be written.
    """
    if positions.ndim != 2 or positions.shape[1] != 3 or colors.shape != positions.shape:
        raise ValueError(f"expected two arrays (N, 3), got {positions.shape} and {colors.shape}")
    check_ply_output(path)
    properties = [f"property {_TYPES[_POINT[name].str]} {name}" for name in _POINT.names or ()]
    header = [
        "ply",
        "format binary_little_endian 1.0",
        *(f"comment {comment}" for comment in comments),
        f"element vertex {len(positions)}",
        *properties,
        "end_header",
    ]
    with atomic_write(path) as temporary, open(temporary, "wb") as stream:
        stream.write("".join(f"{line}\n" for line in header).encode("ascii"))
        for start in range(0, len(positions), _CHUNK):
            part = slice(start, start + _CHUNK)
            points = np.empty(len(positions[part]), _POINT)
            for axis, name in enumerate("xyz"):
                points[name] = positions[part, axis]
            for channel, name in enumerate(("red", "green", "blue")):
                points[name] = colors[part, channel]
            stream.write(points.tobytes())
