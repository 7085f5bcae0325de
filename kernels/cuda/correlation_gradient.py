"""Gradients of the correlation scores with respect to the features, on a GPU.

With D(x, j), the sum of the gradients of all labels of left pixel x that look at right pixel j
(each times its share, where it is interpolated between two pixels),

    dphi0(x) = sum_j D(x, j) phi1(j),   dphi1(j) = sum_x D(x, j) phi0(x):

two products with the same banded matrix.  A block of threads takes 32 pixels and 100 channels of
the result and walks over the partner pixels that the labels connect them with, 32 at a time: their
part of D and their features are brought to shared memory, and a thread adds them to 4 pixels x 4
channels in registers.  Every result is summed in a fixed order by one thread: the same bits on
every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, float64, int32, uint32

from ..label_positions import LabelPositions, label_positions
from . import cudalib
from .vectors import ALIGNMENT, load4, store4

__all__ = ["scores_backward"]

cuda: Any = None  # numba.cuda, which cudalib puts here before it compiles a kernel

_PIXELS = 32  # per block, and partners at a time
_RUN = 4  # pixels and channels per thread
_RUNS = _PIXELS // _RUN
_MOST_GROUPS = 25  # of channels per block
_UNROLLED = 4  # partners per step of the inner loop
_STRIDE = _PIXELS + 4  # of a row of D, so that rows begin in different banks


@cudalib.kernel_family(
    *[("float32", 25, True, whole, side) for whole in (True, False) for side in (True, False)],
    ("float32", 2, False, True, True),
    ("float64", 25, True, False, True),
)
def _gradient_kernel(
    dtype: str, groups: int, vector: bool, whole: bool, of_left: bool
) -> cudalib.Kernel:
    """The kernel for ``4 * groups`` channels; grid: (blocks of pixels, rows, blocks of channels).

    ``whole``: `LabelPositions.whole`; ``of_left``: the gradient of the left features.
    """
    real = float32 if dtype == "float32" else float64
    step = 4 if vector else 1
    steps = groups * 4 // step  # loads per partner
    partner_loads = _PIXELS * steps
    partner_stride = groups * 4
    d_places, partner_places = _PIXELS * _STRIDE, _PIXELS * partner_stride
    threads = _RUNS * groups
    sums_count = _RUN * 4

    array = f"{dtype}[::1]"
    signature = f"{array}, {array}, {array}, int32[::1], {array}, " + ", ".join(["int32"] * 7)

    @cudalib.kernel(signature, threads=threads)
    def gradient(
        ds: Any, partners: Any, result: Any, starts: Any, fractions: Any,
        width: Any, channels: Any, label_count: Any, first_offset: Any, buckets: Any,
        lowest: Any, highest: Any,
    ) -> None:  # fmt: skip
        # ds: (H, W, K); partners: features (H, W, C) of the other image; result: (H, W, C);
        # starts: (buckets + 1,): the labels with offset first_offset - i are those from starts[i]
        # to starts[i + 1]; fractions: (K,).
        d = cuda.shared.array(d_places, real, ALIGNMENT)
        features = cuda.shared.array(partner_places, real, ALIGNMENT)
        thread = uint32(cuda.threadIdx.x)
        group = uint32(thread % groups)
        run = uint32(thread // groups * _RUN)
        row = int32(cuda.blockIdx.y)
        first_pixel = int32(cuda.blockIdx.x * _PIXELS)
        first_channel = uint32(cuda.blockIdx.z * partner_stride)
        sums = cuda.local.array(sums_count, real)
        for i in range(sums_count):
            sums[i] = real(0)
        a = cuda.local.array(4, real)
        b = cuda.local.array(4, real)

        if of_left:
            partner = int32(first_pixel + lowest)
            end = int32(first_pixel + _PIXELS + highest)
        else:
            partner = int32(first_pixel - highest)
            end = int32(first_pixel + _PIXELS - lowest)
        if partner < 0:
            partner = int32(0)
        if end > width:
            end = int32(width)
        while partner < end:
            # Neighbouring threads take neighbouring right pixels and so neighbouring labels.
            load = thread
            while load < _PIXELS * _PIXELS:
                from_left = uint32(load // _PIXELS)
                from_right = uint32(load % _PIXELS)
                if of_left:
                    x = int32(first_pixel + from_left)
                    j = int32(partner + from_right)
                    place = uint32(from_right * _STRIDE + from_left)
                else:
                    x = int32(partner + from_left)
                    j = int32(first_pixel + from_right)
                    place = uint32(from_left * _STRIDE + from_right)
                value = real(0)
                if x < width and j < width:
                    base = uint32((row * width + x) * label_count)
                    bucket = int32(first_offset - (j - x))
                    if whole:
                        if 0 <= bucket < label_count:
                            value = ds[uint32(base + bucket)]
                    else:
                        # Labels that look at j, and labels that look between j - 1 and j; a label
                        # that would need a pixel outside the image passes no gradient.
                        if 0 <= bucket < buckets:
                            for k in range(starts[bucket], starts[bucket + 1]):
                                if fractions[k] == 0 or j + 1 < width:
                                    value += (real(1) - fractions[k]) * ds[uint32(base + k)]
                        if j > 0 and 0 <= bucket + 1 < buckets:
                            for k in range(starts[bucket + 1], starts[bucket + 2]):
                                value += fractions[k] * ds[uint32(base + k)]
                d[place] = value
                load = uint32(load + threads)
            load = thread
            while load < partner_loads:
                pixel = uint32(load // steps)
                channel = uint32((load - pixel * steps) * step)
                wanted = uint32(first_channel + channel)
                at = uint32((row * width + partner + pixel) * channels + wanted)
                inside = partner + pixel < end and wanted < channels
                if vector:
                    a[0], a[1], a[2], a[3] = real(0), real(0), real(0), real(0)
                    if inside:
                        a[0], a[1], a[2], a[3] = load4(partners, at)
                    store4(features, load * 4, (a[0], a[1], a[2], a[3]))
                else:
                    features[load] = partners[at] if inside else real(0)
                load = uint32(load + threads)
            cuda.syncthreads()
            at = run
            other = uint32(group * 4)
            while at < d_places:
                for _ in range(_UNROLLED):
                    a[0], a[1], a[2], a[3] = load4(d, at)
                    b[0], b[1], b[2], b[3] = load4(features, other)
                    at = uint32(at + _STRIDE)
                    other = uint32(other + partner_stride)
                    for i in range(_RUN):
                        for c in range(4):
                            sums[i * 4 + c] += a[i] * b[c]
            cuda.syncthreads()
            partner = int32(partner + _PIXELS)

        channel = uint32(first_channel + group * 4)
        for i in range(_RUN):
            x = int32(first_pixel + run + i)
            if x < width:
                at = uint32((row * width + x) * channels + channel)
                if vector:
                    if channel < channels:
                        store4(
                            result, at,
                            (sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]),
                        )  # fmt: skip
                else:
                    for c in range(4):
                        if channel + c < channels:
                            result[uint32(at + c)] = sums[i * 4 + c]

    return gradient


def _bucket_starts(positions: LabelPositions) -> np.ndarray:
    """Where the labels of each offset begin, from the first offset downwards, and the end."""
    distances = positions.offsets[0] - positions.offsets
    return np.searchsorted(distances, np.arange(distances[-1] + 2)).astype(np.int32)


def scores_backward(
    ds: Any, left: Any, right: Any, disparities: np.ndarray
) -> tuple[cudalib.DeviceArray, cudalib.DeviceArray]:
    """Gradients of the scores ``s``; a label that looks outside the image passes none.

    Parameters
    ----------
    ds
        dL/ds (H, W, K).
    left, right, disparities
        As in `correlation_forward`.

    Returns
    -------
    dleft, dright
        dL/dleft and dL/dright (H, W, C).
    """
    ds = cudalib.to_device(ds)
    left, right = cudalib.to_device(left, ds.dtype), cudalib.to_device(right, ds.dtype)
    height, width, channels = left.shape
    positions = label_positions(cudalib.to_host(disparities), ds.dtype)
    starts = _bucket_starts(positions)
    groups = -(-channels // 4)
    groups = -(-groups // -(-groups // _MOST_GROUPS))
    gradients = []
    for of_left, partners in ((True, right), (False, left)):
        gradient = cudalib.empty(left.shape, ds.dtype)
        gradients.append(gradient)
        if not gradient.size:
            continue
        kernel = _gradient_kernel(
            ds.dtype.name, groups, channels % 4 == 0, positions.whole, of_left
        )
        cudalib.launch(
            kernel,
            (
                cudalib.blocks_for(width, _PIXELS),
                height,
                cudalib.blocks_for(channels, 4 * groups),
            ),
            kernel.threads,
            ds.reshape(-1), partners.reshape(-1), gradient.reshape(-1),
            cudalib.to_device(starts), cudalib.to_device(positions.fractions),
            width, channels, positions.label_count, int(positions.offsets[0]), starts.size - 1,
            positions.lowest, positions.highest,
        )  # fmt: skip
    return gradients[0], gradients[1]
