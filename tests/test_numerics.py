"""Extreme images, labels and numbers through the whole model; indices beyond 32 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hybridstereo import kernels
from hybridstereo.errors import NumericsError
from hybridstereo.features import ConvLayer
from hybridstereo.kernels.cpu.chains import move_minorants, scratch_arrays
from hybridstereo.labels import LabelRange
from hybridstereo.model import with_config
from hybridstereo.models.zoo import available_models, load_model
from hybridstereo.stereo import Stereo

PYRAMID = {"half_weight": 0.25, "quarter_weight": 0.5}


@pytest.fixture(scope="module", params=[*available_models(), "pyramid"])
def stereo(request):
    if request.param == "pyramid":
        return Stereo(with_config(load_model("general-fast"), **PYRAMID), "cpu")
    return Stereo(request.param, "cpu")


def assert_sound(result):
    assert np.isfinite(result.disparity).all()
    assert result.disparity.min() >= result.label_range.minimum
    assert result.disparity.max() <= result.label_range.maximum
    size = result.disparity.size
    assert np.diff(result.bounds).min() >= -1e-5 * size
    assert result.bounds[-1] <= result.energy + 1e-5 * size


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (1, 33), (33, 1), (2, 2), (5, 3)])
@pytest.mark.parametrize("labels", [1, 7])
def test_smallest_images(stereo, rng, size, labels):
    left, right = rng.integers(0, 256, (2, *size, 3), np.uint8)
    assert_sound(stereo.match(left, right, labels, method="crf"))


@pytest.mark.parametrize("labels", [1, 1024])
def test_fewest_and_most_labels(stereo, rng, labels):
    left = rng.integers(0, 256, (9, 21, 3), np.uint8)
    result = stereo.match(left, np.roll(left, -2, axis=1), labels, method="crf", iterations=2)
    assert_sound(result)
    assert result.label_range.count == labels


@pytest.mark.parametrize("grey", [0, 77, 255])
def test_constant_images(stereo, grey):
    image = np.full((12, 17, 3), grey, np.uint8)
    assert_sound(stereo.match(image, image, 8, method="crf"))


# ---------------------------------------------------------------- NaN at the stage that made it


def spoilt(layers, number):
    """The layers with one parameter of the last but one replaced."""
    weight = layers[-2].weight.copy()
    weight[0, 0, 0, 0] = number
    return (*layers[:-2], ConvLayer(weight, layers[-2].bias), layers[-1])


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["crf", "argmax"])
@pytest.mark.parametrize("pyramid", [{}, PYRAMID])
def test_nan_of_the_features_is_theirs(rng, method, number, pyramid):
    model = with_config(load_model("general-fast"), **pyramid)
    # Infinity alone saturates tanh; with its opposite beside it, the sum is no number.
    model = replace(model, unary=spoilt(model.unary, number))
    model.unary[-2].weight[0, 1, 0, 0] = -number
    left, right = rng.integers(0, 256, (2, 20, 30, 3), np.uint8)
    with pytest.raises(NumericsError, match="features of the left image are not finite"):
        Stereo(model, "cpu").match(left, right, 8, method=method)


def test_nan_of_the_edges_is_theirs(rng):
    model = load_model("general-fast")
    model = replace(model, pairwise=spoilt(model.pairwise, np.nan))
    left, right = rng.integers(0, 256, (2, 20, 30, 3), np.uint8)
    with pytest.raises(NumericsError, match="edge weights are not finite"):
        Stereo(model, "cpu").match(left, right, 8, method="crf")


def test_nan_of_the_correlation_is_its_own(rng):
    def broken(*arguments, **named):
        costs = kernels.select("cpu").correlation_forward(*arguments, **named)
        costs[3, 4] = np.nan
        return costs

    members = vars(kernels.select("cpu")) | {"correlation_forward": broken}
    stereo = Stereo("census", kernels.backend.table(members))
    left, right = rng.integers(0, 256, (2, 20, 30, 3), np.uint8)
    for method in ("crf", "argmax"):
        with pytest.raises(NumericsError, match="correlation gave costs"):
            stereo.match(left, right, 8, method=method)


def test_overflow_of_the_crf_is_its_own(rng):
    costs = rng.uniform(-3e38, 3e38, (6, 7, 5)).astype(np.float32)
    with pytest.raises(NumericsError, match="CRF gave an energy"):
        Stereo("census", "cpu").optimise(costs, np.zeros((6, 7), np.uint8))


def test_costs_of_ten_thousand_stay_within_the_labels(rng):
    for low, high in ((-1e4, 1e4), (1e4, 1e4 + 0.01), (-1e4 - 0.01, -1e4)):
        costs = rng.uniform(low, high, (12, 15, 9)).astype(np.float32)
        labels = LabelRange(3, 9, 0.5)
        result = Stereo("census", "cpu").optimise(costs, np.zeros((12, 15), np.uint8), labels)
        assert labels.minimum <= result.disparity.min()
        assert result.disparity.max() <= labels.maximum


# ---------------------------------------------------------------- more than 2^31 elements


def untouched(shape, dtype=np.float32):
    """Zeros that take memory only where they are written."""
    try:
        return np.zeros(shape, dtype)
    except MemoryError:
        pytest.skip("no address space for an array of more than 2^31 elements")


def test_chains_beyond_32_bit_indices(rng):
    """The last rows and columns of a volume of 2^31 + 2^27 elements, and nothing before them."""
    height, width, labels = 8704, 1024, 256
    assert height * width * labels > 2**31
    f = untouched((height * width, labels))
    out = untouched((height * width, labels))
    part = -rng.random((2, width, labels)).astype(np.float32)
    f[-2 * width :] = part.reshape(-1, labels)
    weights = np.full(height * width, 0.3, np.float32)
    winners, optima = np.zeros(height * width, np.int32), np.zeros(height)
    penalties = np.float32(0.1), np.float32(0.4)

    def sweep(f, out, weights, winners, optima, rows):
        scratch = scratch_arrays(width, labels, np.float32)
        begin = rows - 2
        move_minorants(
            f, f, out, weights, winners, begin, rows, -1, width, width, 1, *penalties,
            np.float32(0), True, *scratch, optima,
        )  # fmt: skip

    sweep(f, out, weights, winners, optima, height)
    small = np.zeros((2 * width, labels), np.float32)
    small_winners, small_optima = np.zeros(2 * width, np.int32), np.zeros(2)
    flat = part.reshape(-1, labels)
    sweep(flat, small, weights[: 2 * width], small_winners, small_optima, 2)
    np.testing.assert_array_equal(out[-2 * width :], small)
    np.testing.assert_array_equal(winners[-2 * width :], small_winners)
    np.testing.assert_array_equal(optima[-2:], small_optima)


@pytest.mark.large
def test_read_out_beyond_32_bit_indices(rng):
    """Every operation that reads one volume; it takes no memory, but seconds to go through."""
    cpu = kernels.select("cpu")
    height, width, labels = 8704, 1024, 256
    volume = untouched((height, width, labels))
    volume[-2:] = -rng.random((2, width, labels)).astype(np.float32)
    part = volume[-2:].copy()
    label_map = cpu.argmin(volume)
    np.testing.assert_array_equal(label_map[-2:], cpu.argmin(part))
    assert not label_map[:-2].any()
    np.testing.assert_array_equal(cpu.read_out(volume)[-2:], cpu.read_out(part))
    np.testing.assert_array_equal(
        cpu.refine(volume, label_map, 1.0)[-2:], cpu.refine(part, label_map[-2:], 1.0)
    )
    none = np.zeros((height, width), np.float32)
    expected = cpu.energy(part, none[-2:], none[-2:], 0.0, 0.0, label_map[-2:])
    assert cpu.energy(volume, none, none, 0.0, 0.0, label_map) == pytest.approx(expected)


@pytest.mark.large
def test_correlation_beyond_32_bit_indices(rng):
    """Writes a volume of 9.1 GB: rows at its end are those of a small volume."""
    cpu = kernels.select("cpu")
    left, right = rng.standard_normal((2, 8704, 1024, 1)).astype(np.float32)
    volume = cpu.correlation_forward(left, right, np.arange(256.0))
    assert volume.size > 2**31
    expected = cpu.correlation_forward(left[-3:], right[-3:], np.arange(256.0))
    np.testing.assert_array_equal(volume[-3:], expected)


def assert_chain_by_chain(f, filled, columns):
    """One iteration of Dual_MM on ``f`` gives what it gives for its rows and columns, one by one.

    A chain of one node is left as it is, so that a volume of one row is only swept along the row,
    and one of one column only along the column.  Rows of ``f`` are zero up to the last ``filled``.
    """
    cpu = kernels.select("cpu")
    height, width, labels = f.shape
    weights = np.random.default_rng(7).uniform(0.1, 1, (2, height, width)).astype(np.float32)

    def solve(rows, columns):
        wx, wy = weights[:, rows, columns]
        return cpu.dual_mm(np.ascontiguousarray(f[rows, columns]), wx, wy, 0.1, 0.4, 1)

    minorant, bounds = solve(np.s_[:], np.s_[:])
    swept, row_bounds = zip(
        *(solve(np.s_[y : y + 1], np.s_[:]) for y in range(height - filled, height)), strict=True
    )
    assert bounds[0] == pytest.approx(sum(x[0] for x in row_bounds))
    for x in columns:
        column = np.zeros((height, 1, labels), np.float32)
        column[-filled:] = np.concatenate(swept)[:, x : x + 1]
        wy = weights[1][:, x : x + 1]
        expected, _ = cpu.dual_mm(column, wy, wy, 0.1, 0.4, 1)
        np.testing.assert_array_equal(minorant[:, x : x + 1], expected)


def test_dual_mm_is_chain_by_chain(rng):
    f = np.zeros((12, 40, 24), np.float32)
    f[-3:] = -rng.random((3, 40, 24)).astype(np.float32)
    assert_chain_by_chain(f, 3, range(40))


@pytest.mark.large
def test_dual_mm_beyond_32_bit_indices(rng):
    """A whole volume, of which only the result, 9.1 GB, takes memory."""
    f = untouched((8704, 1024, 256))
    assert f.size > 2**31
    f[-3:] = -rng.random((3, 1024, 256)).astype(np.float32)
    assert_chain_by_chain(f, 3, (0, 500, 1023))
