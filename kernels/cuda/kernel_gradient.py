"""Gradients of the kernels and biases of a convolution on a GPU.

    dW[o, i, u, v] = sum_{r,c} dz[r, c, o] * x[r + kh-1-u, c + kw-1-v, i],   dz = dy (1 - y^2)

For one row u of taps this is the product of two matrices, (filters x pixels) with (pixels x
columns), where the columns of a pixel are the kw * I neighbouring numbers of x that its row of
taps covers.  A block of threads walks over a few rows of the image, a segment of pixels at a time
in shared memory, and keeps the whole product, 10 filters x 8 columns per thread, in registers.
Since the columns of the next pixel overlap those of this one, the segment of x is stored only once.

Bank conflicts: the gradients of a pixel lie in shared memory in the order of the filters, so that
they are stored as they are read, four at a time.  Neighbouring groups load neighbouring vectors of
them: with G groups, group g has the filters 4g..4g+3, then 4(G+g)..4(G+g)+3, and at last two more.

Every block writes its share, and a second kernel adds the shares in their order: no atomic
additions, hence the same bits on every run.
"""

from __future__ import annotations

from typing import Any

from numba import float32, float64, uint32, uint64

from . import cudalib
from .kernel_gradient_tiling import GradientTiling, gradient_tiling
from .vectors import ALIGNMENT, load4, store4

__all__ = ["kernel_gradient", "share_kernel"]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_SHARES = 128  # enough blocks for large GPUs, and few enough to add up quickly
_ADDING_THREADS = 128


@cudalib.kernel_family(
    (gradient_tiling((100, 100, 2, 2), "float32", True),),
    (gradient_tiling((100, 3, 3, 3), "float32", True),),
    (gradient_tiling((64, 64, 3, 3), "float32", True),),
    (gradient_tiling((2, 64, 1, 1), "float32", False),),
    (gradient_tiling((100, 100, 2, 2), "float64", True),),
)
def share_kernel(tiling: GradientTiling) -> cudalib.Kernel:
    """The first pass; grid: (shares, rows of taps * blocks of columns, blocks of filters)."""
    channels, outputs, columns = tiling.channels, tiling.outputs, tiling.columns
    thread_columns = tiling.thread_columns
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
    whole = filters // 4 * 4  # filters of a thread that come in vectors
    rest_filters = filters - whole
    pixel_filters = tiling.pixel_filters
    x_places, dz_places = tiling.shared_places
    # Every thread always reads gradients of the same filters, and so can add up the bias.
    gradient_step, readers, pixels_read = tiling.gradient_step, tiling.readers, tiling.pixels_read
    sums_count = filters * thread_columns
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
        # From a thread's first filter to the first of those that are not in a vector.
        rest_filter = uint32(whole * filter_groups + filter_group * rest_filters - filter_group * 4)

        sums = cuda.local.array(sums_count, real)
        for i in range(sums_count):
            sums[i] = real(0)
        bias = cuda.local.array(4, real)
        for i in range(4):
            bias[i] = real(0)
        values = cuda.local.array(4, real)
        a = cuda.local.array(thread_columns, real)
        b = cuda.local.array(filters, real)

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
                        place = uint32(pixel * pixel_filters + read_filter)
                        if gradient_step == 4:
                            store4(dzs, place, (values[0], values[1], values[2], values[3]))
                        else:
                            dzs[place] = values[0]
                        pixel = uint32(pixel + pixels_read)
                cuda.syncthreads()

                at = uint32(part * channels + own_column)
                tap = uint32(part * pixel_filters + filter_group * 4)
                while tap < segment * pixel_filters:
                    for _ in range(unrolled):
                        if vector:
                            a[0], a[1], a[2], a[3] = load4(xs, at)
                            a[4], a[5], a[6], a[7] = load4(xs, at + column_step)
                        else:
                            for j in range(thread_columns):
                                a[j] = xs[uint64(at + j * column_step)]
                        for f in range(0, whole, 4):
                            b[f], b[f + 1], b[f + 2], b[f + 3] = load4(dzs, tap + f * filter_groups)
                        for f in range(rest_filters):
                            b[whole + f] = dzs[uint64(tap + rest_filter + f)]
                        at = uint32(at + x_step)
                        tap = uint32(tap + dz_step)
                        for f in range(filters):
                            for j in range(thread_columns):
                                sums[f * thread_columns + j] += a[j] * b[f]
                c = uint32(c + segment)
            r = uint32(r + 1)

        share = uint32((cuda.blockIdx.x * slices + part) * kh + u)
        for f in range(filters):
            out = uint32(first_filter + filter_group * 4 + f % 4 + f // 4 * 4 * filter_groups)
            if f >= whole:
                out = uint32(first_filter + filter_group * 4 + rest_filter + f - whole)
            if out < outputs:
                base = uint32((share * outputs + out) * columns)
                for j in range(thread_columns):
                    if vector:
                        column = uint32(first_column + own_column + j // 4 * column_step + j % 4)
                    else:
                        column = uint32(first_column + own_column + j * column_step)
                    if column < columns:
                        dtaps[uint32(base + column)] = sums[f * thread_columns + j]

        if cuda.blockIdx.y == 0:
            cuda.syncthreads()
            if reads:
                place = uint32(read_pixel * block_filters + read_filter)
                if gradient_step == 4:
                    store4(dzs, place, (bias[0], bias[1], bias[2], bias[3]))
                else:
                    dzs[place] = bias[0]
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


@cudalib.device_function
def _sum_of_shares(shares: Any, at: Any, size: Any, count: Any) -> Any:
    """Element ``at`` of the sum of ``count`` arrays of ``size`` elements; shares: (count, size)."""
    # In float64: a large image has many shares, and this is not where the time goes.
    total = float64(0)
    share = uint32(0)
    while share < count:
        total += shares[uint32(share * size + at)]
        share = uint32(share + 1)
    return total


@cudalib.kernel_family(("float32",), ("float64",))
def _adding_kernel(dtype: str) -> cudalib.Kernel:
    """The second pass: one thread for every weight and, after them, for every bias."""
    real = float32 if dtype == "float32" else float64
    signature = ", ".join([f"{dtype}[::1]"] * 4 + ["int32"] * 6)

    @cudalib.kernel(signature, threads=_ADDING_THREADS)
    def add_shares(
        dtaps: Any, dbiases: Any, dweight: Any, dbias: Any,
        tap_shares: Any, bias_shares: Any, outputs: Any, inputs: Any, kh: Any, kw: Any,
    ) -> None:  # fmt: skip
        # dtaps: (tap_shares, kh, O, kw, I); dweight: (O, I, kh, kw), the taps rotated back;
        # dbiases: (bias_shares, O); dbias: (O,).
        size = uint32(outputs * inputs * kh * kw)
        at = uint32(cuda.grid(1))
        if at >= size:
            at = uint32(at - size)
            if at < outputs:
                dbias[at] = real(_sum_of_shares(dbiases, at, uint32(outputs), bias_shares))
            return
        i = uint32(at % inputs)
        rest = uint32(at // inputs)
        v = uint32(rest % kw)
        rest = uint32(rest // kw)
        out = uint32(rest % outputs)
        u = uint32(rest // outputs)
        place = uint32(((out * inputs + i) * kh + kh - 1 - u) * kw + kw - 1 - v)
        dweight[place] = real(_sum_of_shares(dtaps, at, size, tap_shares))

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
    tiling = gradient_tiling((outputs, inputs, kh, kw), dtype.name, y is not None)
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
    cudalib.launch(
        _adding_kernel(dtype.name),
        cudalib.blocks_for(dweight.size + outputs, _ADDING_THREADS), _ADDING_THREADS,
        dtaps.reshape(-1), dbiases.reshape(-1), dweight.reshape(-1), dbias,
        dtaps.shape[0], count, outputs, inputs, kh, kw,
    )  # fmt: skip
    return dweight, dbias
