"""Queues of one GPU: nothing is read too early or overwritten too soon.

`LazyDevice` does what is queued at the last moment: when somebody waits for it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from hybridstereo import kernels
from hybridstereo.errors import StereoError
from hybridstereo.kernels.cuda import cudalib, devices


class LazyDevice(devices.Device):
    """A queue whose work is done when it has to be, and not before."""

    def __init__(self, first: LazyDevice | None = None, capacity: int = 1 << 20) -> None:
        super().__init__(first)
        self.waiting: list[Callable[[], None]] = []
        self.done = 0
        self.allocations = 0
        self.capacity = capacity

    def another(self):
        return LazyDevice(self, self.capacity)

    def allocate(self, size, dtype):
        if sum(x.allocations for x in self.queues) >= self.capacity:
            raise MemoryError
        self.allocations += 1
        return np.full(size, -1, dtype)

    def upload(self, host, flat):
        host = host.copy()
        self.waiting.append(lambda: np.copyto(flat, host))

    def download(self, flat):
        self.synchronize()
        return flat.copy()

    def run(self, function, grid, block, arguments):
        self.waiting.append(lambda: function.work(*arguments))

    def wait_for(self, other):
        by_now = other.done + len(other.waiting)
        self.waiting.append(lambda: other.advance(by_now))

    def advance(self, until):
        while self.done < until:
            self.done += 1
            self.waiting.pop(0)()

    def synchronize(self):
        self.advance(self.done + len(self.waiting))

    def trim(self):
        for queue in self.queues:
            queue.allocations -= sum(map(len, queue._pool.values()))
        super().trim()


@pytest.fixture
def gpu():
    before = devices.set_current(device := LazyDevice())
    yield device
    devices.set_current(before)


def _times(array, factor, result):
    result[...] = array * factor[0]


TIMES = SimpleNamespace(work=_times, threads=1)


def frame(array, weight):
    """What a frame does: its image goes up and is multiplied by a weight that is there."""
    image = cudalib.to_device(array)
    result = cudalib.empty(array.shape, array.dtype)
    cudalib.launch(TIMES, 1, 1, image, weight, result)
    return result


def test_another_queue_waits_for_what_it_reads(gpu):
    weight = cudalib.to_device(np.array([3.0]))
    assert gpu.waiting  # it is not there yet
    with cudalib.own_queue():
        np.testing.assert_array_equal(cudalib.to_host(frame(np.arange(4.0), weight)), [0, 3, 6, 9])
        assert cudalib.current() is not gpu
    assert cudalib.current() is gpu


def test_it_waits_once(gpu):
    """Later frames do not wait for whatever the other queue has to do by then."""
    weight = cudalib.to_device(np.array([3.0]))
    for number in range(3):
        busy = frame(np.arange(4.0), weight)
        with cudalib.own_queue():
            cudalib.to_host(frame(np.arange(4.0), weight))
        assert bool(gpu.waiting) == (number > 0)
        del busy


def test_memory_is_not_used_again_while_another_queue_reads_it(gpu):
    weight = cudalib.to_device(np.array([3.0]))
    flat = weight.memory.flat
    with gpu.taken() as queue:
        devices.set_current(queue)
        result = frame(np.arange(4.0), weight)
        devices.set_current(gpu)
        del weight
        gc.collect()
        other = cudalib.to_device(np.array([100.0]))
        assert other.memory.flat is flat
        assert cudalib.to_host(other) == 100
        np.testing.assert_array_equal(cudalib.to_host(result), [0, 3, 6, 9])


def test_memory_stays_with_its_queue(gpu):
    """What another queue computes with may not be given away, however early it is let go."""
    flats = []
    with gpu.taken() as first, gpu.taken() as second:
        for queue in (first, second, first):
            devices.set_current(queue)
            array = cudalib.empty((5,), np.float64)
            flats.append(array.memory.flat)
            del array
            gc.collect()
    assert flats[0] is not flats[1]
    assert flats[0] is flats[2]


def test_frames_of_one_size_allocate_once(gpu):
    weight = cudalib.to_device(np.array([2.0]))
    allocated = []
    for number in range(4):
        with cudalib.own_queue():
            image = np.full(4, float(number))
            np.testing.assert_array_equal(cudalib.to_host(frame(image, weight)), 2 * image)
        gc.collect()
        allocated.append(sum(queue.allocations for queue in gpu.queues))
    assert len(gpu.queues) == 2
    assert len(set(allocated)) == 1


def test_a_frame_that_fails_gives_its_queue_back(gpu):
    weight = cudalib.to_device(np.array([2.0]))

    def fail():
        with cudalib.own_queue():
            frame(np.ones(4), weight)
            raise StereoError("no frame", "")

    with pytest.raises(StereoError):
        fail()
    gc.collect()
    with cudalib.own_queue():
        np.testing.assert_array_equal(cudalib.to_host(frame(np.ones(4), weight)), 2)
    assert len(gpu.queues) == 2


def test_what_one_queue_keeps_another_can_have(gpu):
    gpu.capacity = 3
    with cudalib.own_queue():
        kept = [cudalib.empty((n,), np.float64) for n in (5, 6, 7)]
        del kept
        gc.collect()
    assert gpu.pooled_bytes() == 18 * 8
    larger = cudalib.empty((8,), np.float64)
    assert larger.size == 8
    assert gpu.pooled_bytes() == 0


def test_threads_have_queues_of_their_own(gpu):
    backend = kernels.bound_backend(gpu)
    weight = backend.to_device(np.array([2.0]))
    meeting, results, queues = threading.Barrier(2, timeout=30), {}, []

    def work(number):
        with backend.own_queue():
            queues.append(cudalib.current())
            for i in range(20):
                image = np.full(4, 100.0 * number + i)
                meeting.wait()
                result = frame(image, weight)
                meeting.wait()
                results[number, i] = backend.to_host(result), 2 * image

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 40
    for found, expected in results.values():
        np.testing.assert_array_equal(found, expected)
    assert len({gpu, *queues}) == 3
    assert len(gpu.queues) == 3


def test_a_backend_stays_in_the_queue_of_its_thread(gpu):
    other = LazyDevice()
    first, second = kernels.bound_backend(gpu), kernels.bound_backend(other)
    with first.own_queue():
        queue = first.empty((1,), np.float32).memory.device
        assert queue is not gpu
        assert second.empty((1,), np.float32).memory.device is other
    assert first.empty((1,), np.float32).memory.device is gpu


def test_the_cpu_queues_nothing():
    backend = kernels.select("cpu")
    assert backend.queues == 1
    with backend.own_queue():
        assert backend.to_device(7) == 7
