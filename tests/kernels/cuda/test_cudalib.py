"""Arrays, memory and devices of the CUDA backend, as far as they need no GPU."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from types import SimpleNamespace

import cuda_emulator
import numpy as np
import pytest

from hybridstereo import kernels, memory
from hybridstereo.errors import OutOfMemoryError
from hybridstereo.kernels.backend import FAMILIES
from hybridstereo.kernels.cuda import cudalib
from hybridstereo.model import ModelConfig, StereoModel, on_device, on_host


class SmallDevice(cuda_emulator.EmulatedDevice):
    """Has room for so many bytes and counts what it allocates."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.allocations = 0

    def allocate(self, size, dtype):
        if size * dtype.itemsize + self.pooled_bytes() > self.capacity:
            raise MemoryError
        self.allocations += 1
        return super().allocate(size, dtype)

    def free_memory(self):
        return self.capacity


@pytest.fixture
def device():
    with cuda_emulator.use(SmallDevice(1 << 20)) as small:
        yield small


def test_arrays_go_to_the_device_and_back(device, rng):
    for shape in [(3,), (2, 5), (4, 1, 3), (0,), (2, 0)]:
        array = rng.random(shape).astype(np.float32)
        there = cudalib.to_device(array[..., ::-1])
        assert (there.shape, there.dtype, there.ndim, there.size) == (
            shape, np.float32, len(shape), array.size,
        )  # fmt: skip
        assert cudalib.to_device(there) is there
        np.testing.assert_array_equal(cudalib.to_host(there), array[..., ::-1])
    assert cudalib.to_host(array) is array


def test_an_array_of_another_type_is_refused(device):
    there = cudalib.to_device(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="float64 expected, not float32"):
        cudalib.to_device(there, np.float64)


def test_reshape_keeps_the_elements(device):
    there = cudalib.to_device(np.arange(12))
    assert there.reshape(3, -1).shape == (3, 4)
    np.testing.assert_array_equal(cudalib.to_host(there.reshape(2, 6))[1], np.arange(6, 12))
    with pytest.raises(ValueError, match="cannot reshape"):
        there.reshape(5, -1)


def test_memory_is_used_again_but_not_while_a_view_is_alive(device):
    first = cudalib.empty((4, 5), np.float32)
    view = first.reshape(20)
    flat = first.memory.flat
    del first
    gc.collect()
    second = cudalib.empty((20,), np.float32)
    assert second.memory.flat is not flat
    del view
    gc.collect()
    third = cudalib.empty((2, 10), np.float32)
    assert third.memory.flat is flat
    assert device.allocations == 2


def test_pooled_memory_is_given_up_when_another_size_needs_it(device):
    first = cudalib.empty((200_000,), np.float32)
    del first
    gc.collect()
    assert device.pooled_bytes() == 800_000
    cudalib.empty((100_000,), np.float64)
    gc.collect()
    assert device.allocations == 2
    assert device.pooled_bytes() == 800_000  # that of the second


def test_too_much_is_a_memory_error(device):
    with pytest.raises(MemoryError):
        cudalib.empty((300_000,), np.float32)


def test_sizes_beyond_32_bit_indices_are_refused(device):
    with pytest.raises(MemoryError, match="32-bit"):
        cudalib.empty((1 << 16, 1 << 15), np.uint8)


def test_launch_refuses_host_arrays_and_blocks_that_are_too_large(device):
    @cudalib.kernel("float32[::1]", threads=64)
    def nothing(x):
        pass

    with pytest.raises(TypeError, match="NumPy"):
        cudalib.launch(nothing, 1, 64, np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="64 threads"):
        cudalib.launch(nothing, 1, (32, 3), cudalib.to_device(np.zeros(3, np.float32)))


def test_blocks_cover_all_items():
    assert [cudalib.blocks_for(n, 4) for n in (0, 1, 4, 5)] == [1, 1, 1, 2]


def test_importing_all_kernels_needs_no_cuda():
    code = f"""
import importlib, sys
for stem in {FAMILIES}:
    importlib.import_module("hybridstereo.kernels." + stem + "_cuda")
from hybridstereo.kernels.cuda import cudalib
assert len(cudalib.registered_kernels()) > 20
print([name for name in sys.modules if name.startswith("numba.cuda") or "numba_cuda" in name])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # numba itself may load parts of its bundled target, but never the driver.
    assert "driver" not in done.stdout


# ---------------------------------------------------------------- choosing a device


def test_each_gpu_keeps_its_own_arrays(monkeypatch):
    """Whichever was selected last, a backend computes where its weights are."""
    gpus = [SmallDevice(1 << 20), SmallDevice(1 << 20)]
    monkeypatch.setattr(cudalib, "open_device", lambda index: gpus[index])
    monkeypatch.setattr(
        cudalib, "probe", lambda: cudalib.CudaStatus(True, "", "", ["first", "second"])
    )
    with cuda_emulator.use(gpus[0]):
        first, second = kernels.select("cuda:0"), kernels.select("cuda:1")
        for backend, gpu in ((first, gpus[0]), (second, gpus[1]), (first, gpus[0])):
            assert backend.to_device(np.ones(3, np.float32)).memory.device is gpu
            assert cudalib.current() is gpu


def fake_cuda(devices=1, driver=(12, 4), toolkit=(12, 9), capability=(8, 6)):
    gpu = SimpleNamespace(name=b"Some GPU", compute_capability=capability)

    def versions(value):
        def get_version():
            if isinstance(value, Exception):
                raise value
            return value

        return SimpleNamespace(get_version=get_version)

    return SimpleNamespace(
        list_devices=lambda: devices * [gpu],
        cudadrv=SimpleNamespace(driver=SimpleNamespace(driver=versions(driver))),
        runtime=versions(toolkit),
    )


@pytest.fixture
def machine(monkeypatch):
    """A machine with some CUDA installation."""

    def install(**facts):
        module = fake_cuda(**facts)
        monkeypatch.setattr(cudalib, "_cuda", lambda: module)
        monkeypatch.setattr(cudalib, "driver_installed", lambda: True)
        monkeypatch.setattr(cudalib, "_simulated", lambda: False)

    return install


def test_a_newer_toolkit_of_the_same_major_version_is_fine(machine):
    machine()
    status = cudalib.probe()
    assert status.usable
    assert status.devices == ["Some GPU (compute capability 8.6)"]


def test_a_toolkit_that_the_driver_does_not_know_is_explained(machine):
    machine(driver=(12, 4), toolkit=(13, 0))
    status = cudalib.probe()
    assert not status.usable
    assert "12.4" in status.reason
    assert "13.0" in status.reason
    assert "Update the driver" in status.fix
    assert "hybridstereo[cu12]" in status.fix
    assert status.devices


def test_a_missing_toolkit_is_explained(machine):
    machine(toolkit=OSError("libcudart is not here"))
    status = cudalib.probe()
    assert "libcudart is not here" in status.reason
    assert "hybridstereo[cu12]" in status.fix


def test_a_gpu_that_the_toolkit_has_dropped_is_explained(machine):
    """Drivers of CUDA 13 run GPUs that its compiler does not know any more."""
    machine(driver=(13, 0), toolkit=(13, 0), capability=(5, 2))
    status = cudalib.probe()
    assert not status.usable
    assert "Some GPU (compute capability 5.2)" in status.reason
    assert "hybridstereo[cu12]" in status.fix
    machine(driver=(13, 0), toolkit=(12, 9), capability=(5, 2))
    assert cudalib.probe().usable
    machine(driver=(13, 0), toolkit=(13, 0), capability=(7, 5))
    assert cudalib.probe().usable


def test_cuda_support_that_comes_with_numba_itself_is_not_enough(monkeypatch):
    monkeypatch.setattr(cudalib, "_simulated", lambda: False)
    monkeypatch.setattr(cudalib, "find_spec", lambda name: None)
    monkeypatch.setattr(cudalib, "_cuda", cudalib._cuda.__wrapped__)  # without the cache
    status = cudalib.probe()
    assert "numba-cuda is not installed" in status.reason
    assert "hybridstereo[cu12]" in status.fix


def test_no_gpu_is_explained(machine):
    machine(devices=0)
    assert "no GPU" in cudalib.probe().reason
    assert cudalib.probe().fix == "Use `device=cpu`, which needs no GPU"
    with pytest.raises(kernels.DeviceUnavailableError, match="no GPU"):
        kernels.select("cuda")


def test_a_gpu_that_is_not_there_is_named(machine):
    machine(devices=2)
    with pytest.raises(kernels.DeviceUnavailableError, match="no GPU 2") as caught:
        kernels.select("cuda:2")
    assert caught.value.fix == "Use `device=cuda:0` to `device=cuda:1`"


def test_auto_falls_back_to_the_cpu_and_says_why(machine):
    machine(driver=(11, 4), toolkit=(12, 9))
    backend = kernels.select("auto")
    assert backend.name == "cpu"
    assert "device: cpu" in kernels.explain_choice(backend)
    assert "11.4" in kernels.explain_choice(backend)


def test_auto_says_nothing_where_nobody_expects_a_gpu(monkeypatch):
    monkeypatch.setattr(cudalib, "driver_installed", lambda: False)
    backend = kernels.select("auto")
    assert backend.name == "cpu"
    assert kernels.explain_choice(backend) == ""


def test_the_gpu_that_auto_takes_is_named(machine):
    machine()
    assert kernels.explain_choice(kernels.cuda_backend("cuda")) == (
        "device: cuda, Some GPU (compute capability 8.6)"
    )


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda1", "CPU", ""])
def test_unknown_devices_are_refused(name):
    assert not kernels.is_device(name)
    with pytest.raises(ValueError, match="unknown device"):
        kernels.select(name)


def test_the_command_line_takes_what_select_takes():
    import click

    from hybridstereo.cli.options import DeviceName

    for name in ("auto", "cpu", "cuda", "cuda:1"):
        assert kernels.is_device(DeviceName().convert(name, None, None))
    for name in ("gpu", "cuda:", "cuda:x"):
        with pytest.raises(click.BadParameter, match="cuda:N"):
            DeviceName().convert(name, None, None)


# ---------------------------------------------------------------- models


def test_a_model_moves_to_the_device_and_back(device, rng):
    from support.networks import network

    backend = kernels.cuda_backend("emulated")
    model = StereoModel(tuple(network(rng, 3)), config=ModelConfig())
    moved = on_device(model, backend)
    assert isinstance(moved.unary[0].weight, cudalib.DeviceArray)
    assert moved.parameter_count == model.parameter_count
    for before, after in zip(model.unary, on_host(moved, backend).unary, strict=True):
        np.testing.assert_array_equal(before.weight, after.weight)
        np.testing.assert_array_equal(before.bias, after.bias)


def test_work_that_does_not_fit_the_gpu_is_refused_with_what_would(device, rng):
    from support.networks import network

    backend = kernels.cuda_backend("emulated")
    model = StereoModel(tuple(network(rng, 3)), config=ModelConfig())
    memory.require_memory(model, 40, 50, 40, backend)
    with pytest.raises(OutOfMemoryError, match="GPU memory") as caught:
        memory.require_memory(model, 40, 50, 64, backend)
    suggested = int(re.search(r"disparities\W(\d+)", str(caught.value.hint)).group(1))
    assert memory.device_memory(model, 40, 50, suggested) <= 1 << 20
