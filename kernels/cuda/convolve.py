"""Convolution + bias + tanh of a tile of the image: the kernel behind ``conv_cuda.py``.

A product of the image (pixels x taps) with the kernels (taps x filters), tiled as usual on a GPU: a
block of threads takes a tile of 32 pixels x a few rows x all filters, and walks over the input
channels in chunks.  The pixels of a chunk, with the margin that the taps reach, are brought to
shared memory once and used by all taps; so are the kernels, a few channels at a time.  A thread
keeps the sums of 8 pixels x 10 filters in registers.  For two taps in a row it loads 12 pixels
and 24 weights as nine vectors and does 160 multiply-adds with them, which brings this close to the
arithmetic peak: nothing else is executed as often.

Bank conflicts: eight neighbouring threads, whose vectors of four pixels are served together,
belong to two rows of 32 pixels.  A row takes 36 places, so that the second row falls into the
gaps between the vectors of the first.
"""

from __future__ import annotations

from math import tanh
from typing import Any, NamedTuple

from numba import float32, float64, int32, uint32, uint64

from . import cudalib
from .cudalib import SHARED_BYTES, round_up
from .vectors import ALIGNMENT, load4, store4

__all__ = [
    "TILE_WIDTH",
    "ConvolutionTiling",
    "blocks_of_filters",
    "convolution",
    "convolution_tiling",
    "packing",
]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

TILE_WIDTH = 32  # pixels of a tile in a row
_RUN = 8  # pixels in a row that a thread computes
_RUNS = TILE_WIDTH // _RUN
_GAP = 8  # unused places after the results of a run
_MOST_GROUPS = 10  # of filters per block


class ConvolutionTiling(NamedTuple):
    """The constants that a kernel is compiled for."""

    dtype: str
    kh: int
    kw: int
    vector: bool  # the channels of a pixel begin at a multiple of 4
    vector_out: bool  # the filters of a pixel begin at a multiple of 4
    chunk: int  # channels whose pixels are in shared memory at a time
    part: int  # channels of a chunk whose kernels are there at a time
    filters: int  # per thread
    groups: int  # of filters, per block
    rows: int  # of pixels, per block
    gated: bool  # the image is a gradient dL/dy, to be multiplied by 1 - y^2

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return _RUNS * self.rows * self.groups

    @property
    def padded_filters(self) -> int:
        """Room for the filters of a thread, whole vectors of four."""
        return round_up(self.filters, 4)

    @property
    def row_stride(self) -> int:
        """Places of a row of pixels in shared memory, the margin of the taps included."""
        return TILE_WIDTH + max(round_up(self.kw - 1, 4), 4)

    @property
    def channel_stride(self) -> int:
        """Places of a channel; not a multiple of 8, or all channels would share one bank."""
        places = (self.rows + self.kh - 1) * self.row_stride
        return places + 4 if places % 8 == 0 else places

    @property
    def pixel_places(self) -> int:
        """Elements of shared memory for pixels, and later for a row of results."""
        results = TILE_WIDTH * self.groups * self.filters + _RUNS * _GAP
        return max(self.chunk * self.channel_stride, results)

    @property
    def weight_places(self) -> int:
        """Elements of shared memory for kernels."""
        return self.part * self.kw * self.groups * self.padded_filters


def convolution_tiling(
    shape: tuple[int, int, int, int], dtype: Any, gated: bool
) -> ConvolutionTiling:
    """A good tiling for kernels of shape (O, I, kh, kw)."""
    outputs, inputs, kh, kw = shape
    # The number of filters per thread that leaves the fewest of the last group unused.
    filters = min((10, 8), key=lambda n: round_up(outputs, n))
    if outputs <= 4:
        filters = outputs
    groups = -(-outputs // filters)
    groups = -(-groups // -(-groups // _MOST_GROUPS))
    # Few filters: more pixels, so that a block still has enough threads.
    rows, most_channels = (4, 20) if groups >= 4 else (8, 12) if groups >= 2 else (16, 8)
    unit = 4 if inputs % 4 == 0 else 1
    vector_out = outputs % 4 == 0 and groups * filters % 4 == 0
    while True:
        chunk = round_up(-(-inputs // -(-inputs // most_channels)), unit)
        part = chunk // 2 if chunk % 2 == 0 else chunk
        tiling = ConvolutionTiling(
            str(dtype), kh, kw, unit == 4, vector_out, chunk, part, filters, groups, rows, gated
        )
        places = tiling.pixel_places + tiling.weight_places
        if places * (8 if dtype == "float64" else 4) <= SHARED_BYTES:
            return tiling
        if most_channels <= unit:
            raise ValueError(f"no tile of {kh}x{kw} kernels fits into shared memory")
        most_channels = max(most_channels // 2, unit)


def blocks_of_filters(tiling: ConvolutionTiling, outputs: int) -> int:
    """How many blocks are needed for all filters of a tile."""
    return -(-outputs // (tiling.groups * tiling.filters))


# The layers of the paper: first and later ones of the Unary-CNN and of the Pairwise-CNN.
_LAYERS = [(100, 3, 3, 3), (100, 100, 2, 2), (64, 64, 3, 3), (2, 64, 1, 1)]
_EXAMPLES = [
    *[(convolution_tiling(shape, "float32", False),) for shape in _LAYERS],
    (convolution_tiling(_LAYERS[1], "float32", True),),
    (convolution_tiling(_LAYERS[1], "float64", True),),
]


# ---------------------------------------------------------------- kernels in the order of use


@cudalib.kernel_family(("float32",), ("float64",))
def packing(dtype: str) -> cudalib.Kernel:
    """The kernel that brings the filters into the order in which `convolution` reads them."""
    signature = f"{dtype}[::1], {dtype}[::1], " + ", ".join(["int32"] * 11)

    @cudalib.kernel(signature, threads=256)
    def pack(
        weight: Any, packed: Any, outputs: Any, inputs: Any, kh: Any, kw: Any, swap: Any,
        chunk: Any, chunks: Any, filters: Any, padded_filters: Any, groups: Any, size: Any,
    ) -> None:  # fmt: skip
        # weight: (O, I, kh, kw); packed: (blocks, chunks, kh, chunk, kw, groups, padded_filters),
        # zeros where there is no filter or channel.
        # With swap, inputs and outputs change roles and the taps keep their order: the transpose,
        # which takes gradients back.  Without it the taps are rotated (docs/model.md 1).
        at = uint32(cuda.grid(1))
        if at >= size:
            return
        # Neighbouring threads read neighbouring weights and scatter them.
        v = uint32(at % kw)
        rest = uint32(at // kw)
        u = uint32(rest % kh)
        rest = uint32(rest // kh)
        if swap:
            lane_count = uint32(size // (kw * kh * chunks * chunk))
            lane = uint32(rest % lane_count)
            channel = uint32(rest // lane_count)
        else:
            channel = uint32(rest % (chunks * chunk))
            lane = uint32(rest // (chunks * chunk))
        group = uint32(lane // padded_filters)
        f = uint32(lane - group * padded_filters)
        out = uint32(group * filters + f)
        value = weight.dtype.type(0)
        row, column = u, v
        if swap:
            if f < filters and out < inputs and channel < outputs:
                value = weight[uint32(((channel * inputs + out) * kh + u) * kw + v)]
        else:
            if f < filters and out < outputs and channel < inputs:
                value = weight[uint32(((out * inputs + channel) * kh + u) * kw + v)]
            row, column = uint32(kh - 1 - u), uint32(kw - 1 - v)
        block = uint32(group // groups)
        step = uint32(block * chunks + channel // chunk)
        place = uint32((step * kh + row) * chunk + channel % chunk)
        place = uint32((place * kw + column) * groups + group - block * groups)
        packed[uint32(place * padded_filters + f)] = value

    return pack


@cudalib.kernel_family(*_EXAMPLES)
def convolution(tiling: ConvolutionTiling) -> cudalib.Kernel:
    """The kernel for a tiling; grid: (columns of tiles, rows of tiles, `blocks_of_filters`)."""
    kh, kw, chunk, part = tiling.kh, tiling.kw, tiling.chunk, tiling.part
    filters, padded_filters, groups = tiling.filters, tiling.padded_filters, tiling.groups
    rows, threads, gated, vector = tiling.rows, tiling.threads, tiling.gated, tiling.vector
    row_stride, channel_stride = tiling.row_stride, tiling.channel_stride
    pixel_places, weight_places = tiling.pixel_places, tiling.weight_places

    real = float32 if tiling.dtype == "float32" else float64
    columns = TILE_WIDTH + kw - 1  # of the tile with its margin
    step = 4 if vector else 1  # channels loaded at a time
    steps = chunk // step
    loads = (rows + kh - 1) * columns * steps
    window = _RUN + round_up(kw - 1, 4)  # pixels that a thread loads for its run
    lane_filters = groups * padded_filters  # weights of a tap and a channel
    channel_weights = kw * lane_filters
    part_weights = part * channel_weights
    paired = part % 2 == 0  # two channels per step: fewer instructions for the loop itself
    runs = _RUNS * rows  # in a tile
    thread_sums = filters * _RUN
    block_filters = groups * filters
    row_results = TILE_WIDTH * block_filters
    out_step = 4 if tiling.vector_out else 1  # filters stored at a time

    # Calls with constant taps, since the newest compiler does not unroll a loop over them, and an
    # array indexed by a variable cannot stay in registers.
    @cudalib.device_function
    def add_tap(sums: Any, x: Any, weights: Any, tap: Any, v: Any) -> None:
        w = cuda.local.array(padded_filters, real)
        for i in range(0, padded_filters, 4):
            w[i], w[i + 1], w[i + 2], w[i + 3] = load4(weights, tap + v * lane_filters + i)
        for f in range(filters):
            for i in range(_RUN):
                sums[f * _RUN + i] += w[f] * x[i + v]

    @cudalib.device_function
    def add_channel(sums: Any, pixels: Any, weights: Any, at: Any, tap: Any) -> None:
        x = cuda.local.array(window, real)
        for i in range(0, window, 4):
            x[i], x[i + 1], x[i + 2], x[i + 3] = load4(pixels, at + i)
        add_tap(sums, x, weights, tap, 0)
        if kw > 1:
            add_tap(sums, x, weights, tap, 1)
        if kw > 2:
            add_tap(sums, x, weights, tap, 2)
        for v in range(3, kw):
            add_tap(sums, x, weights, tap, v)

    array = f"{tiling.dtype}[::1]"
    signature = ", ".join([array] * 5 + ["int32"] * 9)

    @cudalib.kernel(signature, threads=threads)
    def convolve(
        image: Any, gate: Any, packed: Any, bias: Any, result: Any,
        height: Any, width: Any, channels: Any, out_height: Any, out_width: Any, outputs: Any,
        pad_rows: Any, pad_columns: Any, activate: Any,
    ) -> None:  # fmt: skip
        # image, gate: (height, width, channels), zero beyond its border; packed: see `packing`;
        # bias: (outputs,); result: (out_height, out_width, outputs).
        pixels = cuda.shared.array(pixel_places, real, ALIGNMENT)
        weights = cuda.shared.array(weight_places, real, ALIGNMENT)
        thread = uint32(cuda.threadIdx.x)
        group = uint32(thread // runs)
        run = uint32(thread % runs)
        run_row = uint32(run // _RUNS)
        run_column = uint32(run % _RUNS * _RUN)
        top = int32(cuda.blockIdx.y * rows)
        left = int32(cuda.blockIdx.x * TILE_WIDTH)
        first_out = uint32(cuda.blockIdx.z * block_filters)

        sums = cuda.local.array(thread_sums, real)
        for i in range(thread_sums):
            sums[i] = real(0)
        values = cuda.local.array(4, real)

        # The last vector of a row reaches beyond the margin: such pixels are loaded, not used.
        at = thread
        while at < pixel_places:
            pixels[at] = real(0)
            at = uint32(at + threads)
        cuda.syncthreads()

        chunks = uint32((channels + chunk - 1) // chunk)
        source = uint32(cuda.blockIdx.z * chunks * kh * chunk * kw * lane_filters + thread * 4)
        first_channel = uint32(0)
        while first_channel < channels:
            # Neighbouring threads take neighbouring channels of a pixel, then the next pixel.
            load = thread
            while load < loads:
                pixel = uint32(load // steps)
                local_channel = uint32((load - pixel * steps) * step)
                row = uint32(pixel // columns)
                column = uint32(pixel - row * columns)
                r = int32(top + row - pad_rows)
                c = int32(left + column - pad_columns)
                channel = uint32(first_channel + local_channel)
                for i in range(step):
                    values[i] = real(0)
                if 0 <= r < height and 0 <= c < width and channel < channels:
                    at = uint32((r * width + c) * channels + channel)
                    if vector:
                        values[0], values[1], values[2], values[3] = load4(image, at)
                        if gated:
                            y0, y1, y2, y3 = load4(gate, at)
                            values[0] *= real(1) - y0 * y0
                            values[1] *= real(1) - y1 * y1
                            values[2] *= real(1) - y2 * y2
                            values[3] *= real(1) - y3 * y3
                    else:
                        values[0] = image[at]
                        if gated:
                            values[0] *= real(1) - gate[at] * gate[at]
                place = uint32(local_channel * channel_stride + row * row_stride + column)
                for i in range(step):
                    pixels[uint64(place + i * channel_stride)] = values[i]
                load = uint32(load + threads)

            for u in range(kh):
                for first in range(0, chunk, part):
                    load = uint32(thread * 4)
                    while load < part_weights:
                        store4(weights, load, load4(packed, source + load - thread * 4))
                        load = uint32(load + threads * 4)
                    source = uint32(source + part_weights)
                    cuda.syncthreads()

                    at = uint32(first * channel_stride + (run_row + u) * row_stride + run_column)
                    tap = uint32(group * padded_filters)
                    while tap < part_weights:
                        add_channel(sums, pixels, weights, at, tap)
                        if paired:
                            add_channel(
                                sums, pixels, weights, at + channel_stride, tap + channel_weights
                            )
                        at = uint32(at + (1 + paired) * channel_stride)
                        tap = uint32(tap + (1 + paired) * channel_weights)
                    cuda.syncthreads()
            first_channel = uint32(first_channel + chunk)

        # A thread holds neighbouring pixels, whose filters are far apart in memory.  A row of the
        # tile at a time goes through shared memory, so that neighbouring threads write
        # neighbouring filters.  The biases replace the weights in shared memory: read from global
        # memory one by one, they would cost layers of few channels more than the image does.
        at = thread
        while at < block_filters:
            out = uint32(first_out + at)
            weights[at] = bias[out] if out < outputs else real(0)
            at = uint32(at + threads)
        cuda.syncthreads()
        for f in range(filters):
            for i in range(_RUN):
                sums[f * _RUN + i] += weights[uint64(group * filters + f)]
        # A gap after each run of pixels, so that runs are stored to different banks.
        own = uint32(run_column * block_filters + run % _RUNS * _GAP + group * filters)
        for row in range(rows):
            if row == run_row:
                for i in range(_RUN):
                    for f in range(filters):
                        pixels[uint64(own + i * block_filters + f)] = sums[f * _RUN + i]
            cuda.syncthreads()
            r = int32(top + row)
            store = uint32(thread * out_step)
            while store < row_results:
                column = uint32(store // block_filters)
                out = uint32(first_out + store - column * block_filters)
                c = uint32(left + column)
                if r < out_height and c < out_width and out < outputs:
                    at = uint32((r * out_width + c) * outputs + out)
                    place = uint32(store + column // _RUN * _GAP)
                    if out_step == 4:
                        y0, y1, y2, y3 = load4(pixels, place)
                        if activate:
                            y0, y1, y2, y3 = tanh(y0), tanh(y1), tanh(y2), tanh(y3)
                        store4(result, at, (y0, y1, y2, y3))
                    else:
                        y0 = pixels[place]
                        result[at] = tanh(y0) if activate else y0
                store = uint32(store + threads * out_step)
            cuda.syncthreads()

    return convolve
