"""PLY files as their specification describes them, read without any code of ours."""

from __future__ import annotations

import struct
from pathlib import Path

_CODES = {"char": "b", "uchar": "B", "short": "h", "ushort": "H", "int": "i", "uint": "I",
          "float": "f", "double": "d"}  # fmt: skip
_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">"}


def read_ply(path: Path) -> tuple[list[str], list[tuple]]:
    """The names of the properties of a point, and the points; nothing may follow them."""
    data = path.read_bytes()
    head, _, body = data.partition(b"end_header\n")
    lines = head.decode("ascii").split("\n")
    assert lines[0] == "ply"
    assert lines[-1] == ""
    words = [line.split() for line in lines[1:-1] if not line.startswith("comment ")]
    (_, kind, version), (element, name, count), *properties = words
    assert (version, element, name) == ("1.0", "element", "vertex")
    assert all(word == "property" for word, *_ in properties)
    point = struct.Struct(_ORDERS[kind] + "".join(_CODES[kind] for _, kind, _ in properties))
    assert len(body) == int(count) * point.size
    return [name for *_, name in properties], list(point.iter_unpack(body))
