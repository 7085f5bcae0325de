from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest
from numba.core.errors import TypingError

from hybridstereo.kernels.cpu.jit import compiled, part, part_or_python

_KERNEL = """
import gc
import os
import sys
import numpy as np
from hybridstereo.kernels.cpu.jit import compiled, part, part_or_python

@part()
def twice(x):
    return 2 * x

@part_or_python
def next_of(x):
    return x + 1

@compiled()
def kernel(values):
    for i in range(values.size):
        values[i] = twice(next_of(values[i]))

values = np.arange(5.0)
kernel(values)
assert values.tolist() == [2, 4, 6, 8, 10], values
assert next_of(3) == 4
(folder,) = (x.path for x in os.scandir(sys.argv[1]))
print(*sorted(name.split("-")[0] for name in os.listdir(folder)))
"""


def test_parts_are_kept_with_their_kernels(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(_KERNEL, encoding="utf-8")
    cache = tmp_path / "cache"
    for _ in range(2):  # compiled, then read from the file
        run = subprocess.run(
            [sys.executable, str(script), str(cache)],
            env={"HSTEREO_CACHE_DIR": str(cache), "NUMBA_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.split() == ["__main__.kernel", "compiling.lock"]


def test_a_part_that_raises():
    @part()
    def checked(x):
        if x < 0:
            raise ValueError("below zero")
        return x

    @compiled()
    def kernel(x):
        return checked(x)

    assert kernel(3) == 3
    with pytest.raises(ValueError, match="below zero"):
        kernel(-3)


def test_kernels_share_a_part():
    @part_or_python
    def square(x):
        return x * x

    @compiled()
    def first(x):
        return square(x) + 1

    @compiled()
    def second(x):
        return square(x) + 2

    assert (first(3), second(3)) == (10, 11)


@pytest.mark.parametrize("collecting", [True, False])
def test_compiling_leaves_the_collector_as_it_was(collecting):
    states = []

    @compiled()
    def kernel(x):
        return x + 1

    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        assert kernel(np.float32(1)) == 2
        states.append(gc.isenabled())
        with pytest.raises(TypingError):
            kernel("no number")
        states.append(gc.isenabled())
    finally:
        (gc.enable if before else gc.disable)()
    assert states == [collecting, collecting]
