"""The oracle itself: hand-computed cases, the theory of the paper, central differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import naive
import numpy as np
import pytest
from naive import Array

SHARED = Path(__file__).resolve().parents[2] / "shared"


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def random_image(seed: int, H: int, W: int) -> Array:
    return np.random.default_rng(seed).random((H, W, 3))


def random_grid(seed: int, H: int, W: int, K: int) -> tuple[Array, Array, Array]:
    """Unaries like the model's and edge weights that sometimes matter and sometimes do not."""
    rng = np.random.default_rng(seed)
    f = naive.unary_cost(2 * rng.standard_normal((H, W, K)))
    return f, rng.random((H, W)) * 0.5, rng.random((H, W)) * 0.5


def unary_layers(seed: int, channels: int, count: int, width: int) -> list[naive.Layer]:
    """A 3x3 layer, then 2x2 layers."""
    rng = np.random.default_rng(seed)
    layers: list[naive.Layer] = []
    for i in range(count):
        size, inputs = (3, channels) if i == 0 else (2, width)
        kernel = rng.standard_normal((width, inputs, size, size)) / math.sqrt(inputs * size**2)
        layers.append((kernel, 0.3 * rng.standard_normal(width)))
    return layers


def pairwise_layers(seed: int) -> list[naive.AnyLayer]:
    return [
        (0.3 * random(seed, 4, 3, 3, 3), 0.3 * random(seed + 1, 4)),
        (0.3 * random(seed + 2, 3, 4, 3, 3), 0.3 * random(seed + 3, 3)),
        (random(seed + 4, 2, 3, 1, 1), None),
    ]


def assert_is_gradient(analytic: Array, loss: Callable[[], float], array: Array) -> None:
    """Compare with central differences of `loss`, which reads `array`."""
    numeric = np.zeros(array.shape)
    eps = 1e-5
    for index in np.ndindex(*array.shape):
        value = array[index]
        array[index] = value + eps
        above = loss()
        array[index] = value - eps
        below = loss()
        array[index] = value
        numeric[index] = (above - below) / (2 * eps)
    assert np.abs(numeric).max() > 1e-3, "nothing was tested"
    np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)


def test_float32_is_widened_first() -> None:
    def narrow(seed: int, *shape: int) -> Array:
        return random(seed, *shape).astype(np.float32)

    x, kernel, dy = narrow(0, 4, 5, 3), narrow(1, 2, 3, 2, 2), narrow(2, 3, 4, 2)
    volume, wx, wy = narrow(3, 4, 5, 6), abs(narrow(4, 4, 5)), abs(narrow(5, 4, 5))
    labels = np.random.default_rng(6).integers(6, size=(4, 5))
    calls: list[tuple[Callable[..., object], list[object]]] = [
        (naive.unary_features, [x, [(kernel, narrow(7, 2))], False]),
        (naive.conv_backward, [x, kernel, dy]),
        (naive.scores, [x, x, [0, 0.5]]),
        (naive.softmax, [volume]),
        (naive.energy, [volume, wx, wy, np.float32(0.1), np.float32(0.7), labels]),
        (naive.dual_mm, [volume, wx, wy, np.float32(0.1), np.float32(0.7), 1]),
    ]
    for function, arguments in calls:
        result: Any = function(*arguments)
        expected: Any = function(*naive.widen(arguments))
        if not isinstance(result, tuple):
            result, expected = (result,), (expected,)
        for actual, wide in zip(result, expected, strict=True):
            assert np.asarray(actual).dtype == np.float64
            np.testing.assert_array_equal(actual, wide)


# ---------------------------------------------------------------- preprocessing


@pytest.mark.parametrize("p", [0, 2, 4, (1, 2)])
def test_padding_is_numpys_symmetric(p: naive.Padding) -> None:
    for H, W in [(5, 7), (1, 3), (2, 1)]:
        image = random_image(0, H, W)
        sides = naive.both_sides(p)
        expected = np.pad(image, (sides, sides, (0, 0)), mode="symmetric")
        np.testing.assert_array_equal(naive.pad_mirror(image, p), expected)


def test_normalised_channels_and_the_constant_one() -> None:
    image = random_image(1, 6, 5)
    image[:, :, 1] = 0.1  # the mean of thirty 0.1 is not exactly 0.1
    result = naive.normalise(image)
    np.testing.assert_allclose(result.mean(axis=(0, 1)), 0, atol=1e-15)
    np.testing.assert_allclose((result**2).mean(axis=(0, 1)), [1, 0, 1])
    assert not result[:, :, 1].any()


def test_xy_channels() -> None:
    xy = naive.xy_channels(2, 4)
    np.testing.assert_array_equal(xy[:, :, 0], [[-0.5, -0.25, 0, 0.25]] * 2)
    np.testing.assert_array_equal(xy[:, :, 1], [[-0.5] * 4, [0] * 4])
    image = random_image(2, 3, 4)
    tensor = naive.preprocess(image, 2, with_xy=True)
    np.testing.assert_array_equal(tensor[:, :, :3], naive.normalise(naive.pad_mirror(image, 2)))
    np.testing.assert_array_equal(tensor[:, :, 3:], naive.xy_channels(7, 8))


# ---------------------------------------------------------------- CNN


def test_convolution_rotates_the_kernel() -> None:
    x = np.array([[1.0, 2], [3, 4]])[:, :, None]
    kernel = np.array([[1.0, 10], [100, 1000]])[None, None]
    assert naive.conv(x, kernel, np.array([0.5])).item() == 1234.5  # a correlation gives 4321.5
    row, taps = random(0, 9), random(1, 3)
    y = naive.conv(row[None, :, None], taps[None, None, None], None)
    np.testing.assert_allclose(y[0, :, 0], np.convolve(row, taps, "valid"))


def test_convolution_sums_over_inputs_and_keeps_outputs_apart() -> None:
    x = random(2, 4, 5, 2)
    kernel, bias = random(3, 3, 2, 2, 2), random(4, 3)
    y = naive.conv(x, kernel, bias)
    assert y.shape == (3, 4, 3)
    for o in range(3):
        parts = [naive.conv(x[:, :, [i]], kernel[[o]][:, [i]], None) for i in range(2)]
        np.testing.assert_allclose(y[:, :, [o]], parts[0] + parts[1] + bias[o])
    np.testing.assert_array_equal(naive.conv_tanh(x, kernel, bias), np.tanh(y))


@pytest.mark.parametrize(
    ("count", "padding"), [(1, (1, 1)), (2, (1, 2)), (3, (2, 2)), (4, (2, 3)), (7, (4, 4))]
)
def test_features_have_the_size_of_the_image(count: int, padding: tuple[int, int]) -> None:
    layers = unary_layers(0, 5, count, 2)
    assert naive.unary_padding(layers) == padding
    features = naive.unary_features(random_image(0, 4, 6), layers, with_xy=True)
    assert features.shape == (4, 6, 2)
    assert np.abs(features).max() < 1


def test_feature_sees_the_centred_window() -> None:
    layers = unary_layers(1, 3, 3, 4)
    x = naive.preprocess(random_image(1, 7, 8), 2, with_xy=False)

    def feature(tensor: Array) -> Array:
        for kernel, bias in layers:
            tensor = naive.conv_tanh(tensor, kernel, bias)
        return tensor[2, 3]  # pixel (4, 5) of the padded tensor

    original = feature(x)
    for position in np.ndindex(*x.shape[:2]):
        changed = x.copy()
        changed[position] += 1
        inside = abs(position[0] - 4) <= 2 and abs(position[1] - 5) <= 2
        assert (feature(changed) != original).any() == inside


def test_gradient_of_the_layer() -> None:
    x, kernel, bias = random(5, 4, 5, 2), random(6, 3, 2, 3, 2), random(7, 3)
    dy = random(8, 2, 4, 3)

    def loss() -> float:
        return float((dy * naive.conv_tanh(x, kernel, bias)).sum())

    y = naive.conv_tanh(x, kernel, bias)
    for analytic, array in zip(
        naive.conv_tanh_backward(x, kernel, y, dy), (x, kernel, bias), strict=True
    ):
        assert_is_gradient(analytic, loss, array)


# ---------------------------------------------------------------- matching


@pytest.mark.parametrize(
    ("disp_max", "step", "K"), [(1, 1, 1), (2, 1, 2), (60, 1, 64), (64, 1, 64), (66, 0.5, 256)]
)
def test_label_count(disp_max: float, step: float, K: int) -> None:
    assert naive.label_count(1, disp_max, step) == K
    assert naive.label_count(0, 1000, step) == 256


def test_scores_match_to_the_left_and_are_zero_outside() -> None:
    phi0 = np.array([[[1.0], [10], [100]]])
    phi1 = np.array([[[2.0], [3], [4]]])
    s = naive.scores(phi0, phi1, [-1, 0, 0.25, 1, 2, 3])
    expected = np.array(
        [
            [3, 2, 0, 0, 0, 0],
            [40, 30, 27.5, 20, 0, 0],
            [0, 400, 375, 300, 200, 0],
        ]
    )
    np.testing.assert_allclose(s[0], expected)


def test_softmax_is_safe_and_normalised() -> None:
    s = np.array([[[1000.0, 1000.0 + math.log(3)], [0.0, -2000.0]]])
    np.testing.assert_allclose(naive.unary_cost(s), [[[-0.25, -0.75], [-1.0, 0.0]]])


def test_gradient_of_correlation_and_softmax() -> None:
    phi0, phi1 = random(9, 2, 5, 3), random(10, 2, 5, 3)
    disparities = [-1, 0.4, 1, 2.75]
    df = random(11, 2, 5, 4)

    def loss() -> float:
        return float((df * naive.unary_cost(naive.scores(phi0, phi1, disparities))).sum())

    dphi0, dphi1 = naive.unary_cost_backward(phi0, phi1, disparities, df)
    assert_is_gradient(dphi0, loss, phi0)
    assert_is_gradient(dphi1, loss, phi1)


# ---------------------------------------------------------------- edge weights


def test_gaussian() -> None:
    impulse = np.zeros((9, 9))
    impulse[4, 4] = 1
    smooth = naive.gaussian_smooth(impulse)
    np.testing.assert_allclose(smooth.sum(), 1)
    assert np.count_nonzero(smooth) == 49
    np.testing.assert_allclose(smooth[4, 5] / smooth[4, 4], math.exp(-1 / 0.98))
    np.testing.assert_allclose(smooth[6, 5] / smooth[4, 4], math.exp(-5 / 0.98))
    np.testing.assert_allclose(naive.gaussian_smooth(np.full((2, 3), 0.7)), 0.7)


def test_contrast_weights() -> None:
    image = np.zeros((3, 12, 3))
    image[:, 6:] = [0.2, 0.4, 0.6]
    wx, wy = naive.contrast_weights(image, lam=0.2, alpha=20, beta=0.9)
    taps = [math.exp(-(i**2) / 0.98) for i in range(-3, 4)]
    # The step of the smoothed image between columns 5 and 6 is the centre tap of the filter.
    step = (0.2989 * 0.2 + 0.5870 * 0.4 + 0.1140 * 0.6) * taps[3] / sum(taps)
    np.testing.assert_allclose(wx[:, 5], 0.2 * math.exp(-20 * step**0.9))
    np.testing.assert_allclose(wx[:, [0, 10]], 0.2)
    np.testing.assert_allclose(wy[:2], 0.2)
    assert not wx[:, -1].any()
    assert not wy[-1].any()
    steep, _ = naive.contrast_weights(image, lam=0.2, alpha=1000, beta=0.9)
    np.testing.assert_array_equal(steep[:, 5], 1e-6)


def test_pairwise_input_is_the_unary_tensor_cropped() -> None:
    image = random_image(3, 5, 6)
    wide = naive.preprocess(image, 4, with_xy=False)
    np.testing.assert_array_equal(naive.pairwise_input(image, 4), wide[2:-2, 2:-2])
    assert naive.pairwise_input(image, (1, 2)).shape == (9, 10, 3)


def test_pairwise_channels() -> None:
    layers = pairwise_layers(20)
    image = random_image(4, 5, 6)
    x = naive.pairwise_input(image, 4)
    for kernel, bias in layers[:2]:
        x = naive.conv_tanh(x, kernel, bias)
    z = naive.conv(x, *layers[2])
    wx, wy = naive.pairwise_cnn_weights(image, layers, 0.5, 4)
    np.testing.assert_allclose(wx[:, :-1], 0.5 * np.abs(z[:, :-1, 0]))
    np.testing.assert_allclose(wy[:-1], 0.5 * np.abs(z[:-1, :, 1]))
    assert not wx[:, -1].any()
    assert not wy[-1].any()


def test_gradient_of_the_pairwise_net() -> None:
    layers = pairwise_layers(30)
    image = random_image(5, 4, 5)
    dwx, dwy = random(12, 4, 5), random(13, 4, 5)

    def loss() -> float:
        wx, wy = naive.pairwise_cnn_weights(image, layers, 0.7, 2)
        return float((dwx * wx + dwy * wy).sum())

    gradients = naive.pairwise_cnn_backward(image, layers, 0.7, 2, dwx, dwy)
    for (dkernel, dbias), (kernel, bias) in zip(gradients, layers, strict=True):
        assert_is_gradient(dkernel, loss, kernel)
        assert (dbias is None) == (bias is None)
        if dbias is not None and bias is not None:
            assert_is_gradient(dbias, loss, bias)


# ---------------------------------------------------------------- Dual_MM


def chain_cost(c: Array, w: Array, p1: float, p2: float, labels: naive.Labels) -> float:
    wx = np.append(w, 0.0)[None]
    return naive.energy(c[None], wx, np.zeros_like(wx), p1, p2, labels[None])


@pytest.mark.parametrize("K", [1, 2, 3, 9])
@pytest.mark.parametrize(("p1", "p2"), [(0.0, 0.0), (0.2, 0.7), (0.5, 0.5), (0.1, 9.0)])
def test_message_is_the_minimum_over_jumps(K: int, p1: float, p2: float) -> None:
    a = random(K, K)
    expected = [min(a[s] + naive.rho(s - t, p1, p2) for s in range(K)) for t in range(K)]
    np.testing.assert_allclose(naive.message(a, p1, p2), expected)


@pytest.mark.parametrize("N", range(1, 14))
@pytest.mark.parametrize("K", [1, 5])
def test_minorant_is_below_tight_and_uniform(N: int, K: int) -> None:
    rng = np.random.default_rng(100 * N + K)
    c, w = rng.standard_normal((N, K)), rng.random(N - 1)
    before = c.copy()
    F = naive.chain_minorant(c, w, 0.3, 1.1)
    np.testing.assert_array_equal(c, before)
    labels, optimum = naive.viterbi_chain(c, w, 0.3, 1.1)
    np.testing.assert_allclose(chain_cost(c, w, 0.3, 1.1, labels), optimum)
    np.testing.assert_allclose(F.min(axis=1), optimum / N)
    # Nothing is lost: what remains has minimum exactly 0, hence is >= 0 for every labelling.
    _, remainder = naive.viterbi_chain(c - F, w, 0.3, 1.1)
    assert abs(remainder) < 1e-12
    for _ in range(20):
        other = rng.integers(K, size=N)
        assert F[np.arange(N), other].sum() <= chain_cost(c, w, 0.3, 1.1, other) + 1e-12


def test_minorant_of_two_nodes_by_hand() -> None:
    c = np.array([[0.0, 4.0], [6.0, 0.0]])
    # m1 = (0, 1); m = msg((0+6)/2 - 0, (1+0)/2 - 1) = msg(3, -.5) = (.5, -.5); m' = (-.5, .5)
    F = naive.chain_minorant(c, np.array([0.5]), 2.0, 8.0)
    np.testing.assert_allclose(F, [[0.5, 3.5], [5.5, 0.5]])


@pytest.mark.parametrize(
    ("N", "expected"),
    [
        (6, [(2, 1 / 2), (0, 2 / 3), (1, 1 / 2), (4, 2 / 3), (3, 1 / 2)]),
        (7, [(3, 4 / 7), (1, 1 / 2), (2, 1 / 2), (0, 1 / 2), (5, 2 / 3), (4, 1 / 2)]),
    ],
)
def test_order_of_the_cuts(
    N: int, expected: list[tuple[int, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any order gives a tight minorant, but not the same one: (edge, r) worked out by hand."""
    cuts = []
    original = naive.cut

    def recorded(A: Array, B: Array, r: float, p1: float, p2: float) -> tuple[Array, Array]:
        cuts.append((round(p1), r))  # the weight of edge i is i and P1 is 1
        return original(A, B, r, p1, p2)

    monkeypatch.setattr(naive, "cut", recorded)
    naive.chain_minorant(random(N, N, 3), np.arange(N - 1.0), 1, 2)
    assert cuts == expected


@pytest.mark.parametrize(("H", "W", "K"), [(1, 1, 3), (2, 2, 4), (3, 3, 2), (2, 4, 3)])
def test_bound_rises_and_stays_below_the_optimum(H: int, W: int, K: int) -> None:
    f, wx, wy = random_grid(H + 10 * W, H, W, K)
    _, best = naive.brute_force_map(f, wx, wy, 0.5, 2.0)
    F, bounds = naive.dual_mm(f, wx, wy, 0.5, 2.0, 5)
    assert len(bounds) == 10
    assert min(np.diff(bounds)) > -1e-12
    assert bounds[-1] <= best + 1e-12
    assert naive.energy(f, wx, wy, 0.5, 2.0, naive.read_out(F)) >= best - 1e-12


def test_bound_is_that_of_both_families() -> None:
    """The bound read from the minorants is the sum of the optima of rows and columns."""
    f, wx, wy = random_grid(7, 4, 5, 3)
    F_rows, _ = naive.dual_mm(f, wx, wy, 0.5, 2.0, 0.5)
    C = F_rows  # C <- f - C + F with C = f
    _, bounds = naive.dual_mm(f, wx, wy, 0.5, 2.0, 1)
    rows = sum(naive.viterbi_chain((f - C)[y], wx[y], 0.5, 2.0)[1] for y in range(4))
    columns = sum(naive.viterbi_chain(C[:, x], wy[:, x], 0.5, 2.0)[1] for x in range(5))
    np.testing.assert_allclose(bounds[1], rows + columns)
    assert bounds[1] > bounds[0] + 1e-3


@pytest.mark.parametrize("N", [1, 2, 7])
@pytest.mark.parametrize("vertical", [False, True])
def test_single_row_or_column_is_exact(N: int, vertical: bool) -> None:
    f, w, _ = random_grid(N, 1, N, 4)
    labels, optimum = naive.viterbi_chain(f[0], w[0], 0.5, 2.0)
    wx, wy = w, np.zeros_like(w)
    if vertical:
        f, wx, wy, labels = f.transpose(1, 0, 2), wy.T, wx.T, labels
    F, bounds = naive.dual_mm(f, wx, wy, 0.5, 2.0, 2)
    np.testing.assert_allclose(bounds[-1], optimum)
    np.testing.assert_array_equal(naive.read_out(F).ravel(), labels)
    np.testing.assert_allclose(
        naive.energy(f, wx, wy, 0.5, 2.0, labels.reshape(f.shape[:2])), optimum
    )


def test_read_out_of_ties() -> None:
    F = np.zeros((1, 2, 20))
    F[0, 0, [3, 6, 9]] = -1
    F[0, 0, 6] += 0.9e-6
    F[0, 1, [2, 17]] = -1, -1.1
    assert naive.read_out(F).tolist() == [[3, 17]]
    assert naive.read_out_ties(F).tolist() == [[6, 17]]


def test_refinement_finds_the_vertex_of_a_parabola() -> None:
    step = 0.5
    vertex = 3.6
    F = ((1 + step * np.arange(8) - vertex) ** 2)[None, None]
    np.testing.assert_allclose(naive.refine(F, naive.read_out(F), 1, step), vertex)
    for z in 0, 7:
        assert naive.refine(F, [[z]], 1, step).item() == 1 + step * z
    flat = np.array([[[1e-4, 0, 0.5e-4]]])  # curvature below its floor
    np.testing.assert_allclose(naive.refine(flat, [[1]], 0, 1), 1 + 0.25e-4 / 1e-3)


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize("soft", [False, True])
def test_gradient_of_the_whole_cross_entropy_model(soft: bool) -> None:
    layers = unary_layers(40, 5, 3, 3)
    for kernel, _ in layers:
        kernel *= 2  # confident enough that the gradient is not tiny
    left, right = random_image(6, 3, 5), random_image(7, 3, 5)
    disparities = [0, 1, 2.5, 4]
    target = np.random.default_rng(8).uniform(0, 3, (3, 5))
    valid = np.random.default_rng(9).random((3, 5)) < 0.7

    def features(image: Array) -> Array:
        return naive.unary_features(image, layers, with_xy=True)

    def forward() -> tuple[float, Array]:
        s = naive.scores(features(left), features(right), disparities)
        return naive.cross_entropy(s, target, valid, soft)

    _, ds = forward()
    assert not ds[~valid].any()
    dphi = naive.scores_backward(features(left), features(right), disparities, ds)
    sides = [
        naive.unary_features_backward(image, layers, True, d)
        for image, d in zip((left, right), dphi, strict=True)
    ]
    for layer, from_left, from_right in zip(layers, *sides, strict=True):
        for parameter, dl, dr in zip(layer, from_left, from_right, strict=True):
            assert_is_gradient(dl + dr, lambda: forward()[0], parameter)


def test_cross_entropy_by_hand() -> None:
    s = np.log(np.array([[[0.25, 0.5, 0.25], [0.2, 0.2, 0.6]]])) + 800
    valid = np.array([[True, False]])
    loss, ds = naive.cross_entropy(s, [[0.75, 0]], valid)
    assert loss == pytest.approx(-math.log(0.5))
    np.testing.assert_allclose(ds[0, 0], [0.25, -0.5, 0.25])
    loss, _ = naive.cross_entropy(s, [[0.75, 0]], valid, soft=True)
    assert loss == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.5))


def test_loss_augmentation_moves_the_energy_by_the_task_loss() -> None:
    f, wx, wy = random_grid(11, 3, 4, 5)
    rng = np.random.default_rng(12)
    target, labels = rng.integers(5, size=(2, 3, 4))
    valid = rng.random((3, 4)) < 0.6
    augmented = naive.loss_augment(f, target, valid, gamma=0.3, tau=2)
    shift = naive.energy(f, wx, wy, 1, 2, labels) - naive.energy(augmented, wx, wy, 1, 2, labels)
    np.testing.assert_allclose(shift, 0.3 * naive.task_loss(labels, target, valid, 2))
    np.testing.assert_allclose(
        naive.energy(augmented, wx, wy, 1, 2, target), naive.energy(f, wx, wy, 1, 2, target)
    )
    assert naive.task_loss([[0, 4, 1]], [[3, 4, 0]], np.array([[True, True, False]]), 2) == 2


@pytest.mark.parametrize("exponent", [1.0, 0.3])
def test_error_rate_by_differences(exponent: float) -> None:
    s, position = random(0, 2, 3, 4), np.array([[0, 1.2, 3], [2.5, 2, 0.7]])
    valid = np.array([[True, True, False], [True, True, True]])

    def loss() -> float:
        return naive.error_rate(s, position, valid, 1.0, exponent)[0]

    assert_is_gradient(naive.error_rate(s, position, valid, 1.0, exponent)[1], loss, s)
    certain = np.full((1, 2, 3), -100.0)
    certain[0, :, 0] = 100  # right in one of both pixels
    both = np.ones((1, 2), bool)
    assert naive.error_rate(certain, [[1, 2]], both, 1, exponent)[0] == pytest.approx(1 / exponent)


@pytest.mark.parametrize("shape", [(2, 3), (1, 6)])
def test_hinge_gradient_with_exact_inference(shape: tuple[int, int]) -> None:
    K, gamma, tau = 3, 0.4, 2
    f, wx, wy = random_grid(sum(shape), *shape, K)
    penalties = np.array([0.4, 1.3])
    target = np.random.default_rng(13).integers(K, size=shape)
    valid = np.ones(shape, bool)

    def minimise() -> tuple[naive.Labels, float]:
        augmented = naive.loss_augment(f, target, valid, gamma, tau)
        if shape[0] == 1:
            labels, value = naive.viterbi_chain(augmented[0], wx[0], *penalties)
            return labels[None], value
        return naive.brute_force_map(augmented, wx, wy, *penalties)

    def loss() -> float:
        p1, p2 = penalties
        return naive.energy(f, wx, wy, p1, p2, target) - minimise()[1]

    xbar, _ = minimise()
    best, _ = naive.brute_force_map(f, wx, wy, *penalties)
    assert loss() >= gamma * naive.task_loss(best, target, valid, tau)
    g = naive.hinge_gradients(target, xbar, valid, f, wx, wy, *penalties)
    assert_is_gradient(g.df, loss, f)
    assert_is_gradient(g.dwx, loss, wx)
    if shape[0] > 1:
        assert_is_gradient(g.dwy, loss, wy)
    assert_is_gradient(np.array([g.dp1, g.dp2]), loss, penalties)


def test_hinge_with_dual_mm_is_an_upper_bound() -> None:
    for seed in range(4):
        f, wx, wy = random_grid(seed, 2, 3, 3)
        rng = np.random.default_rng(seed)
        target = rng.integers(3, size=(2, 3))
        valid = np.array([[True, True, False], [True, True, seed % 2 == 0]])
        result = naive.hinge(f, wx, wy, 0.5, 1.5, target, valid, 0.4, 2, iterations=3)
        augmented = naive.loss_augment(f, target, valid, 0.4, 2)
        _, exact = naive.brute_force_map(augmented, wx, wy, 0.5, 1.5)
        assert result.bound <= exact + 1e-12
        np.testing.assert_array_equal(result.x_star[valid], target[valid])
        np.testing.assert_array_equal(result.x_star[~valid], result.xbar[~valid])
        energy = naive.energy(f, wx, wy, 0.5, 1.5, result.x_star)
        assert result.loss == pytest.approx(energy - result.bound)
        assert result.loss >= max(0, energy - exact) - 1e-12


def test_hinge_gradient_ignores_what_touches_an_unknown_pixel() -> None:
    f, wx, wy = random_grid(3, 1, 4, 4)
    valid = np.array([[True, True, True, False]])
    g = naive.hinge_gradients([[0, 1, 3, 3]], [[2, 1, 1, 0]], valid, f, wx, wy, 0.5, 2.0)
    np.testing.assert_array_equal(
        g.df[0], [[1, 0, -1, 0], [0, 0, 0, 0], [0, -1, 0, 1], [0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(g.dwx, [[0.5 - 0.5, 2.0 - 0.0, 0, 0]])
    assert not g.dwy.any()
    assert g.dp1 == 0
    assert g.dp2 == wx[0, 1]


# ---------------------------------------------------------------- optimiser


@pytest.mark.parametrize("shape", [(3, 3), (2, 7), (7, 2), (1, 5), (5, 1)])
def test_orthogonal_factor_keeps_the_singular_vectors(shape: tuple[int, int]) -> None:
    """Each step takes a singular value s to 3.4445 s - 4.7750 s^3 + 2.0315 s^5."""
    N = random(0, *shape)
    U, values, Vt = np.linalg.svd(N, full_matrices=False)
    s = values / np.linalg.norm(values)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    np.testing.assert_allclose(naive.orthogonal_factor(N), (U * s) @ Vt, atol=1e-12)
    assert s.min() > 0.6
    assert s.max() < 1.2


def test_muon_by_hand() -> None:
    """Two filters along two inputs: the step forgets how long the gradients are."""
    W, G = np.zeros((2, 2, 1, 1)), np.diag([3.0, 4.0]).reshape(2, 2, 1, 1)
    stepped, V = naive.muon_update(W, np.zeros_like(W), G, 0.5, 0.9, True, 0.0)
    np.testing.assert_array_equal(V, G)
    long, _ = naive.muon_update(W, np.zeros_like(W), 100 * G, 0.5, 0.9, True, 0.0)
    np.testing.assert_allclose(long, stepped)
    np.testing.assert_array_equal(stepped[[0, 1], [1, 0]], 0)
    assert np.all(np.abs(-stepped[[0, 1], [0, 1], 0, 0] / 0.5 - 1) < 0.4)
    # With more filters than inputs the rate grows by the root of their ratio.
    tall, _ = naive.muon_update(
        np.zeros((4, 1, 1, 1)), np.zeros((4, 1, 1, 1)), np.ones((4, 1, 1, 1)), 0.5, 0.9, True, 0.0
    )
    size = abs(naive.orthogonal_factor(np.ones((4, 1)))[0, 0])
    np.testing.assert_allclose(tall, -0.5 * 2 * size)


def test_normalised_update_by_hand() -> None:
    b, v = naive.normalised_update(np.zeros(2), np.zeros(2), np.array([3.0, -4.0]), 0.1, 0.5, False)
    np.testing.assert_allclose(b, -0.1 * np.array([3, -4]) / math.sqrt(12.5))
    np.testing.assert_array_equal(v, [3, -4])


# ---------------------------------------------------------------- the published parameters


def read_image(path: Path) -> Array:
    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    assert image is not None, path
    return image[:, :, ::-1].astype(np.float64) / 255


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "parameters", "lam", "p1", "p2"),
    [
        ("teddy_crf", "middlebury-3-cnn", 0.2, 1.0, 5.0),
        ("teddy_full", "middlebury-3-full", 1.0, 1.0, 5.0),
        ("kitti_joint", "kitti-3-joint", 0.15, 0.99709302, 17.77788925),
    ],
)
def test_golden_crop(case: str, parameters: str, lam: float, p1: float, p2: float) -> None:
    golden_folder = SHARED / "official" / "golden"
    if not golden_folder.is_dir():
        pytest.skip(f"{golden_folder} is absent")
    golden = np.load(golden_folder / f"{case}.npz")
    stored = np.load(SHARED / "official" / parameters / "params.npz")
    arrays = [stored[f"arr_{i}"].astype(np.float64) for i in range(len(stored.files))]
    layers = [(arrays[i], arrays[i + 1]) for i in (0, 2, 4)]
    left, right = (read_image(golden_folder / f"{case}_{side}.png") for side in ("left", "right"))

    phi0 = naive.unary_features(left, layers, with_xy=False)
    phi1 = naive.unary_features(right, layers, with_xy=False)
    np.testing.assert_allclose(phi0[::3, ::3], golden["features_left"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(phi1[::3, ::3], golden["features_right"], atol=1e-5, rtol=0)

    dmin = int(golden["min_disparity"])
    f = naive.unary_cost(naive.scores(phi0, phi1, dmin + np.arange(golden["f"].shape[2])))
    np.testing.assert_allclose(f, golden["f"], atol=1e-5, rtol=0)

    if case == "teddy_full":
        pairwise = [(arrays[6], arrays[7]), (arrays[8], arrays[9]), (arrays[10], None)]
        wx, wy = naive.pairwise_cnn_weights(left, pairwise, lam, 2)
    else:
        wx, wy = naive.contrast_weights(left, lam, alpha=20, beta=0.9)
    np.testing.assert_allclose(wx[:, :-1], golden["wx"][:, :-1], atol=1e-4, rtol=0)
    np.testing.assert_allclose(wy[:-1], golden["wy"][:-1], atol=1e-4, rtol=0)

    F, bounds = naive.dual_mm(f, wx, wy, p1, p2, 5)
    np.testing.assert_allclose(bounds, golden["bound_trace"], rtol=1e-5)
    np.testing.assert_allclose(F, golden["F"], atol=1e-4, rtol=0)
    labels = naive.read_out(F)
    same = labels == golden["labels"]
    assert same.mean() >= 1 - 0.0005
    np.testing.assert_array_equal((dmin + labels)[same], golden["disparity"][same])
    np.testing.assert_allclose(
        naive.refine(F, labels, dmin, 1)[same], golden["refined"][same], atol=1e-2
    )
    assert naive.energy(f, wx, wy, p1, p2, labels) == pytest.approx(golden["energy"], rel=1e-5)
