"""The run folder: config.json, log.jsonl, checkpoints, stage models."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, OutputError
from ..io.atomic import atomic_write
from ..io.weights import read_weights, write_weights
from ..model import StereoModel
from ..models.zoo import BEST_MODEL, load_model, save_model

_POSITION = "position_"


@dataclass
class Position:
    """Where a run is: everything besides arrays that a resumed run needs.

    Attributes
    ----------
    stage
        Name of the stage that is running; empty when the run is finished.
    step
        Steps done in it.
    best
        The lowest validation error of the stage so far, in percent; above 100 if none yet.
    seconds
        Time spent in the stage so far.
    log_bytes
        Length of the log when this was saved: what lies beyond was written by steps that a resumed
        run does again.
    """

    stage: str
    step: int = 0
    best: float = 1e9
    seconds: float = 0.0
    log_bytes: int = 0


@dataclass
class Checkpoint:
    """A model, the optimiser's momentum, and where the run is."""

    model: StereoModel
    position: Position
    momentum: dict[str, np.ndarray] = field(default_factory=dict)


class RunFolder:
    """The files of one training run; each is replaced as a whole or appended to."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def best(self) -> Path:
        """The best model of the current stage."""
        return self.path / BEST_MODEL

    @property
    def last(self) -> Path:
        """The checkpoint that a resumed run continues from."""
        return self.path / "last.h5"

    @property
    def log(self) -> Path:
        """One JSON object per step and per validation."""
        return self.path / "log.jsonl"

    def create(self, config: Mapping[str, Any]) -> None:
        """Start a new run; refuses to overwrite another one."""
        if os.path.exists(self.path / "config.json"):
            raise OutputError(
                f"{self.path} already holds a training run",
                "Continue it with `resume` or choose another `output`",
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"The folder {self.path} cannot be created: {error.strerror}",
                "Choose another `output`",
            ) from error
        self.write_json("config.json", config)
        self.log.write_bytes(b"")

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the folder."""
        with atomic_write(self.path / name) as temporary:
            temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

    def config(self) -> dict[str, Any]:
        """The options of the run."""
        path = self.path / "config.json"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(
                f"There is no training run in {self.path}",
                "Start one without `resume`, or give its folder as `output`",
            ) from error
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read", "Start a new run") from error
        if not isinstance(stored, dict):
            raise InputError(f"{path} does not hold the options of a run", "Start a new run")
        return stored

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the log."""
        with self.log.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")

    def entries(self) -> list[dict[str, Any]]:
        """All lines of the log."""
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]

    def save(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint; the old one stays until the new one is complete on disk."""
        checkpoint.position.log_bytes = self.log.stat().st_size
        stored = checkpoint.model.to_file()
        tensors = stored.tensors | {f"momentum/{k}": v for k, v in checkpoint.momentum.items()}
        position = {_POSITION + k: v for k, v in vars(checkpoint.position).items()}
        write_weights(self.last, stored.config | position, tensors)

    def load(self) -> Checkpoint:
        """Read the checkpoint and cut the log back to it."""
        if not self.last.exists():
            raise InputError(f"{self.path} has no checkpoint yet", "Start the run anew")
        stored = read_weights(self.last)
        values = {
            k.removeprefix(_POSITION): v
            for k, v in stored.config.items()
            if k.startswith(_POSITION)
        }
        position = Position(**values)  # type: ignore[arg-type]
        momentum = {
            k.removeprefix("momentum/"): v
            for k, v in stored.tensors.items()
            if k.startswith("momentum/")
        }
        os.truncate(self.log, position.log_bytes)
        return Checkpoint(StereoModel.from_file(stored, str(self.last)), position, momentum)

    def save_best(self, model: StereoModel) -> None:
        """Keep the best model of the stage so far."""
        save_model(self.best, model)

    def load_best(self) -> StereoModel:
        """The best model of the stage so far."""
        return load_model(str(self.best))
