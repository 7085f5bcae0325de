"""How much memory there is, how much we used, and how much an inference or training needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .errors import OutOfMemoryError
from .kernels import Backend, reusable_memory
from .model import StereoModel

_FLOAT = 4


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, or None where the system does not tell.

    The smallest of what the kernel, the control group (containers) and the process limit allow.
    """
    candidates = [_kernel_available(), _cgroup_available(), _limit_available()]
    known = [x for x in candidates if x is not None]
    return min(known) if known else None


def total_memory() -> int | None:
    """Bytes of physical memory, or None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def peak_memory() -> int | None:
    """The largest resident size of this process so far, in bytes; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def inference_memory(model: StereoModel, height: int, width: int, labels: int) -> int:
    """Bytes that `Stereo.match` needs at its peak, next to the interpreter itself.

    Two cost volumes while the CRF runs (unaries and working costs); before that two feature maps
    and the first volume, or, while the second image goes through the network, the features of the
    first and two layers of the second.
    """
    pixels = height * width
    widest = max(layer.weight.shape[0] for layer in model.unary)
    features = pixels * model.unary[-1].weight.shape[0]
    volume = pixels * labels
    return _FLOAT * max(2 * volume, 2 * features + volume, features + 2 * pixels * widest)


def device_memory(model: StereoModel, height: int, width: int, labels: int) -> int:
    """Bytes of a GPU that `Stereo.match` needs at its peak.

    Like `inference_memory`, but the CRF has a third volume: it cannot work in place.
    """
    volume = height * width * labels
    return max(_FLOAT * 3 * volume, inference_memory(model, height, width, labels))


def require_memory(
    model: StereoModel, height: int, width: int, labels: int, backend: Backend | None = None
) -> None:
    """Refuse work that cannot fit, before it starts, and say what would fit.

    A ``backend`` with memory of its own is asked for it, else the machine.
    """
    free, on_device = _free_memory(backend)
    estimate, where = (device_memory, "GPU memory") if on_device else (inference_memory, "memory")
    needed = estimate(model, height, width, labels)
    if free is None or needed <= free:
        return
    fitting = labels
    while fitting > 0 and estimate(model, height, width, fitting) > free:
        fitting = fitting * 3 // 4
    raise OutOfMemoryError(
        f"{width}x{height} pixels with {labels} disparities need {format_bytes(needed)} of {where}"
        f" but only {format_bytes(free)} are free",
        f"Use --disparities {fitting} or smaller images" if fitting else "Use smaller images",
    )


def training_memory(model: StereoModel, height: int, width: int, labels: int) -> int:
    """Bytes that a training step of all parts needs at its peak, on the CPU or a GPU.

    All activations of both images are kept for the way back.  On top of them come the volumes: the
    costs, the augmented costs and the solver's, or later the costs, their gradient and that of the
    scores beside the gradients of the features.
    """
    pixels = height * width
    features = pixels * model.unary[-1].weight.shape[0]
    volume = pixels * labels
    unary, pairwise = (
        pixels * sum(layer.weight.shape[0] for layer in network)
        for network in (model.unary, model.pairwise)
    )
    return _FLOAT * (2 * unary + pairwise + 3 * volume + 2 * features)


def require_training_memory(
    model: StereoModel, height: int, width: int, labels: int, backend: Backend, pairs: int = 1
) -> None:
    """Refuse a training step on so many pairs at once that cannot fit, before it starts."""
    free, on_device = _free_memory(backend)
    needed = pairs * training_memory(model, height, width, labels)
    if free is not None and needed > free:
        times = f"{pairs} times " if pairs > 1 else ""
        raise OutOfMemoryError(
            f"A training step on {times}{width}x{height} pixels with {labels} disparities needs"
            f" {format_bytes(needed)} of {'GPU memory' if on_device else 'memory'}"
            f" but only {format_bytes(free)} are free",
            "Use --crop HxW with a smaller size, or fewer --disparities",
        )


def _free_memory(backend: Backend | None) -> tuple[int | None, bool]:
    """Bytes that new arrays can have, None if unknown; and whether they are a device's own."""
    free = None if backend is None else backend.free_memory()
    if free is not None:
        return free, True
    available = available_memory()
    return None if available is None else available + reusable_memory(), False


def format_bytes(count: float) -> str:
    """1536 -> '1.5 kB', in powers of 1024 as free(1) counts."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _kernel_available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return total_memory()


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
