"""The same bits for any number of threads and in every run (docs/architecture.md, Determinism)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridstereo.kernels.backend import operations
from hybridstereo.models.zoo import available_models

PROGRAM = Path(__file__).parent / "support" / "same_bits.py"
THREADS = 1, 2, 3, 4, 8
KINDS = ["model pyramid", "step unary", "step full", "step minorant", "training run"]
CASES = [*operations(), *(f"model {name}" for name in available_models()), *KINDS]

pytestmark = pytest.mark.slow


def checksums(*threads: int) -> dict[str, dict[str, str]]:
    """What `same_bits.py` finds, in a process that may use as many threads."""
    command = [sys.executable, str(PROGRAM), ",".join(map(str, threads))]
    environment = {**os.environ, "NUMBA_NUM_THREADS": str(max(threads))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found():
    return checksums(*THREADS)


@pytest.fixture(scope="module")
def found_again():
    return checksums(5)


@pytest.mark.parametrize("case", CASES)
def test_same_bits_for_any_number_of_threads(found, case):
    assert len(found[case]) >= 2
    assert len(set(found[case].values())) == 1, found[case]


@pytest.mark.parametrize("case", CASES)
def test_same_bits_in_another_run(found, found_again, case):
    assert {*found_again[case].values()} == {*found[case].values()}


def test_nothing_is_left_out(found):
    assert set(found) == set(CASES)
