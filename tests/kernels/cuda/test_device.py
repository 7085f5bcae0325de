"""`cudalib.CudaDevice`: ``pytest -m gpu`` on a GPU, ``pytest -m emulator`` on a fake driver."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import cuda_emulator
import numpy as np
import pytest

from hybridstereo import kernels
from hybridstereo.kernels.cuda import cudalib

TESTS = Path(__file__).resolve().parents[2]
# Where a second process finds `support` and the emulator.
SEARCH = os.pathsep.join(map(str, (TESTS, TESTS.parent / "tools")))
LARGEST_CAPACITY = 1 << 30  # bytes of a device that a test may fill


def on_fake_driver(test):
    """Mark a test that starts processes with ``cuda_fake_driver``."""
    built = sys.platform == "linux" and shutil.which("gcc") is not None
    reason = cuda_emulator.why_not() or ("" if built else "needs gcc on Linux")
    return pytest.mark.emulator(pytest.mark.skipif(bool(reason), reason=reason)(test))


@pytest.fixture(params=[0, 1])
def gpu(request):
    """The operations of the first and of the second GPU."""
    try:
        return kernels.select(f"cuda:{request.param}")
    except kernels.DeviceUnavailableError as error:
        pytest.skip(error.reason)


def doubled(gpu, array):
    """The array after a way up, a kernel and the way down."""
    there = gpu.to_device(array)
    gpu.scale_by(there, 2.0)
    return gpu.to_host(there)


@pytest.mark.gpu
def test_arrays_of_all_kinds_go_up_and_down(gpu, rng):
    frozen = rng.random((3, 4))
    frozen.flags.writeable = False
    for array in (frozen, frozen[:, ::2], frozen > 0.5, np.zeros((2, 0)), np.int32([7]), frozen.T):
        there = gpu.to_device(array)
        np.testing.assert_array_equal(gpu.to_host(there), array, strict=True)
        assert there.native.shape == array.shape


@pytest.mark.gpu
def test_kernels_take_empty_arrays(gpu):
    assert doubled(gpu, np.zeros((2, 0), np.float32)).shape == (2, 0)


@pytest.mark.gpu
def test_kernels_run_from_any_thread(gpu, rng):
    array = rng.random(5).astype(np.float32)
    results = [doubled(gpu, array)]
    thread = threading.Thread(target=lambda: results.append(doubled(gpu, array)))
    thread.start()
    thread.join()
    for result in results:
        np.testing.assert_array_equal(result, 2 * array)


@pytest.mark.gpu
def test_threads_work_in_queues_of_their_own(gpu, rng):
    """Both read what is there already, and are not in each other's way."""
    shared = gpu.to_device(rng.random(64).astype(np.float32))
    expected = gpu.to_host(shared)
    meeting, found = threading.Barrier(2, timeout=60), []

    def work(number):
        with gpu.own_queue():
            for i in range(5):
                meeting.wait()
                sum_of_both = gpu.to_device(np.full(64, 10 * number + i, np.float32))
                gpu.add_to(sum_of_both, shared)
                found.append((gpu.to_host(sum_of_both), np.float32(10 * number + i) + expected))

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10
    for result, wanted in found:
        np.testing.assert_array_equal(result, wanted)
    assert len(cudalib.current().queues) >= 3


@pytest.mark.gpu
def test_memory_that_another_queue_read_comes_back(gpu, monkeypatch):
    waits, wait_for = [], cudalib.CudaDevice.wait_for

    def watched(queue, other):
        waits.append((queue, other))
        wait_for(queue, other)

    monkeypatch.setattr(cudalib.CudaDevice, "wait_for", watched)
    size = 54_321
    kept = gpu.to_device(np.ones(size, np.float32))
    flat = kept.memory.flat
    with gpu.own_queue():
        read = gpu.to_device(np.ones(size, np.float32))
        gpu.add_to(read, kept)
        del kept
    again = gpu.to_device(np.full(size, 7, np.float32))
    assert again.memory.flat is flat
    assert gpu.to_host(read).max() == 2
    assert gpu.to_host(again).min() == 7
    home, reader = again.memory.device, read.memory.device
    assert waits == [(reader, home), (home, reader)]


@pytest.mark.gpu
def test_another_gpu_in_between_changes_nothing(gpu, rng):
    """What was opened last is the current one of CUDA, but not what was asked for."""
    array = rng.random(6).astype(np.float32)
    device = cudalib.current()
    for index in (0, 1):
        try:
            kernels.select(f"cuda:{index}")
        except kernels.DeviceUnavailableError:
            pytest.skip("one GPU only")
    with cuda_emulator.use(device):
        np.testing.assert_array_equal(doubled(gpu, array), 2 * array)
        before = gpu.free_memory()
        assert gpu.empty((1 << 18,), np.float32).size
        assert gpu.free_memory() <= before


@pytest.mark.gpu
def test_memory_of_garbage_in_a_cycle_can_be_used_again(gpu):
    """The collector frees what it finds before anyone can save it."""
    size = 12_345
    cycle = [gpu.empty((size,), np.float32)]
    flat = weakref.ref(cycle[0].memory.flat)
    cycle.append(cycle)
    del cycle
    gc.collect()
    again = gpu.to_device(np.ones(size, np.float32))
    assert again.memory.flat is flat()
    assert gpu.to_host(again).sum() == size


@pytest.mark.gpu
def test_a_full_gpu_is_a_memory_error_after_the_pool_is_given_up(gpu):
    free = gpu.free_memory()
    if free > LARGEST_CAPACITY:
        pytest.skip("would fill a large GPU")
    kept = gpu.empty((free // 2,), np.uint8)
    with pytest.raises(MemoryError, match=r"cuda(:1)? has no"):
        gpu.empty((free // 2 + (1 << 20),), np.uint8)
    del kept
    gc.collect()
    assert gpu.free_memory() == pytest.approx(free, rel=0.01)
    assert gpu.empty((free // 2 + (1 << 20),), np.uint8).size


@pytest.mark.gpu
def test_the_pool_gives_way_to_the_code_of_a_kernel(gpu):
    free = gpu.free_memory()
    if free > LARGEST_CAPACITY:
        pytest.skip("would fill a large GPU")

    @cudalib.kernel("float32[::1]", threads=32)
    def nothing(array):
        pass

    array = gpu.to_device(np.ones(3, np.float32))
    cudalib.current().trim()
    kept = gpu.empty((free - (1 << 19),), np.uint8)
    with pytest.raises(MemoryError, match="no memory for <kernel"):
        cudalib.launch(nothing, 1, 32, array)
    del kept
    gc.collect()
    cudalib.launch(nothing, 1, 32, array)


@pytest.mark.gpu
def test_hosts_arrays_wait_until_they_have_been_read(gpu):
    gpu.to_device(np.ones(3, np.float32))
    assert cudalib.current()._in_flight
    gpu.synchronize()
    assert not cudalib.current()._in_flight


# ---------------------------------------------------------------- without a GPU


@on_fake_driver
def test_the_tests_for_gpus_on_a_fake_driver():
    """All of numba-cuda but the driver: contexts, streams, linking, arguments of launches."""
    files = [str(TESTS / "kernels" / x) for x in ("cuda/test_device.py", "test_edges.py")]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "support.cuda_fake_driver",
            "-m",
            "gpu",
            *files,
        ],
        env=os.environ | {"PYTHONPATH": SEARCH},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


@on_fake_driver
def test_the_next_process_finds_compiled_kernels_on_disk(tmp_path):
    """Also those whose helper functions are closures with intrinsics in them."""
    script = """
from support import cuda_fake_driver
from hybridstereo import kernels
from hybridstereo.kernels import correlation_cuda, optim_cuda
from hybridstereo.kernels.cuda import cudalib

kernels.select("cuda")
wanted = {x.name: x for x in cudalib.registered_kernels() if x.name in ("correlate", "scale_by")}
with cudalib.current()._gpu:
    print([sum(wanted[name].compiled.stats.cache_hits.values()) for name in sorted(wanted)])
"""
    environment = os.environ | {"PYTHONPATH": SEARCH, "HSTEREO_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", script]
    found = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert [text.split("\n")[-2] for text in found] == ["[0, 0]", "[1, 1]"]
