"""What the machine has, read from a /proc and a /sys of our own where that can be."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from pathlib import Path

import numpy as np
import pytest

from hybridstereo import __version__, kernels, system
from hybridstereo.kernels.cuda.cudalib import probe

MEMINFO = {"proc/meminfo": "MemTotal: 900 kB\nMemAvailable:     100 kB\n"}
CGROUP, OLD_CGROUP = "sys/fs/cgroup/", "sys/fs/cgroup/memory/"


@pytest.fixture
def system_files(monkeypatch, tmp_path):
    """What writes the only files that the module finds."""

    def below(*parts: str) -> Path:
        return tmp_path.joinpath(*(part.lstrip("/") for part in parts))

    monkeypatch.setattr(system, "Path", below)

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = below(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


@pytest.fixture
def limit_process(monkeypatch):
    """What sets the limit of the process's memory, which has none until then."""
    resource = pytest.importorskip("resource")

    def limit(count: int) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (count, count))

    limit(resource.RLIM_INFINITY)
    return limit


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (MEMINFO, 102_400),
        ({CGROUP + "memory.max": "50000", CGROUP + "memory.current": "20000"}, 30_000),
        ({CGROUP + "memory.max": "max\n", CGROUP + "memory.current": "20000"}, 102_400),
        ({CGROUP + "memory.max": "900000", CGROUP + "memory.current": "20000"}, 102_400),
        (
            {
                OLD_CGROUP + "memory.limit_in_bytes": "9000",
                OLD_CGROUP + "memory.usage_in_bytes": "9001",
            },
            0,
        ),
    ],
    ids=["no container", "container", "container without a limit", "large container", "old, full"],
)
def test_available_memory_is_the_least_of_all_limits(system_files, limit_process, files, expected):
    system_files(MEMINFO | files)
    assert system.available_memory() == expected


def test_available_memory_is_what_the_process_may_still_take(system_files, limit_process):
    system_files(MEMINFO | {"proc/self/statm": "3 2 1"})
    page = system.os.sysconf("SC_PAGE_SIZE")
    limit_process(5 * page)
    assert system.available_memory() == 2 * page
    limit_process(2 * page)
    assert system.available_memory() == 0


def test_memory_of_a_system_that_tells_nothing(system_files, limit_process, monkeypatch):
    assert system.available_memory() == system.total_memory()  # no /proc, as on a Mac
    monkeypatch.delattr(system.os, "sysconf")  # as on Windows
    assert system.total_memory() is None
    assert system.available_memory() is None


def test_peak_memory_is_in_bytes_and_never_falls():
    pytest.importorskip("resource")
    block = np.ones(1 << 26, np.uint8)
    peak = system.peak_memory()
    assert block.nbytes < peak <= system.total_memory()
    del block
    assert system.peak_memory() >= peak


def test_processor_has_the_name_that_the_system_gives(system_files):
    assert system.cpu_name() in (platform.processor(), platform.machine())
    system_files(
        {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast: 3 GHz\nmodel name\t: Slow\n"}
    )
    assert system.cpu_name() == "Fast: 3 GHz"


def test_info_is_ready_for_json_and_tells_what_a_report_of_a_bug_needs():
    info = system.collect_info()
    assert json.loads(json.dumps(info, allow_nan=False)) == info
    assert (info["hybridstereo"], info["python"]) == (__version__, platform.python_version())
    assert info["cpu"]["name"] == system.cpu_name()
    assert info["cpu"]["threads"] == kernels.max_threads()
    assert info["memory"]["total_bytes"] == system.total_memory()
    assert info["memory"].keys() == {"total_bytes", "available_bytes"}
    assert info["cuda"] == vars(probe())


def test_info_has_the_version_of_every_package_that_we_need():
    packages = system.collect_info()["packages"]
    required = importlib.metadata.requires("hybridstereo")
    needed = {re.match(r"[\w-]+", x)[0] for x in required if "extra ==" not in x}
    needed.discard("tomli")  # for Python 3.10, where there is no tomllib
    assert needed <= packages.keys()
    assert packages["numpy"] == np.__version__


def test_a_package_that_is_not_there_has_no_version():
    assert system.package_version("no-such-package-as-this") == "not installed"
