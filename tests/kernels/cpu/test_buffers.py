"""Reused memory: arrays never share it while they live, and no more is kept than was used."""

import gc

import numpy as np
import pytest

from hybridstereo.kernels.cpu import buffers

MEGABYTE = 1 << 20


@pytest.fixture
def pool():
    return buffers.Pool()


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_of_a_dead_array_is_used_again(pool):
    first = pool.empty((2, MEGABYTE), np.float32)
    where = address(first)
    del first
    assert address(pool.empty((MEGABYTE, 2), np.float32)) == where


def test_a_view_keeps_the_memory(pool):
    first = pool.empty((2, MEGABYTE), np.float32)
    view = first[1, ::2]
    first[:] = 7
    del first
    gc.collect()
    second = pool.empty((2, MEGABYTE), np.float32)
    second[:] = 1
    assert not np.shares_memory(view, second)
    assert (view == 7).all()


def test_shape_and_dtype(pool):
    for dtype in (np.float32, np.float64, np.int32):
        array = pool.empty((3, 5, 70000), dtype)
        assert array.shape == (3, 5, 70000)
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert address(array) % 16 == 0


def test_smaller_arrays_use_larger_blocks_but_not_wastefully(pool):
    large = pool.empty((16 * MEGABYTE,), np.uint8)
    where = address(large)
    del large
    smaller = pool.empty((6 * MEGABYTE,), np.uint8)
    assert address(smaller) == where
    del smaller
    tiny = pool.empty((MEGABYTE,), np.uint8)
    assert address(tiny) != where
    assert pool.kept == 16 * MEGABYTE, "the large block still waits"


def test_never_more_memory_than_was_in_use_at_once(pool):
    """One size after another, each dead before the next: hardly more than the largest stays."""
    for size in (2, 3, 5, 8, 40, 41):
        array = pool.empty((size * MEGABYTE,), np.uint8)
        del array
        assert size * MEGABYTE <= pool.kept <= size * MEGABYTE * 1.0625


def test_a_repeated_sequence_needs_no_new_memory(pool):
    """Two arrays, then a third, then a small one: as features, volume and edge weights follow."""

    def frame():
        features = [pool.empty((12 * MEGABYTE,), np.uint8) for _ in range(2)]
        volume = pool.empty((16 * MEGABYTE,), np.uint8)
        del features
        weights = pool.empty((MEGABYTE,), np.uint8)
        minorant = pool.empty((16 * MEGABYTE,), np.uint8)
        return {address(x) for x in (volume, weights, minorant)}

    frame()
    seen = frame() | frame()
    for _ in range(3):
        assert frame() <= seen


def test_small_arrays_are_not_kept(pool):
    assert pool.empty((10, 10), np.float32).shape == (10, 10)
    assert pool.kept == 0


@pytest.mark.parametrize("shape", [(3,), (10, 10), (1000, 1001)])
def test_arrays_begin_with_a_cache_line(pool, shape):
    arrays = [pool.empty(shape, np.float32) for _ in range(3)]
    assert all(array.ctypes.data % 64 == 0 for array in arrays)


def test_arrays_of_one_block_lie_apart_and_return_together(pool):
    shapes = [(3, 100001), (2, 5), (200000,)]
    arrays = pool.empty_together(shapes, np.float32)
    assert [array.shape for array in arrays] == shapes
    assert all(array.ctypes.data % 64 == 0 for array in arrays)
    for number, array in enumerate(arrays):
        array[...] = number
    assert all((array == number).all() for number, array in enumerate(arrays))
    del array, arrays[:2]
    assert pool.kept == 0
    arrays.clear()
    assert pool.kept >= 4 * (3 * 100001 + 10 + 200000)


def test_what_is_kept_is_given_up_before_memory_runs_out(pool, monkeypatch):
    large, small = (pool.empty((size * MEGABYTE,), np.uint8) for size in (16, 2))
    del large
    del small
    real, kept = np.empty, []

    def scarce(*args):
        kept.append([block.nbytes // MEGABYTE for block in pool._free])
        if len(kept) == 1:
            raise MemoryError
        return real(*args)

    monkeypatch.setattr(buffers.np, "empty", scarce)
    assert pool.empty((17 * MEGABYTE,), np.uint8).size == 17 * MEGABYTE
    assert kept == [[2], []]


def test_empty_shapes(pool):
    assert pool.empty((0, 7), np.float32).shape == (0, 7)
