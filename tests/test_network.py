"""Nothing that we do at run time touches a network."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from hybridstereo.io.disparity import write_disparity

# Python reports every use of a socket to audit hooks, also one from inside a library; raising
# there forbids it.  It cannot be undone, hence a process of its own.
BLOCKED = """
import sys

def forbid(event, arguments):
    if event.startswith("socket."):
        print("used the network:", event, arguments, file=sys.stderr)
        raise ConnectionRefusedError("there is no network in this test")

sys.addaudithook(forbid)
"""
COMMANDS = """
from hybridstereo.cli import main

codes = []
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as done:
        codes.append(done.code)
print([name for name in ("distributed", "dask", "mpi4py", "fsspec") if name in sys.modules])
print(codes)
"""


def run_blocked(code: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BLOCKED + code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


@pytest.mark.parametrize(
    "code",
    [
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')",
        "import socket; socket.getaddrinfo('localhost', 80)",
        "import socket; socket.socket()",
    ],
)
def test_the_network_is_blocked(code):
    assert "used the network" in run_blocked(code).stderr


def test_no_command_uses_the_network(sample_crop, tmp_path):
    """Nor loads what could, the packages of the extras, where no option asks for them."""
    write_disparity(tmp_path / "truth.pfm", np.full((40, 60), 3, np.float32))
    (tmp_path / "pairs.csv").write_text("left.png,right.png,truth.pfm\n" * 2)
    commands = (
        "infer left.png right.png --model census --disparities 8",
        "infer left.png right.png --out-dir out --model census --disparities 8",
        "eval synthetic --limit 1 --model census --report report",
        "train csv --root pairs.csv -o run --stage unary --layers 1 --filters 4 --steps 1"
        " --disparities 8 --val-fraction 0.5",
        "synth scenes --width 40 --height 30 --max-disparity 12",
        "info",
        "cache",
    )
    done = run_blocked(COMMANDS, *commands, cwd=tmp_path)
    assert "used the network" not in done.stderr
    assert done.stdout.splitlines()[-2:] == ["[]", str([0] * len(commands))], done.stderr
