"""Products of small matrices, for tiles of a convolution and rows of the correlation.

Thousands of small matrices are multiplied by the same kernels.  BLAS copies both factors into an
order of its own in every call, which costs a fifth of the time at these sizes; here the kernels are
brought into that order once (`pack`) and the other factor is read in place.

A block of the product stays in twelve registers while the loop runs over the inner dimension:
4 rows by 3 vectors, or 6 by 2.  LLVM does not find such a blocking by itself, and it spills half of
the registers if it is spelled out in Python; so the loop is written in the terms of LLVM.  With 100
channels it reaches 95 % of the multiply-adds that a Zen 4 can do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable

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
    "block_of_three", "multiply", "multiply_transposed", "pack", "padded_columns", "padded_rows",
]  # fmt: skip

# A block has 12 sums: enough to hide the latency of the multiply-add, few enough to leave registers
# for the factors.  Columns of the product are cut into blocks of three vectors, and into one or two
# of two vectors for the rest.  Those of one vector need more addresses than there are registers and
# reach half the speed; they serve products of up to 8 columns only.
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


block_of_three, _block_of_two, _block_of_one = _block_of(3), _block_of(2), _block_of(1)


# ---------------------------------------------------------------- products


def padded_columns(columns: int, dtype: np.dtype) -> int:
    """Columns of a product: the next multiple of a vector's lanes."""
    lanes = numbers_per_vector(dtype)
    return -(-columns // lanes) * lanes


def padded_rows(rows: int) -> int:
    """Rows of a product: the next multiple of `TILE_ROWS`."""
    return -(-rows // TILE_ROWS) * TILE_ROWS


@register_jitable
def _vectors_of_next_block(left: int) -> int:
    """How many of the vectors that are left in a row of a product go into the next block."""
    return 2 if left in (2, 4) else min(left, BLOCK_VECTORS)


def pack(matrices: np.ndarray) -> np.ndarray:
    """Bring the right-hand factors (..., depth, N) of `multiply` into the order of its loops.

    Returns
    -------
    panels
        (..., depth * padded_columns(N)): for every block of columns, in their order, its rows.
    """
    *batch, depth, columns = matrices.shape
    filled = np.zeros((*batch, depth, padded_columns(columns, matrices.dtype)), matrices.dtype)
    filled[..., :columns] = matrices
    lanes = numbers_per_vector(matrices.dtype)
    ends, left = [], filled.shape[-1] // lanes
    while left:
        left -= _vectors_of_next_block(left)
        ends.append(filled.shape[-1] - left * lanes)
    blocks = np.split(filled, ends[:-1], axis=-1)
    return np.concatenate([block.reshape(*batch, -1) for block in blocks], axis=-1)


@register_jitable
def _multiply_blocks(
    a: Any, row: int, step: int, b: Any, packed: bool, rows: int, depth: int, c: Any
) -> None:
    """Compute c (rows, columns) block by block; the strides are those of `_block_of`."""
    lanes, columns = vector_lanes(c), c.shape[1]
    column = 0
    while column < columns:
        vectors = _vectors_of_next_block((columns - column) // lanes)
        start = column * depth if packed else column
        line = vectors * lanes if packed else columns
        for r in range(0, rows, _SUMS // vectors):
            at, to, add = r * row, r * columns + column, not packed
            if vectors == BLOCK_VECTORS:
                block_of_three(a, at, row, step, b, start, line, lanes, depth, c, to, columns, add)
            elif vectors == 2:
                _block_of_two(a, at, row, step, b, start, line, lanes, depth, c, to, columns, add)
            else:
                _block_of_one(a, at, row, step, b, start, line, lanes, depth, c, to, columns, add)
        column += vectors * lanes


@register_jitable
def multiply(a: Any, rows: int, panels: Any, c: Any) -> None:
    """``c[:rows] = a[:rows] @ b``.

    Parameters
    ----------
    a
        (R, depth), R >= rows a multiple of `TILE_ROWS`.
    panels
        b (depth, N) after `pack`.
    c
        (R, padded_columns(N)); its further rows and columns are overwritten as well.
    """
    depth = a.shape[1]
    _multiply_blocks(a, depth, 1, panels, True, rows, depth, c)


@register_jitable
def multiply_transposed(a: Any, depth: int, b: Any, c: Any) -> None:
    """``c += a[:depth].T @ b[:depth]``.

    Parameters
    ----------
    a
        (D, rows); numbers up to `TILE_ROWS` past the end of ``a[:depth]`` are read, too.
    b
        (D, columns), columns a multiple of `vector_lanes`.
    c
        (R, columns), R >= rows a multiple of `TILE_ROWS`; its further rows are overwritten.
    """
    rows = a.shape[1]
    _multiply_blocks(a, 1, rows, b, False, rows, depth, c)
