"""The CUDA kernels as compiled code, executed by the PTX emulator: ``pytest -m emulator``.

Every launch is checked for out-of-bounds accesses, races, divergent barriers and shuffles from
inactive lanes; the results are compared with the CPU backend.  The tests of the single operations
also run here, through the ``backend`` fixture: this file has the awkward shapes, the order of
blocks, and whole models whose arrays stay on the device.
"""

from __future__ import annotations

from dataclasses import replace

import cuda_emulator
import numpy as np
import pytest
from support.networks import network, pairwise_network

from hybridstereo import kernels
from hybridstereo.datasets import StereoPair
from hybridstereo.kernels.bisection import bisection
from hybridstereo.kernels.cuda import chain_gradients, cudalib
from hybridstereo.labels import LabelRange
from hybridstereo.model import ModelConfig, StereoModel, on_device, on_host
from hybridstereo.stereo import Stereo
from hybridstereo.training.optim import OPTIMISERS, OptimiserOptions, clip_gradients
from hybridstereo.training.steps import (
    HingeOptions,
    MinorantOptions,
    minorant_step,
    parameters_of,
    structured_step,
    unary_step,
)

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(bool(cuda_emulator.why_not()), reason=cuda_emulator.why_not()),
]

# Labels around the size of a warp; rows and columns of one pixel; chains of all small lengths;
# more chains than a block has warps; more pixels than it has threads.
SHAPES = [
    (1, 1, 1), (1, 9, 31), (9, 1, 33), (2, 5, 1), (5, 6, 32), (3, 17, 100), (13, 8, 65), (7, 41, 9)
]  # fmt: skip
P1, P2 = 0.15, 0.6

cpu = kernels.select("cpu")
cuda = kernels.cuda_backend("emulated")


@pytest.fixture
def device():
    with cuda_emulator.emulated(timing=False) as emulated:
        yield emulated


@pytest.fixture(params=[False, True], ids=["forwards", "backwards"])
def any_order(request):
    """Blocks and warps in both orders: nothing may depend on it."""
    with cuda_emulator.emulated(timing=False, counters=False, reverse=request.param) as emulated:
        yield emulated


def crf(rng, height, width, labels):
    f = -(rng.random((height, width, labels)) ** 3).astype(np.float32)
    wx, wy = (0.5 * rng.random((2, height, width))).astype(np.float32)
    return f, wx, wy


def host(*arrays):
    return [cudalib.to_host(x) for x in arrays]


@pytest.mark.parametrize("shape", SHAPES)
def test_dual_mm_of_awkward_shapes(any_order, rng, shape):
    f, wx, wy = crf(rng, *shape)
    row_labels = cudalib.to_device(np.full(shape[:2], -1, np.int32))
    expected_rows = np.empty(shape[:2], np.int32)
    minorant, bounds = cuda.dual_mm(f, wx, wy, P1, P2, 2, row_labels)
    expected, expected_bounds = cpu.dual_mm(f, wx, wy, P1, P2, 2, expected_rows)
    (found,) = host(minorant)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(bounds, expected_bounds, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(host(cuda.read_out(minorant))[0], cpu.read_out(found))
    np.testing.assert_array_equal(host(cuda.argmin(minorant))[0], cpu.argmin(found))
    # Where two labels are within rounding the devices may choose differently.
    assert (host(row_labels)[0] != expected_rows).mean() <= 0.02


@pytest.mark.parametrize("nodes", range(2, 27))
def test_chains_of_every_length(device, rng, nodes):
    f, wx, wy = crf(rng, 1, nodes, 3)
    minorant, bounds = cuda.dual_mm(f, wx, wy, P1, P2, 1)
    expected, expected_bounds = cpu.dual_mm(f, wx, wy, P1, P2, 1)
    np.testing.assert_allclose(host(minorant)[0], expected, atol=1e-5)
    np.testing.assert_allclose(bounds, expected_bounds, rtol=1e-6)


def test_same_bits_in_any_order_of_blocks(rng):
    f, wx, wy = crf(rng, 9, 11, 20)
    results = []
    for reverse in (False, True):
        with cuda_emulator.emulated(timing=False, reverse=reverse):
            minorant, bounds = cuda.dual_mm(f, wx, wy, P1, P2, 2)
            results.append((host(minorant)[0].tobytes(), bounds.tobytes()))
    assert results[0] == results[1]


def assert_same_gradients(found, expected, **tolerances):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(cudalib.to_host(ours), theirs, **tolerances)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 260)])
def test_dual_mm_backward_of_awkward_shapes(any_order, rng, shape):
    """In double precision, for a rounded tie may go either way."""
    problem = [x.astype(float) for x in crf(rng, *shape)]
    dminorant = rng.standard_normal(shape)
    found = cuda.dual_mm_backward(*problem, P1, P2, 2, dminorant)
    expected = cpu.dual_mm_backward(*problem, P1, P2, 2, dminorant)
    assert_same_gradients(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("labels", [1, 5, 32, 70])
def test_dual_mm_backward_breaks_ties_as_the_cpu(device, rng, labels):
    """Whole numbers, halves and so on, which neither device rounds: everything is tied."""
    f = rng.integers(-2, 3, (4, 8, labels)).astype(np.float32)
    wx, wy = rng.integers(0, 3, (2, 4, 8)).astype(np.float32)
    dminorant = rng.integers(-3, 4, f.shape).astype(np.float32)
    for penalties in ((1, 2), (1, 1), (0, 1), (0, 0)):
        found = cuda.dual_mm_backward(f, wx, wy, *penalties, 1, dminorant)
        expected = cpu.dual_mm_backward(f, wx, wy, *penalties, 1, dminorant)
        assert_same_gradients(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("nodes", range(2, 20))
def test_gradients_of_chains_of_every_length(device, rng, nodes):
    problem = [x.astype(float) for x in crf(rng, 1, nodes, 3)]
    dminorant = rng.standard_normal((1, nodes, 3))
    found = cuda.dual_mm_backward(*problem, P1, P2, 1, dminorant)
    expected = cpu.dual_mm_backward(*problem, P1, P2, 1, dminorant)
    assert_same_gradients(found, expected, rtol=1e-9, atol=1e-9)


def test_chains_take_turns_in_little_memory(any_order, rng, monkeypatch):
    """Some at a time, the last time fewer, or one that needs more than it should."""
    problem = crf(rng, 5, 7, 33)
    dminorant = rng.standard_normal((5, 7, 33)).astype(np.float32)
    expected = host(*cuda.dual_mm_backward(*problem, P1, P2, 1, dminorant)[:3])
    at_once = len(any_order.launches)
    size = 2 * bisection(7).rows * 64 * 4
    for bound in (2 * size, 1):
        monkeypatch.setattr(chain_gradients, "_MOST_SCRATCH", bound)
        scratch = chain_gradients.kept_rows_bytes(5, 7, 33)
        assert scratch == max(bound, size)
        before = len(any_order.launches)
        found = host(*cuda.dual_mm_backward(*problem, P1, P2, 1, dminorant)[:3])
        assert len(any_order.launches) - before > at_once
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("soft", [False, True])
def test_losses_of_awkward_shapes(any_order, rng, shape, soft):
    f, wx, wy = crf(rng, *shape)
    f /= -f.sum(axis=2, keepdims=True)
    labels = shape[2]
    position = rng.uniform(0, labels - 1, shape[:2])
    position[-1, -1] = labels - 1  # which has no label above it
    nearest = np.floor(position + 0.5).astype(np.int32)
    valid = rng.random(shape[:2]) > 0.3
    valid[-1, -1] = True
    worst = rng.integers(0, labels, shape[:2]).astype(np.int32)
    count = max(int(valid.sum()), 1)
    for name, arguments in {
        "cross_entropy": (f, position, nearest, valid, count, soft),
        "negated_softmax": (f, -3.0),
        "error_rate": (f, position, valid, count, 1.5, 0.5 if soft else 1.0),
        "augment_costs": (f, nearest, valid, 0.3, 2.5),
        "task_loss": (worst, nearest, valid, 2.5),
        "count_bad_labels": (worst, position, valid, 1.0),
        "count_different": (worst, nearest),
        "complete_truth": (nearest, valid, worst),
        "hinge_gradients": (f, wx, wy, 0.2, 0.7, nearest, worst, valid, count),
    }.items():
        expected = getattr(cpu, name)(*arguments)
        found = getattr(cuda, name)(*arguments)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = found if isinstance(found, tuple) else (found,)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(cudalib.to_host(ours), theirs, rtol=1e-5, atol=1e-7)


# Around the 8 (float32) and 4 (float64) labels of a memory sector, which lanes look up together.
@pytest.mark.parametrize("labels", [1, 2, 3, 4, 7, 8, 9, 16, 31, 33, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(1, 1), (1, 33), (5, 1), (3, 47)], ids=str)
def test_look_ups_of_every_label(any_order, rng, size, dtype, labels):
    """Every label is chosen, at the first and the last pixels too, wherever its sector begins."""
    f, wx, wy = (x.astype(dtype) for x in crf(rng, *size, labels))
    first = np.arange(size[0] * size[1], dtype=np.int32).reshape(size)
    for chosen in (first % labels, (labels - 1 - first) % labels, np.full_like(first, labels - 1)):
        found = cuda.energy(f, wx, wy, P1, P2, chosen)
        assert found == pytest.approx(cpu.energy(f, wx, wy, P1, P2, chosen), rel=1e-12)
        offsets = host(cuda.refine(f, chosen, 0.5))[0]
        np.testing.assert_allclose(offsets, cpu.refine(f, chosen, 0.5), rtol=1e-6)


def test_look_ups_use_whole_sectors(device, rng):
    """What a sector brings is used, and the refinement asks for none of them twice."""
    height, width, labels = 4, 64, 100
    f, wx, wy = crf(rng, height, width, labels)
    chosen = rng.integers(0, labels, (height, width)).astype(np.int32)
    cuda.energy(f, wx, wy, P1, P2, chosen)
    cuda.refine(f, chosen, 1.0)
    loads = {kernel.name: stats.global_memory["load"] for kernel, stats in device.launches}
    for name in ("dualmm_energy", "dualmm_refine"):
        assert loads[name]["efficiency"] > 0.9, name
    inside = (chosen > 0) & (chosen < labels - 1)
    at = np.arange(height * width).reshape(height, width) * labels + np.where(inside, chosen - 1, 0)
    needed = 1 + (at // 8 != (at + 2) // 8)
    assert loads["dualmm_refine"]["sectors"] == needed.sum() + height * width // 8


@pytest.mark.parametrize("size", [1, 31, 129, 20_000])
def test_sums_and_updates(any_order, rng, size):
    start, speed, slope = rng.standard_normal((3, size)).astype(np.float32)
    ours = [cudalib.to_device(x) for x in (start, speed, slope)]
    theirs = [x.copy() for x in (start, speed, slope)]
    for backend, (parameter, velocity, gradient) in ((cuda, ours), (cpu, theirs)):
        backend.scale_by(gradient, 0.7)
        backend.divide_by(gradient, 3)
        backend.add_to(gradient, parameter)
        backend.sgd_update(parameter, velocity, gradient, 0.1, 0.9, True, 0.01)
        backend.sgd_update(parameter, velocity, gradient, 0.1, 0.9, False, 0.0)
    for found, expected in zip(host(*ours), theirs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert cuda.squared_norm(ours[0]) == pytest.approx(cpu.squared_norm(theirs[0]), rel=1e-6)


# One tile and several, whole or not, of both axes; the layers of the Pairwise-CNN's ends.
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (16, 4, 2, 2), (33, 5, 2, 2), (64, 3, 3, 3),
                                   (2, 64, 1, 1), (17, 1, 1, 1)])  # fmt: skip
def test_muon_updates_of_awkward_shapes(any_order, rng, shape):
    ours, theirs = [], []
    for size in (shape, shape, shape, shape[:1], shape[:1], shape[:1]):
        array = rng.standard_normal(size).astype(np.float32)
        ours.append(cudalib.to_device(array))
        theirs.append(array.copy())
    for backend, (*kernel, bias, speed, slope) in ((cuda, ours), (cpu, theirs)):
        backend.muon_update(*kernel, 0.1, 0.9, True, 0.01)
        backend.muon_update(*kernel, 0.1, 0.9, False, 0.0)
        backend.normalised_update(bias, speed, slope, 0.1, 0.9, True)
        backend.normalised_update(bias, speed, slope, 0.1, 0.9, False)
    for found, expected in zip(host(*ours), theirs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- whole models


def stereo_model(rng, edge_model):
    pairwise = tuple(pairwise_network(rng)) if edge_model == "cnn" else ()
    return StereoModel(tuple(network(rng, 3)), pairwise, ModelConfig(edge_model=edge_model))


def stereo_pair(rng, height=9, width=14):
    left = rng.random((height, width, 3)).astype(np.float32)
    disparity = np.full((height, width), 2.3, np.float32)
    valid = rng.random((height, width)) > 0.2
    return StereoPair(left, np.roll(left, -2, axis=1), disparity, valid, 8)


@pytest.mark.parametrize("edge_model", ["contrast", "cnn"])
def test_prediction_equals_the_cpu_and_only_maps_come_down(device, rng, edge_model):
    model = stereo_model(rng, edge_model)
    pair = stereo_pair(rng)
    labels = LabelRange(-1.0, 6)
    found = Stereo(on_device(model, cuda), cuda).match(pair.left, pair.right, labels=labels)
    expected = Stereo(model, cpu).match(pair.left, pair.right, labels=labels)
    np.testing.assert_allclose(found.disparity, expected.disparity, atol=2e-3)
    np.testing.assert_allclose(found.bounds, expected.bounds, rtol=1e-5)
    assert found.energy == pytest.approx(expected.energy, rel=1e-5)
    assert max(device.downloads) <= found.disparity.size


def test_second_frame_allocates_nothing(device, rng, monkeypatch):
    model = on_device(stereo_model(rng, "cnn"), cuda)
    pair = stereo_pair(rng)
    first = Stereo(model, cuda).match(pair.left, pair.right, labels=LabelRange(0, 5))
    monkeypatch.setattr(device, "allocate", None)
    second = Stereo(model, cuda).match(pair.left, pair.right, labels=LabelRange(0, 5))
    assert first.disparity.tobytes() == second.disparity.tobytes()


def run_steps(model, backend, pair, step, kind, steps=2):
    """Some steps of training; returns the losses and the model."""
    model = on_device(model, backend)
    parameters = parameters_of(model)
    optimiser = OPTIMISERS[kind](
        parameters, OptimiserOptions(kind, weight_decay=1e-3), None, backend
    )
    losses = []
    for _ in range(steps):
        result = step(model, backend, pair)
        clip_gradients(result.gradients, 1.0, backend)
        optimiser.step(result.gradients, 0.05)
        p1, p2 = (float(parameters[name][0]) for name in ("p1", "p2"))
        model = replace(model, config=replace(model.config, p1=max(p1, 0), p2=max(p2, p1, 0)))
        losses.append(result.loss)
    return losses, on_host(model, backend)


@pytest.mark.parametrize("kind", OPTIMISERS)
@pytest.mark.parametrize("stage", ["unary", "joint", "full", "full, minorant"])
def test_training_equals_the_cpu_and_only_numbers_come_down(device, rng, stage, kind):
    model = stereo_model(rng, "cnn" if stage.startswith("full") else "contrast")
    pair = stereo_pair(rng)
    labels = LabelRange(0.0, 6)
    options = HingeOptions(iterations=2)

    def step(model, backend, pair):
        if stage == "unary":
            return unary_step(model, backend, pair, labels, True)
        if stage.endswith("minorant"):
            return minorant_step(model, backend, pair, labels, MinorantOptions(iterations=2))
        return structured_step(model, backend, pair, labels, options)

    # In this order: on the CPU the model itself is trained, in place.
    losses, found = run_steps(model, cuda, pair, step, kind)
    masks = [x for x in device.uploads if x.dtype == np.bool_]
    assert len(masks) == len(losses), "the truth goes up once per step"
    expected_losses, expected = run_steps(model, cpu, pair, step, kind)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    assert (found.config.p1, found.config.p2) == pytest.approx(
        (expected.config.p1, expected.config.p2), rel=1e-4
    )
    networks = found.unary + found.pairwise, expected.unary + expected.pairwise
    for ours, theirs in zip(*networks, strict=True):
        np.testing.assert_allclose(ours.weight, theirs.weight, atol=1e-4)
    # All but the parameters, at the end, is a few partial sums.
    arrays = [x for layer in networks[0] for x in (layer.weight, layer.bias) if x is not None]
    assert max(device.downloads[: -len(arrays)]) <= 64
