"""The run folder: config.json, log.jsonl, checkpoints, stage models."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, ModelError, OutputError
from ..io.atomic import atomic_write, write_error
from ..io.files import read_file
from ..io.locks import try_lock
from ..io.weights import ConfigValue, read_weights, write_weights
from ..model import ModelConfig, StereoModel, named_arrays
from ..models.zoo import BEST_MODEL, STAGES, load_model, save_model, stage_model
from .runlog import RunLog

_POSITION, _MOMENTUM = "position_", "momentum/"
_LOG_BYTES = "log_bytes"  # of checkpoints from before the log was cut by what its lines say
_MOST_STEPS = 10**9
_MOST_CONFIG_BYTES = 1 << 20
START_ANEW = "Start a new run in another `output`; `init` takes the models of this one"
"""What helps where a checkpoint does not."""


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
    """

    stage: str
    step: int = 0
    best: float = 1e9
    seconds: float = 0.0


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
        self.log = RunLog(self.path / "log.jsonl")

    @property
    def best(self) -> Path:
        """The best model of the current stage."""
        return self.path / BEST_MODEL

    @property
    def last(self) -> Path:
        """The checkpoint that a resumed run continues from."""
        return self.path / "last.h5"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to continue from."""
        return os.path.lexists(self.last)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder, which is made if it does not exist.

        Raises
        ------
        OutputError
            If another run is in it, or it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            raise OutputError(
                f"The folder {self.path} cannot be created: "
                f"{getattr(error, 'strerror', None) or error}",
                "Choose another `output`",
            ) from error
        place = self.path / ".lock"
        try:
            # A pipe of that name would otherwise block for ever.
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
            descriptor = os.open(place, flags, 0o666)
        except OSError as error:
            raise write_error(place, error) from error
        try:
            free = True
            with suppress(OSError):  # without locks in the file system nobody can be kept out
                free = try_lock(descriptor)
            if not free:
                raise OutputError(
                    f"Another training run is at work in {self.path}",
                    "Wait until it ends, or choose another `output`",
                )
            yield
        finally:
            os.close(descriptor)

    def check_unused(self) -> None:
        """Refuse a folder that holds a run; one that was killed before its first step is none.

        Raises
        ------
        OutputError
            If a new run would overwrite what another one made.
        """
        if self.has_checkpoint:
            raise OutputError(
                f"{self.path} already holds a training run",
                "Continue it with `resume` or choose another `output`",
            )
        models = (self.best, *(stage_model(self.path, stage) for stage in STAGES))
        if found := [path.name for path in models if os.path.lexists(path)]:
            raise OutputError(
                f"{self.path} holds {', '.join(found)} of a training run, but no checkpoint",
                "Move them elsewhere or choose another `output`",
            )

    def begin(self, config: Mapping[str, Any]) -> None:
        """Start a run in an unused folder."""
        self.check_unused()
        self.write_json("config.json", config)
        self.log.clear()

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the folder."""
        with atomic_write(self.path / name) as temporary:
            temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

    def config(self) -> dict[str, Any]:
        """The options of the run."""
        path = self.path / "config.json"
        if not os.path.lexists(path):
            raise InputError(
                f"There is no training run in {self.path}",
                "Start one without `resume`, or give its folder as `output`",
            )
        try:
            stored = json.loads(read_file(path, _MOST_CONFIG_BYTES))
        except InputError as error:
            raise InputError(error.message, "Start a new run") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read: it is damaged", "Start a new run") from error
        if not isinstance(stored, dict):
            raise InputError(f"{path} does not hold the options of a run", "Start a new run")
        return stored

    def save(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint; the old one stays until the new one is complete on disk."""
        self.log.sync()
        stored = checkpoint.model.to_file()
        tensors = stored.tensors | {_MOMENTUM + k: v for k, v in checkpoint.momentum.items()}
        position = {_POSITION + k: v for k, v in vars(checkpoint.position).items()}
        write_weights(self.last, stored.config | position, tensors)

    def load(self) -> Checkpoint:
        """Read the checkpoint.

        Raises
        ------
        ModelError
            If it is damaged, or holds what no run of this version writes.
        """
        try:
            stored = read_weights(self.last)
            position, config = _split(stored.config, _POSITION)
            momentum, tensors = _split(stored.tensors, _MOMENTUM)
            _check_names(config, tensors)
            model = StereoModel.from_file(stored, str(self.last))
            _check_types(model)
            return Checkpoint(model, _position(position), momentum)
        except ModelError as error:
            message = error.message
            if str(self.last) not in message:
                message = f"{self.last} is not a usable checkpoint: {message}"
            raise ModelError(message, START_ANEW) from error

    def save_best(self, model: StereoModel) -> None:
        """Keep the best model of the stage so far."""
        save_model(self.best, model)

    def save_stage(self, stage: str, model: StereoModel) -> None:
        """Keep the result of a stage."""
        save_model(stage_model(self.path, stage), model)

    def load_best(self) -> StereoModel:
        """The best model of the stage so far."""
        return load_model(self.best)


def _split(named: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What has a prefix, without it, and all else."""
    with_it = {k.removeprefix(prefix): x for k, x in named.items() if k.startswith(prefix)}
    return with_it, {k: x for k, x in named.items() if not k.startswith(prefix)}


def _check_names(config: Mapping[str, ConfigValue], tensors: Mapping[str, np.ndarray]) -> None:
    strangers = [name for name in config if name not in asdict(ModelConfig())]
    strangers += [name for name in tensors if not name.startswith(("unary/", "pairwise/"))]
    if strangers:
        raise ModelError(f"it holds '{strangers[0]}', which this version does not know")


def _check_types(model: StereoModel) -> None:
    """Refuse numbers of several types: the steps of training take those of the first layer."""
    arrays = named_arrays("unary", model.unary) | named_arrays("pairwise", model.pairwise)
    for name, array in arrays.items():
        if array.dtype != model.dtype:
            raise ModelError(f"'{name}' holds {array.dtype}, but the first layer {model.dtype}")


def _position(stored: Mapping[str, ConfigValue]) -> Position:
    """The position of a checkpoint, after a look at every value."""
    values = {name: value for name, value in stored.items() if name != _LOG_BYTES}
    expected = {name: type(value) for name, value in vars(Position("")).items()}
    if values.keys() != expected.keys():
        raise ModelError(f"its position names {', '.join(sorted(values)) or 'nothing'}")
    for name, value in values.items():
        if type(value) is not expected[name]:
            raise ModelError(f"its {name} is {value!r:.40}")
    position = Position(**values)  # type: ignore[arg-type]
    if position.stage not in ("", *STAGES):
        raise ModelError(f"its stage is {position.stage!r:.40}")
    if not 0 <= position.step <= _MOST_STEPS:
        raise ModelError(f"its step is {position.step}")
    for name in ("best", "seconds"):
        if not 0 <= values[name] < math.inf:  # type: ignore[operator]
            raise ModelError(f"its {name} is {values[name]}")
    return position
