from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hybridstereo.errors import InputError, OutputError, StereoError
from hybridstereo.io.images import (
    check_image_output,
    decode_image,
    read_image,
    read_pair,
    write_image,
)

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6


def encode(suffix: str, pixels: np.ndarray) -> bytes:
    done, data = cv2.imencode(suffix, pixels)
    assert done
    return data.tobytes()


def chunk(kind: bytes, contents: bytes) -> bytes:
    return (
        struct.pack(">I", len(contents))
        + kind
        + contents
        + struct.pack(">I", zlib.crc32(kind + contents))
    )


def png(colour_type: int, depth: int, rows: list[bytes], width: int, extra: bytes = b"") -> bytes:
    """A PNG file from scratch, for the kinds that OpenCV does not write."""
    header = struct.pack(">IIBBBBB", width, len(rows), depth, colour_type, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + extra
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def tiff(height: int, width: int, values: np.ndarray, sample_format: int) -> bytes:
    """A grey TIFF file whose directory precedes its data, as most programs write it."""
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    tags = [
        (256, width),
        (257, height),
        (258, values.itemsize * 8),
        (259, 1),
        (262, 1),
        (273, 8 + 2 + 12 * 10 + 4),
        (277, 1),
        (278, height),
        (279, len(data)),
        (339, sample_format),
    ]
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + directory + bytes(4) + data


@pytest.fixture
def photo() -> np.ndarray:
    """RGB with smooth content, so that JPEG stays close to it."""
    y, x = np.mgrid[0:48, 0:64]
    return np.stack([x * 4, y * 5, 255 - x * 3], axis=2).astype(np.uint8)


@pytest.fixture
def stdin(monkeypatch):
    def feed(data: bytes, terminal: bool = False) -> None:
        fake = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: terminal)
        monkeypatch.setattr(sys, "stdin", fake)

    return feed


# --- what can be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm", ".bmp"])
def test_lossless_colour_formats_are_exact(tmp_path, photo, suffix):
    path = tmp_path / f"left{suffix}"
    path.write_bytes(encode(suffix, photo[..., ::-1]))
    image = read_image(path)
    assert image.dtype == np.float32
    assert image.flags.c_contiguous
    np.testing.assert_array_equal(image, photo.astype(np.float32) / np.float32(255))


@pytest.mark.parametrize(("quality", "error"), [(80, 0.03), (101, 1e-6)])
def test_webp(tmp_path, photo, quality, error):
    _, data = cv2.imencode(".webp", photo[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, quality])
    (tmp_path / "left.webp").write_bytes(bytes(data))
    assert np.abs(read_image(tmp_path / "left.webp") - photo / 255).mean() < error


def test_jpeg(tmp_path, photo):
    (tmp_path / "left.jpg").write_bytes(encode(".jpg", photo[..., ::-1]))
    image = read_image(tmp_path / "left.jpg")
    assert np.abs(image - photo / 255).mean() < 0.02


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm"])
def test_sixteen_bit_is_divided_by_65535(photo, suffix):
    wide = photo.astype(np.uint16) * 257 - photo  # uses the low byte too
    image = decode_image(encode(suffix, wide[..., ::-1]), "left")
    np.testing.assert_array_equal(image, wide.astype(np.float32) / np.float32(65535))


@pytest.mark.parametrize("suffix", [".png", ".pgm", ".tif", ".jpg"])
def test_grey_becomes_three_equal_channels(photo, suffix):
    grey = photo[..., 0]
    image = decode_image(encode(suffix, grey), "left")
    assert image.shape == (*grey.shape, 3)
    np.testing.assert_array_equal(image, np.repeat(image[..., :1], 3, axis=2))
    assert np.abs(image[..., 0] - grey / 255).mean() < 0.02


@pytest.mark.parametrize(("depth", "code"), [(8, "B"), (16, ">H")])
def test_alpha_is_dropped_not_blended(depth, code):
    white = 2**depth - 1
    for colour_type, pixel, expected in (
        (GREY_ALPHA, [white // 5, 0], [0.2, 0.2, 0.2]),
        (RGBA, [white, white // 5, 0, white // 2], [1, 0.2, 0]),
    ):
        row = b"".join(struct.pack(code, value) for value in pixel)
        image = decode_image(png(colour_type, depth, [row], width=1), "left")
        np.testing.assert_allclose(image, [[expected]], atol=1e-6)


@pytest.mark.parametrize("transparency", [b"", chunk(b"tRNS", b"\x80\x00")])
def test_palette(transparency):
    palette = chunk(b"PLTE", bytes([255, 0, 0, 0, 51, 255]))
    data = png(PALETTE, 8, [b"\x00\x01"], width=2, extra=palette + transparency)
    np.testing.assert_array_equal(
        decode_image(data, "left"), np.float32([[[1, 0, 0], [0, 0.2, 1]]])
    )


def test_one_bit_image_uses_the_full_range():
    image = decode_image(png(GREY, 1, [b"\x40"], width=2), "left")
    np.testing.assert_array_equal(image[0, :, 0], [0, 1])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"P5\n# ten bit\n2 1\n1023\n\x00\x00\x03\xff", [0, 1]),
        (b"P5 2 1 100\n\x32\x64", [0.5, 1]),
        (b"P5 2 1 100\n\x32\xff", [0.5, 1]),  # above its own maximum
        (b"P2\n2 1\n15\n3 15\n", [0.2, 1]),
        (b"P2\n2 1\n1023\n0 1023\n", [0, 1]),
        (b"P5 2 1 255\n\x33\xff", [0.2, 1]),
        (b"P5 2 1 65535\n\x33\x33\xff\xff", [0.2, 1]),
    ],
)
def test_pgm_maximum_is_the_white_level(data, expected):
    np.testing.assert_allclose(decode_image(data, "left")[0, :, 0], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_image_in_the_unit_range_is_kept(dtype):
    values = np.array([[0, 0.25, 1]], dtype)
    image = decode_image(tiff(1, 3, values, sample_format=3), "left")
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image[..., 1], values)


def test_orientation_tag_is_ignored(photo):
    # An EXIF segment that asks for a rotation by 90 degrees, right after the start marker.
    tag = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)
    body = b"Exif\0\0" + b"MM\0*\0\0\0\x08" + struct.pack(">H", 1) + tag + bytes(4)
    plain = encode(".jpg", photo[..., ::-1])
    turned = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:]
    data = np.frombuffer(turned, np.uint8)
    assert cv2.imdecode(data, cv2.IMREAD_COLOR).shape[:2] == (64, 48), "the tag has no effect"
    np.testing.assert_array_equal(decode_image(turned, "left"), decode_image(plain, "left"))


def test_path_beyond_ascii(tmp_path, photo):
    path = tmp_path / "süd-左.png"
    path.write_bytes(encode(".png", photo))
    assert read_image(str(path)).shape == photo.shape


def test_standard_input(stdin, photo):
    stdin(encode(".png", photo[..., ::-1]))
    np.testing.assert_array_equal(read_image("-"), photo.astype(np.float32) / np.float32(255))


def test_standard_input_of_a_real_process(photo):
    program = "from hybridstereo.io.images import read_image; print(read_image('-').shape)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=encode(".png", photo),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == "(48, 64, 3)"


@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.uint16]),
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3)),
    ),
    st.sampled_from([".png", ".tif", ".ppm"]),
)
def test_lossless_round_trip(pixels, suffix):
    image = decode_image(encode(suffix, np.ascontiguousarray(pixels[..., ::-1])), "left")
    white = np.iinfo(pixels.dtype).max
    np.testing.assert_array_equal(np.rint(image.astype(np.float64) * white), pixels)


# --- what cannot be read ------------------------------------------------------------------------


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"left\.png does not exist"):
        read_image(tmp_path / "left.png")


def test_folder_instead_of_file(tmp_path):
    with pytest.raises(InputError, match="is a folder, not a file"):
        read_image(tmp_path)


def test_empty_file(tmp_path):
    (tmp_path / "left.png").touch()
    with pytest.raises(InputError, match=r"left\.png is empty"):
        read_image(tmp_path / "left.png")


def test_empty_data():
    with pytest.raises(InputError, match="left is empty"):
        decode_image(b"", "left")


def test_null_character_in_the_name():
    with pytest.raises(InputError, match="cannot be read"):
        read_image("a\0b.png")


def test_not_an_image():
    with pytest.raises(InputError, match="notes is not an image") as caught:
        decode_image(b"Dear diary, today", "notes")
    assert "PNG" in caught.value.hint


@pytest.mark.parametrize("suffix", [".pfm", ".hdr"])
def test_formats_that_are_not_for_cameras_are_refused(suffix):
    data = encode(suffix, np.full((4, 5, 3), 0.5, np.float32))
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) is not None
    with pytest.raises(InputError, match="left is not an image that can be read"):
        decode_image(data, "left")


@pytest.mark.parametrize("removed", [1, 12, 30])
def test_webp_cut_short(photo, removed):
    with pytest.raises(InputError, match="damaged or cut short"):
        decode_image(encode(".webp", photo)[:-removed], "left")


@pytest.mark.parametrize("removed", [1, 12, 100])
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".ppm", ".bmp"])
def test_cut_short(photo, suffix, removed):
    with pytest.raises(InputError, match="damaged or cut short"):
        decode_image(encode(suffix, photo)[:-removed], "left")


@pytest.mark.parametrize("removed", [1, 100, 3000])
def test_tiff_with_leading_directory_cut_short(photo, removed):
    data = tiff(48, 64, photo[..., 0], sample_format=1)
    assert decode_image(data, "left").shape == (48, 64, 3)
    with pytest.raises(InputError, match="TIFF file that is damaged or cut short"):
        decode_image(data[:-removed], "left")


def test_end_marker_of_a_jpeg_thumbnail_does_not_count(photo):
    data = encode(".jpg", photo)
    thumbnail = encode(".jpg", photo[:8, :8])
    segment = b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    with_thumbnail = data[:2] + segment + data[2:]
    np.testing.assert_array_equal(decode_image(with_thumbnail, "left"), decode_image(data, "left"))
    with pytest.raises(InputError, match="cut short"):
        decode_image(with_thumbnail[:-200], "left")


def test_progressive_jpeg_with_several_scans(photo):
    _, data = cv2.imencode(".jpg", photo, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])
    assert decode_image(data.tobytes(), "left").shape == photo.shape
    with pytest.raises(InputError, match="cut short"):
        decode_image(data.tobytes()[:-40], "left")


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_bytes_after_the_end_are_harmless(photo, suffix):
    data = encode(suffix, photo)
    np.testing.assert_array_equal(
        decode_image(data + b"\0" * 64, "left"), decode_image(data, "left")
    )


def test_flipped_bit_in_a_png(photo):
    data = bytearray(encode(".png", photo))
    data[len(data) // 2] ^= 0x10
    with pytest.raises(InputError, match="PNG file that is damaged"):
        decode_image(bytes(data), "left")


def test_absurd_declared_size():
    data = png(RGB, 8, [bytes(3)], width=1)
    huge = data.replace(
        chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, RGB, 0, 0, 0)),
        chunk(b"IHDR", struct.pack(">IIBBBBB", 10**6, 10**6, 8, RGB, 0, 0, 0)),
    )
    assert huge != data
    with pytest.raises(InputError, match="states 1000000x1000000 pixels, more than the 100000000"):
        decode_image(huge, "left")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_float_image_that_is_not_finite(value):
    with pytest.raises(InputError, match="NaN or infinite"):
        decode_image(tiff(1, 2, np.float32([[0.5, value]]), sample_format=3), "left")


@pytest.mark.parametrize("value", [200, -0.5])
def test_float_image_beyond_the_unit_range(value):
    with pytest.raises(InputError, match="not 0 to 1") as caught:
        decode_image(tiff(1, 2, np.float32([[0.5, value]]), sample_format=3), "left")
    assert "white level" in caught.value.hint


def test_signed_integers_have_no_white_level():
    with pytest.raises(InputError, match="int16 pixels"):
        decode_image(tiff(1, 2, np.int16([[1, 2]]), sample_format=2), "left")


def test_too_many_channels(monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: np.zeros((2, 2, 7), np.uint8))
    with pytest.raises(InputError, match="7 channels"):
        decode_image(encode(".tif", np.zeros((2, 2, 3), np.uint8)), "left")


def test_keyboard_as_standard_input(stdin):
    stdin(b"", terminal=True)
    with pytest.raises(InputError, match="standard input is a terminal"):
        read_image("-")


def test_nothing_on_standard_input(stdin):
    stdin(b"")
    with pytest.raises(InputError, match="standard input is empty"):
        read_image("-")


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm"])
def test_libraries_stay_silent_about_damage(photo, suffix, capfd):
    data = encode(suffix, photo)
    with pytest.raises(InputError):
        decode_image(data[: len(data) // 2] + bytes(40) + data[len(data) // 2 + 60 :], "left")
    os.write(2, b"still connected")
    assert capfd.readouterr().err == "still connected"


def test_other_threads_keep_their_standard_error(photo, monkeypatch, capfd):
    def decode_and_report(*_: object) -> None:
        os.write(2, b"from another thread")

    monkeypatch.setattr(cv2, "imdecode", decode_and_report)
    release = threading.Event()
    other = threading.Thread(target=release.wait)
    other.start()
    try:
        with pytest.raises(InputError):
            decode_image(encode(".tif", photo), "left")
    finally:
        release.set()
        other.join()
    assert capfd.readouterr().err == "from another thread"


BEGINNINGS = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"BM", b"P5\n", b"P6 2 2 255\n"]


@given(st.sampled_from(BEGINNINGS), st.binary(max_size=200))
@example(b"\xff\xd8\xff", b"\xe0\x00")
@example(b"\xff\xd8\xff", b"\xd9")
@example(b"\x89PNG\r\n\x1a\n", b"\0\0\0\0IEND\0\0\0\0")
def test_arbitrary_bytes_give_an_image_or_a_clear_error(beginning, rest):
    try:
        image = decode_image(beginning + rest, "left")
    except StereoError:
        return
    assert image.ndim == 3
    assert image.min() >= 0
    assert image.max() <= 1


@given(st.sampled_from([".png", ".jpg", ".ppm", ".bmp"]), st.data())
def test_damaged_files_give_an_image_or_a_clear_error(suffix, data):
    intact = encode(suffix, np.arange(8 * 9 * 3, dtype=np.uint8).reshape(8, 9, 3))
    damaged = bytearray(intact[: data.draw(st.integers(1, len(intact)), label="length")])
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=3)):
        damaged[position] ^= data.draw(st.integers(1, 255))
    try:
        image = decode_image(bytes(damaged), "left")
    except StereoError:
        return
    assert image.dtype == np.float32
    assert image.shape[2] == 3


# --- pairs --------------------------------------------------------------------------------------


def test_pair(tmp_path, photo):
    for name, pixels in (("left.png", photo), ("right.png", photo[:, ::-1])):
        (tmp_path / name).write_bytes(encode(".png", pixels))
    left, right = read_pair(tmp_path / "left.png", tmp_path / "right.png")
    np.testing.assert_array_equal(left, right[:, ::-1])
    assert left[0, 0, 0] != right[0, 0, 0]


def test_pair_with_one_image_from_standard_input(tmp_path, photo, stdin):
    (tmp_path / "left.png").write_bytes(encode(".png", photo))
    stdin(encode(".png", photo))
    left, right = read_pair(tmp_path / "left.png", "-")
    np.testing.assert_array_equal(left, right)


def test_pair_of_different_sizes(tmp_path):
    (tmp_path / "a.png").write_bytes(encode(".png", np.zeros((480, 640), np.uint8)))
    (tmp_path / "b.png").write_bytes(encode(".png", np.zeros((240, 320), np.uint8)))
    with pytest.raises(
        InputError, match=r"left is 640x480 \(.*a\.png\) but right is 320x240 \(.*b\.png\)"
    ):
        read_pair(tmp_path / "a.png", tmp_path / "b.png")


def test_pair_cannot_share_standard_input():
    with pytest.raises(InputError, match="only one of the two images"):
        read_pair("-", Path("-"))


# --- writing ------------------------------------------------------------------------------------


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_written_png_reads_back_exactly(tmp_path_factory, pixels):
    path = tmp_path_factory.getbasetemp() / "round-trip.png"
    write_image(path, pixels)
    np.testing.assert_array_equal(np.rint(read_image(path) * 255), pixels)


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".JPG"])
def test_written_jpeg(tmp_path, photo, suffix):
    path = tmp_path / f"picture{suffix}"
    write_image(path, photo)
    assert path.read_bytes().startswith(b"\xff\xd8\xff")
    assert np.abs(read_image(path) - photo / 255).mean() < 0.02


@pytest.mark.parametrize("name", ["picture", "picture.pfm"])
def test_written_image_needs_a_known_suffix(tmp_path, photo, name):
    for write in (check_image_output, lambda path: write_image(path, photo)):
        with pytest.raises(OutputError, match="no suffix that names an image format"):
            write(tmp_path / name)


def test_missing_folder_is_noticed_before_the_work(tmp_path):
    with pytest.raises(OutputError, match="does not exist"):
        check_image_output(tmp_path / "nowhere" / "picture.png")


def test_check_of_a_good_output_leaves_no_trace(tmp_path):
    check_image_output(tmp_path / "picture.png")
    assert not list(tmp_path.iterdir())


def test_image_that_the_format_cannot_hold(tmp_path):
    with pytest.raises(OutputError, match=r"cannot hold an image of 1x70000"):
        write_image(tmp_path / "tower.jpg", np.zeros((70000, 1, 3), np.uint8))
    assert not list(tmp_path.iterdir())


def test_written_image_must_be_rgb(tmp_path, photo):
    for wrong in (photo[..., 0], photo / 255, photo[..., :2]):
        with pytest.raises(ValueError, match="expected uint8"):
            write_image(tmp_path / "picture.png", wrong)
