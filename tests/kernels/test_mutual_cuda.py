"""The kernels of both views' softmax as compiled code, in the PTX emulator: ``pytest -m emulator``.

``test_mutual.py`` runs here as well, through the ``backend`` fixture.  This file has the numbers of
labels and pixels that leave a rest in every division of the CUDA kernels, the orders in which
blocks may run, and what the compiled code costs.
"""

from __future__ import annotations

import cuda_emulator
import numpy as np
import pytest

from hybridstereo.kernels import mutual_cpu, mutual_cuda
from hybridstereo.kernels.cuda import cudalib

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(bool(cuda_emulator.why_not()), reason=cuda_emulator.why_not()),
]

# Labels around the size of a warp and of the warps of a block; up to four that match the same right
# pixel; right pixels that no label of a warp, or none at all, looks at.
DISPARITIES = {
    "1": np.arange(1.0),
    "31": np.arange(31.0),
    "33 negative": np.arange(33.0) - 20,
    "128": np.arange(128.0),
    "129": np.arange(129.0),
    "300": np.arange(300.0) - 100,
    "half steps": np.arange(300) * 0.5 - 3,
    "0.75 steps": np.arange(200) * 0.75 - 40,
    "0.3 steps": np.arange(65) * 0.3 - 2,
    "200 pixels": np.arange(4) * 200.0 - 200,
}


def problem(rng, height, width, right_width, disparities, dtype=np.float32):
    """The arguments of `run`: a left softmax, what it divides by, and a gradient."""
    scores = rng.standard_normal((height, width, disparities.size))
    sums = np.exp(scores).sum(axis=2)
    f = -np.exp(scores) / sums[..., None]
    df = rng.standard_normal(f.shape)
    return *(x.astype(dtype) for x in (f, np.log(sums), df)), right_width, disparities


def run(twin, f, log_sums, df, right_width, disparities):
    """Costs, logarithms and gradient of one of the twins."""
    if twin is mutual_cuda:
        f, log_sums = cudalib.to_device(f), cudalib.to_device(log_sums)
    else:
        f = f.copy()
    right_log_sums = twin.mutual_forward(f, log_sums, right_width, disparities)
    ds = twin.mutual_backward(f, df, log_sums, right_log_sums, disparities)
    return [cudalib.to_host(array) for array in (f, right_log_sums, ds)]


@pytest.mark.parametrize("disparities", DISPARITIES.values(), ids=DISPARITIES.keys())
@pytest.mark.parametrize(
    ("size", "right_width"),
    [((1, 1), 1), ((2, 33), 40), ((1, 290), 258), ((1, 40), 530)],
    ids=["pixel", "small", "two blocks", "three blocks"],
)
def test_awkward_ranges_equal_the_cpu(rng, disparities, size, right_width):
    arguments = problem(rng, *size, right_width, disparities)
    expected = run(mutual_cpu, *(
        x.astype(np.float64) if isinstance(x, np.ndarray) else x for x in arguments
    ))  # fmt: skip
    with cuda_emulator.emulated(timing=False, counters=False):
        found = run(mutual_cuda, *arguments)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("step", [1.0, 0.5])
def test_float64_equals_the_cpu(rng, step):
    arguments = problem(rng, 2, 70, 66, np.arange(50.0) * step - 9, np.float64)
    with cuda_emulator.emulated(timing=False, counters=False):
        found = run(mutual_cuda, *arguments)
    for ours, theirs in zip(found, run(mutual_cpu, *arguments), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_same_bits_in_any_order_of_blocks(rng):
    arguments = problem(rng, 3, 300, 300, np.arange(140.0) - 3)
    results = []
    for reverse in (False, True):
        with cuda_emulator.emulated(timing=False, counters=False, reverse=reverse):
            results.append([array.tobytes() for array in run(mutual_cuda, *arguments)])
    assert results[0] == results[1]


# ---------------------------------------------------------------- what the compiled code costs


@pytest.mark.parametrize("step", [1.0, 0.5])
def test_memory_and_lanes(rng, step):
    """Both directions go through the costs twice, in whole sectors; nothing else is as large."""
    height, width, label_count = 2, 512, 128
    # All labels look inside.
    disparities = step * np.arange(1.0 - label_count, 1.0)
    arguments = problem(rng, height, width, width + label_count, disparities)
    with cuda_emulator.emulated(timing=False, races=False) as device:
        run(mutual_cuda, *arguments)
    for kernel, stats in device.launches:
        shared, load = stats.shared_memory, stats.global_memory["load"]
        assert load["efficiency"] >= 0.8, kernel
        assert shared["wavefronts"] <= 1.05 * shared["ideal_wavefronts"], kernel
        assert stats.active_lane_ratio > 0.85, kernel
        assert not {"fp64", "atom_global", "atom_shared"} & set(stats.classes), kernel
        if kernel.name == "add_matches":  # it asks for no sector of the costs twice
            assert load["sector_bytes"] <= 1.1 * stats.footprint_read, kernel
    assert [kernel.name for kernel, _ in device.launches] == [
        "largest_of_rows",
        "add_matches",
        "normalise",
        "add_matches",
        "mutual_gradient",
    ]
    volume = 4 * height * width * label_count
    passes = [(x.footprint_read + x.footprint_write) / volume for _, x in device.launches]
    assert passes == pytest.approx([0, 1, 2, 2, 3], abs=0.05)
