"""What can be said about the CUDA kernels without a GPU: ``python tools/cuda_report.py``.

Compiles every kernel for every architecture with Numba and assembles it with ``ptxas``
(``cuda_resources.py``); runs the kernels of one inference and one training step in
``../shared/tools/ptxemu.py`` (``cuda_counters.py``, ``cuda_estimates.py``); and writes the figures
to ``docs/cuda.md``.  Exits with an error if a kernel does not compile, a hot one spills registers,
or a figure misses its limit.  Needs numba-cuda[cu12] or [cu13].
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cuda_emulator
from cuda_counters import Counted, Counters, counters_of, label, training_launches
from cuda_estimates import PAPER_MILLISECONDS, Estimate, paper_estimates
from cuda_resources import ARCHITECTURES, Resources, assemble, load_kernels, occupancy
from mdtable import markdown_table

from hybridstereo.kernels.cuda import cudalib

ROOT = Path(__file__).resolve().parents[1]

# Limits of the issue: useful bytes per byte loaded, wavefronts per shared-memory access (as a
# multiple of the least possible), lanes at work, and the model's time against the paper's.
LEAST_LOAD_EFFICIENCY = 0.80
MOST_WAVEFRONTS = 1.2
LEAST_ACTIVE_LANES = 0.85
MOST_OF_PAPER = 0.5

# Files whose kernels take nearly all the time.
HOT = (
    "convolve", "kernel_gradient", "correlation", "correlation_gradient", "mutual", "chains",
    "chain_gradients",
)  # fmt: skip


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
    return markdown_table(
        ["kernel", "variant", "threads", "shared bytes", *names, "spilled bytes"], rows
    )


def counter_table(counters: dict[str, Counted]) -> str:
    rows = []
    for name, kernel in counters.items():
        total, launches = kernel.total, kernel.launches
        least_loaded = min(x.load_efficiency for x in launches)
        most_wavefronts = max(x.wavefront_ratio for x in launches)
        least_active = min(x.active_lanes for x in launches)
        wavefronts = f"{total.wavefront_ratio:.2f} ({most_wavefronts:.2f})"
        rows.append(
            [
                f"`{name}`",
                f"{100 * total.load_efficiency:.0f} % ({100 * least_loaded:.0f} %)",
                wavefronts if total.wavefronts else "-",
                f"{100 * total.active_lanes:.0f} % ({100 * least_active:.0f} %)",
            ]
        )
    return markdown_table(
        ["kernel", "load efficiency", "wavefronts per access", "active lanes"], rows
    )


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
    return markdown_table(header, rows)


PAGE = """# The CUDA kernels, without a GPU

Written by `python tools/cuda_report.py` (numba-cuda {numba_cuda}).  No figure on this page comes
from a GPU: the kernels were compiled by Numba and assembled by `ptxas` for every architecture, and
their PTX was executed by an emulator, `../shared/tools/ptxemu.py`, with checks for out-of-bounds
accesses, races and divergent barriers.

## Resources and theoretical occupancy

Registers per thread and, in brackets, how many of the threads that an SM can hold can be resident.
`variant` names what a kernel was built for: for Dual_MM and its gradient the labels per lane (1
means up to 32 labels, 4 up to 128, 8 up to 256); for the sums of both views' softmax whether it is
the backward pass, and how many labels match the same right pixel.

{resources}

## Counters

Useful bytes per byte of the memory sectors that loads touch; shared-memory wavefronts as a
multiple of the least possible; lanes that work while an instruction is executed.  In brackets the
worst of a kernel's launches.  Limits, of every launch: {load:.0f} %, {wavefronts}, {lanes:.0f} %.

{counters}

## A model of the paper's timing table

KITTI, 1242x375 pixels, 7 layers, 128 labels, 5 iterations, GTX Titan X (Maxwell).  **The first
column is a model, not a measurement**: for every launch the emulator's roofline takes the largest
of the times that arithmetic, memory and dependencies need at least, with perfect overlap and no
launch overhead, so a real GPU will be slower.  Pieces of the problem were emulated and their counts
scaled as the last column says; the length of the longest dependency chain was not.

{estimates}
"""


def missed_limits(counters: Counters) -> list[str]:
    missed = []
    if counters.load_efficiency < LEAST_LOAD_EFFICIENCY:
        missed.append(f"load efficiency {counters.load_efficiency:.2f}")
    if counters.wavefront_ratio >= MOST_WAVEFRONTS:
        missed.append(f"{counters.wavefront_ratio:.2f} wavefronts per access")
    if counters.active_lanes <= LEAST_ACTIVE_LANES:
        missed.append(f"active lanes {counters.active_lanes:.2f}")
    return missed


def complaints(
    found: dict[cudalib.Kernel, list[Resources | str]],
    counters: dict[str, Counted],
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
    not_run = {label(function) for function in found} - set(counters)
    wrong += [f"{name}: was not emulated" for name in sorted(not_run)]
    for name, kernel in counters.items():
        misses = {miss for launch in kernel.launches for miss in missed_limits(launch)}
        wrong += [f"{name}: {miss}" for miss in sorted(misses)]
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
