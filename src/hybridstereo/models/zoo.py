"""Models by name, by file, or by the folder of a training run."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelError
from ..io.weights import read_weights, write_weights
from ..model import PROVENANCE, StereoModel
from .census import census_model

DEFAULT_MODEL = "general"

SCOUT_MODEL = "general-fast"
"""The model that finds the disparity range of a pair; small, so that it costs next to nothing."""

BEST_MODEL = "best.h5"
"""The file of a run folder that holds the best model so far."""

STAGES = ("unary", "crf", "joint", "full")
"""The stages of training, in order; the result of each is a file of the run folder."""

SHIPPED = Path(__file__).parent
"""The folder of the trained models that come with the package."""

_HAND_SET = {"census": census_model}


def available_models() -> list[str]:
    """Names that `load_model` knows, the default first."""
    names = {*_HAND_SET, *(path.stem for path in SHIPPED.glob("*.h5"))}
    return sorted(names, key=lambda name: (name != DEFAULT_MODEL, name))


def load_model(name: str | os.PathLike[str]) -> StereoModel:
    """Load a model.

    Parameters
    ----------
    name
        The name of a built-in model, the path of a model file, or the folder of a training run,
        whose best model is taken.  A name wins over a file of the same name; a path object is
        never a name.

    Raises
    ------
    ModelError
        If there is no such model, or its file cannot be used.
    """
    if isinstance(name, str):
        if name in _HAND_SET:
            return _HAND_SET[name]()
        if name in available_models():
            return _read(SHIPPED / f"{name}.h5", name)
    elif not isinstance(name, os.PathLike):
        raise ModelError(
            f"A {type(name).__name__} names no model",
            f"Built-in models: {', '.join(available_models())}; or give a path",
        )
    path = Path(name)
    # Not methods of Path: those raise if the name is too long for the system.
    if os.path.isdir(path):
        return _read(_best_of_run(path), str(path))
    if not os.path.exists(path) and path.suffix == "":
        raise ModelError(
            f"There is no model '{name}'",
            f"Built-in models: {', '.join(available_models())};"
            " or give the path of an .h5 file or of a run folder",
        )
    return _read(path, str(name))


def stage_model(folder: str | os.PathLike[str], stage: str) -> Path:
    """The file of a run folder that holds the result of a finished stage."""
    return Path(folder) / f"{stage}.h5"


def describe_models() -> dict[str, dict[str, object]]:
    """The built-in models by name: what they are and where they come from, ready for JSON."""
    described = {}
    for name in available_models():
        model = load_model(name)
        described[name] = {
            "description": model.config.description,
            "layers": len(model.unary),
            "parameters": model.parameter_count,
            **{key: getattr(model.config, key) for key in PROVENANCE},
            "default": name == DEFAULT_MODEL,
        }
    return described


def save_model(path: str | os.PathLike[str], model: StereoModel) -> None:
    """Write a model file; an existing file is replaced only when the new one is complete."""
    stored = model.to_file()
    write_weights(path, stored.config, stored.tensors)


def _read(path: Path, name: str) -> StereoModel:
    return StereoModel.from_file(read_weights(path), name)


def _best_of_run(folder: Path) -> Path:
    best = folder / BEST_MODEL
    if not os.path.isfile(best):
        raise ModelError(
            f"The folder {folder} holds no model: it has no {BEST_MODEL}",
            "Give the folder of a training run that has been validated, or the path of an .h5 file",
        )
    return best
