"""What a training run reports, as progress on the command line."""

from __future__ import annotations

import click

from ..training.stages import Reporter
from .progress import Progress
from .text import with_flags


class TrainingProgress(Reporter):
    """Shows steps on the line of a `Progress`, and validations on lines that stay.

    Parameters
    ----------
    progress
        Where to show them.
    command
        The command whose options messages should name.
    """

    def __init__(self, progress: Progress, command: click.Command) -> None:
        self._progress = progress
        self._command = command
        self._stage = ""
        self._validated = ""

    def step(self, stage: str, step: int, steps: int | None, progress: float, entry: dict) -> None:
        """Show the loss and the last validation error of the stage."""
        if stage != self._stage:
            self._stage, self._validated = stage, ""
        name = entry["loss"]
        loss = f"{name.replace('_', ' ')} {entry[name]:.4f}"
        counted = f"{step}/{steps}" if steps is not None else f"{step}"
        self._progress.advance(progress, f"{stage} {counted}  {loss}{self._validated}", stage)

    def validation(self, stage: str, step: int, figures: dict[str, float], best: bool) -> None:
        """Show the validation figures on a line of their own."""
        self._stage, self._validated = stage, f"  bad1 {figures['bad1']:.2f} %"
        shown = "  ".join(f"{name} {value:.2f}" for name, value in figures.items())
        self.message(f"{stage} {step}  validation: {shown} %{'  (best)' if best else ''}")

    def message(self, text: str) -> None:
        """Show a line."""
        self._progress.message(with_flags(text, self._command))
