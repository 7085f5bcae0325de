"""The only file that imports ``cuda``: what the machine offers, and why it does not work.

Importing ``numba.cuda`` is safe without a GPU, but asking it for a device is not, so everything
happens inside `probe`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CudaStatus:
    """What CUDA can do here: the devices found, and if it is unusable the reason and the fix."""

    usable: bool
    reason: str
    fix: str
    devices: list[str] = field(default_factory=list)


def probe() -> CudaStatus:
    """Look for CUDA devices; never raises."""
    use_cpu = "Use --device cpu, which needs no GPU"
    try:
        from numba import cuda
    except ImportError as error:
        return CudaStatus(False, f"numba's CUDA support cannot be imported ({error})", use_cpu)
    try:
        devices = [
            f"{_text(device.name)} (compute capability {major}.{minor})"
            for device in cuda.list_devices()
            for major, minor in [device.compute_capability]
        ]
    except Exception as error:  # the driver wrapper raises many types, some private
        return CudaStatus(
            False,
            f"the CUDA driver does not answer ({_detail(error)})",
            f"Install an NVIDIA driver and check that nvidia-smi lists the GPU. {use_cpu}",
        )
    if not devices:
        return CudaStatus(False, "the CUDA driver reports no GPU", use_cpu)
    return CudaStatus(
        False, "this version of hybridstereo has no CUDA kernels yet", use_cpu, devices
    )


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _detail(error: Exception) -> str:
    """The first two lines of the driver's complaint; the rest are instructions for Numba users."""
    lines = [line.strip(" :.") for line in str(error).splitlines()]
    return ": ".join([line for line in lines if line][:2]) or type(error).__name__
