"""The device that computes: opened by name, with errors that a user understands."""

from __future__ import annotations

from . import kernels
from .errors import DeviceError, InputError
from .kernels import Backend


def open_backend(device: str) -> Backend:
    """The operations of ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    InputError
        If there is no such device.
    """
    if not isinstance(device, str) or not kernels.is_device(device):
        raise InputError(f"There is no device '{device}'", "Use auto, cpu, cuda or cuda:N")
    try:
        return kernels.select(device)
    except kernels.DeviceUnavailableError as error:
        raise DeviceError(f"CUDA cannot be used: {error.reason}", error.fix) from error


def device_of_process(device: str, index: int, processes: int) -> str:
    """The device of one of several processes on a machine: each gets a GPU of its own, in turn.

    Parameters
    ----------
    device
        As for `open_backend`; one that is named by its number stays, for all of them.
    index, processes
        Which process of the machine, counted from 0, and how many there are.
    """
    if processes == 1 or device not in ("auto", "cuda"):
        return device
    gpus = kernels.gpu_count()
    return f"cuda:{index % gpus}" if gpus else device


def checked_threads(threads: int | None) -> int | None:
    """A number of CPU threads, if there can be so many; None stands for Numba's setting.

    Raises
    ------
    InputError
        If it is no number of threads that Numba allows.
    """
    most = kernels.max_threads()
    if threads is None or (type(threads) is int and 1 <= threads <= most):
        return threads
    raise InputError(
        f"`threads={threads}` is not between 1 and the {most} that Numba allows",
        "Set NUMBA_NUM_THREADS to allow more threads than cores",
    )
