"""How ``kernel_gradient.py`` divides its work among the threads of a block."""

from __future__ import annotations

from typing import NamedTuple

from .cudalib import SHARED_BYTES, round_up

_VECTOR_COLUMNS = 8  # per thread, if the channels come in vectors of four
_MOST_COLUMNS = 9  # per thread, otherwise: three taps of a colour image
_MOST_COLUMN_GROUPS = 25  # per block: 200 columns, two taps of 100 channels
_MOST_FILTER_GROUPS = 13  # 100 filters in eights
_THREADS = 256  # per block, approximately
_SEGMENT = 16  # pixels in shared memory at a time, fewer if they have many channels
_MOST_SLICES = 16
_BANKS = 32


class GradientTiling(NamedTuple):
    """The constants that a kernel is compiled for."""

    dtype: str
    channels: int  # of x
    outputs: int  # the number of filters
    columns: int  # kw * channels
    thread_columns: int
    filters: int  # per thread
    filter_groups: int  # per block
    column_groups: int  # per block
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
        return self.column_groups * self.thread_columns

    @property
    def pixel_filters(self) -> int:
        """Places for the gradients of a pixel, whole vectors.

        With slices a warp loads gradients of several pixels: the vectors of the next pixel should
        fall into the banks that follow this one's ``filter_groups`` vectors.
        """
        places = round_up(self.block_filters, 4)
        if self.slices > 1:
            places += (4 * self.filter_groups - places) % _BANKS
        return places

    @property
    def shared_places(self) -> tuple[int, int]:
        """Numbers of a segment of x and of a segment of gradients."""
        # At the end the sums of the biases replace the gradients.
        sums = self.pixels_read * self.block_filters
        return (
            round_up((self.segment - 1) * self.channels + self.block_columns, 4),
            max(self.segment * self.pixel_filters, sums),
        )

    @property
    def gradient_step(self) -> int:
        """Gradients that a thread reads at a time."""
        return 4 if self.outputs % 4 == 0 and self.block_filters % 4 == 0 else 1

    @property
    def readers(self) -> int:
        """Threads that read the gradients of one pixel."""
        return self.block_filters // self.gradient_step

    @property
    def pixels_read(self) -> int:
        """Pixels whose gradients a block reads at a time."""
        return self.threads // self.readers


def gradient_tiling(shape: tuple[int, int, int, int], dtype: str, gated: bool) -> GradientTiling:
    """A good tiling for kernels of shape (O, I, kh, kw)."""
    outputs, inputs, _, kw = shape
    columns, vector = kw * inputs, inputs % 4 == 0
    thread_columns = _VECTOR_COLUMNS
    if not vector:  # parts as equal as possible: 9 columns are one part, not 8 and 1
        thread_columns = -(-columns // -(-columns // _MOST_COLUMNS))
    # The number that leaves the fewest unused.  Few columns mean slices, whose threads would have
    # bank conflicts at the two filters of ten that are not in a vector.
    filters = min((10, 8) if vector else (8,), key=lambda n: round_up(outputs, n))
    if outputs <= 4:
        filters = outputs
    filter_groups, column_groups = -(-outputs // filters), -(-columns // thread_columns)
    column_groups = _equal_groups(column_groups, _MOST_COLUMN_GROUPS)
    most = min(_THREADS // column_groups, _MOST_FILTER_GROUPS)
    filter_groups = _equal_groups(filter_groups, most)
    slices = min(_THREADS // (filter_groups * column_groups), _MOST_SLICES)
    slices = 1 << (max(slices, 1).bit_length() - 1)  # a power of two, as are the segments

    def tiling(segment: int) -> GradientTiling:
        return GradientTiling(
            dtype, inputs, outputs, columns, thread_columns, filters, filter_groups, column_groups,
            segment, min(slices, segment), gated,
        )  # fmt: skip

    segment, size = max(_SEGMENT, 2 * slices), 4 if dtype == "float32" else 8
    while segment > 1 and size * sum(tiling(segment).shared_places) > SHARED_BYTES:
        segment //= 2
    return tiling(segment)


def _equal_groups(groups: int, most: int) -> int:
    """Groups per block, if they are spread evenly over as few blocks as possible."""
    return -(-groups // -(-groups // most))
