"""What can be said about the CUDA kernels without a GPU: ``python tests/cuda_report.py``.

Compiles every kernel for every architecture with Numba and assembles it with ``ptxas``; runs the
kernels of one inference and one training step in ``../shared/tools/ptxemu.py``; and writes the
figures to ``docs/cuda.md``.  Exits with an error if a kernel does not compile, a hot one spills
registers, or a figure misses its limit.  Needs numba-cuda[cu12] or [cu13].
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cuda_emulator
import numpy as np

from hybridstereo import kernels
from hybridstereo.kernels import cudalib

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
FAMILIES = ("conv", "correlation", "contrast", "edges", "dualmm", "losses", "optim")

# Limits of the issue: useful bytes per byte loaded, wavefronts per shared-memory access (as a
# multiple of the least possible), lanes at work, and the model's time against the paper's.
LEAST_LOAD_EFFICIENCY = 0.80
MOST_WAVEFRONTS = 1.2
LEAST_ACTIVE_LANES = 0.85
MOST_OF_PAPER = 0.5

# Files whose kernels take nearly all the time.
HOT = ("convolve", "kernel_gradient", "correlation", "correlation_gradient", "chains")
# A thread per pixel looks up the costs of single labels: 4 bytes of a sector, by their nature.
GATHERS = ("dualmm.dualmm_energy", "dualmm.dualmm_refine", "losses.cross_entropy_terms")


# ---------------------------------------------------------------- compiling


@dataclasses.dataclass(frozen=True)
class Resources:
    """What ptxas says about a kernel."""

    registers: int
    shared: int
    spills: int
    stack: int


@dataclasses.dataclass(frozen=True)
class Multiprocessor:
    """Limits of an SM (CUDA C++ Programming Guide, table of compute capabilities)."""

    threads: int
    blocks: int
    shared_kilobytes: int
    registers: int = 65536


MULTIPROCESSORS = {
    (7, 5): Multiprocessor(1024, 16, 64),
    (8, 0): Multiprocessor(2048, 32, 164),
    (8, 6): Multiprocessor(1536, 16, 100),
    (8, 9): Multiprocessor(1536, 24, 100),
    (9, 0): Multiprocessor(2048, 32, 228),
    (10, 0): Multiprocessor(2048, 32, 228),
    (12, 0): Multiprocessor(1536, 24, 100),
}


def occupancy(resources: Resources, threads: int, architecture: tuple[int, int]) -> float:
    """Share of an SM's threads that can be resident, by registers, shared memory and blocks."""
    sm = MULTIPROCESSORS[architecture]
    warps = -(-threads // 32)
    registers_per_warp = -(-resources.registers * 32 // 256) * 256
    limits = [sm.blocks, sm.threads // (warps * 32)]
    limits.append(sm.registers // max(registers_per_warp * warps, 1))
    # The driver keeps 1 kB per block for itself.
    limits.append(sm.shared_kilobytes * 1024 // (resources.shared + 1024))
    return min(limits) * warps * 32 / sm.threads


def find_ptxas() -> str:
    """The assembler of the installed nvidia wheels."""
    import nvidia

    for folder in nvidia.__path__:
        for found in sorted(Path(folder).rglob("bin/ptxas")):
            return str(found)
    raise SystemExit("ptxas is not here: install numba-cuda[cu12] or [cu13]")


def load_kernels() -> list[cudalib.Kernel]:
    for family in FAMILIES:
        importlib.import_module(f"hybridstereo.kernels.{family}_cuda")
    return cudalib.registered_kernels()


def assemble(index: int) -> list[Resources | str]:
    """Compile kernel ``index`` for all architectures; a string is what went wrong."""
    from numba import cuda
    from numba.core import sigutils

    function = load_kernels()[index]
    types, _ = sigutils.normalize_signature(f"void({function.signature})")
    results: list[Resources | str] = []
    for major, minor in ARCHITECTURES:
        with (
            cuda_emulator.load_ptxemu().fake_device((major, minor)),
            tempfile.TemporaryDirectory() as folder,
        ):
            source = Path(folder) / "kernel.ptx"
            try:
                ptx, _ = cuda.compile_ptx(function.py_func, types, cc=(major, minor))
            except Exception as error:  # whatever the compiler raises belongs into the report
                results.append(f"Numba: {error}")
                continue
            source.write_text(ptx)
            done = subprocess.run(
                [find_ptxas(), "-v", f"-arch=sm_{major}{minor}", str(source), "-o", os.devnull],
                capture_output=True,
                text=True,
            )
        results.append(parse_ptxas(done.stderr) if done.returncode == 0 else done.stderr.strip())
    return results


def parse_ptxas(text: str) -> Resources:
    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found.group(1)) if found else 0

    return Resources(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes stack frame"),
    )


# ---------------------------------------------------------------- running


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


class Scaled:
    """Statistics of a launch as if it had ``factor`` times as many blocks: all that adds up."""

    def __init__(self, stats: Any, factor: float) -> None:
        self.blocks = max(round(stats.blocks * factor), 1)
        self.classes = {k: (nw * factor, nl * factor) for k, (nw, nl) in stats.classes.items()}
        self.global_memory = {
            kind: {"sectors": values["sectors"] * factor}
            for kind, values in stats.global_memory.items()
        }
        self.shared_memory = {"wavefronts": stats.shared_memory["wavefronts"] * factor}
        self.footprint_read = stats.footprint_read * factor
        self.footprint_write = stats.footprint_write * factor
        self.atomic_conflicts = stats.atomic_conflicts * factor
        self.critical_cycles = stats.critical_cycles


# The paper's setting: KITTI, 7 layers, 128 labels, 5 iterations.
HEIGHT, WIDTH, LABELS, ITERATIONS, LAYERS, CHANNELS = 375, 1242, 128, 5, 7, 100
PAPER_MILLISECONDS = {"Unary-CNN": 262.0, "correlation": 155.0, "CRF": 309.0}
PAPER_GPU = "TitanX-Maxwell"

# Pieces that the emulator can run.  Chains keep their full length: their cost depends on it.
PATCH = 16, 128
ROWS = COLUMNS = 8


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def unary_parameters() -> list[tuple[np.ndarray, np.ndarray]]:
    shapes = [(CHANNELS, 3, 3, 3)] + (LAYERS - 1) * [(CHANNELS, CHANNELS, 2, 2)]
    return [(0.1 * _random(*shape), _random(shape[0])) for shape in shapes]


def crf_problem(height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    weights = np.abs(_random(height, width))
    return -np.abs(_random(height, width, LABELS)), weights, weights


Launches = list[tuple[cudalib.Kernel, Any]]


def emulate(work: Callable[[kernels.Backend], object], **options: Any) -> Launches:
    """The launches of some work and their statistics."""
    with cuda_emulator.emulated(**options) as device:
        work(kernels.cuda_backend("emulated"))
    return device.launches


def sweeps_of(launches: Launches) -> list[Launches]:
    """The launches of `dual_mm`, sweep by sweep: each ends with the sum of its minima."""
    sweeps: list[Launches] = [[]]
    for function, stats in launches:
        if function.name == "sum_partially":
            sweeps.append([])
        else:
            sweeps[-1].append((function, stats))
    return sweeps


def milliseconds(launches: Launches, factor: float) -> tuple[float, list[str]]:
    """Modelled time of launches with ``factor`` times as many blocks, and what limits them."""
    roofline = cuda_emulator.load_ptxemu().roofline
    total, limits = 0.0, {}
    for _, stats in launches:
        estimate = roofline(Scaled(stats, factor), PAPER_GPU)
        total += 1e3 * estimate["seconds"]
        name = estimate["limiter"]
        limits[name] = limits.get(name, 0.0) + estimate["seconds"]
    return total, sorted(limits, key=lambda x: -limits[x])


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A row of the table of times."""

    component: str
    milliseconds: float
    limits: str
    how: str


def paper_estimates() -> tuple[list[Estimate], Launches]:
    """The components of the paper's table, and all launches that were emulated for them."""
    quick = {"races": False, "global_races": False}
    estimates = []
    height, width = PATCH
    image = _random(height + 8, width + 8, 3)
    network = emulate(lambda b: b.network_forward(image, unary_parameters(), True), **quick)
    # The margin that later layers consume is a smaller part of the whole image than of the patch.
    time, limits, layer = 0.0, [], 0
    for function, stats in network:
        factor = 2.0
        if function.name == "convolve":
            layer += 1
            margin = LAYERS - layer
            full, patch = (
                (rows + margin) * (columns + margin)
                for rows, columns in ((HEIGHT, WIDTH), (height, width))
            )
            factor *= full / patch
        more, limit = milliseconds([(function, stats)], factor)
        time, limits = time + more, limits + limit
    how = f"{height}x{width} pixels of one image, scaled layer by layer, two images"
    estimates.append(Estimate("Unary-CNN", time, ", ".join(dict.fromkeys(limits)), how))

    features = [0.1 * _random(ROWS, WIDTH, CHANNELS) for _ in range(2)]
    correlation = emulate(lambda b: b.correlation_forward(*features, np.arange(LABELS)), **quick)
    time, limits = milliseconds(correlation, HEIGHT / ROWS)
    estimates.append(
        Estimate("correlation", time, ", ".join(limits), f"{ROWS} of {HEIGHT} rows, scaled")
    )

    # Two iterations: the sweeps in the middle read the unaries as well and are the dearer ones.
    wide, tall = crf_problem(ROWS, WIDTH), crf_problem(HEIGHT, COLUMNS)
    rows = sweeps_of(emulate(lambda b: b.dual_mm(*wide, 1.0, 5.0, 2), **quick))[2]
    columns = sweeps_of(emulate(lambda b: b.dual_mm(*tall, 1.0, 5.0, 2), **quick))[1]
    row_time, row_limits = milliseconds(rows, HEIGHT / ROWS)
    column_time, column_limits = milliseconds(columns, WIDTH / COLUMNS)
    estimates.append(
        Estimate(
            "CRF",
            ITERATIONS * (row_time + column_time),
            ", ".join(dict.fromkeys(row_limits + column_limits)),
            f"a row sweep of {ROWS} of {HEIGHT} rows and a column sweep of {COLUMNS} of {WIDTH}"
            f" columns, scaled, times {ITERATIONS}",
        )
    )
    return estimates, network + correlation + rows + columns


def training_launches() -> Launches:
    """The kernels of training, on a small image; races are looked for here."""
    height, width = 8, 128
    f, wx, wy = crf_problem(height, width)
    rng = np.random.default_rng(1)
    position = rng.uniform(0, LABELS - 1, (height, width))
    nearest, valid = np.floor(position + 0.5).astype(np.int32), rng.random((height, width)) > 0.2
    count = int(valid.sum())
    volume = f / -f.sum(axis=2, keepdims=True)
    weight, bias = unary_parameters()[1]
    x = _random(height + 1, width + 1, CHANNELS)

    def work(b: kernels.Backend) -> None:
        b.cross_entropy(volume, position, nearest, valid, count, True)
        augmented = b.augment_costs(volume, nearest, valid, 0.2, 3.0)
        row_labels = b.empty((height, width), np.int32)
        minorant, _ = b.dual_mm(augmented, wx, wy, 1.0, 5.0, 1, row_labels)
        worst = b.read_out(minorant)
        truth = b.complete_truth(nearest, valid, worst)
        b.energy(volume, wx, wy, 1.0, 5.0, truth)
        gradients = b.hinge_gradients(volume, wx, wy, 1.0, 5.0, truth, worst, valid, count)
        b.task_loss(worst, nearest, valid, 3.0)
        b.count_bad_labels(worst, position, valid, 1.0)
        b.count_different(worst, row_labels)
        ds = b.softmax_backward(volume, gradients.df)
        b.scores_backward(ds, *(0.1 * _random(height, width, CHANNELS) for _ in range(2)),
                          np.arange(LABELS))  # fmt: skip
        b.refine(minorant, b.argmin(volume), 1.0)
        b.contrast_weights(rng.random((height, WIDTH, 3)).astype(np.float32), 0.2, 20.0, 0.9)
        b.magnitude_backward(*b.magnitude_forward(_random(height, width, 2), 1.0),
                             _random(height, width, 2), 1.0)  # fmt: skip
        y = b.conv_forward(x, weight, bias, True)
        _, dweight, _ = b.conv_backward(y, x, weight, y, True)
        parameter, velocity = b.to_device(weight), b.to_device(weight)
        b.squared_norm(dweight)
        b.scale_by(dweight, 0.5)
        b.divide_by(dweight, 2.0)
        b.add_to(dweight, parameter)
        b.sgd_update(parameter, velocity, dweight, 0.1, 0.9, True, 1e-4)

    return emulate(work, timing=False)


def counters_of(launches: Launches) -> dict[str, Counters]:
    """Counters by kernel."""
    counters: dict[str, Counters] = {}
    for function, stats in launches:
        counters.setdefault(label(function), Counters()).add(stats)
    return dict(sorted(counters.items()))


# ---------------------------------------------------------------- the report


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def resource_table(found: dict[cudalib.Kernel, list[Resources | str]]) -> str:
    names = [f"sm_{major}{minor}" for major, minor in ARCHITECTURES]
    rows = []
    for function, results in found.items():
        good = [x for x in results if isinstance(x, Resources)]
        if len(good) < len(results):
            continue
        cells = [
            f"{x.registers} ({100 * occupancy(x, function.threads, architecture):.0f} %)"
            for x, architecture in zip(good, ARCHITECTURES, strict=True)
        ]
        spills = max(x.spills for x in good)
        rows.append(
            [
                f"`{label(function)}`",
                function.variant,
                str(function.threads),
                str(max(x.shared for x in good)),
                *cells,
                str(spills) if spills else "-",
            ]
        )
    return table(["kernel", "variant", "threads", "shared bytes", *names, "spilled bytes"], rows)


def counter_table(counters: dict[str, Counters]) -> str:
    rows = [
        [
            f"`{name}`",
            f"{100 * x.load_efficiency:.0f} %" + (" (gathers)" if name in GATHERS else ""),
            f"{x.wavefront_ratio:.2f}" if x.wavefronts else "-",
            f"{100 * x.active_lanes:.0f} %",
        ]
        for name, x in counters.items()
    ]
    return table(["kernel", "load efficiency", "wavefronts per access", "active lanes"], rows)


def estimate_table(estimates: Sequence[Estimate]) -> str:
    rows = [
        [
            x.component,
            f"{x.milliseconds:.0f}",
            f"{PAPER_MILLISECONDS[x.component]:.0f}",
            f"{100 * x.milliseconds / PAPER_MILLISECONDS[x.component]:.0f} %",
            x.limits,
            x.how,
        ]
        for x in estimates
    ]
    header = ["component", "model, ms", "paper, measured, ms", "model / paper", "limited by", "how"]
    return table(header, rows)


PAGE = """# The CUDA kernels, without a GPU

Written by `python tests/cuda_report.py` (numba-cuda {numba_cuda}).  No figure on this page comes
from a GPU: the kernels were compiled by Numba and assembled by `ptxas` for every architecture, and
their PTX was executed by an emulator, `../shared/tools/ptxemu.py`, with checks for out-of-bounds
accesses, races and divergent barriers.

## Resources and theoretical occupancy

Registers per thread and, in brackets, how many of the threads that an SM can hold can be resident.
`variant` names what a kernel was built for: for Dual_MM the labels per lane (1 means up to 32
labels, 4 up to 128, 8 up to 256).

{resources}

## Counters

Useful bytes per byte of the memory sectors that loads touch; shared-memory wavefronts as a
multiple of the least possible; lanes that work while an instruction is executed.  Limits:
{load:.0f} %, {wavefronts}, {lanes:.0f} %.  Kernels that *gather* look up single labels, 4 bytes of
a sector of 32; they run once per pixel and take next to no time.

{counters}

## A model of the paper's timing table

KITTI, 1242x375 pixels, 7 layers, 128 labels, 5 iterations, GTX Titan X (Maxwell).  **The first
column is a model, not a measurement**: for every launch the emulator's roofline takes the largest
of the times that arithmetic, memory and dependencies need at least, with perfect overlap and no
launch overhead, so a real GPU will be slower.  Pieces of the problem were emulated and their counts
scaled as the last column says; the length of the longest dependency chain was not.

{estimates}
"""


def complaints(
    found: dict[cudalib.Kernel, list[Resources | str]],
    counters: dict[str, Counters],
    estimates: Sequence[Estimate],
) -> list[str]:
    """Everything that is not as it should be."""
    wrong = []
    for function, results in found.items():
        for result, (major, minor) in zip(results, ARCHITECTURES, strict=True):
            where = f"{function!r} on sm_{major}{minor}"
            if isinstance(result, str):
                wrong.append(f"{where}: {result}")
            elif result.spills and function.module.removesuffix("_cuda") in HOT:
                wrong.append(f"{where} spills {result.spills} bytes")
    for name, x in counters.items():
        if x.load_efficiency < LEAST_LOAD_EFFICIENCY and name not in GATHERS:
            wrong.append(f"{name}: load efficiency {x.load_efficiency:.2f}")
        if x.wavefront_ratio >= MOST_WAVEFRONTS:
            wrong.append(f"{name}: {x.wavefront_ratio:.2f} wavefronts per access")
        if x.active_lanes <= LEAST_ACTIVE_LANES:
            wrong.append(f"{name}: active lanes {x.active_lanes:.2f}")
    for estimate in estimates:
        if estimate.milliseconds > MOST_OF_PAPER * PAPER_MILLISECONDS[estimate.component]:
            wrong.append(f"{estimate.component}: {estimate.milliseconds:.0f} ms")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "cuda.md")
    options = parser.parse_args()
    if reason := cuda_emulator.why_not():
        raise SystemExit(reason)
    functions = load_kernels()
    print(f"{len(functions)} kernels for {len(ARCHITECTURES)} architectures", flush=True)
    with ProcessPoolExecutor(options.jobs) as pool:
        found = dict(zip(functions, pool.map(assemble, range(len(functions))), strict=True))
    print("emulating", flush=True)
    estimates, launches = paper_estimates()
    counters = counters_of(launches + training_launches())
    page = PAGE.format(
        numba_cuda=importlib.metadata.version("numba-cuda"),
        resources=resource_table(found),
        counters=counter_table(counters),
        estimates=estimate_table(estimates),
        load=100 * LEAST_LOAD_EFFICIENCY,
        wavefronts=MOST_WAVEFRONTS,
        lanes=100 * LEAST_ACTIVE_LANES,
    )
    options.output.write_text(page, encoding="utf-8")
    print(estimate_table(estimates))
    wrong = complaints(found, counters, estimates)
    print("\n".join(wrong) or f"all limits are met; {options.output} is up to date")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
