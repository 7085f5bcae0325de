"""Arrays on a device and the memory pool they come from; nothing here depends on CUDA.

A `Device` is a queue of a GPU, whose work is done in order.  A `DeviceArray` gives its memory back
to the pool of its queue when the last reference to it is gone, so frames of one size allocate only
once, and what still computes with the memory comes first.  `empty`, `to_device`, `to_host` and
`launch` work on the current `Device` of the thread: a GPU's first queue (`cudalib`), one that
`own_queue` gives, or whatever a test passes to `set_current`.

Queues work side by side.  An array is written in the queue that made it.  Others may read it, such
as the weights of a model: the first time they wait for what that queue has to do, and its memory is
not used again before they are done.  Nobody may write it from then on.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .cudalib import Kernel

# Kernels compute indices with 32 bits: 64-bit arithmetic would be most of their instructions.
_MOST_ELEMENTS = 2**31 - 1


class _Memory:
    """Memory of a device, which goes back to its pool with the last array that uses it."""

    def __init__(self, device: Device, flat: Any) -> None:
        self.device, self.flat = device, flat
        self._readers: set[Device] = set()  # other queues that have used it
        # Not __del__: in a reference cycle the garbage collector would take the native array as
        # well, and free it before __del__ could save it.  The finalizer keeps it alive.
        weakref.finalize(self, device.recycle, flat, self._readers).atexit = False

    def prepare_for(self, queue: Device) -> None:
        """Let what is queued next find what the memory's own queue puts there."""
        if queue is not self.device and queue not in self._readers:
            queue.wait_for(self.device)
            self._readers.add(queue)


@dataclass(frozen=True)
class DeviceArray:
    """A C-contiguous array on a device: opaque, apart from its shape and type."""

    memory: _Memory
    shape: tuple[int, ...]
    first: int = 0  # the element of the memory that it begins with

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements."""
        return np.dtype(self.memory.flat.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def flat(self) -> Any:
        """The memory that the array takes, with one axis."""
        memory = self.memory.flat
        return memory if self.size == memory.size else memory[self.first : self.first + self.size]

    @property
    def native(self) -> Any:
        """The array as kernels take it."""
        return self.flat.reshape(self.shape)

    def __getitem__(self, rows: slice) -> DeviceArray:
        """Some rows, in the same memory."""
        begin, end, _ = rows.indices(self.shape[0])
        shape = (max(end - begin, 0), *self.shape[1:])
        return DeviceArray(self.memory, shape, self.first + begin * math.prod(shape[1:]))

    def reshape(self, *shape: int) -> DeviceArray:
        """The same elements in another shape; one -1 is filled in, as in NumPy."""
        known = math.prod(n for n in shape if n >= 0)
        full = tuple(n if n >= 0 else self.size // max(known, 1) for n in shape)
        if math.prod(full) != self.size:
            raise ValueError(f"cannot reshape {self.shape} to {shape}")
        return DeviceArray(self.memory, full, self.first)


# ---------------------------------------------------------------- devices


class Device:
    """Where kernels run, one after the other.  Subclasses provide allocation, copies and launches.

    Parameters
    ----------
    first
        Another queue of the same GPU, if there is one.

    Attributes
    ----------
    name
        As `select` takes it.
    queues
        All of the GPU.
    """

    name = "cuda"

    def __init__(self, first: Device | None = None) -> None:
        self._pool: dict[tuple[int, np.dtype], list[tuple[Any, set[Device]]]] = {}
        self._idle: list[Device] = [] if first is None else first._idle
        self.queues: list[Device] = [] if first is None else first.queues
        self.queues.append(self)

    def another(self) -> Device:
        """A further queue of the same GPU."""
        raise NotImplementedError

    def allocate(self, size: int, dtype: np.dtype) -> Any:
        """New memory of ``size`` elements as a native array; raises MemoryError."""
        raise NotImplementedError

    def upload(self, host: np.ndarray, flat: Any) -> None:
        """Copy a flat host array to the device."""
        raise NotImplementedError

    def download(self, flat: Any) -> np.ndarray:
        """Wait for queued work and copy a flat array to the host."""
        raise NotImplementedError

    def run(
        self, function: Kernel, grid: tuple[int, ...], block: tuple[int, ...], arguments: list
    ) -> None:
        """Queue a kernel; arrays among the arguments are native ones."""
        raise NotImplementedError

    def wait_for(self, other: Device) -> None:
        """Begin what is queued from now on after what another queue holds by now."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for queued work."""

    def free_memory(self) -> int | None:
        """Bytes that can be allocated, those in the pools included; None if unknown."""
        return None

    def empty(self, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """An uninitialised array, from the pool if it has one of this size."""
        shape, dtype = tuple(int(n) for n in shape), np.dtype(dtype)
        size = math.prod(shape)
        if size > _MOST_ELEMENTS:
            raise MemoryError(
                f"an array of {size:,} elements is more than 32-bit indices can address"
            )
        try:  # not asked first: another thread might take it in between
            flat, readers = self._pool.get((size, dtype), []).pop()
        except IndexError:
            flat, readers = self._allocate_or_trim(size, dtype), set()
        for queue in readers:
            self.wait_for(queue)
        return DeviceArray(_Memory(self, flat), shape)

    def _allocate_or_trim(self, size: int, dtype: np.dtype) -> Any:
        # The driver refuses allocations of zero bytes.
        try:
            flat = self.allocate(max(size, 1), dtype)
        except MemoryError:
            self.trim()
            flat = self.allocate(max(size, 1), dtype)
        return flat if size else flat[:0]

    def recycle(self, flat: Any, readers: set[Device]) -> None:
        """Keep memory for the next array of its size, when these queues are done with it, too."""
        self._pool.setdefault((flat.size, np.dtype(flat.dtype)), []).append((flat, readers))

    def trim(self) -> None:
        """Free the memory in all queues' pools; the driver waits for what computes with it."""
        for queue in list(self.queues):
            queue._pool.clear()

    def pooled_bytes(self) -> int:
        """Bytes in the pools of all queues."""
        # Iterate over copies: other threads and the garbage collector add at any moment.
        pools = [waiting for queue in list(self.queues) for waiting in list(queue._pool.values())]
        return sum(x.size * np.dtype(x.dtype).itemsize for xs in pools for x, _ in list(xs))

    @contextmanager
    def taken(self) -> Iterator[Device]:
        """A queue of the GPU that no other thread has taken, with what its pool holds."""
        try:
            queue = self._idle.pop()
        except IndexError:
            queue = self.another()
        try:
            yield queue
        finally:
            self._idle.append(queue)


class _Current(threading.local):
    device: Device | None = None


_current = _Current()


def current() -> Device:
    """The device that array functions and launches of this thread use."""
    if _current.device is None:
        raise RuntimeError("no device has been chosen")
    return _current.device


def set_current(device: Device | None) -> Device | None:
    """Make a device the current one of this thread; returns the previous one."""
    previous, _current.device = _current.device, device
    return previous


def work_on(device: Device) -> None:
    """Make a GPU the current device, unless this thread has one of its queues already."""
    if _current.device not in device.queues:
        _current.device = device


@contextmanager
def own_queue() -> Iterator[None]:
    """Queue the work of this thread apart from that of others, inside the block.

    Arrays made inside are for this thread; those from outside must not be written.
    """
    with current().taken() as queue:
        previous = set_current(queue)
        try:
            yield
        finally:
            set_current(previous)


def empty(shape: Sequence[int], dtype: Any) -> DeviceArray:
    """An uninitialised array on the current device."""
    return current().empty(shape, dtype)


def to_device(array: Any, dtype: Any = None) -> DeviceArray:
    """Copy a NumPy array to the current device; an array on the device is returned as is."""
    if isinstance(array, DeviceArray):
        if dtype is not None and array.dtype != np.dtype(dtype):
            raise TypeError(f"array of {np.dtype(dtype)} expected, not {array.dtype}")
        return array
    host = np.ascontiguousarray(array, dtype)
    target = empty(np.shape(array), host.dtype)
    if host.size:
        target.memory.device.upload(host.reshape(-1), target.memory.flat)
    return target


def to_host(array: Any) -> Any:
    """The array as a NumPy array; waits for the work that computes it."""
    if not isinstance(array, DeviceArray):
        return array
    if not array.size:
        return np.empty(array.shape, array.dtype)
    return array.memory.device.download(array.flat).reshape(array.shape)


def synchronize() -> None:
    """Wait until the current device has finished all queued work."""
    current().synchronize()


def free_memory() -> int | None:
    """Bytes free on the current device; None if unknown."""
    return current().free_memory()


def _plain(argument: Any) -> Any:
    """An argument as a launch takes it: a native array, or a Python int or float."""
    if isinstance(argument, DeviceArray):
        return argument.native
    number = argument.item() if isinstance(argument, np.generic) else argument
    return int(number) if isinstance(number, bool) else number


def launch(
    function: Kernel, grid: int | tuple[int, ...], block: int | tuple[int, ...], *arguments: Any
) -> None:
    """Queue a kernel on the current device; NumPy arrays are refused, not copied."""
    grid = grid if isinstance(grid, tuple) else (grid,)
    block = block if isinstance(block, tuple) else (block,)
    if math.prod(block) > function.threads:
        raise ValueError(f"{function!r} is for blocks of {function.threads} threads at most")
    if any(isinstance(x, np.ndarray) for x in arguments):
        raise TypeError(f"{function!r} was given a NumPy array")
    device = current()
    for argument in arguments:
        if isinstance(argument, DeviceArray):
            argument.memory.prepare_for(device)
    natives = [_plain(x) for x in arguments]
    device.run(function, grid, block, natives)
