"""Convolution + bias + tanh on a GPU, channels last: the twin of ``conv_cpu.py``.

``cuda/convolve.py`` computes the convolution and, with the transposed kernels, the gradient of the
input; ``cuda/kernel_gradient.py`` computes the gradients of the kernels and biases.  No im2col,
padded copy or pre-activation is ever written to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .cuda import cudalib
from .cuda.convolve import TILE_WIDTH, blocks_of_filters, convolution, convolution_tiling, packing
from .cuda.kernel_gradient import kernel_gradient

_PACKING_THREADS = 256


def _on_device(*arrays: Any) -> list[Any]:
    """The arrays on the device; mixed precision is refused, not converted."""
    kinds = {np.dtype(array.dtype) for array in arrays if array is not None}
    if len(kinds) > 1:
        raise TypeError(f"arrays of one dtype expected, not {sorted(map(str, kinds))}")
    if not kinds <= {np.dtype(np.float32), np.dtype(np.float64)}:
        raise TypeError(f"arrays of float32 or float64 expected, not {kinds.pop()}")
    return [None if array is None else cudalib.to_device(array) for array in arrays]


def _convolve(
    image: Any, weight: Any, bias: Any, activate: bool, gate: Any = None, transposed: bool = False
) -> cudalib.DeviceArray:
    """Convolve an image or, transposed, take a gradient back through the convolution.

    Parameters
    ----------
    image
        (H, W, channels).
    weight, bias
        (O, I, kh, kw), and (O,) or none.
    activate
        Apply tanh.
    gate
        Values y of tanh in the shape of the image, which is multiplied by ``1 - y^2``.
    transposed
        Exchange O and I and correlate the image, with zeros around it, with the kernels.
    """
    outputs, inputs, kh, kw = weight.shape
    shape = (inputs, outputs, kh, kw) if transposed else weight.shape
    filters, channels = shape[:2]
    pad_rows, pad_columns = (kh - 1, kw - 1) if transposed else (0, 0)
    height, width, _ = image.shape
    out_height, out_width = height + 2 * pad_rows - kh + 1, width + 2 * pad_columns - kw + 1
    dtype = image.dtype
    result = cudalib.empty((out_height, out_width, filters), dtype)
    if not result.size:
        return result

    tiling = convolution_tiling(shape, dtype.name, gate is not None)
    blocks = blocks_of_filters(tiling, filters)
    chunks = cudalib.blocks_for(channels, tiling.chunk)
    packed = cudalib.empty(
        (blocks, chunks, kh, tiling.chunk, kw, tiling.groups, tiling.padded_filters), dtype
    )
    cudalib.launch(
        packing(dtype.name),
        cudalib.blocks_for(packed.size, _PACKING_THREADS), _PACKING_THREADS,
        weight.reshape(-1), packed.reshape(-1), outputs, inputs, kh, kw, int(transposed),
        tiling.chunk, chunks, tiling.filters, tiling.padded_filters, tiling.groups, packed.size,
    )  # fmt: skip
    if bias is None:
        bias = cudalib.to_device(np.zeros(filters, dtype))
    cudalib.launch(
        convolution(tiling),
        (
            cudalib.blocks_for(out_width, TILE_WIDTH),
            cudalib.blocks_for(out_height, tiling.rows),
            blocks,
        ),
        tiling.threads,
        image.reshape(-1), (image if gate is None else gate).reshape(-1), packed.reshape(-1),
        bias, result.reshape(-1), height, width, channels, out_height, out_width, filters,
        pad_rows, pad_columns, int(activate),
    )  # fmt: skip
    return result


def conv_forward(x: Any, weight: Any, bias: Any | None, activate: bool) -> cudalib.DeviceArray:
    """Valid convolution, bias and optional tanh, as `conv_cpu.conv_forward`."""
    x, weight, bias = _on_device(x, weight, bias)
    return _convolve(x, weight, bias, activate)


def network_forward(
    images: Sequence[Any],
    layers: Sequence[tuple[Any, Any | None]],
    activate_last: bool,
    rows: tuple[int, int] | None = None,
) -> list[cudalib.DeviceArray]:
    """`conv_forward` of all layers, with tanh in between; the activations stay on the device."""
    results = []
    for image in images:
        x = cudalib.to_device(image)
        if rows is not None:
            consumed = sum(weight.shape[2] - 1 for weight, _ in layers)
            x = x[rows[0] : rows[1] + consumed]
        for i, (weight, bias) in enumerate(layers):
            x = conv_forward(x, weight, bias, activate_last or i < len(layers) - 1)
        results.append(x)
    return results


def conv_backward(
    dy: Any, x: Any, weight: Any, y: Any | None, activate: bool, need_dx: bool = True
) -> tuple[cudalib.DeviceArray | None, cudalib.DeviceArray, cudalib.DeviceArray]:
    """Gradients of a loss through `conv_forward`, as `conv_cpu.conv_backward`.

    The same bits on every call.
    """
    dy, x, weight, gate = _on_device(dy, x, weight, y if activate else None)
    # The gradient of a convolution is a correlation with the same kernels, channels swapped.
    dx = _convolve(dy, weight, None, False, gate, transposed=True) if need_dx else None
    return dx, *kernel_gradient(dy, gate, x, weight.shape)
