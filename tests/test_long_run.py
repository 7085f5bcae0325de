"""Memory and open files stay flat; `tools/long_run.py` does the same for 2,000 and 1,000."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "long_run.py"
LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")


def long_run(predictions: int, steps: int) -> dict[str, dict[str, float]]:
    counts = ["--predictions", str(predictions), "--steps", str(steps)]
    command = [sys.executable, str(TOOL), *counts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_flat(found: dict[str, float], megabytes: float) -> None:
    assert found["megabytes_at_most"] <= found["megabytes_after_warm_up"] + megabytes
    # A file of the run folder may be open at the moment of looking.
    assert found["files_at_most"] <= found["files_after_warm_up"] + 3
    assert found["files_at_the_end"] <= found["files_after_warm_up"]


@LINUX
@pytest.mark.slow
def test_short_run_is_flat():
    """A leak of one volume in ten predictions, or of one activation per step, would show."""
    found = long_run(60, 30)
    assert_flat(found["predictions"], 30)
    assert_flat(found["steps"], 10)


@LINUX
@pytest.mark.large
def test_long_run_is_flat():
    found = long_run(2000, 1000)
    assert_flat(found["predictions"], 30)
    assert_flat(found["steps"], 10)
