"""The machine: processor, memory, GPUs, and the versions of what is installed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from . import __version__, kernels
from .kernelcache import describe_cache
from .kernels.cuda.cudalib import probe

_PACKAGES = ("numba", "llvmlite", "numpy", "click", "h5py", "threadpoolctl")
_OPENCV_WHEELS = (  # all provide cv2; the first is the one that pip installs with us
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)
_NOT_INSTALLED = "not installed"


def cpu_name() -> str:
    """The processor's product name where the system reports it, else its architecture."""
    return _proc_entry("cpuinfo", "model name") or platform.processor() or platform.machine()


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, or None where the system does not say.

    This is the smallest of the limits set by the kernel, the control group (in containers) and the
    process itself.
    """
    candidates = [_kernel_available(), _cgroup_available(), _limit_available()]
    known = [x for x in candidates if x is not None]
    return min(known) if known else None


def total_memory() -> int | None:
    """Bytes of physical memory, or None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def resident_memory() -> int | None:
    """The resident size of this process now, in bytes; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int | None:
    """The largest resident size of this process so far, in bytes; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def format_bytes(count: float) -> str:
    """1536 -> '1.5 kB', in powers of 1024, as free(1) counts."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def package_version(name: str) -> str:
    """Version of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return _NOT_INSTALLED


def _package_versions() -> dict[str, str]:
    """Versions of what we need, and of whichever wheels of OpenCV there are."""
    opencv = {name: package_version(name) for name in _OPENCV_WHEELS}
    found = {name: version for name, version in opencv.items() if version != _NOT_INSTALLED}
    missing = {_OPENCV_WHEELS[0]: _NOT_INSTALLED}
    return {name: package_version(name) for name in _PACKAGES} | (found or missing)


def collect_info() -> dict[str, object]:
    """What `hstereo info` says about the installation and the machine, ready for JSON."""
    cuda = probe()
    return {
        "hybridstereo": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": _package_versions(),
        "cpu": {
            "name": cpu_name(),
            "cores": os.cpu_count(),
            "threads": kernels.max_threads(),
        },
        "memory": {"total_bytes": total_memory(), "available_bytes": available_memory()},
        "cuda": {
            "usable": cuda.usable,
            "devices": cuda.devices,
            "reason": cuda.reason,
            "fix": cuda.fix,
        },
        "cache": describe_cache(),
    }


def _proc_entry(file: str, key: str) -> str | None:
    """The first value of ``key`` in a file of Linux's /proc; None on other systems."""
    try:
        lines = Path("/proc", file).read_text().splitlines()
    except OSError:
        return None
    entries = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in entries if name.strip() == key), None)


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _kernel_available() -> int | None:
    kilobytes = _proc_entry("meminfo", "MemAvailable")
    return total_memory() if kilobytes is None else int(kilobytes.split()[0]) * 1024


def _cgroup_available() -> int | None:
    for limit, usage in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        allowed, used = _read_number(limit), _read_number(usage)
        if allowed is not None and used is not None:
            return max(allowed - used, 0)
    return None


def _limit_available() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return limit
    return max(limit - pages * os.sysconf("SC_PAGE_SIZE"), 0)
