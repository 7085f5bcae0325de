"""Random changes to bytes: what broken disks, broken programs and bad intentions make of a file."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from random import Random

_MOST_GROWTH = 1 << 14  # bytes, so that all mutations stay quick

_NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 10**6, 10**9,
            2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip
_WORDS = (
    b"nan", b"inf", b"-inf", b"1e999", b"-1", b"0", b"1e-320", b"99999999999999999999", b"None",
    b"true", b"null", b"[]", b"{}", b"''", b'"', b"\n", b"\r", b"\0", b",", b"=", b"#", b"(", b")",
    b"0x10", b"1_000", b"\xff\xfe", b"\xef\xbb\xbf", b"\xd9\xa1", b"../../x", b"/dev/zero", b"-",
)  # fmt: skip
_NUMBER_TEXT = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")

Change = Callable[[bytearray, Random, Sequence[bytes]], None]


def _place(data: bytearray, random: Random) -> int:
    """A position; headers, which decide most, come first and are hit more often."""
    return int(len(data) * random.random() ** random.choice((1, 2, 4)))


def _flip(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    data[_place(data, random)] ^= 1 << random.randrange(8)


def _byte(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    data[_place(data, random)] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))


def _number(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    size, place = random.choice((2, 4, 8)), _place(data, random)
    value = random.choice(_NUMBERS) + random.choice((-1, 0, 0, 1))
    order: str = random.choice(("little", "big"))
    packed = (value % 256**size).to_bytes(size, order)  # type: ignore[arg-type]
    data[place : place + size] = packed[: len(data) - place]


def _float(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    value = random.choice((float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 3e38, 1e-45))
    kind, place = random.choice(("<f", ">f", "<d", ">d")), _place(data, random)
    packed = struct.pack(kind, value)
    data[place : place + len(packed)] = packed[: len(data) - place]


def _remove(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    place = _place(data, random)
    del data[place : place + random.choice((1, 2, 4, 16, 256))]


def _cut(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    del data[_place(data, random) :]


def _repeat(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    place, size = _place(data, random), random.choice((1, 4, 12, 64, 1024))
    data[place:place] = data[place : place + size] * random.choice((1, 1, 2, 50))


def _insert(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    place = _place(data, random)
    data[place:place] = random.choice((*_WORDS, random.randbytes(random.choice((1, 4, 40)))))


def _splice(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    start = random.randrange(len(other) + 1)
    data[_place(data, random) :] = other[start:]


def _text_number(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    found = list(_NUMBER_TEXT.finditer(data[:4096]))
    if found:
        where = random.choice(found)
        word = random.choice((*_WORDS, str(random.choice(_NUMBERS)).encode()))
        data[where.start() : where.end()] = word


_CHANGES: tuple[Change, ...] = (
    _flip, _flip, _byte, _number, _number, _float, _remove, _cut, _repeat, _insert, _splice,
    _text_number, _text_number,
)  # fmt: skip


def mutated(seed: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    """A changed copy of ``seed``; parts of ``others`` may appear in it."""
    data = bytearray(seed)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 10))):
        if not data:
            data += random.randbytes(1)
        random.choice(_CHANGES)(data, random, others)
        del data[len(seed) + _MOST_GROWTH :]
    return bytes(data)


# --- checksums put right, or nothing behind them would ever be reached --------------------------


def sealed_png(data: bytes) -> bytes:
    """The same with the checksums of all chunks corrected."""
    out = bytearray(data)
    position = 8
    while position + 12 <= len(out):
        (length,) = struct.unpack_from(">I", out, position)
        end = position + 8 + length
        if end + 4 > len(out):
            break
        struct.pack_into(">I", out, end, zlib.crc32(out[position + 4 : end]))
        position = end + 4
    return bytes(out)


def sealed_zip(data: bytes) -> bytes:
    """The same with the checksums of all members corrected, in both places where they stand."""
    out = bytearray(data)
    for found in re.finditer(rb"PK\x01\x02", data):
        entry = found.start()
        if entry + 46 > len(out):
            break
        (size,) = struct.unpack_from("<I", out, entry + 20)
        (local,) = struct.unpack_from("<I", out, entry + 42)
        if local + 30 > len(out):
            continue
        names, extra = struct.unpack_from("<HH", out, local + 26)
        start = local + 30 + names + extra
        checksum = zlib.crc32(out[start : start + size])
        struct.pack_into("<I", out, entry + 16, checksum)
        struct.pack_into("<I", out, local + 14, checksum)
    return bytes(out)
