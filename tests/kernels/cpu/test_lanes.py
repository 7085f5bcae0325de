"""Vectors and tiles inside compiled functions."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from hybridstereo.kernels.cpu import buffers
from hybridstereo.kernels.cpu.lanes import (
    LINE_BYTES,
    above,
    at_most,
    chains_per_vector,
    fused_sum,
    is_fixed,
    lane_count,
    line_count,
    load_lanes,
    load_line,
    load_tile,
    load_vectors,
    lower,
    prefetch_tile,
    splat,
    store_lanes,
    store_tile,
    store_vectors,
    stream_tile,
    transposed,
    where_less,
)
from hybridstereo.kernels.cpu.pointers import advance, pointer_to
from hybridstereo.kernels.cpu.registers import REGISTER_BYTES

LANES, FIXED_LANES = chains_per_vector(np.float32), chains_per_vector(np.int16)
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@TYPES
def test_arithmetic_is_that_of_numpy(rng, dtype):
    @njit
    def compute(a, b, out):
        x, y = load_lanes(pointer_to(a), 1), load_lanes(pointer_to(b), 0)
        results = pointer_to(out)
        store_lanes(results, 0, x + y)
        store_lanes(results, 1, x - y)
        store_lanes(results, 2, x * y)
        store_lanes(results, 3, -x)
        store_lanes(results, 4, lower(x, y))
        store_lanes(results, 5, where_less(x, y, splat(a[0]), y))

    a, b = (rng.standard_normal(2 * LANES).astype(dtype) for _ in range(2))
    out = np.empty((6, LANES), dtype)
    compute(a, b, out)
    x, y = a[LANES:], b[:LANES]
    expected = [x + y, x - y, x * y, -x, np.minimum(x, y), np.where(x < y, a[0], y)]
    np.testing.assert_array_equal(out, expected)


@TYPES
def test_fused_sum_has_the_bits_of_a_sum(rng, dtype):
    @njit
    def compute(a, b, ones, out):
        one = load_lanes(pointer_to(ones), 0)
        for i in range(a.size // LANES):
            x, y = load_lanes(pointer_to(a), i), load_lanes(pointer_to(b), i)
            store_lanes(pointer_to(out), i, fused_sum(x, y, one))

    a, b = (
        (rng.standard_normal(800) * 10.0 ** rng.integers(-9, 9, 800)).astype(dtype) for _ in "ab"
    )
    out = np.empty_like(a)
    compute(a, b, np.ones(LANES, dtype), out)
    assert out.tobytes() == (a + b).tobytes()
    # The multiplication is what takes the sum to another pipe; LLVM must not have removed it.
    code = next(iter(compute.inspect_llvm().values()))
    assert f"fmul contract <{LANES} x" in code


@TYPES
@pytest.mark.parametrize("last", [0, 3, LANES - 1, LANES])
def test_tiles_are_transposed_and_rows_beyond_the_last_repeat_it(rng, dtype, last):
    @njit
    def turn(source, step, last, target):
        prefetch_tile(advance(pointer_to(source), 1 << 40), step, last)
        tile = transposed(load_tile(pointer_to(source), step, last))
        store_tile(pointer_to(target), LANES, LANES, tile - tile + tile)

    source = rng.standard_normal((LANES, LANES + 3)).astype(dtype)
    target = np.empty((LANES, LANES), dtype)
    turn(source, LANES + 3, last, target)
    rows = np.minimum(np.arange(LANES), last)
    np.testing.assert_array_equal(target, source[rows, :LANES].T)


@TYPES
@pytest.mark.parametrize("last", [0, 4, LANES - 1])
def test_rows_are_written_up_to_the_last(rng, dtype, last):
    @njit
    def write(source, step, last, stored, streamed):
        tile = load_line(pointer_to(source), 2 * LANES, last)
        store_tile(pointer_to(stored), step, last, tile)
        stream_tile(pointer_to(streamed), step, last, tile)
        return line_count(pointer_to(source))

    source = rng.standard_normal((LANES, 2 * LANES)).astype(dtype)
    stored, streamed = (buffers.empty((LANES, 3 * LANES), dtype) for _ in range(2))
    stored[:], streamed[:] = -1, -1
    line = write(source, 3 * LANES, last, stored, streamed)
    assert line == max(LANES, LINE_BYTES // source.itemsize)
    expected = np.full_like(stored, -1)
    expected[: last + 1, :line] = source[: last + 1, :line]
    np.testing.assert_array_equal(stored, expected)
    np.testing.assert_array_equal(streamed, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("last", [2, LANES - 1])
def test_lines_turn_into_vectors(dtype, last):
    @njit
    def turn(source, step, last, target):
        store_vectors(pointer_to(target), transposed(load_line(pointer_to(source), step, last)))

    @njit
    def turn_back(vectors, step, target):
        tile = transposed(load_vectors(pointer_to(vectors)))
        store_tile(pointer_to(target), step, lane_count(pointer_to(target)), tile)

    lanes = chains_per_vector(dtype)
    line = max(lanes, LINE_BYTES // np.dtype(dtype).itemsize)
    source = np.arange(lanes * (line + 3)).reshape(lanes, line + 3).astype(dtype)
    vectors, again = np.empty((line, lanes), dtype), np.full_like(source, -1)
    turn(source, line + 3, last, vectors)
    rows = source[np.minimum(np.arange(lanes), last), :line]
    np.testing.assert_array_equal(vectors, rows.T)
    turn_back(vectors, line + 3, again)
    np.testing.assert_array_equal(again[:, :line], rows)
    assert (again[:, line:] == -1).all()


def test_lanes_of_a_type_whoever_names_it():
    assert (
        chains_per_vector(np.int16)
        == chains_per_vector(np.dtype(np.int16))
        == chains_per_vector("int16")
        == FIXED_LANES
        == 16
    )
    assert chains_per_vector(np.float64) == chains_per_vector("float32") == LANES
    assert REGISTER_BYTES == LANES * 4


def test_fixed_point_stops_at_its_ends_and_multiplies_with_fractions(rng):
    @njit
    def compute(a, b, out):
        x, y = load_lanes(pointer_to(a), 0), load_lanes(pointer_to(b), 0)
        results = pointer_to(out)
        store_lanes(results, 0, x + y)
        store_lanes(results, 1, x - y)
        store_lanes(results, 2, x * y)
        store_lanes(results, 3, lower(x, y))
        store_lanes(results, 4, above(x, y))
        store_lanes(results, 5, at_most(x, y))
        store_lanes(results, 6, fused_sum(x, y, y))
        store_lanes(results, 7, where_less(x, y, splat(a[0]), y))
        return lane_count(pointer_to(a)), is_fixed(pointer_to(a))

    a, b = (rng.integers(-32768, 32768, FIXED_LANES).astype(np.int16) for _ in range(2))
    a[:2], b[:2] = [32767, -32768], [1, 1]
    out = np.empty((8, FIXED_LANES), np.int16)
    assert compute(a, b, out) == (FIXED_LANES, True)
    x, y = a.astype(int), b.astype(int)
    added, without = np.clip(x + y, -32768, 32767), np.clip(x - y, -32768, 32767)
    product = ((x & 65535) * (y & 65535) >> 16).astype(np.uint16).view(np.int16)
    lowest = np.minimum(x, y)
    chosen = np.where(x < y, x[0], y)
    expected = [added, without, product, lowest, without, lowest, added, chosen]
    np.testing.assert_array_equal(out, expected)


def test_floats_are_neither_shifted_nor_limited(rng):
    @njit
    def compute(a, out):
        x, y = load_lanes(pointer_to(a), 0), load_lanes(pointer_to(a), 1)
        store_lanes(pointer_to(out), 0, above(x, y))
        store_lanes(pointer_to(out), 1, at_most(x, y))
        return is_fixed(pointer_to(a))

    a = rng.standard_normal((2, LANES)).astype(np.float32)
    out = np.empty_like(a)
    assert not compute(a, out)
    np.testing.assert_array_equal(out, [a[0], a[0]])


@pytest.mark.parametrize("last", [0, 9, FIXED_LANES - 1])
def test_tiles_of_fixed_point_are_transposed(last):
    @njit
    def turn(source, step, last, target):
        tile = transposed(load_tile(pointer_to(source), step, last))
        store_tile(pointer_to(target), target.shape[1], target.shape[1], tile)

    lanes = FIXED_LANES
    source = np.arange(lanes * (lanes + 5), dtype=np.int16).reshape(lanes, lanes + 5)
    target = np.empty((lanes, lanes), np.int16)
    turn(source, lanes + 5, last, target)
    rows = np.minimum(np.arange(lanes), last)
    np.testing.assert_array_equal(target, source[rows, :lanes].T)
