from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from hybridstereo.kernels.cpu import products


@njit
def _multiply(a, rows, depth, panels, c):
    products.multiply(a, rows, depth, panels, c)


@njit
def _multiply_transposed(a, rows, depth, b, c):
    products.multiply_transposed(a, rows, depth, b, c)


# Vectors of 8 columns: 1 and 2 (padded to 2), 3, 4, 5, 8 and 13 of them; of 16 columns also 7.
COLUMNS = (1, 16, 20, 32, 37, 64, 100)
UNUSED = 7  # further columns of the left factor, which are not multiplied


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("depth", [1, 50, 101])
def test_product_of_packed_matrices(rng, columns, depth):
    a = rng.standard_normal((24, depth + UNUSED)).astype(np.float32)
    b = rng.standard_normal((depth, columns)).astype(np.float32)
    c = np.full((24, products.padded_columns(columns, b.dtype)), np.nan, np.float32)
    _multiply(a, 20, depth, products.pack(b), c)
    np.testing.assert_allclose(c[:20, :columns], a[:20, :depth] @ b, rtol=0, atol=2e-5)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("rows", [3, 27, 100])
def test_transposed_products_add_up(rng, columns, rows):
    depth, dtype = 19, np.dtype(np.float32)
    a = rng.standard_normal((depth + products.TILE_ROWS, rows + UNUSED)).astype(dtype)
    b = np.zeros((depth, products.padded_columns(columns, dtype)), dtype)
    b[:, :columns] = rng.standard_normal((depth, columns))
    sums = np.zeros(products.size_of_sums(rows, columns, dtype), dtype)
    for _ in range(2):
        _multiply_transposed(a, rows, depth, b, sums)
    expected = 2 * a[:depth, :rows].T @ b[:, :columns]
    found = products.unpack_sums(sums, rows, columns)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_panels_begin_with_a_cache_line(rng):
    for columns in COLUMNS:
        panels = products.pack(rng.standard_normal((2, 50, columns)).astype(np.float32))
        assert panels.ctypes.data % 64 == 0
