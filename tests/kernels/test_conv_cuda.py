"""The convolution kernels as compiled code, in the PTX emulator: ``pytest -m emulator``.

``test_conv.py`` runs here as well, through the ``backend`` fixture.  This file has the sizes that
leave a rest in every division of the CUDA kernels, the orders in which blocks may run, and what
the compiled code costs.
"""

from __future__ import annotations

import cuda_emulator
import numpy as np
import pytest
from support.convolutions import assert_close, layer, network

from hybridstereo.kernels import conv_cpu, conv_cuda
from hybridstereo.kernels.cuda import convolve as convolve_cuda
from hybridstereo.kernels.cuda import cudalib
from hybridstereo.kernels.cuda import kernel_gradient as kernel_gradient_cuda
from hybridstereo.kernels.cuda.kernel_gradient_tiling import gradient_tiling

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(bool(cuda_emulator.why_not()), reason=cuda_emulator.why_not()),
]

# Sizes of output, (in, out) channels, kernels: less than a tile, one more than a tile, several
# tiles; channels that come in vectors of four and others, in one chunk or several with a rest;
# fewer filters than a thread takes, and more than a block does.
SHAPES = [
    ((1, 1), (100, 100), (2, 2)),
    ((5, 33), (100, 100), (2, 2)),
    ((1, 70), (3, 100), (3, 3)),
    ((3, 33), (3, 64), (3, 3)),
    ((9, 1), (5, 31), (3, 3)),
    ((17, 33), (64, 2), (1, 1)),
    ((4, 32), (23, 33), (2, 3)),
    ((3, 40), (28, 130), (1, 2)),
    ((2, 19), (4, 150), (1, 1)),  # two blocks of filters whose threads share a few columns
    ((2, 35), (120, 7), (2, 2)),
    ((2, 9), (4, 12), (4, 5)),
    ((2, 11), (900, 4), (1, 1)),  # so many channels that shared memory holds only 8 pixels
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [1, 3, 64, 100, 700, 2000])
def test_kernel_gradient_fits_into_shared_memory(channels, dtype):
    tiling = gradient_tiling((channels, channels, 3, 3), dtype, True)
    places = sum(tiling.shared_places)
    assert places * np.dtype(dtype).itemsize <= 48 << 10
    assert 1 <= tiling.slices <= tiling.segment


def test_kernel_gradient_has_threads_for_every_filter():
    """Threads that read the gradients of a pixel together, in the kernels of any layer."""
    for outputs in range(1, 270):
        for inputs in (1, 2, 3, 4, 5, 7, 16, 28, 64, 100, 131, 900, 3001):
            for kw in (1, 2, 3, 7):
                shape = outputs, inputs, 1, kw
                for dtype in ("float32", "float64"):
                    tiling = gradient_tiling(shape, dtype, True)
                    assert tiling.readers <= tiling.threads <= 256, tiling
                    assert tiling.segment % tiling.slices == 0, tiling
                    assert tiling.block_filters <= 130, tiling


def run(x, weight, bias, dy, activate=True):
    """Output and all gradients on the current device."""
    y = conv_cuda.conv_forward(x, weight, bias, activate)
    return [cudalib.to_host(a) for a in (y, *conv_cuda.conv_backward(dy, x, weight, y, activate))]


def identify(shape):
    size, channels, kernel = shape
    return f"{size[0]}x{size[1]} {channels[0]}to{channels[1]} {kernel[0]}x{kernel[1]}"


@pytest.mark.parametrize("shape", SHAPES, ids=identify)
def test_awkward_shapes_equal_the_cpu(rng, shape):
    x, weight, bias, dy = layer(rng, *shape)
    with cuda_emulator.emulated(timing=False, counters=False):
        found = run(x, weight, bias, dy)
    # In float64, so that only the rounding of the kernels themselves counts.
    precise = [array.astype(np.float64) for array in (x, weight, bias, dy)]
    y = conv_cpu.conv_forward(*precise[:3], True)
    expected = [y, *conv_cpu.conv_backward(precise[3], *precise[:2], y, True)]
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs, 40)


def test_same_bits_in_any_order_of_blocks(rng):
    arguments = layer(rng, (9, 40), (20, 36), (2, 2))
    results = []
    for reverse in (False, True):
        with cuda_emulator.emulated(timing=False, counters=False, reverse=reverse):
            results.append([array.tobytes() for array in run(*arguments)])
    assert results[0] == results[1]


def test_network_equals_the_cpu(rng):
    layers = network(rng, [((12, 3, 3, 3), True), *[((12, 12, 2, 2), True)] * 2])
    x = rng.standard_normal((9, 14, 3)).astype(np.float32)
    for activate_last in (True, False):
        with cuda_emulator.emulated(timing=False, counters=False):
            found = cudalib.to_host(conv_cuda.network_forward([x], layers, activate_last)[0])
        assert_close(found, conv_cpu.network_forward([x], layers, activate_last)[0], 40)


def test_saturated_and_tiny_activations(rng):
    """The tanh of the compiled code, from the smallest numbers to those where it is 1."""
    x = np.concatenate([np.logspace(-30, 2, 300), -np.logspace(-30, 2, 300), [0.0]])
    x = x.reshape(1, -1, 1).astype(np.float32)
    one = np.ones((1, 1, 1, 1), np.float32)
    with cuda_emulator.emulated(timing=False, counters=False):
        y = cudalib.to_host(conv_cuda.conv_forward(x, one, None, True))
    np.testing.assert_allclose(y, np.tanh(x.astype(np.float64)), rtol=4e-7, atol=0)


def test_tiles_of_large_kernels_fit_into_shared_memory():
    for kernel in ((7, 7), (11, 11)):
        for dtype, size in (("float32", 4), ("float64", 8)):
            tiling = convolve_cuda.convolution_tiling((100, 100, *kernel), dtype, False)
            assert (tiling.pixel_places + tiling.weight_places) * size <= 48 * 1024
    with pytest.raises(ValueError, match="shared memory"):
        convolve_cuda.convolution_tiling((100, 100, 99, 99), "float32", False)


def test_other_types_are_refused(rng):
    x, weight, _, _ = layer(rng, (2, 3), (3, 4), (2, 2))
    with cuda_emulator.emulated(), pytest.raises(TypeError, match="float32 or float64"):
        conv_cuda.conv_forward(x.astype(np.int32), weight.astype(np.int32), None, True)


# ---------------------------------------------------------------- what the compiled code costs


def launches_of(channels, kernel):
    """Launches of a layer, forward and backward, on whole tiles."""
    x, weight, bias, dy = layer(np.random.default_rng(1), (8, 64), channels, kernel)
    with cuda_emulator.emulated(timing=False, races=False) as device:
        y = conv_cuda.conv_forward(x, weight, bias, True)
        conv_cuda.conv_backward(dy, x, weight, y, True, channels[0] > 3)
    return {kernel.name: stats for kernel, stats in device.launches}


def assert_within_limits(launches):
    assert set(launches) == {"pack", "convolve", "share_of_gradient", "add_shares"}
    for name, stats in launches.items():
        shared = stats.shared_memory
        assert stats.global_memory["load"]["efficiency"] >= 0.8, name
        assert shared["wavefronts"] <= 1.2 * shared["ideal_wavefronts"], name
        assert stats.active_lane_ratio > 0.85, name


@pytest.fixture(scope="module")
def interior():
    return launches_of((100, 100), (2, 2))


def test_memory_and_lanes_of_a_layer(interior):
    assert_within_limits(interior)


# The other layers of the paper: the first of both networks, and the rest of the Pairwise-CNN.
@pytest.mark.parametrize(
    ("channels", "kernel"),
    [((3, 100), (3, 3)), ((3, 64), (3, 3)), ((64, 64), (3, 3)), ((64, 2), (1, 1))],
    ids=str,
)
def test_memory_and_lanes_of_other_layers(channels, kernel):
    assert_within_limits(launches_of(channels, kernel))


def test_most_instructions_are_multiply_adds(interior):
    """The whole point of the tiles; and nothing in float64."""
    for name, least in (("convolve", 0.75), ("share_of_gradient", 0.6)):
        classes = interior[name].classes
        issued = sum(warps for kind, (warps, _) in classes.items() if kind not in ("mov", "param"))
        assert classes["fp32_fma"][0] > least * issued, name
        assert "fp64" not in classes, name


# Different versions of the compiler make the code for these two.
@pytest.mark.parametrize("architecture", [(7, 5), (12, 0)], ids=["sm_75", "sm_120"])
@pytest.mark.parametrize("shape", [(64, 64, 3, 3), (100, 3, 3, 3)], ids=str)
def test_sums_stay_in_registers(architecture, shape):
    """Indexed by a variable, they would be in local memory, and a tile a hundred times slower."""
    for kernel in (
        convolve_cuda.convolution(convolve_cuda.convolution_tiling(shape, "float32", True)),
        kernel_gradient_cuda.share_kernel(gradient_tiling(shape, "float32", True)),
    ):
        assert ".local" not in cuda_emulator.compiled(kernel, architecture).ptx, kernel
