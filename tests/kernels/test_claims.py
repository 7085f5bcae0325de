"""Who compiles a kernel when several processes need it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hybridstereo.kernels import claims, diskcache

NAME = f"chains.walk-{'3f' * 12}.kernel"

HOLD = """
import sys, time
from pathlib import Path
from hybridstereo.kernels import claims
path = Path(sys.argv[1])
assert claims.claim(path)
print("claimed", flush=True)
if sys.stdin.readline() == "finish\\n":
    path.write_bytes(b"compiled")
    claims.release(path)
    print("released", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / NAME


@pytest.fixture
def holder(path):
    """Another process that compiles the kernel."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.communicate()


def read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def test_a_kernel_is_compiled_by_whoever_claims_it_first(path, holder):
    assert not claims.claim(path)
    other = path.with_name(NAME.replace("3f", "a1"))
    assert claims.claim(other)
    claims.release(other)


def test_others_wait_until_it_is_there(path, holder):
    answer = []
    waiting = threading.Thread(target=lambda: answer.append(claims.claim_or_wait(path, read)))
    waiting.start()
    waiting.join(0.1)
    assert answer == []
    holder.stdin.write("finish\n")
    holder.stdin.flush()
    waiting.join(20)
    assert answer == [b"compiled"]


def test_a_process_that_is_killed_claims_nothing(path, holder):
    holder.kill()
    holder.wait()
    assert claims.claim_or_wait(path, read) is None  # it is up to us
    claims.release(path)


def test_waiting_ends(path, holder, monkeypatch):
    monkeypatch.setattr(claims, "_PATIENCE_SECONDS", 0.1)
    assert claims.claim_or_wait(path, read) is None
    assert not claims.claim(path)


def test_nobody_waits_where_there_can_be_no_claims(tmp_path):
    path = tmp_path / "missing" / NAME
    assert claims.claim(path)
    assert claims.claim_or_wait(path, read) is None
    claims.release(path)


def test_the_file_of_the_claims_goes_with_the_last_kernel(tmp_path):
    folder = tmp_path / "1.0-numba0.60-zen-0123"
    folder.mkdir()
    (folder / NAME).write_bytes(b"compiled")
    assert claims.claim(folder / NAME)
    claims.release(folder / NAME)
    assert (folder / claims.LOCK_NAME).exists()
    assert diskcache.remove_kernels(tmp_path, unused_seconds=3600) == 0
    assert (folder / claims.LOCK_NAME).exists()
    assert diskcache.remove_kernels(tmp_path) == len(b"compiled")
    assert not folder.exists()
