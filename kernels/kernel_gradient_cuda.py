"""Gradients of the kernels and biases of a convolution on a GPU.

    dW[o, i, u, v] = sum_{r,c} dz[r, c, o] * x[r + kh-1-u, c + kw-1-v, i],   dz = dy (1 - y^2)

For one row u of taps this is the product of two matrices, (filters x pixels) with (pixels x
columns), where the columns of a pixel are the kw * I neighbouring numbers of x that its row of
taps covers.  A block of threads walks over a few rows of the image, a segment of pixels at a time
in shared memory, and keeps the whole product, 10 filters x 8 columns per thread, in registers.
Since the columns of the next pixel overlap those of this one, the segment of x is stored only once.

Every block writes its share, and a second kernel adds the shares in their order: no atomic
additions, hence the same bits on every run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import float32, float64, uint32, uint64

from . import cudalib
from .vectors_cuda import ALIGNMENT, load4, store4

__all__ = ["kernel_gradient", "share_kernel", "tiling_for"]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_COLUMNS = 8  # of a thread
_MOST_COLUMN_GROUPS = 25  # per block: 200 columns, two taps of 100 channels
_MOST_FILTER_GROUPS = 10
_THREADS = 256  # of a block, about
_SEGMENT = 16  # pixels in shared memory at a time, fewer if they have many channels
_SHARED_BYTES = 48 << 10  # what a block may have on every GPU
_SHARES = 128  # enough blocks for large GPUs, and few enough to add up quickly
_ADDING_THREADS = 128


def _multiple(n: int, of: int) -> int:
    """The smallest multiple of ``of`` that is at least n."""
    return -(-n // of) * of


class Tiling(NamedTuple):
    """The constants that a kernel is compiled for."""

    dtype: str
    channels: int  # of x
    outputs: int  # the number of filters
    columns: int  # kw * channels
    filters: int  # of a thread
    filter_groups: int  # per block
    column_groups: int
    segment: int  # pixels in shared memory at a time
    slices: int  # of the pixels, each with threads for all filters and columns
    gated: bool  # dy has to be multiplied by 1 - y^2

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.filter_groups * self.column_groups * self.slices

    @property
    def block_filters(self) -> int:
        """Filters of a block."""
        return self.filter_groups * self.filters

    @property
    def block_columns(self) -> int:
        """Columns of a block."""
        return self.column_groups * _COLUMNS

    @property
    def pixel_filters(self) -> int:
        """Places for the gradients of a pixel: a thread's filters begin at a vector."""
        return self.filter_groups * _multiple(self.filters, 4)

    @property
    def shared_places(self) -> tuple[int, int]:
        """Numbers of a segment of x and of a segment of gradients."""
        readers = self.block_filters // self.gradient_step
        # At the end the sums of the biases take the place of the gradients.
        sums = max(self.threads // readers, 1) * self.block_filters
        return (
            _multiple((self.segment - 1) * self.channels + self.block_columns, 4),
            max(self.segment * self.pixel_filters, sums),
        )

    @property
    def gradient_step(self) -> int:
        """Gradients that a thread reads at a time."""
        return 4 if self.outputs % 4 == 0 and self.block_filters % 4 == 0 else 1


def tiling_for(shape: tuple[int, int, int, int], dtype: str, gated: bool) -> Tiling:
    """A good tiling for kernels of shape (O, I, kh, kw)."""
    outputs, inputs, _, kw = shape
    filters = min((10, 8), key=lambda n: _multiple(outputs, n))
    if outputs <= 4:
        filters = outputs
    filter_groups, column_groups = -(-outputs // filters), -(-kw * inputs // _COLUMNS)
    filter_groups = -(-filter_groups // -(-filter_groups // _MOST_FILTER_GROUPS))
    column_groups = -(-column_groups // -(-column_groups // _MOST_COLUMN_GROUPS))
    slices = max(_THREADS // (filter_groups * column_groups), 1)

    def tiling(segment: int) -> Tiling:
        return Tiling(
            dtype, inputs, outputs, kw * inputs, filters, filter_groups, column_groups,
            segment, min(slices, segment), gated,
        )  # fmt: skip

    segment, size = _SEGMENT, 4 if dtype == "float32" else 8
    while segment > 1 and size * sum(tiling(segment).shared_places) > _SHARED_BYTES:
        segment //= 2
    return tiling(segment)


@cudalib.kernel_family(
    (tiling_for((100, 100, 2, 2), "float32", True),),
    (tiling_for((100, 3, 3, 3), "float32", True),),
    (tiling_for((64, 64, 3, 3), "float32", True),),
    (tiling_for((2, 64, 1, 1), "float32", False),),
    (tiling_for((100, 100, 2, 2), "float64", True),),
)
def share_kernel(tiling: Tiling) -> cudalib.Kernel:
    """The first pass; grid: (shares, rows of taps * blocks of columns, blocks of filters)."""
    channels, outputs, columns = tiling.channels, tiling.outputs, tiling.columns
    filters, filter_groups = tiling.filters, tiling.filter_groups
    column_groups, slices, gated = tiling.column_groups, tiling.slices, tiling.gated
    block_filters, block_columns = tiling.block_filters, tiling.block_columns
    threads, segment = tiling.threads, tiling.segment

    real = float32 if tiling.dtype == "float32" else float64
    vector = channels % 4 == 0
    step = 4 if vector else 1
    # Bank conflicts: a thread has two vectors of columns, next to those of its neighbours, or
    # single columns with the neighbours' in between.
    column_step = 4 * column_groups if vector else column_groups
    padded_filters = _multiple(filters, 4)
    pixel_filters = tiling.pixel_filters
    x_places, dz_places = tiling.shared_places
    # Every thread reads gradients of the same filters all the time, and so can add up the bias.
    gradient_step = tiling.gradient_step
    readers = block_filters // gradient_step
    pixels_read = max(threads // readers, 1)
    sums_count = filters * _COLUMNS
    x_step, dz_step = slices * channels, slices * pixel_filters  # to the next pixel of a thread
    # Two pixels per step, if possible: fewer instructions for the loop itself.
    unrolled = 2 if segment % (2 * slices) == 0 else 1

    array = f"{tiling.dtype}[::1]"
    signature = ", ".join([array] * 5 + ["int32"] * 6)

    @cudalib.kernel(signature, threads=threads)
    def share_of_gradient(
        dy: Any, y: Any, x: Any, dtaps: Any, dbiases: Any,
        height: Any, width: Any, x_width: Any, rows: Any, column_blocks: Any, kh: Any,
    ) -> None:  # fmt: skip
        # dy, y: (height, width, O); x: (height + kh-1, x_width, I); rows: of a share;
        # dtaps: (shares * slices, kh, O, kw * I), for correlation, that is, with rotated taps;
        # dbiases: (shares, O).
        xs = cuda.shared.array(x_places, real, ALIGNMENT)
        dzs = cuda.shared.array(dz_places, real, ALIGNMENT)
        thread = uint32(cuda.threadIdx.x)
        column_group = uint32(thread % column_groups)
        rest = uint32(thread // column_groups)
        filter_group = uint32(rest % filter_groups)
        part = uint32(rest // filter_groups)
        u = uint32(cuda.blockIdx.y // column_blocks)
        first_column = uint32(cuda.blockIdx.y % column_blocks * block_columns)
        first_filter = uint32(cuda.blockIdx.z * block_filters)
        own_column = uint32(column_group * step)

        sums = cuda.local.array(sums_count, real)
        for i in range(sums_count):
            sums[i] = real(0)
        bias = cuda.local.array(4, real)
        for i in range(4):
            bias[i] = real(0)
        values = cuda.local.array(4, real)
        a = cuda.local.array(_COLUMNS, real)
        b = cuda.local.array(padded_filters, real)

        read_filter = uint32(thread % readers * gradient_step)
        read_pixel = uint32(thread // readers)
        reads = read_pixel < pixels_read and uint32(first_filter + read_filter) < outputs
        # Places without a filter are never written below.
        at = thread
        while at < dz_places:
            dzs[at] = real(0)
            at = uint32(at + threads)

        r = uint32(cuda.blockIdx.x * rows)
        end = uint32(r + rows)
        if end > height:
            end = uint32(height)
        while r < end:
            c = uint32(0)
            while c < width:
                cuda.syncthreads()
                # The last columns of the last pixels may lie beyond the row: zeros, which are
                # multiplied by the zeros of pixels that do not exist or are not used.
                start = uint32(c * channels + first_column)
                row_size = uint32(x_width * channels)
                base = uint32((r + u) * row_size + start)
                at = uint32(thread * step)
                while at < x_places:
                    for i in range(step):
                        values[i] = real(0)
                    if uint32(start + at) < row_size:
                        if vector:
                            values[0], values[1], values[2], values[3] = load4(x, base + at)
                        else:
                            values[0] = x[uint32(base + at)]
                    if vector:
                        store4(xs, at, (values[0], values[1], values[2], values[3]))
                    else:
                        xs[at] = values[0]
                    at = uint32(at + threads * step)

                if reads:
                    pixel = read_pixel
                    while pixel < segment:
                        for i in range(gradient_step):
                            values[i] = real(0)
                        if uint32(c + pixel) < width:
                            at = uint32(
                                (r * width + c + pixel) * outputs + first_filter + read_filter
                            )
                            if gradient_step == 4:
                                values[0], values[1], values[2], values[3] = load4(dy, at)
                                if gated:
                                    y0, y1, y2, y3 = load4(y, at)
                                    values[0] *= real(1) - y0 * y0
                                    values[1] *= real(1) - y1 * y1
                                    values[2] *= real(1) - y2 * y2
                                    values[3] *= real(1) - y3 * y3
                            else:
                                values[0] = dy[at]
                                if gated:
                                    values[0] *= real(1) - y[at] * y[at]
                        for i in range(gradient_step):
                            bias[i] += values[i]
                            group = uint32((read_filter + i) // filters)
                            place = uint32(
                                group * padded_filters + read_filter + i - group * filters
                            )
                            dzs[uint32(pixel * pixel_filters + place)] = values[i]
                        pixel = uint32(pixel + pixels_read)
                cuda.syncthreads()

                at = uint32(part * channels + own_column)
                tap = uint32(part * pixel_filters + filter_group * padded_filters)
                while tap < segment * pixel_filters:
                    for _ in range(unrolled):
                        if vector:
                            a[0], a[1], a[2], a[3] = load4(xs, at)
                            a[4], a[5], a[6], a[7] = load4(xs, at + column_step)
                        else:
                            for j in range(_COLUMNS):
                                a[j] = xs[uint64(at + j * column_step)]
                        for f in range(0, padded_filters, 4):
                            b[f], b[f + 1], b[f + 2], b[f + 3] = load4(dzs, tap + f)
                        at = uint32(at + x_step)
                        tap = uint32(tap + dz_step)
                        for f in range(filters):
                            for j in range(_COLUMNS):
                                sums[f * _COLUMNS + j] += a[j] * b[f]
                c = uint32(c + segment)
            r = uint32(r + 1)

        share = uint32((cuda.blockIdx.x * slices + part) * kh + u)
        for f in range(filters):
            out = uint32(first_filter + filter_group * filters + f)
            if out < outputs:
                base = uint32((share * outputs + out) * columns)
                for j in range(_COLUMNS):
                    if vector:
                        column = uint32(first_column + own_column + j // 4 * column_step + j % 4)
                    else:
                        column = uint32(first_column + own_column + j * column_step)
                    if column < columns:
                        dtaps[uint32(base + column)] = sums[f * _COLUMNS + j]

        if cuda.blockIdx.y == 0:
            cuda.syncthreads()
            if reads:
                for i in range(gradient_step):
                    dzs[uint32(read_pixel * block_filters + read_filter + i)] = bias[i]
            cuda.syncthreads()
            at = thread
            while at < block_filters:
                if uint32(first_filter + at) < outputs:
                    total = real(0)
                    for i in range(pixels_read):
                        total += dzs[uint32(i * block_filters + at)]
                    dbiases[uint32(cuda.blockIdx.x * outputs + first_filter + at)] = total
                at = uint32(at + threads)

    return share_of_gradient


@cudalib.kernel_family(("float32",), ("float64",))
def _adding_kernel(dtype: str) -> cudalib.Kernel:
    """The second pass, for the kernels and (with kw = kh = I = 1) for the biases."""
    real = float32 if dtype == "float32" else float64

    @cudalib.kernel(f"{dtype}[::1], {dtype}[::1], int32, int32, int32, int32, int32", threads=128)
    def add_shares(
        shares: Any, dweight: Any, count: Any, outputs: Any, inputs: Any, kh: Any, kw: Any
    ) -> None:
        # shares: (count, kh, O, kw, I); dweight: (O, I, kh, kw), the taps rotated back.
        size = uint32(outputs * inputs * kh * kw)
        at = uint32(cuda.grid(1))
        if at >= size:
            return
        # In float64: the shares of a large image are many, and nothing here is worth saving.
        total = float64(0)
        share = uint32(0)
        while share < count:
            total += shares[uint32(share * size + at)]
            share = uint32(share + 1)
        i = uint32(at % inputs)
        rest = uint32(at // inputs)
        v = uint32(rest % kw)
        rest = uint32(rest // kw)
        out = uint32(rest % outputs)
        u = uint32(rest // outputs)
        dweight[uint32(((out * inputs + i) * kh + kh - 1 - u) * kw + kw - 1 - v)] = real(total)

    return add_shares


def kernel_gradient(
    dy: cudalib.DeviceArray,
    y: cudalib.DeviceArray | None,
    x: cudalib.DeviceArray,
    shape: tuple[int, ...],
) -> tuple[cudalib.DeviceArray, cudalib.DeviceArray]:
    """Gradients of the kernels and the biases.

    Parameters
    ----------
    dy
        Gradient of the output (H, W, O).
    y
        The output itself, if it went through tanh.
    x
        The input (H + kh - 1, W + kw - 1, I).
    shape
        (O, I, kh, kw).

    Returns
    -------
    dweight, dbias
        (O, I, kh, kw) and (O,).
    """
    outputs, inputs, kh, kw = shape
    height, width, _ = dy.shape
    dtype = dy.dtype
    tiling = tiling_for((outputs, inputs, kh, kw), dtype.name, y is not None)
    rows = cudalib.blocks_for(height, _SHARES)
    count = cudalib.blocks_for(height, rows)
    column_blocks = cudalib.blocks_for(tiling.columns, tiling.block_columns)
    dtaps = cudalib.empty((count * tiling.slices, kh, outputs, kw, inputs), dtype)
    dbiases = cudalib.empty((count, outputs), dtype)
    cudalib.launch(
        share_kernel(tiling),
        (count, kh * column_blocks, cudalib.blocks_for(outputs, tiling.block_filters)),
        tiling.threads,
        dy.reshape(-1), (dy if y is None else y).reshape(-1), x.reshape(-1),
        dtaps.reshape(-1), dbiases.reshape(-1),
        height, width, x.shape[1], rows, column_blocks, kh,
    )  # fmt: skip
    dweight, dbias = cudalib.empty(shape, dtype), cudalib.empty((outputs,), dtype)
    add = _adding_kernel(dtype.name)
    for parts, total, dimensions in (
        (dtaps, dweight, (outputs, inputs, kh, kw)),
        (dbiases, dbias, (outputs, 1, 1, 1)),
    ):
        cudalib.launch(
            add,
            cudalib.blocks_for(total.size, _ADDING_THREADS), _ADDING_THREADS,
            parts.reshape(-1), total.reshape(-1), parts.shape[0], *dimensions,
        )  # fmt: skip
    return dweight, dbias
