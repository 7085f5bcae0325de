"""Which device a process takes."""

from __future__ import annotations

import pytest

from hybridstereo import kernels
from hybridstereo.device import device_of_process, open_backend
from hybridstereo.engines.ranks import Alone
from hybridstereo.errors import InputError
from hybridstereo.training import run as training
from hybridstereo.training.run import TrainOptions, train


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_processes_of_a_machine_take_its_gpus_in_turn(monkeypatch, device):
    monkeypatch.setattr(kernels, "gpu_count", lambda: 2)
    assert [device_of_process(device, index, 3) for index in range(3)] == [
        "cuda:0",
        "cuda:1",
        "cuda:0",
    ]


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_a_device_that_is_named_stays(monkeypatch, device):
    monkeypatch.setattr(kernels, "gpu_count", lambda: 4)
    assert device_of_process(device, 3, 4) == device


def test_without_gpus_or_alone_nothing_is_chosen(monkeypatch):
    monkeypatch.setattr(kernels, "gpu_count", lambda: 0)
    assert device_of_process("auto", 1, 2) == "auto"
    assert device_of_process("cuda", 1, 2) == "cuda"  # which says what is missing
    monkeypatch.setattr(kernels, "gpu_count", lambda: pytest.fail("looked for GPUs"))
    assert device_of_process("auto", 0, 1) == "auto"


class OneOfFour(Alone):
    """The sixth of eight ranks, the second of four on its machine."""

    rank, size, local_rank, cores = 5, 8, 1, 1


def test_a_rank_trains_on_the_gpu_of_its_place_on_the_machine(monkeypatch, tmp_path):
    class OpenedError(Exception):
        pass

    def opened(device):
        raise OpenedError(device)

    monkeypatch.setattr(kernels, "gpu_count", lambda: 4)
    monkeypatch.setattr(training, "open_backend", opened)
    options = TrainOptions(dataset="synthetic")
    with pytest.raises(OpenedError, match="cuda:1"):
        train(options, tmp_path / "run", device="cuda", ranks=OneOfFour())


def test_no_such_device():
    with pytest.raises(InputError, match="There is no device 'gpu'"):
        open_backend("gpu")
