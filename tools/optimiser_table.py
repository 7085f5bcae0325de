"""Steps and CPU minutes of stage `unary` with SGD and with Muon: optimiser_table.py DATA RUNS

From random weights, with the same seed, pairs and crops, 3 and 7 layers. The error is that of
argmax on the scenes kept back (bad1). The minutes are those of all cores together, without
validation and the first step, which compiles: a busy machine hardly changes them. The table of
docs/results.md goes to standard output; runs that RUNS/optimisers.json has are not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path

from kept_scenes import TEST, VALIDATION, groups_of
from mdtable import markdown_table

from hybridstereo.training.run import TrainOptions, train
from hybridstereo.training.stages import Reporter

STEPS = {3: 300, 7: 150}
RATES = {"sgd": None, "muon": 0.05}  # of SGD: the defaults, which differ by the number of layers
EVERY = 50

Curve = dict[str, tuple[float, float]]
"""Steps -> CPU minutes and percent."""


class _Timer(Reporter):
    """Notes the CPU time at each validation, without that of validations."""

    def __init__(self) -> None:
        self.curve: Curve = {}
        self._begun: float | None = None
        self._minutes = 0.0

    def message(self, text: str) -> None:
        """Before the first step."""
        self._begun = time.process_time()

    def step(self, stage: str, step: int, steps: int | None, progress: float, entry: dict) -> None:
        """A step is done."""
        now = time.process_time()
        if self._begun is not None and step > 1:  # the first step compiles
            self._minutes += (now - self._begun) / 60
        self._begun = now

    def validation(self, stage: str, step: int, figures: dict[str, float], best: bool) -> None:
        """The validation pairs were evaluated."""
        self.curve[str(step)] = (self._minutes, figures["bad1"])
        self._begun = time.process_time()


def run(data: Path, folder: Path, layers: int, optimizer: str) -> Curve:
    """Train a network, and return how its error fell."""
    kept = groups_of((*VALIDATION, *TEST), ["middlebury"])
    options = TrainOptions(
        "middlebury",
        {"middlebury": str(data)},
        stage="unary",
        layers=layers,
        steps=STEPS[layers],
        crop=(64, 512),
        batch=2,
        optimizer=optimizer,
        lr=RATES[optimizer],
        val_scenes=tuple(name for group in kept for name in group.training_names),
        validate_every=EVERY,
    )
    timer = _Timer()
    train(options, folder, reporter=timer)
    return timer.curve


def table(curves: Mapping[str, Curve]) -> str:
    """Error and minutes of every run after so many steps."""
    steps = range(EVERY, max(STEPS.values()) + 1, EVERY)
    header = ["layers, optimiser", *(f"{x} steps" for x in steps)]
    rows = [
        [name, *(f"{error:.1f} % ({minutes:.1f})" for minutes, error in curve.values())]
        for name, curve in curves.items()
    ]
    return markdown_table(header, [row + [""] * (len(header) - len(row)) for row in rows])


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path)
    arguments = parser.parse_args()
    found = arguments.runs / "optimisers.json"
    curves: dict[str, Curve] = json.loads(found.read_text()) if found.exists() else {}
    for layers in STEPS:
        for optimizer in RATES:
            name = f"{layers}, {optimizer}"
            if name not in curves:
                curves[name] = run(arguments.data, arguments.runs / name, layers, optimizer)
                found.write_text(json.dumps(curves))
    print(table(curves))


if __name__ == "__main__":
    main()
