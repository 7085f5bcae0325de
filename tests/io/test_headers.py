"""Sizes from headers: what OpenCV decodes is what they state, and nothing too large is decoded."""

from __future__ import annotations

import struct
import zlib

import cv2
import numpy as np
import pytest

from hybridstereo.errors import InputError
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.headers import image_header
from hybridstereo.io.images import decode_pixels, read_image
from hybridstereo.io.mask import read_mask
from hybridstereo.limits import MAX_PIXELS


def encoded(suffix: str, pixels: np.ndarray, *parameters: int) -> bytes:
    done, data = cv2.imencode(suffix, pixels, parameters)
    assert done
    return bytes(data)


def png(width: int, height: int) -> bytes:
    """A black PNG of one bit per pixel, complete and valid."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)

    packer = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


GREY = np.zeros((3, 5), np.uint8)
FILES = {
    "png": encoded(".png", GREY),
    "png 16 bit": encoded(".png", GREY.astype(np.uint16)),
    "jpeg": encoded(".jpg", GREY),
    "progressive jpeg": encoded(".jpg", GREY, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "tiff": encoded(".tif", GREY),
    "float tiff": encoded(".tif", GREY.astype(np.float32)),
    "bmp": encoded(".bmp", GREY),
    "ppm": encoded(".ppm", np.zeros((3, 5, 3), np.uint8)),
    "pgm": encoded(".pgm", GREY),
    "pgm with comments": b"P5 #one\n # two\r5 #three\n3 255\n" + bytes(15),
    "pgm as text": b"P2 5 3 255\n" + b"0 " * 15,
    "webp": encoded(".webp", GREY, cv2.IMWRITE_WEBP_QUALITY, 80),
    "lossless webp": encoded(".webp", GREY, cv2.IMWRITE_WEBP_QUALITY, 101),
    "webp with alpha": encoded(
        ".webp", np.zeros((3, 5, 4), np.uint8), cv2.IMWRITE_WEBP_QUALITY, 80
    ),
    "pbm": b"P4 5 3\n" + bytes(3),
    "pbm as text": b"P1 5 3\n" + b"0 " * 15,
}


@pytest.mark.parametrize("name", FILES)
def test_header_states_what_opencv_decodes(name):
    header = image_header(FILES[name])
    assert header is not None
    assert (header.height, header.width, header.pixels) == (3, 5, 15)
    assert decode_pixels(FILES[name], name).shape[:2] == (3, 5)


@pytest.mark.parametrize("name", FILES)
def test_images_beyond_the_limit_are_not_decoded(name, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", None)
    with pytest.raises(InputError, match="states 5x3 pixels, more than the 14 that are read"):
        decode_pixels(FILES[name], name, max_pixels=14)


@pytest.mark.parametrize("name", FILES)
def test_headers_that_are_cut_short(name):
    for length in range(2, min(len(FILES[name]), 60)):
        header = image_header(FILES[name][:length])
        # Only the rows may be missing: then the size is known, and OpenCV finds out.
        assert header is None or (header.height, header.width) == (3, 5)


def test_a_small_file_of_a_huge_image(tmp_path, monkeypatch):
    """A gigapixel needs 6 GB; this says so at once."""
    path = tmp_path / "huge.png"
    path.write_bytes(png(30000, 30000))
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(cv2, "imdecode", None)
    for read in (read_image, read_disparity, read_mask):
        with pytest.raises(InputError, match="states 30000x30000 pixels"):
            read(path)


def test_the_default_limit_is_exact(monkeypatch):
    sizes = []
    monkeypatch.setattr(cv2, "imdecode", lambda *_: sizes.append("decoded"))
    stated = FILES["png"].replace(
        struct.pack(">II", 5, 3), struct.pack(">II", MAX_PIXELS // 100, 100)
    )
    with pytest.raises(InputError, match="damaged"):
        decode_pixels(stated, "stated")
    assert sizes == ["decoded"]


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        (".pfm", b"Pf\n5 3\n-1\n" + bytes(60)),
        (".npy", None),
        (".tif", FILES["float tiff"]),
        (".png", FILES["png 16 bit"]),
    ],
)
def test_maps_beyond_the_limit(tmp_path, suffix, data):
    path = tmp_path / f"map{suffix}"
    if data is None:
        np.save(path, np.zeros((3, 5), np.float32))
    else:
        path.write_bytes(data)
    assert read_disparity(path, max_pixels=15).shape == (3, 5)
    with pytest.raises(InputError, match="states 5x3 pixels, more than the 14"):
        read_disparity(path, max_pixels=14)


@pytest.mark.parametrize("limit", [0, -1, 2**31, 1.5, True, "many"])
def test_limits_that_are_none(limit):
    with pytest.raises(InputError, match="`max_pixels` is"):
        decode_pixels(FILES["png"], "x", max_pixels=limit)


def test_tiles_larger_than_any_image():
    """OpenCV would allocate a tile, however small the image."""
    tags = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 322: 60000, 323: 60000}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    data = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    with pytest.raises(InputError, match="tiles of 3600000000 pixels"):
        decode_pixels(data, "tiled")


def test_big_tiff_states_its_size():
    tags = {256: 7, 257: 2**40}
    entries = b"".join(struct.pack(">HHQQ", tag, 16, 1, value) for tag, value in tags.items())
    data = b"MM\0+" + struct.pack(">HHQQ", 8, 0, 16, len(tags)) + entries
    header = image_header(data)
    assert header is not None
    assert (header.width, header.height) == (7, 2**40)


def test_a_jpeg_of_too_many_scans():
    """Each scan is another pass over the whole image: a known way to keep a decoder busy."""
    data = FILES["progressive jpeg"]
    scan = data[data.rindex(b"\xff\xda") : -2]
    assert image_header(data) is not None
    assert image_header(data[:-2] + 300 * scan + data[-2:]) is None


def test_webp_that_is_no_single_image():
    animated = bytearray(FILES["webp"])
    animated[12:16] = b"VP8X"
    animated[20] = 0x02
    assert image_header(bytes(animated)) is None
    animated[12:16] = b"ALPH"
    assert image_header(bytes(animated)) is None
    for kind in ("webp", "lossless webp"):
        wrong = bytearray(FILES[kind])
        wrong[20:26] = bytes(6)
        assert image_header(bytes(wrong)) is None


def test_extended_webp_states_its_canvas():
    canvas = struct.pack("<IHBHB", 0, 4, 0, 2, 0)
    body = b"WEBPVP8X" + struct.pack("<I", len(canvas)) + canvas
    header = image_header(b"RIFF" + struct.pack("<I", len(body)) + body)
    assert (header.width, header.height) == (5, 3)
