"""Time a training step against PyTorch: ``python tools/bench_train_torch.py [--size HxW]``.

A script, not a test.  One step of stage ``unary`` of the 3-layer model (forward over both images,
correlation, cross-entropy, backward, SGD with Nesterov momentum) as hybridstereo does it and as one
would write it in PyTorch (channels last, scores by one batched matrix product per row and a
gather), alternately in one process on the same pair.  The losses are printed to show that both
compute the same.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from bench_conv_torch import Contest

from hybridstereo import kernels
from hybridstereo.datasets import StereoPair
from hybridstereo.features import network_input
from hybridstereo.labels import LabelRange
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.training.losses import make_target
from hybridstereo.training.optim import Sgd, SgdOptions
from hybridstereo.training.stages import new_model
from hybridstereo.training.steps import parameters_of, unary_step

try:
    import torch
    from torch.nn import functional
except ImportError:
    sys.exit("PyTorch is not installed: nothing to compare with (pip install torch)")

RATE = 1e-3


class TorchStep:
    """The same step in PyTorch."""

    def __init__(self, model, pair, labels) -> None:
        self.layers = []
        for layer in model.unary:
            flipped = np.ascontiguousarray(layer.weight[:, :, ::-1, ::-1])
            weight = torch.from_numpy(flipped).to(memory_format=torch.channels_last)
            self.layers.append((weight.requires_grad_(), torch.tensor(layer.bias).requires_grad_()))
        self.optimiser = torch.optim.SGD(
            [x for layer in self.layers for x in layer], RATE, momentum=0.9, nesterov=True
        )
        self.images = (pair.left, pair.right)
        self.unary = model.unary
        target = make_target(pair.disparity, pair.valid, labels)
        self.target = torch.from_numpy(target.nearest[target.valid].astype(np.int64))
        self.valid = torch.from_numpy(target.valid)
        columns = torch.arange(pair.width)[:, None] - torch.arange(labels.count)[None]
        self.inside = columns >= 0
        self.columns = columns.clamp(min=0).expand(pair.height, -1, -1)

    def features(self, image):
        x = torch.from_numpy(network_input(image, self.unary)).permute(2, 0, 1)[None]
        for weight, bias in self.layers:
            x = torch.tanh(functional.conv2d(x, weight, bias))
        return x[0].permute(1, 2, 0)

    def __call__(self) -> float:
        self.optimiser.zero_grad(set_to_none=True)
        left, right = (self.features(image) for image in self.images)
        products = torch.bmm(left, right.transpose(1, 2))
        scores = products.gather(2, self.columns) * self.inside
        loss = functional.cross_entropy(scores[self.valid], self.target)
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="370x450", help="HEIGHTxWIDTH of the pair")
    parser.add_argument("--disparities", type=int, default=80)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    height, width = map(int, options.size.split("x"))
    backend = kernels.select("cpu")
    torch.set_num_threads(kernels.max_threads())

    scene = generate_scene(1, SceneOptions(height=height, width=width, max_disparity=63))
    pair = StereoPair(scene.left, scene.right, scene.disparity, ~scene.occlusion)
    labels = LabelRange(0.0, options.disparities)
    model = new_model(3, 100, False, 0, 5)
    theirs = TorchStep(model, pair, labels)
    optimiser = Sgd(parameters_of(model), SgdOptions(lr=RATE))
    losses: dict[str, list[float]] = {"ours": [], "torch": []}

    def ours() -> None:
        step = unary_step(model, backend, pair, labels, soft=False)
        optimiser.step(step.gradients, RATE)
        losses["ours"].append(step.loss)

    contest = Contest({"ours": ours, "torch": lambda: losses["torch"].append(theirs())})
    contest.run(options.repeat)
    print(
        f"CNN3 unary step, {width}x{height}, {labels.count} labels, {kernels.max_threads()} threads"
    )
    for name, values in losses.items():
        median, best = 1e3 * contest.median(name), 1e3 * contest.best(name)
        print(f"{name:6} median {median:7.0f} ms, best {best:7.0f} ms", end=", ")
        print(f"losses {values[0]:.5f} ... {values[-1]:.5f}")
    print(f"ours is {contest.median('torch') / contest.median('ours'):.2f}x as fast (medians)")


if __name__ == "__main__":
    main()
