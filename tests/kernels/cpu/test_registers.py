"""Vectors and fetching follow the kind of CPU, and no result of Dual_MM follows either."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hybridstereo.kernels.cpu.registers import fetches_into_first_level, register_bytes

LANES_TEST = Path(__file__).with_name("test_lanes.py")
ON_X86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="kinds of x86")

DUAL_MM = """
import hashlib
import numpy as np
from hybridstereo.kernels.cpu.lanes import chains_per_vector
from hybridstereo.kernels.dualmm_cpu import dual_mm

rng = np.random.default_rng(7)
digest = hashlib.sha256()
for shape in [(21, 37, 48), (19, 33, 13), (5, 40, 24)]:
    costs, weights = -rng.random(shape, np.float32), rng.random((2, *shape[:2]), np.float32)
    rows = np.empty(shape[:2], np.int32)
    for result in (*dual_mm(costs, *weights, 0.2, 0.8, 3, rows), rows):
        digest.update(result.tobytes())
print(chains_per_vector(np.float32), digest.hexdigest())
"""


def output_of(arguments: list[str], **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


AVX512 = "+avx2,+avx512f,+fma"


@pytest.mark.parametrize(
    ("cpu", "features", "expected"),
    [
        ("cascadelake", AVX512, 64),
        ("sapphirerapids", AVX512, 64),
        ("znver5", AVX512, 64),
        ("cascadelake", "+avx2,-avx512f,+fma", 32),
        ("cascadelake", "", 32),
        ("znver4", AVX512, 32),
        ("haswell", AVX512, 32),
        ("apple-m1", "+neon", 32),
    ],
)
def test_wide_vectors_where_they_do_more(cpu, features, expected):
    assert register_bytes(cpu, features) == expected


@pytest.mark.parametrize(
    ("cpu", "expected"), [("znver5", True), ("znver4", False), ("cascadelake", False)]
)
def test_lines_are_fetched_where_the_kind_of_cpu_brings_them(cpu, expected):
    assert fetches_into_first_level(cpu) is expected


@ON_X86
@pytest.mark.parametrize(
    ("name", "features", "expected"),
    [
        ("haswell", "", 32),
        ("skylake-avx512", "+avx512f", 64),
        ("icelake-server", "+avx512f", 64),
        ("znver3", "", 32),
        ("znver4", "", 32),  # which does half of a vector of AVX-512 at a time
        ("x86-64", "", 32),
        ("haswell", "+avx512f", 32),  # the features of this machine beside another one's name
        ("skylake-avx512", "-avx512f", 32),
    ],
)
def test_numba_is_asked_which_cpu_it_is(name, features, expected):
    program = "from hybridstereo.kernels.cpu.registers import REGISTER_BYTES; print(REGISTER_BYTES)"
    found = output_of(["-c", program], NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES=features)
    assert int(found) == expected


@ON_X86
@pytest.mark.slow
def test_narrow_vectors_pass_the_tests_of_all_vectors():
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(LANES_TEST)]
    assert " passed" in output_of(arguments, NUMBA_CPU_NAME="haswell")


@ON_X86
@pytest.mark.slow
def test_minorants_have_the_same_bits_with_vectors_of_any_width():
    """On a machine without AVX-512 both have the same width, and this holds all the more."""
    own, narrow = (
        output_of(["-c", DUAL_MM], **named).split() for named in ({}, {"NUMBA_CPU_NAME": "haswell"})
    )
    assert narrow[0] == "8"
    assert own[1] == narrow[1]
