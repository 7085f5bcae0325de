from __future__ import annotations

import errno
import io
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hybridstereo.errors import InputError, OutputError, StereoError
from hybridstereo.io.disparity import (
    check_output,
    read_disparity,
    supported_suffix,
    write_disparity,
)

INF = np.float32(np.inf)
SUFFIXES = [".pfm", ".png", ".npy", ".tif", ".tiff"]
EXACT_SUFFIXES = [".pfm", ".npy", ".tif", ".tiff"]
SMALL = np.array([[1, 2.5, INF], [0.5, 100, 3]], np.float32)
# The same map by hand: bottom row first.
SMALL_PFM = b"Pf\n3 2\n-1.0\n" + struct.pack("<6f", 0.5, 100, 3, 1, 2.5, float("inf"))


def maps(elements: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(min_dims=2, max_dims=2, max_side=8)
    return hnp.arrays(np.float32, shapes, elements=elements)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples of a property; each overwrites the file of the previous one."""
    return tmp_path_factory.mktemp("disparity")


def file_with(folder: Path, suffix: str, data: bytes) -> Path:
    path = folder / f"map{suffix}"
    path.write_bytes(data)
    return path


# --- round trips --------------------------------------------------------------------------------


@given(maps(st.floats(width=32)), st.sampled_from(EXACT_SUFFIXES))
@example(np.float32([[-0.0, 1e-45]]), ".tif")
def test_exact_formats_keep_every_bit(folder, disparity, suffix):
    path = folder / f"map{suffix}"
    write_disparity(path, disparity)
    result = read_disparity(path)
    assert result.dtype == np.float32
    assert result.flags.c_contiguous
    assert result.flags.writeable
    expected = np.where(np.isfinite(disparity), disparity, INF)
    assert result.tobytes() == expected.tobytes()


@given(maps(st.floats(0, 255.99609375, width=32) | st.just(float("inf"))))
def test_png_keeps_disparities_to_a_256th(folder, disparity):
    path = folder / "map.png"
    write_disparity(path, disparity)
    result = read_disparity(path)
    valid = np.isfinite(disparity)
    np.testing.assert_array_equal(np.isfinite(result), valid)
    error = np.maximum(disparity[valid], 1 / 256) - result[valid]
    assert ((error >= 0) & (error < 1 / 256)).all(), "the fraction is cut off, not rounded"


@given(hnp.arrays(np.uint16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8)))
def test_png_of_others_is_written_back_unchanged(folder, stored):
    _, data = cv2.imencode(".png", stored)
    disparity = read_disparity(file_with(folder, ".png", data.tobytes()))
    write_disparity(folder / "again.png", disparity)
    again = cv2.imread(str(folder / "again.png"), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(again, stored)


@pytest.mark.parametrize("suffix", EXACT_SUFFIXES)
@pytest.mark.parametrize("invalid", [np.inf, -np.inf, np.nan])
def test_invalid_is_always_plus_infinity(tmp_path, suffix, invalid):
    path = tmp_path / f"map{suffix}"
    write_disparity(path, np.float32([[1, invalid]]))
    np.testing.assert_array_equal(read_disparity(path), [[1, INF]])


def test_float64_beyond_float32_is_invalid(tmp_path):
    write_disparity(tmp_path / "map.pfm", np.array([[1e300, 2.0]]))
    np.testing.assert_array_equal(read_disparity(tmp_path / "map.pfm"), [[INF, 2]])


def test_writing_leaves_the_array_alone(tmp_path):
    disparity = np.float32([[np.nan, 1]])
    write_disparity(tmp_path / "map.pfm", disparity)
    assert np.isnan(disparity[0, 0])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_suffix_in_capitals(tmp_path, suffix):
    path = tmp_path / f"map{suffix.upper()}"
    write_disparity(path, SMALL)
    np.testing.assert_array_equal(read_disparity(path), SMALL)


# --- the formats, byte by byte ------------------------------------------------------------------


def test_pfm_is_the_hand_written_file(tmp_path):
    write_disparity(tmp_path / "map.pfm", SMALL)
    assert (tmp_path / "map.pfm").read_bytes() == SMALL_PFM


def test_pfm_means_the_same_to_opencv(tmp_path):
    disparity = np.random.default_rng(1).uniform(-50, 300, (37, 53)).astype(np.float32)
    disparity[3, 4] = INF
    write_disparity(tmp_path / "map.pfm", disparity)
    by_opencv = cv2.imread(str(tmp_path / "map.pfm"), cv2.IMREAD_UNCHANGED)
    assert by_opencv.tobytes() == disparity.tobytes()
    cv2.imwrite(str(tmp_path / "by-opencv.pfm"), disparity)
    assert read_disparity(tmp_path / "by-opencv.pfm").tobytes() == disparity.tobytes()


def test_png_stores_256_times_the_disparity(tmp_path):
    write_disparity(tmp_path / "map.png", np.float32([[1, 2.999, INF], [0, 0.001, 255.999]]))
    stored = cv2.imread(str(tmp_path / "map.png"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint16
    np.testing.assert_array_equal(stored, [[256, 767, 0], [1, 1, 65535]])


def test_npy_is_what_numpy_loads(tmp_path):
    write_disparity(tmp_path / "map.npy", SMALL)
    loaded = np.load(tmp_path / "map.npy", allow_pickle=False)
    assert loaded.dtype == np.float32
    np.testing.assert_array_equal(loaded, SMALL)


def test_tiff_is_float32_for_others(tmp_path):
    write_disparity(tmp_path / "map.tif", SMALL)
    stored = cv2.imread(str(tmp_path / "map.tif"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored, SMALL)


# --- reading what others write ------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        b"Pf\n3 2\n-1.0\n",
        b"Pf\n3 2\n-1\n",
        b"Pf\n3\n2\n-1.000000\n",
        b"Pf\r\n3 2\r\n-1.0\r\n",
        b"Pf 3 2 -1e0 \n",
        b"Pf\n3 2\n-.5\n",
        b"Pf\n3 2\n-0.003922\n",  # the magnitude is not applied
    ],
)
def test_pfm_headers_of_other_programs(tmp_path, header):
    data = header + SMALL_PFM[-24:]
    np.testing.assert_array_equal(read_disparity(file_with(tmp_path, ".pfm", data)), SMALL)


@pytest.mark.parametrize("scale", [b"1.0", b"+1", b"255"])
def test_big_endian_pfm(tmp_path, scale):
    data = b"Pf\n3 2\n" + scale + b"\n" + SMALL[::-1].astype(">f4").tobytes()
    np.testing.assert_array_equal(read_disparity(file_with(tmp_path, ".pfm", data)), SMALL)


def test_pfm_data_that_begins_like_a_line_end(tmp_path):
    data = b"Pf\n1 1\n-1.0\n\n\r\n\x40"
    expected = struct.unpack("<f", b"\n\r\n\x40")[0]
    assert read_disparity(file_with(tmp_path, ".pfm", data))[0, 0] == np.float32(expected)


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<f2", "i4", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_real_type_and_order(tmp_path, dtype, order):
    values = np.array([[1, 2, 3], [4, 5, 6]], dtype, order=order)
    np.save(tmp_path / "map.npy", values)
    np.testing.assert_array_equal(read_disparity(tmp_path / "map.npy"), values)


def test_npy_of_version_2(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, SMALL, version=(2, 0))
    path = file_with(tmp_path, ".npy", stream.getvalue())
    np.testing.assert_array_equal(read_disparity(path), SMALL)


def test_tiff_of_float64(tmp_path):
    _, data = cv2.imencode(".tif", SMALL.astype(np.float64))
    np.testing.assert_array_equal(
        read_disparity(file_with(tmp_path, ".tif", data.tobytes())), SMALL
    )


# --- what cannot be read ------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
class TestUnreadable:
    def test_missing_file(self, tmp_path, suffix):
        with pytest.raises(InputError, match="does not exist"):
            read_disparity(tmp_path / f"map{suffix}")

    def test_empty_file(self, tmp_path, suffix):
        with pytest.raises(InputError, match="is empty"):
            read_disparity(file_with(tmp_path, suffix, b""))

    def test_folder(self, tmp_path, suffix):
        (tmp_path / f"map{suffix}").mkdir()
        with pytest.raises(InputError, match="is a folder"):
            read_disparity(tmp_path / f"map{suffix}")

    def test_some_other_file(self, tmp_path, suffix):
        with pytest.raises(InputError, match=rf"map\{suffix} (has no valid|is not)"):
            read_disparity(file_with(tmp_path, suffix, b"Dear diary, today I found nothing"))

    @pytest.mark.parametrize("removed", [10, 20])
    def test_cut_short(self, tmp_path, suffix, removed):
        path = tmp_path / f"map{suffix}"
        write_disparity(path, SMALL)
        path.write_bytes(path.read_bytes()[:-removed])
        with pytest.raises(InputError, match="cut short"):
            read_disparity(path)


@pytest.mark.parametrize("name", ["map", "map.jpg"])
def test_reading_an_unknown_suffix(tmp_path, name):
    with pytest.raises(InputError, match="names no format") as caught:
        read_disparity(tmp_path / name)
    assert ".pfm, .png, .npy" in caught.value.hint


@pytest.mark.parametrize(
    "header",
    [
        b"Pf\n",
        b"P5\n3 2\n-1.0\n",
        b"Pf\n3\n-1.0\n",
        b"Pf\n-3 2\n-1.0\n",
        b"Pf\n3 2\nnan\n",
        b"Pf\n3 2\nlittle\n",
        b"Pf\n3 2\n-1.0",
        b"Pf\n9999999999 2\n-1.0\n",
    ],
)
def test_pfm_header_that_is_malformed(tmp_path, header):
    with pytest.raises(InputError, match="no valid PFM header"):
        read_disparity(file_with(tmp_path, ".pfm", header + SMALL_PFM[-24:]))


def test_pfm_with_three_channels(tmp_path):
    data = b"PF\n1 1\n-1.0\n" + bytes(12)
    with pytest.raises(InputError, match="three channels"):
        read_disparity(file_with(tmp_path, ".pfm", data))


def test_pfm_with_scale_zero(tmp_path):
    with pytest.raises(InputError, match="scale 0"):
        read_disparity(file_with(tmp_path, ".pfm", b"Pf\n1 1\n0.0\n" + bytes(4)))


@pytest.mark.parametrize("size", [b"0 2", b"3 0", b"0 0"])
def test_pfm_without_pixels(tmp_path, size):
    with pytest.raises(InputError, match="empty size"):
        read_disparity(file_with(tmp_path, ".pfm", b"Pf\n" + size + b"\n-1.0\n"))


def test_pfm_of_absurd_size_is_rejected_before_any_allocation(tmp_path):
    data = b"Pf\n999999999 999999999\n-1.0\n" + bytes(8)
    with pytest.raises(InputError, match="states 999999999x999999999 pixels, more than"):
        read_disparity(file_with(tmp_path, ".pfm", data))


def test_pfm_damaged_by_text_mode(tmp_path):
    # Windows programs that forget "b" turn every \n of the data into \r\n.
    disparity = np.frombuffer(b"\n\0\0\x40" * 4, "<f4").reshape(2, 2)
    write_disparity(tmp_path / "map.pfm", disparity)
    data = (tmp_path / "map.pfm").read_bytes().replace(b"\n", b"\r\n")
    with pytest.raises(InputError, match="data after its end"):
        read_disparity(file_with(tmp_path, ".pfm", data))


def npy_with_header(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize("shape", ["(10**6, 10**6)", "(1000000, 1000000)", "(2, 3)"])
def test_npy_of_absurd_size_is_rejected_before_any_allocation(tmp_path, shape):
    data = npy_with_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}")
    with pytest.raises(InputError, match=r"cut short|no valid NPY header|more than the 100000000"):
        read_disparity(file_with(tmp_path, ".npy", data))


def test_npy_with_data_after_its_end(tmp_path):
    np.save(tmp_path / "map.npy", SMALL)
    with (tmp_path / "map.npy").open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(InputError, match="data after its end"):
        read_disparity(tmp_path / "map.npy")


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(5, np.float32),
        np.zeros((2, 3, 1), np.float32),
        np.float32(1),
        np.zeros((2, 3), bool),
        np.zeros((2, 3), np.complex64),
        np.zeros((2, 3), [("x", "f4")]),
        np.array([["a", "b"]]),
    ],
)
def test_npy_that_is_no_map(tmp_path, values):
    np.save(tmp_path / "map.npy", values)
    with pytest.raises(InputError, match="not a disparity map"):
        read_disparity(tmp_path / "map.npy")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_npy_without_pixels(tmp_path, shape):
    np.save(tmp_path / "map.npy", np.zeros(shape, np.float32))
    with pytest.raises(InputError, match="empty size"):
        read_disparity(tmp_path / "map.npy")


class Explosive:
    def __reduce__(self):
        return pytest.fail, ("the pickle was executed",)


def test_npy_with_objects_is_never_unpickled(tmp_path):
    header = "{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}"
    data = npy_with_header(header, pickle.dumps([Explosive()]))
    with pytest.raises(InputError, match="not a disparity map"):
        read_disparity(file_with(tmp_path, ".npy", data))
    with pytest.raises(InputError, match="no valid NPY header"):
        read_disparity(file_with(tmp_path, ".npy", pickle.dumps(Explosive())))


@pytest.mark.parametrize(
    "pixels",
    [np.ones((2, 3), np.uint8), np.ones((2, 3, 3), np.uint16), np.ones((2, 3, 3), np.uint8)],
)
def test_png_that_is_not_kittis(tmp_path, pixels):
    _, data = cv2.imencode(".png", pixels)
    with pytest.raises(InputError, match="not a disparity map as KITTI stores it"):
        read_disparity(file_with(tmp_path, ".png", data.tobytes()))


@pytest.mark.parametrize("pixels", [np.ones((2, 3), np.uint16), np.ones((2, 3, 3), np.float32)])
def test_tiff_that_is_no_map(tmp_path, pixels):
    _, data = cv2.imencode(".tif", pixels)
    with pytest.raises(InputError, match="not a disparity map"):
        read_disparity(file_with(tmp_path, ".tif", data.tobytes()))


BEGINNINGS = [
    b"",
    b"Pf\n",
    b"Pf\n1 1\n-1.0\n",
    b"\x93NUMPY\x01\x00",
    b"\x89PNG\r\n\x1a\n",
    b"II*\0",
]


@given(st.sampled_from(SUFFIXES), st.sampled_from(BEGINNINGS), st.binary(max_size=200))
def test_arbitrary_bytes_give_a_map_or_a_clear_error(folder, suffix, beginning, rest):
    try:
        disparity = read_disparity(file_with(folder, suffix, beginning + rest))
    except StereoError:
        return
    assert disparity.ndim == 2
    assert not np.isnan(disparity).any()


@given(st.sampled_from([".pfm", ".png", ".npy"]), st.data())
def test_damaged_files_give_a_map_or_a_clear_error(folder, suffix, data):
    write_disparity(folder / f"map{suffix}", SMALL)
    damaged = bytearray((folder / f"map{suffix}").read_bytes())
    del damaged[data.draw(st.integers(1, len(damaged)), label="length") :]
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=3)):
        damaged[position] ^= data.draw(st.integers(1, 255))
    try:
        disparity = read_disparity(file_with(folder, suffix, bytes(damaged)))
    except StereoError:
        return
    assert disparity.ndim == 2
    assert not np.isneginf(disparity).any()


# --- what cannot be written ---------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_known_suffixes(suffix):
    assert supported_suffix(f"some/map{suffix.upper()}") == suffix


@pytest.mark.parametrize("name", ["map", "map.jpg", "pfm", ".pfm"])
def test_unknown_suffix_is_refused_before_the_work(name):
    for check in (supported_suffix, check_output):
        with pytest.raises(OutputError, match="names no format for disparity maps"):
            check(name)


def test_the_refusal_says_what_the_file_would_hold():
    with pytest.raises(OutputError, match="names no format for confidence maps"):
        check_output("map.jpg", "confidence maps")
    with pytest.raises(OutputError, match="the name of a file is empty"):
        check_output("")


def test_missing_folder_is_noticed_before_the_work(tmp_path):
    with pytest.raises(OutputError, match="does not exist"):
        check_output(tmp_path / "nowhere" / "map.pfm")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_check_of_a_good_output_leaves_no_trace(tmp_path, suffix):
    check_output(tmp_path / f"map{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "message"), [(-0.25, "negative .*-0.25"), (256, "256 and more .*256")]
)
def test_png_that_cannot_hold_the_disparities(tmp_path, value, message):
    target = tmp_path / "map.png"
    with pytest.raises(OutputError, match=message) as caught:
        write_disparity(target, np.float32([[1, value, INF]]))
    assert ".pfm" in caught.value.hint
    assert not target.exists()


@pytest.mark.parametrize("wrong", [np.zeros((2, 3, 1)), np.zeros(4), np.zeros((0, 3))])
def test_only_maps_can_be_written(tmp_path, wrong):
    with pytest.raises(ValueError, match="expected a disparity map"):
        write_disparity(tmp_path / "map.pfm", wrong)
    assert not list(tmp_path.iterdir())


# --- standard streams ---------------------------------------------------------------------------


def test_stream_that_takes_a_part_at_a_time(monkeypatch):
    class Slow(io.BytesIO):
        def write(self, data) -> int:
            return super().write(data[:7])

    stream = Slow()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=stream, isatty=lambda: False))
    write_disparity("-", SMALL)
    assert stream.getvalue() == SMALL_PFM


def test_dash_is_standard_output(capfdbinary):
    write_disparity("-", SMALL)
    assert capfdbinary.readouterr().out == SMALL_PFM


def test_dash_is_standard_input(monkeypatch):
    fake = SimpleNamespace(buffer=io.BytesIO(SMALL_PFM), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", fake)
    np.testing.assert_array_equal(read_disparity("-"), SMALL)


def test_terminal_is_no_place_for_a_map(monkeypatch):
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(OutputError, match="standard output is a terminal") as caught:
        check_output("-")
    assert "Redirect" in caught.value.hint


def test_full_disk_behind_standard_output(monkeypatch):
    def fail(_: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fake = SimpleNamespace(buffer=SimpleNamespace(write=fail), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdout", fake)
    with pytest.raises(OutputError, match="standard output cannot be written: No space left"):
        write_disparity("-", SMALL)


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX systems")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("side", [2, 100])  # within and beyond the buffer of standard output
def test_reader_that_stops_early_leaves_one_clear_sentence(side, unbuffered):
    program = (
        "import numpy, sys\n"
        "from hybridstereo.errors import OutputError\n"
        "from hybridstereo.io.disparity import write_disparity\n"
        "sys.stdin.read()\n"  # wait until the reader has gone
        "try:\n"
        f"    write_disparity('-', numpy.ones(({side}, {side})))\n"
        "except OutputError as error:\n"
        "    print(error, file=sys.stderr)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as process:
        process.stdout.close()
        process.stdin.close()
        message = process.stderr.read().decode()
    assert message == "the reader of standard output stopped before the end.\n"
    assert process.returncode == 0
