"""Pointers inside compiled functions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import njit

from hybridstereo.kernels.cpu.pointers import (
    advance,
    never_inline,
    pointer_to,
    prefetch,
    restrict_arguments,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_pointers_read_and_write_the_array(dtype):
    @njit
    def shift(array):
        here = advance(pointer_to(array), 3)
        here[0] = here[-1] + here[2]
        return here[1]

    array = np.arange(8, dtype=dtype)
    assert shift(array) == 4
    assert array[3] == 2 + 5


def test_pointer_to_the_rows_of_a_matrix():
    @njit
    def corner(matrix):
        return advance(pointer_to(matrix), matrix.shape[1])[0]

    assert corner(np.arange(6.0).reshape(2, 3)) == 3


def test_strided_arrays_are_refused():
    from numba.core.errors import TypingError

    @njit
    def first(array):
        return pointer_to(array)[0]

    with pytest.raises(TypingError):
        first(np.arange(8.0)[::2])


def test_prefetching_any_address_is_harmless():
    @njit
    def sum_with_prefetch(array):
        total = 0.0
        for i in range(array.size):
            prefetch(pointer_to(array), i + (1 << 40))
            total += array[i]
        return total

    assert sum_with_prefetch(np.arange(5.0)) == 10
    assert "prefetch" in next(iter(sum_with_prefetch.inspect_asm().values()))


def test_restricted_arguments_need_no_comparison_of_addresses():
    def add(a, b, c, count):
        for k in range(count):
            c[k] = a[k] + b[k]

    def add_restricted(a, b, c, count):
        restrict_arguments()
        for k in range(count):
            c[k] = a[k] + b[k]

    def checks(function):
        kernel = njit(function)

        @njit
        def call(a, b, c):
            kernel(pointer_to(a), pointer_to(b), pointer_to(c), a.size)

        a, b, c = np.arange(100.0), np.ones(100), np.zeros(100)
        call(a, b, c)
        np.testing.assert_array_equal(c, a + 1)
        return next(iter(kernel.inspect_llvm().values())).count("vector.memcheck")

    assert checks(add) > 0
    assert checks(add_restricted) == 0


def test_functions_that_are_never_inlined_are_called():
    @njit
    def double(x):
        return x + x

    @njit
    def double_once(x):
        never_inline()
        return x + x

    @njit
    def call(x):
        return double(x) + double_once(x)

    assert call(3.0) == 12
    code = next(iter(call.inspect_llvm().values()))
    called = re.findall(r"call [^@\n]*@(\S+?)\(", code)
    assert any("11double_once" in name for name in called)
    assert not any("6double" in name for name in called)
