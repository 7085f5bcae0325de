from __future__ import annotations

import threading

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from hybridstereo.kernels import select
from hybridstereo.kernels.cpu.workers import calls_at_once, one_blas_thread, side_by_side


def test_results_come_in_order_and_errors_come_through():
    assert side_by_side(lambda x: 2 * x, range(9)) == list(range(0, 18, 2))
    assert side_by_side(str, []) == []
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda x: 1 // x, [1, 0])


def test_items_share_the_threads_and_leave_the_callers_alone():
    threads = numba.get_num_threads()
    seen = side_by_side(lambda _: (numba.get_num_threads(), threading.get_ident()), range(8))
    at_once = calls_at_once(8)
    assert at_once == (1 if numba.threading_layer() == "workqueue" else min(threads, 8))
    assert {count for count, _ in seen} == {threads // at_once if at_once > 1 else threads}
    assert len({thread for _, thread in seen}) <= at_once
    assert numba.get_num_threads() == threads


def _blas_threads() -> set[int]:
    return {x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"}


def test_blas_is_limited_until_the_last_block_is_left():
    before = _blas_threads()
    outer, inner = one_blas_thread(), one_blas_thread()
    outer.__enter__()
    inner.__enter__()
    assert _blas_threads() <= {1}
    outer.__exit__(None, None, None)  # as of another thread
    assert _blas_threads() <= {1}
    inner.__exit__(None, None, None)
    assert _blas_threads() == before


def test_kernels_give_the_same_bits_side_by_side_as_one_by_one(rng):
    """Convolution, correlation and Dual_MM, which between them use every kind of threading."""
    backend = select("cpu")
    images = [rng.standard_normal((13, 21, 3)).astype(np.float32) for _ in range(6)]
    kernel = rng.standard_normal((8, 3, 2, 2)).astype(np.float32)
    disparities = np.arange(5.0)

    def whole(image):
        features = backend.conv_forward(image, kernel, np.zeros(8, np.float32), True)
        volume = backend.correlation_forward(features, features[:, ::-1].copy(), disparities)
        weights = backend.contrast_weights(image[:-1, :-1], 0.2, 20.0, 0.9)
        minorant, _ = backend.dual_mm(volume, *weights, 1.0, 5.0, 2)
        return np.dstack([minorant, backend.read_out(minorant)])

    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    alone = [whole(image) for image in images]
    numba.set_num_threads(threads)
    for expected, found in zip(alone, side_by_side(whole, images), strict=True):
        np.testing.assert_array_equal(expected, found)
