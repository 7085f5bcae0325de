"""Convolution + bias + tanh, forward and backward: against the oracle, adjoints, derivatives."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.convolutions import assert_close, layer, network
from support.gradcheck import assert_gradients

from hybridstereo import kernels
from hybridstereo.kernels import conv_cpu
from hybridstereo.kernels.cpu import streaming, winograd

KERNELS = [(1, 1), (2, 2), (3, 3), (2, 3)]
CHANNELS = [(1, 1), (3, 5), (5, 3), (3, 100), (100, 1), (100, 100), (17, 33)]


@pytest.fixture
def one_thread():
    kernels.set_threads(1)
    yield
    kernels.set_threads(kernels.max_threads())


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k[0]}x{k[1]}")
@pytest.mark.parametrize("channels", CHANNELS, ids=lambda c: f"{c[0]}to{c[1]}")
@pytest.mark.parametrize("size", [(1, 1), (4, 7)], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive(backend, rng, size, channels, kernel, dtype):
    x, weight, bias, dy = layer(rng, size, channels, kernel, dtype)
    y = backend.conv_forward(x, weight, bias, True)
    assert y.dtype == dtype
    exact = 84 if winograd.suits(weight) else 20  # 1e-5: Winograd's transforms amplify rounding
    assert_close(y, naive.conv_tanh(x, weight, bias), exact)
    gradients = backend.conv_backward(dy, x, weight, y, True)
    for gradient, expected in zip(
        gradients, naive.conv_tanh_backward(x, weight, y, dy), strict=True
    ):
        assert gradient.dtype == dtype
        assert_close(gradient, expected, max(exact, 40))


@pytest.mark.parametrize("channels", [(3, 5), (16, 24)], ids=["direct", "winograd"])
def test_without_bias_and_tanh(backend, rng, channels):
    x, weight, bias, dy = layer(rng, (5, 8), channels, (2, 2))
    units = 40 if winograd.suits(weight) else 10
    assert_close(backend.conv_forward(x, weight, bias, False), naive.conv(x, weight, bias), units)
    assert_close(backend.conv_forward(x, weight, None, False), naive.conv(x, weight, None), units)
    with_tanh = backend.conv_forward(x, weight, None, True)
    assert_close(with_tanh, naive.conv_tanh(x, weight, None), units)
    gradients = backend.conv_backward(dy, x, weight, None, False)
    for gradient, expected in zip(gradients, naive.conv_backward(x, weight, dy), strict=True):
        assert_close(gradient, expected, 40)


# ---------------------------------------------------------------- many tiles


def test_layers_of_the_paper_take_the_fast_path():
    weight = np.zeros((100, 100, 2, 2), np.float32)
    assert winograd.suits(weight)
    assert not winograd.suits(weight.astype(np.float64))
    assert not winograd.suits(weight[:, :3])
    assert winograd.suits(np.zeros((64, 64, 3, 3), np.float32))
    assert not winograd.suits(np.zeros((100, 100, 2, 3), np.float32))


# Sizes that leave a rest in every division: tiles, blocks of tiles, tiles of pixels, bands.
@pytest.mark.parametrize(
    ("size", "channels", "kernel"),
    [
        ((37, 233), (100, 100), (2, 2)),
        ((43, 205), (3, 100), (3, 3)),
        ((35, 197), (64, 64), (3, 3)),
        ((41, 7), (64, 2), (1, 1)),
    ],
    ids=["unary layer", "first layer", "pairwise layer", "last pairwise layer"],
)
def test_float32_agrees_with_float64(backend, rng, size, channels, kernel):
    x, weight, bias, dy = layer(rng, size, channels, kernel, np.float64)
    single = [array.astype(np.float32) for array in (x, weight, bias, dy)]
    y = backend.conv_forward(x, weight, bias, True)
    y32 = backend.conv_forward(*single[:3], True)
    assert np.abs(y32 - y).max() < (1e-5 if winograd.suits(single[1]) else 2e-6)

    exact = backend.conv_backward(dy, x, weight, y, True)
    fast = backend.conv_backward(single[3], *single[:2], y32, True)
    for gradient, expected in zip(fast, exact, strict=True):
        assert np.abs(gradient - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("kernel", [(2, 2), (3, 3)], ids=["2x2", "3x3"])
def test_every_tile_is_written_once(backend, rng, kernel):
    """A constant image gives a constant output: no seam at the edges of tiles and blocks."""
    _, weight, bias, _ = layer(rng, (1, 1), (16, 16), kernel)
    x = np.broadcast_to(rng.standard_normal(16).astype(np.float32), (40, 400, 16))
    y = backend.conv_forward(x, weight, bias, True)
    assert_close(y, np.broadcast_to(y[0, 0], y.shape), 10)


@pytest.mark.parametrize("channels", [(3, 5), (16, 24)], ids=["direct", "winograd"])
def test_nan_is_passed_on(backend, rng, channels):
    x, weight, bias, _ = layer(rng, (5, 8), channels, (2, 2))
    x[2, 3, 1] = np.nan
    y = backend.conv_forward(x, weight, bias, True)
    assert np.isnan(y[1:3, 2:4]).all()


# ---------------------------------------------------------------- whole networks


UNARY = [((20, 3, 3, 3), True), *[((20, 20, 2, 2), True)] * 6]
PAIRWISE = [((16, 3, 3, 3), True), ((16, 16, 3, 3), True), ((2, 16, 1, 1), False)]


# One row of output, less than a step, several steps, several bands.
@pytest.mark.parametrize("size", [(1, 1), (4, 9), (40, 31), (101, 23)])
@pytest.mark.parametrize("shapes", [UNARY[:1], UNARY[:2], UNARY[:3], UNARY, PAIRWISE])
@pytest.mark.parametrize("activate_last", [True, False])
def test_network_equals_layers(rng, shapes, size, activate_last):
    layers = network(rng, shapes)
    consumed = sum(shape[2] - 1 for shape, _ in shapes)
    x = rng.standard_normal((size[0] + consumed, size[1] + consumed, 3)).astype(np.float32)
    expected = x
    for i, (weight, bias) in enumerate(layers):
        activate = activate_last or i < len(layers) - 1
        expected = conv_cpu.conv_forward(expected, weight, bias, activate)
    y = conv_cpu.network_forward([x], layers, activate_last)[0]
    assert y.shape == (*size, shapes[-1][0][0])
    assert_close(y, expected, 30)
    np.testing.assert_array_equal(conv_cpu.network_forward([x], layers, activate_last)[0], y)


# Layers with and without tiles, in an order that moves their grids against each other.
MIXED = [
    ((20, 3, 2, 2), True),
    ((16, 20, 3, 3), True),
    ((17, 16, 2, 2), True),
    ((18, 17, 2, 2), True),
]


@pytest.mark.parametrize("height", [1, 2, 3, 22, 49, 76])
@pytest.mark.parametrize("shapes", [UNARY, PAIRWISE, MIXED], ids=["unary", "pairwise", "mixed"])
def test_network_has_the_same_bits_in_any_bands(rng, monkeypatch, shapes, height):
    """So in any number of threads, which decides the bands."""
    layers = network(rng, shapes)
    consumed = sum(shape[2] - 1 for shape, _ in shapes)
    x = rng.standard_normal((height + consumed, 11 + consumed, 3)).astype(np.float32)
    whole = conv_cpu.network_forward([x], layers, True)[0]
    monkeypatch.setattr(conv_cpu, "get_num_threads", lambda: 1000)
    for rows in (3, 6, 9, 33):
        monkeypatch.setattr(conv_cpu, "BAND_ROWS", rows)
        np.testing.assert_array_equal(conv_cpu.network_forward([x], layers, True)[0], whole)


@pytest.mark.parametrize("height", [1, 9, 430])
@pytest.mark.parametrize("shapes", [UNARY, MIXED], ids=["unary", "mixed"])
def test_several_images_in_bands_of_rows_have_the_same_bits(rng, shapes, height):
    layers = network(rng, shapes)
    consumed = sum(shape[2] - 1 for shape, _ in shapes)
    images = [
        rng.standard_normal((height + consumed, width + consumed, 3)).astype(np.float32)
        for width in (11, 7)
    ]
    bands = streaming.network_bands(height, [weight for weight, _ in layers])
    assert [first for first, _ in bands] == [0, *(last for _, last in bands[:-1])]
    assert bands[-1][1] == height
    parts = [conv_cpu.network_forward(images, layers, True, rows) for rows in bands]
    for i, image in enumerate(images):
        whole = conv_cpu.network_forward([image], layers, True)[0]
        np.testing.assert_array_equal(np.concatenate([part[i] for part in parts]), whole)


def test_rows_of_a_network(backend, rng):
    layers = network(rng, UNARY[:2])
    image = rng.standard_normal((13, 9, 3)).astype(np.float32)
    (whole,) = backend.network_forward([image], layers, True)
    for rows in backend.network_bands(10, [weight for weight, _ in layers]):
        parts = backend.network_forward([image, image], layers, True, rows=rows)
        for part in parts:
            np.testing.assert_array_equal(part, whole[slice(*rows)])


def test_network_in_float64(rng):
    layers = network(rng, UNARY[:3], np.float64)
    x = rng.standard_normal((34, 29, 3))
    expected = x
    for weight, bias in layers:
        expected = conv_cpu.conv_forward(expected, weight, bias, True)
    assert_close(conv_cpu.network_forward([x], layers, True)[0], expected, 30)


# ---------------------------------------------------------------- derivatives


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 130)),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_gradients_are_adjoint(backend, size, channels, kernel, dtype, seed):
    """A linear layer and its two gradients are one trilinear form: <dy, y> = <dx, x> = <dW, W>."""
    x, weight, _, dy = layer(np.random.default_rng(seed), size, channels, kernel, dtype)
    y = backend.conv_forward(x, weight, None, False)
    dx, dweight, dbias = backend.conv_backward(dy, x, weight, None, False)
    value = np.vdot(dy.astype(float), y)
    scale = np.abs(dy).sum() * max(1.0, np.abs(y).max())
    tolerance = 20 * np.finfo(dtype).eps * scale
    assert abs(np.vdot(dx.astype(float), x) - value) < tolerance
    assert abs(np.vdot(dweight.astype(float), weight) - value) < tolerance
    assert_close(dbias, dy.sum(axis=(0, 1), dtype=float), 10 * np.sqrt(dy[..., 0].size))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k[0]}x{k[1]}")
@pytest.mark.parametrize("activate", [True, False])
def test_gradients_equal_central_differences(backend, rng, kernel, activate):
    x, weight, bias, dy = layer(rng, (6, 9), (4, 5), kernel, np.float64)

    def loss():
        return float(np.vdot(dy, backend.conv_forward(x, weight, bias, activate)))

    y = backend.conv_forward(x, weight, bias, activate)
    gradients = backend.conv_backward(dy, x, weight, y, activate)
    names = "x", "weight", "bias"
    assert_gradients(
        loss,
        dict(zip(names, (x, weight, bias), strict=True)),
        dict(zip(names, gradients, strict=True)),
        rng,
        atol=1e-8,
    )


def test_first_layer_needs_no_input_gradient(backend, rng):
    x, weight, bias, dy = layer(rng, (6, 9), (3, 16), (3, 3))
    y = backend.conv_forward(x, weight, bias, True)
    dx, *parameters = backend.conv_backward(dy, x, weight, y, True, need_dx=False)
    assert dx is None
    for gradient, expected in zip(
        parameters, backend.conv_backward(dy, x, weight, y, True)[1:], strict=True
    ):
        np.testing.assert_array_equal(gradient, expected)


# ---------------------------------------------------------------- contract


@pytest.mark.parametrize(
    ("channels", "kernel"), [((20, 36), (2, 2)), ((3, 20), (3, 3))], ids=["winograd", "direct"]
)
def test_same_bits_on_every_run_and_any_threads(backend, rng, one_thread, channels, kernel):
    # Large enough for several chunks of the kernel gradient.
    x, weight, bias, dy = layer(rng, (150, 151), channels, kernel)

    def run():
        y = backend.conv_forward(x, weight, bias, True)
        return y, *backend.conv_backward(dy, x, weight, y, True)

    alone = run()
    kernels.set_threads(kernels.max_threads())
    for _ in range(2):
        for result, expected in zip(run(), alone, strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("channels", [(3, 5), (16, 16)], ids=["direct", "winograd"])
def test_views_are_accepted(backend, rng, channels):
    x, weight, bias, dy = layer(rng, (8, 9), channels, (2, 2))
    y = backend.conv_forward(x, weight, bias, True)
    view = np.asfortranarray(x)
    np.testing.assert_array_equal(backend.conv_forward(view, weight, bias, True), y)
    expected = backend.conv_backward(dy, x, weight, y, True)
    actual = backend.conv_backward(np.asfortranarray(dy), view, weight, np.asfortranarray(y), True)
    for gradient, wanted in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(gradient, wanted)


@pytest.mark.parametrize("channels", [(3, 5), (16, 16)], ids=["direct", "winograd"])
def test_mixed_precision_is_refused(backend, rng, channels):
    """Vectors are loaded and stored without a conversion: one wrong width would be another type."""
    x, weight, bias, dy = layer(rng, (4, 4), channels, (2, 2))
    for i in range(3):
        arrays = [x, weight, bias]
        arrays[i] = arrays[i].astype(np.float64)
        with pytest.raises(TypeError, match="one dtype"):
            backend.conv_forward(*arrays, True)
    with pytest.raises(TypeError, match="one dtype"):
        backend.conv_backward(dy.astype(np.float64), x, weight, None, False)
