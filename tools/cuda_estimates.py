"""A model of the paper's timing table, from the emulator's counts: not a measurement."""

from __future__ import annotations

import dataclasses
from typing import Any

import cuda_emulator
import numpy as np
from cuda_counters import (
    CHANNELS,
    HEIGHT,
    ITERATIONS,
    LABELS,
    LAYERS,
    WIDTH,
    Launches,
    crf_problem,
    emulate,
    random_array,
    unary_parameters,
)

PAPER_MILLISECONDS = {"Unary-CNN": 262.0, "correlation": 155.0, "CRF": 309.0}
PAPER_GPU = "TitanX-Maxwell"

# Pieces that the emulator can run.  Chains keep their full length: their cost depends on it.
PATCH = 16, 128
ROWS = COLUMNS = 8


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
    image = random_array(height + 8, width + 8, 3)
    network = emulate(lambda b: b.network_forward([image], unary_parameters(), True), **quick)
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

    features = [0.1 * random_array(ROWS, WIDTH, CHANNELS) for _ in range(2)]
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
