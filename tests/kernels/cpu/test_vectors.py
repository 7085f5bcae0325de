from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

# A layer of each kind, forward and backward, the costs of both views, and how wide a vector is.
NETWORK = """
import json, sys
import numpy as np
from hybridstereo.kernels import conv_cpu, correlation_cpu
from hybridstereo.kernels.cpu.vectors import numbers_per_vector

rng = np.random.default_rng(5)
results = []
for shape in ((20, 3, 3, 3), (20, 20, 2, 2), (17, 20, 3, 3)):
    weight = rng.standard_normal(shape, np.float32) / 8
    x = rng.standard_normal((14, 27, shape[1]), np.float32)
    y = conv_cpu.conv_forward(x, weight, None, True)
    results += [y, *conv_cpu.conv_backward(y * y, x, weight, y, True)]
left, right = rng.standard_normal((2, 3, 31, 20), np.float32) / 3
for labels in (5, 20):
    results.append(correlation_cpu.correlation_forward(left, right, np.arange(labels) * 1.0))
np.savez(sys.argv[1], *results)
print(json.dumps(numbers_per_vector(np.dtype(np.float32))))
"""


@pytest.mark.slow
def test_both_widths_of_vectors_agree(tmp_path):
    """In folders of kernels that both share, which are told apart by the kind of CPU."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("names CPUs of this architecture")
    width, results = {}, {}
    for cpu in ("cascadelake", "znver4"):
        file = tmp_path / f"{cpu}.npz"
        environment = os.environ | {
            "NUMBA_CPU_NAME": cpu,
            "HSTEREO_CACHE_DIR": str(tmp_path / "kernels"),
        }
        run = subprocess.run(
            [sys.executable, "-c", NETWORK, str(file)],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        width[cpu] = json.loads(run.stdout)
        with np.load(file) as arrays:
            results[cpu] = [arrays[name] for name in arrays.files]
    assert width["znver4"] == 8
    for wide, narrow in zip(results["cascadelake"], results["znver4"], strict=True):
        np.testing.assert_allclose(wide, narrow, rtol=0, atol=2e-5 * np.abs(narrow).max())
