"""What the emulator counts while it runs the CUDA kernels: bytes, bank conflicts, lanes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import cuda_emulator
import numpy as np

from hybridstereo import kernels
from hybridstereo.kernels.cuda import cudalib

# The paper's setting: KITTI, 7 layers, 128 labels, 5 iterations.
HEIGHT, WIDTH, LABELS, ITERATIONS, LAYERS, CHANNELS = 375, 1242, 128, 5, 7, 100
# Its layers, (O, I, kh, kw): of the Unary-CNN, of the Pairwise-CNN, and the last one of that.
FIRST_LAYERS = [(CHANNELS, 3, 3, 3), (64, 3, 3, 3)]
INNER_LAYERS = [(CHANNELS, CHANNELS, 2, 2), (64, 64, 3, 3)]
LAST_LAYER = (2, 64, 1, 1)

Launches = list[tuple[cudalib.Kernel, Any]]


def random_array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def unary_parameters() -> list[tuple[np.ndarray, np.ndarray]]:
    shapes = [FIRST_LAYERS[0]] + (LAYERS - 1) * [INNER_LAYERS[0]]
    return [(0.1 * random_array(*shape), random_array(shape[0])) for shape in shapes]


def crf_problem(height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    weights = np.abs(random_array(height, width))
    return -np.abs(random_array(height, width, LABELS)), weights, weights


def emulate(work: Callable[[kernels.Backend], object], **options: Any) -> Launches:
    """The launches of some work and their statistics."""
    with cuda_emulator.emulated(**options) as device:
        work(kernels.cuda_backend("emulated"))
    return device.launches


def training_launches() -> Launches:
    """The kernels of training, on a small image; races are looked for here."""
    height, width = 8, 128
    f, wx, wy = crf_problem(height, width)
    rng = np.random.default_rng(1)
    position = rng.uniform(0, LABELS - 1, (height, width))
    nearest, valid = np.floor(position + 0.5).astype(np.int32), rng.random((height, width)) > 0.2
    count = int(valid.sum())
    volume = f / -f.sum(axis=2, keepdims=True)
    one_row = crf_problem(1, width)

    def work(b: kernels.Backend) -> None:
        b.cross_entropy(volume, position, nearest, valid, count, True)
        augmented = b.augment_costs(volume, nearest, valid, 0.2, 3.0)
        row_labels = b.empty((height, width), np.int32)
        minorant, _ = b.dual_mm(augmented, wx, wy, 1.0, 5.0, 1, row_labels)
        working = b.empty((height, width, LABELS), np.float32)
        for share in (0.0, 0.5):
            b.carry_into(working, augmented, minorant, share)
        worst = b.read_out(minorant)
        truth = b.complete_truth(nearest, valid, worst)
        b.energy(volume, wx, wy, 1.0, 5.0, truth)
        b.dual_mm(*one_row, 1.0, 5.0, 1)  # whose columns are chains of one node
        dscores = b.error_rate(
            b.negated_softmax(minorant, -20.0), position, valid, count, 1.0, 1.0
        )[1]
        b.dual_mm_backward(volume, wx, wy, 1.0, 5.0, 1, dscores)
        gradients = b.hinge_gradients(volume, wx, wy, 1.0, 5.0, truth, worst, valid, count)
        b.task_loss(worst, nearest, valid, 3.0)
        b.count_bad_labels(worst, position, valid, 1.0)
        b.count_different(worst, row_labels)
        ds = b.softmax_backward(volume, gradients.df)
        b.scores_backward(ds, *(0.1 * random_array(height, width, CHANNELS) for _ in range(2)),
                          np.arange(LABELS))  # fmt: skip
        matched, log_sums = b.to_device(volume), b.to_device(random_array(height, width))
        for disparities in (np.arange(LABELS), 0.5 * np.arange(LABELS)):
            right_log_sums = b.mutual_forward(matched, log_sums, width, disparities)
            b.mutual_backward(matched, gradients.df, log_sums, right_log_sums, disparities)
        size = -(-height // 2), -(-width // 2), LABELS // 2 + 1
        fine, coarse = b.to_device(volume), b.to_device(random_array(*size))
        b.upsample_forward(fine, coarse, 0.5, False)
        b.upsample_backward(fine, coarse, 0.5)
        b.refine(minorant, b.argmin(volume), 1.0)
        b.contrast_weights(rng.random((height, WIDTH, 3)).astype(np.float32), 0.2, 20.0, 0.9)
        b.magnitude_backward(*b.magnitude_forward(random_array(height, width, 2), 1.0),
                             random_array(height, width, 2), 1.0)  # fmt: skip
        for shape in (*FIRST_LAYERS, *INNER_LAYERS, LAST_LAYER):
            filters, channels, kh, kw = shape
            x = random_array(height + kh - 1, width + kw - 1, channels)
            weight, activate = 0.1 * random_array(*shape), shape != LAST_LAYER
            y = b.conv_forward(x, weight, random_array(filters), activate)
            needs_dx = shape not in FIRST_LAYERS
            _, dweight, _ = b.conv_backward(y, x, weight, y, activate, needs_dx)
        weight = random_array(*INNER_LAYERS[0])
        dweight, parameter, velocity = (b.to_device(weight) for _ in range(3))
        b.squared_norm(dweight)
        b.scale_by(dweight, 0.5)
        b.divide_by(dweight, 2.0)
        b.add_to(dweight, parameter)
        b.sgd_update(parameter, velocity, dweight, 0.1, 0.9, True, 1e-4)
        b.muon_update(parameter, velocity, dweight, 0.1, 0.9, True, 1e-4)

    return emulate(work, timing=False)


# ---------------------------------------------------------------- counters


@dataclasses.dataclass
class Counters:
    """Sums over the launches of a kernel."""

    loaded: float = 0
    useful: float = 0
    wavefronts: float = 0
    ideal_wavefronts: float = 0
    lanes: float = 0
    warp_instructions: float = 0

    def add(self, stats: Any) -> None:
        load = stats.global_memory["load"]
        self.loaded += load["sector_bytes"]
        self.useful += load["unique_bytes"]
        self.wavefronts += stats.shared_memory["wavefronts"]
        self.ideal_wavefronts += stats.shared_memory["ideal_wavefronts"]
        self.lanes += stats.lane_instructions
        self.warp_instructions += stats.warp_instructions

    @property
    def load_efficiency(self) -> float:
        return self.useful / self.loaded if self.loaded else 1.0

    @property
    def wavefront_ratio(self) -> float:
        return self.wavefronts / self.ideal_wavefronts if self.ideal_wavefronts else 1.0

    @property
    def active_lanes(self) -> float:
        return self.lanes / (32 * self.warp_instructions) if self.warp_instructions else 1.0


def label(function: cudalib.Kernel) -> str:
    return f"{function.module.removesuffix('_cuda')}.{function.name.lstrip('_')}"


@dataclasses.dataclass
class Counted:
    """A kernel's counters: those of every launch, and their sums."""

    launches: list[Counters] = dataclasses.field(default_factory=list)
    total: Counters = dataclasses.field(default_factory=Counters)

    def add(self, stats: Any) -> None:
        launch = Counters()
        launch.add(stats)
        self.launches.append(launch)
        self.total.add(stats)


def counters_of(launches: Launches) -> dict[str, Counted]:
    """Counters by kernel."""
    counters: dict[str, Counted] = {}
    for function, stats in launches:
        counters.setdefault(label(function), Counted()).add(stats)
    return dict(sorted(counters.items()))
