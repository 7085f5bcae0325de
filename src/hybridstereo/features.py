"""Images -> features: padding, normalisation and the Unary-CNN (paper, sec. 3; model.md 2, 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .bands import rows_in_bands
from .kernels import Backend

IMAGE_CHANNELS = 3
"""Red, green, blue."""

_PIXELS_AT_ONCE = 10_000  # of an image that is normalised: 0.2 MB in double precision


@dataclass(frozen=True)
class ConvLayer:
    """Parameters of one convolution: kernels (out, in, kh, kw) and biases (out,), if it has any."""

    weight: np.ndarray
    bias: np.ndarray | None


@dataclass(frozen=True)
class Padding:
    """Pixels added before (top, left) and after (bottom, right) the image: (rows, columns) each."""

    before: tuple[int, int]
    after: tuple[int, int]


@dataclass(frozen=True)
class Statistics:
    """Per-channel mean and scale that bring an image to mean 0 and standard deviation 1."""

    mean: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True)
class Window:
    """Where a part of a view lies: its first row and column, and the size of the complete view."""

    top: float
    left: float
    height: int
    width: int

    def at_level(self, level: int) -> Window:
        """The same at a coarser level of a pyramid, each half the size of the one before."""
        size = 1 << level
        return Window(
            self.top / size, self.left / size, -(-self.height // size), -(-self.width // size)
        )


def padding_of(layers: Sequence[ConvLayer]) -> Padding:
    """The padding that makes the output of "valid" layers as large as the image (docs/model.md 2).

    The layers of the paper consume an even number of pixels, half of which goes on each side; of
    an odd number (an even count of layers) the larger part goes below and to the right.
    """
    consumed = [sum(layer.weight.shape[axis] - 1 for layer in layers) for axis in (2, 3)]
    before = (consumed[0] // 2, consumed[1] // 2)
    return Padding(before, (consumed[0] - before[0], consumed[1] - before[1]))


def pad(image: np.ndarray, padding: Padding) -> np.ndarray:
    """Mirror the image at its borders, the border pixel repeated; works down to 1x1 pixels."""
    vertical, horizontal = zip(padding.before, padding.after, strict=True)
    return np.pad(image, (vertical, horizontal, (0, 0)), mode="symmetric")


def statistics(padded: np.ndarray) -> Statistics:
    """Mean and inverse standard deviation of each channel of an (H, W, C) image.

    A constant channel carries no information: its scale is 0, so it normalises to 0 (the
    published program divides by zero there).
    """
    means, scales = [], []
    for channel in range(padded.shape[2]):
        # A contiguous plane at a time: NumPy's sums along a short last axis are ten times slower,
        # and all planes together would be a large image once more in double precision.
        plane = padded[..., channel].astype(np.float64, order="C").ravel()
        constant, mean = (plane == plane[0]).all(), plane.mean()
        means.append(mean)
        # As `np.std` does it, to the bit, but without its copies.
        plane -= mean
        np.multiply(plane, plane, out=plane)
        scales.append(0.0 if constant else 1.0 / np.sqrt(plane.mean()))
    return Statistics(np.array(means), np.array(scales))


def normalise(padded: np.ndarray, stats: Statistics) -> np.ndarray:
    """Apply `Statistics`; keeps the dtype."""
    height, width, channels = padded.shape
    # As rows of numbers, because NumPy is slow along an axis of three channels.
    rows = padded.reshape(height, width * channels)
    mean, scale = np.tile(stats.mean, width), np.tile(stats.scale, width)
    normalised = np.empty_like(rows)
    for few in rows_in_bands(padded.shape, _PIXELS_AT_ONCE):
        normalised[few] = (rows[few] - mean) * scale
    return normalised.reshape(padded.shape)


def append_coordinates(padded: np.ndarray, window: Window | None = None) -> np.ndarray:
    """Append channels ``(x - W/2)/W`` and ``(y - H/2)/H`` of the padded grid (docs/model.md 2).

    Of a part of a view, ``window`` says where in the padded view it lies.
    """
    height, width, _ = padded.shape
    whole = window or Window(0, 0, height, width)
    x = (whole.left + np.arange(width) - whole.width / 2) / whole.width
    y = (whole.top + np.arange(height) - whole.height / 2) / whole.height
    grid = np.stack(np.meshgrid(x, y), axis=-1).astype(padded.dtype)
    return np.concatenate([padded, grid], axis=-1)


def network_input(
    image: np.ndarray,
    layers: Sequence[ConvLayer],
    stats: Statistics | None = None,
    window: Window | None = None,
) -> np.ndarray:
    """Pad and normalise an RGB image (H, W, 3) for the Unary-CNN.

    The statistics are those after padding, unless the image is a part of another one whose
    statistics are given; ``window`` says where in that one it lies.
    """
    padding = padding_of(layers)
    rows, columns = zip(padding.before, padding.after, strict=True)
    padded = pad(image, padding)
    normalised = normalise(padded, statistics(padded) if stats is None else stats)
    if sees_coordinates(layers):
        if window is not None:
            height, width = window.height + sum(rows), window.width + sum(columns)
            window = replace(window, height=height, width=width)
        normalised = append_coordinates(normalised, window)
    return normalised


def sees_coordinates(layers: Sequence[ConvLayer]) -> bool:
    """Whether the Unary-CNN is given the place of a pixel beside its colour."""
    return layers[0].weight.shape[1] == IMAGE_CHANNELS + 2


def network_forward(
    backend: Backend,
    network_in: np.ndarray,
    layers: Sequence[ConvLayer],
    activate_last: bool,
    keep: list[np.ndarray] | None = None,
) -> np.ndarray:
    """A stack of valid convolutions with tanh between them and, optionally, after the last.

    ``keep`` collects the input and the output of every layer, which is what
    `network_backward` needs; without it no layer but the last exists in full size.
    """
    if keep is None:
        parameters = [(layer.weight, layer.bias) for layer in layers]
        return backend.network_forward([network_in], parameters, activate_last=activate_last)[0]
    keep.append(network_in)
    for index, layer in enumerate(layers):
        activate = activate_last or index < len(layers) - 1
        keep.append(
            backend.conv_forward(keep[-1], layer.weight, bias=layer.bias, activate=activate)
        )
    return keep[-1]


def network_backward(
    backend: Backend,
    doutput: np.ndarray,
    kept: Sequence[np.ndarray],
    layers: Sequence[ConvLayer],
    activate_last: bool,
) -> list[ConvLayer]:
    """Gradients of all layers' parameters, given the gradient of the output.

    A layer without biases gets none.
    """
    gradients: list[ConvLayer] = []
    gradient: np.ndarray | None = doutput
    for index in reversed(range(len(layers))):
        layer = layers[index]
        activate = activate_last or index < len(layers) - 1
        gradient, dweight, dbias = backend.conv_backward(
            gradient,
            x=kept[index],
            weight=layer.weight,
            y=kept[index + 1],
            activate=activate,
            need_dx=index > 0,
        )
        gradients.append(ConvLayer(dweight, None if layer.bias is None else dbias))
    return gradients[::-1]


def features_forward(
    backend: Backend,
    network_in: np.ndarray,
    layers: Sequence[ConvLayer],
    keep: list[np.ndarray] | None = None,
) -> np.ndarray:
    """The Unary-CNN, tanh after every layer, also the last: (H+2p, W+2p, 3) -> (H, W, C)."""
    return network_forward(backend, network_in, layers, True, keep)


def features_of_views(
    backend: Backend,
    network_ins: Sequence[np.ndarray],
    layers: Sequence[ConvLayer],
    rows: tuple[int, int],
) -> list[np.ndarray]:
    """`features_forward` of several views at once, of one of their `feature_bands` only."""
    parameters = [(layer.weight, layer.bias) for layer in layers]
    return backend.network_forward(network_ins, parameters, activate_last=True, rows=rows)


def feature_bands(
    backend: Backend, height: int, layers: Sequence[ConvLayer]
) -> list[tuple[int, int]]:
    """Rows (first, last + 1) whose features can be computed, used and forgotten one by one."""
    return backend.network_bands(height, [layer.weight for layer in layers])


def features_backward(
    backend: Backend,
    dfeatures: np.ndarray,
    kept: Sequence[np.ndarray],
    layers: Sequence[ConvLayer],
) -> list[ConvLayer]:
    """Gradients of the Unary-CNN's parameters from those of one image's features."""
    return network_backward(backend, dfeatures, kept, layers, True)
