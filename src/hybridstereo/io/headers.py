"""What the header of an image file states: its format and size, before anything is decoded.

A file of a megabyte can state an image of gigabytes.  Sizes are read here in the way that the
decoders (libpng, libjpeg, libtiff and OpenCV's own) read them; where they would be more tolerant,
the file counts as damaged.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_PNG_START = b"\x89PNG\r\n\x1a\n"
_JPEG_START = b"\xff\xd8\xff"
# The formats we decode. OpenCV knows more, but not the same ones in every version, and for some
# (PFM, HDR) it leaves a temporary file behind when the data are damaged.
_FORMATS = (
    (re.compile(re.escape(_PNG_START)), "PNG"),
    (re.compile(re.escape(_JPEG_START)), "JPEG"),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), "TIFF"),
    (re.compile(rb"BM"), "BMP"),
    (re.compile(rb"P[1-6]\s"), "PPM or PGM"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "WebP"),
)
# A JPEG marker that is neither stuffing (FF00), nor filling (FFFF), nor one without a length field.
_JPEG_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
_JPEG_END, _JPEG_SCAN = 0xD9, 0xDA
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Decoding goes over the whole image once for each scan. Progressive files have about ten.
_MOST_SCANS = 200

_PNM_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"  # OpenCV ends a comment at either
_PNM_SIZE = re.compile(rb"P[1-6]" + (_PNM_GAP + rb"(\d{1,9})") * 2 + rb"[\s#]")
_PNM_MAXIMUM = re.compile(rb"P(?P<kind>[2356])" + (_PNM_GAP + rb"(\d{1,9})") * 3)

_BMP_CORE_HEADER, _BMP_LEAST_HEADER = 12, 36

_WEBP_KEY_FRAME, _WEBP_LOSSLESS = b"\x9d\x01\x2a", 0x2F  # what images of either kind begin with
_WEBP_ANIMATED = 0x02
_WEBP_SIDE = 0x3FFF  # 14 bits

_TIFF_BYTES = {1: 1, 3: 2, 4: 4, 16: 8}  # of unsigned integers, by their type
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 256, 257, 322, 323
_TIFF_MOST_ENTRIES = 4096  # libtiff's own limit


@dataclass(frozen=True)
class Header:
    """What a file says about the image in it.

    Attributes
    ----------
    width, height
        Size of the image in pixels.
    pixels
        The largest array that decoding needs: the image, or a tile if that is larger.
    """

    width: int
    height: int
    pixels: int


def image_format(data: bytes) -> str | None:
    """Name the format that a file begins like; None if we read no such format."""
    return next((known for start, known in _FORMATS if start.match(data)), None)


def image_header(data: bytes) -> Header | None:
    """The size that a file of a known format states; None if its header is damaged.

    A PNG, JPEG or WebP file must also reach its end: some versions of OpenCV fill the missing rest
    with grey and report success.
    """
    readers = {
        "PNG": _png_size,
        "JPEG": _jpeg_size,
        "TIFF": _tiff_size,
        "BMP": _bmp_size,
        "PPM or PGM": _pnm_size,
        "WebP": _webp_size,
    }
    try:
        read = readers.get(image_format(data) or "")
        sizes = None if read is None else read(data)
    except struct.error:  # the header reaches beyond the end
        return None
    if sizes is None or min(sizes) < 1:
        return None
    width, height, *tile = sizes
    return Header(width, height, max(width * height, tile[0] * tile[1] if tile else 0))


def pnm_maximum(data: bytes) -> tuple[bytes, int] | None:
    """Kind (``b"5"``) and stated maximum of a PGM or PPM file; None for any other."""
    header = _PNM_MAXIMUM.match(data)
    return None if header is None else (header["kind"], int(header[4]))


def _png_size(data: bytes) -> tuple[int, ...] | None:
    """The size in IHDR, provided that the chunks (length, kind, contents, checksum) reach IEND."""
    kind, width, height = struct.unpack_from(">4sII", data, len(_PNG_START) + 4)
    if kind != b"IHDR":
        return None
    position = len(_PNG_START)
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        position += 12 + length
        if kind == b"IEND":
            return (width, height) if position <= len(data) else None
    return None


def _jpeg_size(data: bytes) -> tuple[int, ...] | None:
    """The size in the first frame header, provided that the segments reach the end marker."""
    size = None
    scans = 0
    for marker, position in _jpeg_segments(data):
        if marker == _JPEG_END:
            return size
        if marker in _JPEG_FRAMES and size is None:
            height, width = struct.unpack_from(">HH", data, position + 3)
            size = width, height
        scans += marker == _JPEG_SCAN
        if scans > _MOST_SCANS:
            return None
    return None


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """The markers and where their segments begin.

    Searching for the end marker alone would find the one of the thumbnail in the EXIF segment.
    """
    marker = _JPEG_MARKER.search(data, len(_JPEG_START) - 1)
    while marker is not None:
        yield data[marker.end() - 1], marker.end()
        length = int.from_bytes(data[marker.end() : marker.end() + 2], "big")
        marker = _JPEG_MARKER.search(data, marker.end() + length)


def _tiff_size(data: bytes) -> tuple[int, ...] | None:
    """Size of the first image, and of its tiles if it has any."""
    order = "<" if data.startswith(b"II") else ">"
    if b"+" in data[:4]:  # BigTIFF
        (start,) = struct.unpack_from(f"{order}Q", data, 8)
        count_format, entry_format = f"{order}Q", f"{order}HHQ8s"
    else:
        (start,) = struct.unpack_from(f"{order}I", data, 4)
        count_format, entry_format = f"{order}H", f"{order}HHI4s"
    if start >= len(data):
        return None
    (entries,) = struct.unpack_from(count_format, data, start)
    if entries > _TIFF_MOST_ENTRIES:
        return None
    found: dict[int, int] = {}
    position = start + struct.calcsize(count_format)
    for _ in range(entries):
        tag, kind, count, value = struct.unpack_from(entry_format, data, position)
        position += struct.calcsize(entry_format)
        if tag in (_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT):
            if kind not in _TIFF_BYTES or count != 1 or _TIFF_BYTES[kind] > len(value):
                return None
            number = int.from_bytes(value[: _TIFF_BYTES[kind]], "little" if order == "<" else "big")
            found.setdefault(tag, number)  # of a tag given twice libtiff takes the first
    if _TIFF_WIDTH not in found or _TIFF_HEIGHT not in found:
        return None
    size = found[_TIFF_WIDTH], found[_TIFF_HEIGHT]
    if _TIFF_TILE_WIDTH in found or _TIFF_TILE_HEIGHT in found:
        return (*size, found.get(_TIFF_TILE_WIDTH, 0), found.get(_TIFF_TILE_HEIGHT, 0))
    return size


def _bmp_size(data: bytes) -> tuple[int, ...] | None:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    if header_bytes >= _BMP_LEAST_HEADER:
        width, height = struct.unpack_from("<ii", data, 18)
    elif header_bytes == _BMP_CORE_HEADER:
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        return None
    return width, abs(height)  # negative: rows from the top down


def _pnm_size(data: bytes) -> tuple[int, ...] | None:
    size = _PNM_SIZE.match(data)
    return None if size is None else (int(size[1]), int(size[2]))


def _webp_size(data: bytes) -> tuple[int, ...] | None:
    """The size that the first chunk states: lossy, lossless, or extended but not animated."""
    (length,) = struct.unpack_from("<I", data, 4)
    if length + 8 > len(data):
        return None
    kind, start = data[12:16], 20
    if kind == b"VP8 ":
        if data[start + 3 : start + 6] != _WEBP_KEY_FRAME:
            return None
        width, height = struct.unpack_from("<HH", data, start + 6)
        return width & _WEBP_SIDE, height & _WEBP_SIDE
    if kind == b"VP8L":
        signature, packed = struct.unpack_from("<BI", data, start)
        if signature != _WEBP_LOSSLESS:
            return None
        return (packed & _WEBP_SIDE) + 1, (packed >> 14 & _WEBP_SIDE) + 1
    if kind == b"VP8X":
        (flags,) = struct.unpack_from("<B", data, start)
        sides = struct.unpack_from("<HBHB", data, start + 4)
        if flags & _WEBP_ANIMATED:
            return None
        return (sides[0] | sides[1] << 16) + 1, (sides[2] | sides[3] << 16) + 1
    return None
