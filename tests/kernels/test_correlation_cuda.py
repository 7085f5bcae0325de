"""The correlation kernels as compiled code, in the PTX emulator: ``pytest -m emulator``.

``test_correlation.py`` runs here as well, through the ``backend`` fixture.  This file has the
numbers of labels and pixels that leave a rest in every division of the CUDA kernels, the orders in
which blocks may run, and what the compiled code costs.
"""

from __future__ import annotations

import cuda_emulator
import naive
import numpy as np
import pytest

from hybridstereo.kernels import correlation_cpu, correlation_cuda
from hybridstereo.kernels.cuda import cudalib
from hybridstereo.kernels.label_positions import label_positions

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(bool(cuda_emulator.why_not()), reason=cuda_emulator.why_not()),
]

# Labels around the size of a warp and of a chunk of 128 offsets; labels whose neighbour for the
# interpolation is in the next chunk; steps so large that chunks have no label at all.
DISPARITIES = {
    "1": np.arange(1.0),
    "31": np.arange(31.0),
    "33 negative": np.arange(33.0) - 20,
    "100": np.arange(100.0),
    "128": np.arange(128.0),
    "129": np.arange(129.0),
    "300": np.arange(300.0) - 100,
    "half steps": np.arange(300) * 0.5 - 3,
    "0.75 steps": np.arange(200) * 0.75 - 40,
    "fractional, 127 offsets": np.arange(127) + 0.5,
    "fractional, 128 offsets": np.arange(128) + 0.5,
    "200 pixels": np.arange(4) * 200.0 - 200,
}


def run(left, right, disparities, ds):
    """Volume and all gradients on the current device."""
    volume = correlation_cuda.correlation_forward(left, right, disparities)
    gradients = correlation_cuda.scores_backward(ds, left, right, disparities)
    through_softmax = correlation_cuda.softmax_backward(volume, ds)
    return [cudalib.to_host(array) for array in (volume, *gradients, through_softmax)]


def problem(rng, shape, disparities, dtype=np.float32):
    left, right = rng.standard_normal((2, *shape)).astype(dtype)
    return left, right, disparities, rng.standard_normal((*shape[:2], disparities.size), dtype)


@pytest.mark.parametrize("disparities", DISPARITIES.values(), ids=DISPARITIES.keys())
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 33, 6), (1, 230, 24)], ids=["pixel", "two blocks", "wide"]
)
def test_awkward_ranges_equal_naive(rng, disparities, shape):
    left, right, _, ds = arguments = problem(rng, shape, disparities)
    with cuda_emulator.emulated(timing=False, counters=False):
        volume, dleft, dright, through_softmax = run(*arguments)
    expected = naive.unary_cost(naive.scores(left, right, disparities))
    np.testing.assert_allclose(volume, expected, atol=1e-5)
    for found, wanted in zip(
        (dleft, dright), naive.scores_backward(left, right, disparities, ds), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=2e-6 * max(1, np.abs(wanted).max()))
    np.testing.assert_allclose(through_softmax, naive.softmax_backward(-volume, -ds), atol=2e-6)


def test_more_channels_than_a_block_takes(rng):
    arguments = problem(rng, (1, 40, 130), np.arange(5.0))
    with cuda_emulator.emulated(timing=False, counters=False):
        _, *gradients, _ = run(*arguments)
    left, right, disparities, ds = arguments
    for found, wanted in zip(
        gradients, correlation_cpu.scores_backward(ds, left, right, disparities), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_same_bits_in_any_order_of_blocks(rng):
    arguments = problem(rng, (3, 70, 8), np.arange(40.0) - 3)
    results = []
    for reverse in (False, True):
        with cuda_emulator.emulated(timing=False, counters=False, reverse=reverse):
            results.append([array.tobytes() for array in run(*arguments)])
    assert results[0] == results[1]


def test_disparities_beyond_32_bits_are_refused():
    with pytest.raises(ValueError, match="32-bit"):
        label_positions(np.arange(2.0) + 2.0**31, np.float32)


# ---------------------------------------------------------------- what the compiled code costs


def test_memory_and_lanes(rng):
    arguments = problem(rng, (1, 192, 100), np.arange(128.0))
    with cuda_emulator.emulated(timing=False, races=False) as device:
        run(*arguments)
    assert [kernel.name for kernel, _ in device.launches] == [
        "correlate",
        "gradient",
        "gradient",
        "softmax_gradient",
    ]
    for kernel, stats in device.launches:
        shared = stats.shared_memory
        assert stats.global_memory["load"]["efficiency"] >= 0.8, kernel
        assert shared["wavefronts"] <= 1.2 * shared["ideal_wavefronts"], kernel
        assert stats.active_lane_ratio > 0.85, kernel
        assert "fp64" not in stats.classes, kernel
