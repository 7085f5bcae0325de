"""Products of small matrices, for tiles of a convolution and rows of the correlation.

Thousands of small matrices are multiplied by the same kernels.  BLAS copies both factors into an
order of its own in every call, which costs a fifth of the time at these sizes; here the kernels are
brought into that order once (`pack`) and the other factor is read in place.

A block of the product stays in twelve registers while the loop runs over the inner dimension: 3
rows by 4 vectors, 4 by 3, or 6 by 2.  LLVM does not find such a blocking by itself, and it spills
half of the registers if it is spelled out in Python; so the loop is written in the terms of LLVM.
With 100 channels it reaches 95 % of the multiply-adds that a Zen 4 can do.  Twice as many sums, for
which AVX-512 has registers, are no faster, nor with vectors of 64 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .buffers import aligned_zeros
from .jit import part_or_python
from .vectors import (
    Vector,
    first_address,
    fused_multiply_add,
    is_flat,
    numbers_per_vector,
    splat_of,
    vector_address,
    vector_lanes,
)

__all__ = [
    "BLOCK_ROWS",
    "BLOCK_VECTORS",
    "TILE_ROWS",
    "block_of_four", "block_of_three", "block_of_two", "multiply", "multiply_transposed", "pack",
    "padded_columns", "size_of_sums", "unpack_sums", "vectors_of_next_block",
]  # fmt: skip

# A block has 12 sums: enough to hide the latency of the multiply-add, few enough to leave registers
# for the factors.  Columns of the product are cut into blocks of three vectors, and one or two of
# four if that leaves no rest.  Blocks of two vectors need more loads and reach 94 GFLOP/s where the
# others reach 105; they serve what is left of 2 and 5 vectors only.
_SUMS = 12
BLOCK_VECTORS = 3
BLOCK_ROWS = _SUMS // BLOCK_VECTORS

# A sum of more terms is made of parts of so many: it rounds less, which Winograd's transforms would
# multiply.  For 100 terms that halves the error and takes 6 % of the time.
_LONGEST_SUM = 50

TILE_ROWS = _SUMS  # the matrices of a tile have room for a multiple of this many rows


# ---------------------------------------------------------------- blocks in registers


def _block_of(vectors: int) -> Any:
    """A function that computes a block of so many vectors, and 12 sums, of a product."""
    rows = _SUMS // vectors

    @intrinsic
    def block(
        typingctx: Any, a: Any, at: Any, row: Any, step: Any, b: Any, start: Any, line: Any,
        apart: Any, depth: Any, c: Any, to: Any, columns: Any, accumulate: Any,
    ) -> Any:  # fmt: skip
        """``c[r, l] (+)= sum_k a[r, k] * b[k, l]`` for ``depth`` > 0 values of k.

        Arrays are flat: ``a[r, k]`` is at ``at + r*row + k*step``, the vector v of ``b[k]`` at
        ``start + k*line + v*apart`` and ``c[r, l]`` at ``to + r*columns + l``.
        """
        if not all(map(is_flat, (a, b, c))):
            return None
        vector, align = Vector(c.dtype), c.dtype.bitwidth // 8

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind, number = context.get_value_type(vector), args[1].type
            at, row, step, start, line, apart, depth, to, columns, accumulate = (
                args[i] for i in (1, 2, 3, 5, 6, 7, 8, 10, 11, 12)
            )
            first_a, first_b, first_c = (
                first_address(context, builder, signature.args[i], args[i]) for i in (0, 4, 9)
            )
            offsets = [builder.mul(row, number(r)) for r in range(rows)]
            zeros = [ir.Constant(kind, None)] * _SUMS

            def carried(values: list[Any], origin: Any) -> list[Any]:
                """The variables of a loop, which begin with these values."""
                variables = [builder.phi(value.type) for value in values]
                carry_on(variables, values, origin)
                return variables

            def carry_on(variables: list[Any], values: list[Any], origin: Any) -> None:
                for variable, value in zip(variables, values, strict=True):
                    variable.add_incoming(value, origin)

            before = builder.block
            part, term, joined, after = (
                builder.append_basic_block(name) for name in ("part", "term", "joined", "after")
            )
            begin = [builder.gep(first_a, [at]), builder.gep(first_b, [start])]
            builder.branch(part)

            builder.position_at_end(part)
            of_parts = carried([depth, *begin, *zeros], before)
            left, part_a, part_b, *totals = of_parts
            longest = number(_LONGEST_SUM)
            terms = builder.select(builder.icmp_signed("<", left, longest), left, longest)
            builder.branch(term)

            builder.position_at_end(term)
            of_terms = carried([terms, part_a, part_b, *zeros], part)
            to_come, here_a, here_b, *sums = of_terms
            right = []
            for v in range(vectors):
                address = vector_address(builder, here_b, builder.mul(apart, number(v)), kind)
                right.append(builder.load(address, align=align))
            added = []
            for i, total in enumerate(sums):
                if i % vectors == 0:
                    address = builder.gep(here_a, [offsets[i // vectors]])
                    factor = splat_of(builder, builder.load(address), kind)
                added.append(fused_multiply_add(builder, factor, right[i % vectors], total))
            to_come = builder.sub(to_come, number(1))
            next_a, next_b = builder.gep(here_a, [step]), builder.gep(here_b, [line])
            carry_on(of_terms, [to_come, next_a, next_b, *added], term)
            builder.cbranch(builder.icmp_signed(">", to_come, number(0)), term, joined)

            builder.position_at_end(joined)
            added = [builder.fadd(total, x) for total, x in zip(totals, added, strict=True)]
            left = builder.sub(left, terms)
            carry_on(of_parts, [left, next_a, next_b, *added], joined)
            builder.cbranch(builder.icmp_signed(">", left, number(0)), part, after)

            builder.position_at_end(after)
            for i, total in enumerate(added):
                place = builder.add(to, builder.mul(columns, number(i // vectors)))
                place = builder.add(place, number(i % vectors * kind.count))
                address = vector_address(builder, first_c, place, kind)
                with_old = builder.fadd(builder.load(address, align=align), total)
                builder.store(builder.select(accumulate, with_old, total), address, align=align)
            return context.get_dummy_value()

        n = types.intp
        return types.void(a, n, n, n, b, n, n, n, n, c, n, n, types.boolean), codegen

    return block


block_of_four, block_of_three, block_of_two = _block_of(4), _block_of(3), _block_of(2)


# ---------------------------------------------------------------- products


def padded_columns(columns: int, dtype: np.dtype) -> int:
    """Columns of a product: the next multiple of a vector's lanes, two vectors at least."""
    lanes = numbers_per_vector(dtype)
    return max(-(-columns // lanes), 2) * lanes


@part_or_python
def vectors_of_next_block(left: int) -> int:
    """How many of the vectors, two or more, that are left in a row go into the next block."""
    return 4 if left in (4, 8) else min(left, BLOCK_VECTORS)


def _column_blocks(columns: int, lanes: int) -> list[tuple[int, int]]:
    """First column and vectors of each block of columns."""
    blocks, column = [], 0
    while column < columns:
        vectors = vectors_of_next_block((columns - column) // lanes)
        blocks.append((column, vectors))
        column += vectors * lanes
    return blocks


def pack(matrices: np.ndarray) -> np.ndarray:
    """Bring the right-hand factors (..., depth, N) of `multiply` into the order of its loops.

    Returns
    -------
    panels
        (..., depth * padded_columns(N)): for every block of columns, in their order, its rows.
        They begin with a cache line: vectors that lie in two make products 15 % slower.
    """
    *batch, depth, columns = matrices.shape
    shape = *batch, depth * padded_columns(columns, matrices.dtype)
    filled = np.zeros((*batch, depth, padded_columns(columns, matrices.dtype)), matrices.dtype)
    filled[..., :columns] = matrices
    lanes = numbers_per_vector(matrices.dtype)
    begins = [column for column, _ in _column_blocks(filled.shape[-1], lanes)]
    blocks = np.split(filled, begins[1:], axis=-1)
    panels = aligned_zeros(shape, matrices.dtype)
    return np.concatenate([x.reshape(*batch, -1) for x in blocks], axis=-1, out=panels)


def _rows_in_blocks(rows: int, vectors: int) -> int:
    height = _SUMS // vectors
    return -(-rows // height) * height


def size_of_sums(rows: int, columns: int, dtype: np.dtype) -> int:
    """Numbers that the sum (rows, columns) of `multiply_transposed` takes."""
    lanes = numbers_per_vector(dtype)
    blocks = _column_blocks(padded_columns(columns, dtype), lanes)
    return sum(_rows_in_blocks(rows, vectors) * vectors * lanes for _, vectors in blocks)


def unpack_sums(sums: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The sums (..., rows, columns) of `multiply_transposed` from (..., size_of_sums)."""
    lanes = numbers_per_vector(sums.dtype)
    parts, begin = [], 0
    for _, vectors in _column_blocks(padded_columns(columns, sums.dtype), lanes):
        shape = _rows_in_blocks(rows, vectors), vectors * lanes
        part = sums[..., begin : begin + shape[0] * shape[1]]
        parts.append(part.reshape(*sums.shape[:-1], *shape)[..., :rows, :])
        begin += shape[0] * shape[1]
    return np.concatenate(parts, axis=-1)[..., :columns]


@part_or_python
def multiply(a: Any, rows: int, depth: int, panels: Any, c: Any) -> None:
    """``c[:rows] = a[:rows, :depth] @ b``.

    Parameters
    ----------
    a
        (R, depth or more), R >= rows a multiple of `TILE_ROWS`.
    panels
        b (depth, N) after `pack`.
    c
        (R, padded_columns(N)); its further rows and columns are overwritten as well.
    """
    _multiply_blocks(a, a.shape[1], 1, panels, True, rows, depth, c.shape[1], c)


@part_or_python
def multiply_transposed(a: Any, rows: int, depth: int, b: Any, c: Any) -> None:
    """``c += a[:depth, :rows].T @ b[:depth]``.

    Parameters
    ----------
    a
        (D, rows or more); numbers up to `TILE_ROWS` past the end of ``a[:depth]`` are read, too.
    b
        (D, columns), columns a multiple of `vector_lanes`.
    c
        (size_of_sums(rows, columns),), block by block: `unpack_sums` brings them into order.  It is
        too large for a near cache, and comes from a far one in time if it is read from end to end.
    """
    _multiply_blocks(a, 1, a.shape[1], b, False, rows, depth, b.shape[1], c)


@part_or_python
def _multiply_blocks(
    a: Any, row: int, step: int, b: Any, packed: bool, rows: int, depth: int, columns: int, c: Any
) -> None:
    """Compute c (rows, columns) block by block; the strides are those of `_block_of`."""
    lanes = vector_lanes(c)
    column, place = 0, 0
    while column < columns:
        vectors = vectors_of_next_block((columns - column) // lanes)
        wide = vectors * lanes
        start, line, pitch = (column * depth, wide, columns) if packed else (column, columns, wide)
        for r in range(0, rows, _SUMS // vectors):
            at, to, add = r * row, r * columns + column if packed else place, not packed
            if vectors == BLOCK_VECTORS:
                block_of_three(a, at, row, step, b, start, line, lanes, depth, c, to, pitch, add)
            elif vectors == 4:
                block_of_four(a, at, row, step, b, start, line, lanes, depth, c, to, pitch, add)
            else:
                block_of_two(a, at, row, step, b, start, line, lanes, depth, c, to, pitch, add)
            place += _SUMS * lanes
        column += wide
