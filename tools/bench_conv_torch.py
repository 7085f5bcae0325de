"""Time the Unary-CNN against PyTorch: ``python tools/bench_conv_torch.py [--repeat N]``.

A script, not a test.  Both programs run alternately in one process, on the same numbers: forward
over both images of a KITTI pair, forward and backward over both images of a training crop, with
the SGEMM peak of the machine measured in between.  Minima and medians are printed, because other
programs on the machine only ever add time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hybridstereo import kernels
from hybridstereo.kernels import conv_cpu

try:
    import torch
    from torch.nn.functional import conv2d
except ImportError:
    sys.exit("PyTorch is not installed: nothing to compare with (pip install torch)")

CHANNELS = 100
SGEMM_SIZE = 2048
Parameters = list[tuple[np.ndarray, np.ndarray]]


@dataclass
class Contest:
    """Named programs that are timed in turns."""

    programs: dict[str, Callable[[], object]]
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def run(self, repeat: int) -> None:
        for turn in range(repeat + 1):  # the first turn compiles and warms up
            for name, program in self.programs.items():
                start = time.perf_counter()
                program()
                if turn:
                    self.seconds.setdefault(name, []).append(time.perf_counter() - start)

    def best(self, name: str) -> float:
        return min(self.seconds[name])

    def median(self, name: str) -> float:
        return float(np.median(self.seconds[name]))


def parameters(layers: int, rng: np.random.Generator) -> Parameters:
    """A Unary-CNN: 3x3 kernels on RGB, then 2x2."""
    shapes = [(CHANNELS, 3, 3, 3)] + [(CHANNELS, CHANNELS, 2, 2)] * (layers - 1)
    return [
        (
            (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32),
            rng.uniform(-0.3, 0.3, CHANNELS).astype(np.float32),
        )
        for shape in shapes
    ]


def forward(images: list[np.ndarray], network: Parameters) -> np.ndarray:
    return conv_cpu.network_forward(images, network, True)[-1]


def forward_by_layers(images: list[np.ndarray], network: Parameters) -> np.ndarray:
    for image in images:
        for weight, bias in network:
            image = conv_cpu.conv_forward(image, weight, bias, True)
    return image


def forward_backward(
    images: list[np.ndarray], network: Parameters, doutput: np.ndarray
) -> list[np.ndarray]:
    sums = [np.zeros_like(array) for layer in network for array in layer]
    for image in images:
        kept = [image]
        for weight, bias in network:
            kept.append(conv_cpu.conv_forward(kept[-1], weight, bias, True))
        gradient = doutput
        for i in reversed(range(len(network))):
            gradient, dweight, dbias = conv_cpu.conv_backward(
                gradient, kept[i], network[i][0], kept[i + 1], True, need_dx=i > 0
            )
            sums[2 * i] += dweight
            sums[2 * i + 1] += dbias
    return sums


def to_torch(
    images: list[np.ndarray], network: Parameters
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The same numbers, channels last; PyTorch correlates, so its kernels are rotated."""
    tensors = [torch.from_numpy(image).permute(2, 0, 1)[None] for image in images]
    weights = []
    for weight, bias in network:
        rotated = torch.from_numpy(weight[:, :, ::-1, ::-1].copy())
        weights += [rotated.contiguous(memory_format=torch.channels_last), torch.from_numpy(bias)]
    return tensors, weights


def torch_forward(images: list[torch.Tensor], weights: list[torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode():
        for image in images:
            for weight, bias in zip(weights[::2], weights[1::2], strict=True):
                image = conv2d(image, weight, bias).tanh_()
    return image


def torch_forward_backward(
    images: list[torch.Tensor], weights: list[torch.Tensor], doutput: torch.Tensor
) -> list[torch.Tensor | None]:
    for tensor in weights:
        tensor.requires_grad_()
        tensor.grad = None
    for image in images:
        for weight, bias in zip(weights[::2], weights[1::2], strict=True):
            image = conv2d(image, weight, bias).tanh_()
        image.backward(doutput)
    return [tensor.grad for tensor in weights]


def measure(layers: int, height: int, width: int, backward: bool, repeat: int) -> None:
    """Time a network on an image size and print the figures."""
    rng = np.random.default_rng(1)
    network = parameters(layers, rng)
    padded = height + layers + 1, width + layers + 1, 3
    images = [rng.standard_normal(padded).astype(np.float32) for _ in range(2)]
    doutput = rng.standard_normal((height, width, CHANNELS)).astype(np.float32)
    square = rng.random((SGEMM_SIZE, SGEMM_SIZE), np.float32)
    tensors, weights = to_torch(images, network)

    programs: dict[str, Callable[[], Any]] = {"sgemm": lambda: square @ square}
    if backward:
        gradient = torch.from_numpy(doutput).permute(2, 0, 1)[None]
        programs["ours"] = partial(forward_backward, images, network, doutput)
        programs["torch"] = partial(torch_forward_backward, tensors, weights, gradient)
        # PyTorch's backward pass is much faster on planes than on channels last.
        planes = [tensor.contiguous() for tensor in tensors]
        copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in weights]
        programs["torch nchw"] = partial(
            torch_forward_backward, planes, copies, gradient.contiguous()
        )
        result, expected = programs["ours"]()[-2], programs["torch"]()[-2].flip(2, 3).numpy()
    else:
        programs["ours"] = partial(forward, images, network)
        programs["by layers"] = partial(forward_by_layers, images, network)
        programs["torch"] = partial(torch_forward, tensors, weights)
        result, expected = programs["ours"](), programs["torch"]()[0].permute(1, 2, 0).numpy()
    difference = np.abs(result - expected).max() / np.abs(expected).max()

    contest = Contest(programs)
    contest.run(repeat)
    print(f"{layers} layers, {width}x{height}, {'forward + backward' if backward else 'forward'}")
    for name in programs:
        best, median = contest.best(name), contest.median(name)
        line = f"  {name:10} {1e3 * best:7.0f} ms (median {1e3 * median:.0f})"
        if name.startswith("torch"):
            ratios = best / contest.best("ours"), median / contest.median("ours")
            line += f": {ratios[0]:.2f} (medians {ratios[1]:.2f}) times ours"
        print(line)
    peak = 2e-9 * SGEMM_SIZE**3 / contest.best("sgemm")
    # Direct convolution: two operations per weight and pixel, three such passes with gradients.
    work = 2e-9 * 2 * height * width * sum(weight.size for weight, _ in network)
    rate = (3 if backward else 1) * work / contest.best("ours")
    print(
        f"  {rate:.0f} GFLOP/s of direct convolution, {rate / peak:.0%} of SGEMM's {peak:.0f};"
        f" largest difference {difference:.0e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the Unary-CNN against PyTorch.")
    parser.add_argument("--repeat", type=int, default=7, help="timed turns of each program")
    parser.add_argument("--threads", type=int, default=kernels.max_threads())
    options = parser.parse_args()
    kernels.set_threads(options.threads)
    torch.set_num_threads(options.threads)
    for layers in (3, 7):
        measure(layers, 375, 1242, False, options.repeat)
        measure(layers, 256, 512, True, options.repeat)


if __name__ == "__main__":
    main()
