"""Models by name or by file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .census import census_model
from .errors import ModelError
from .io.weights import read_weights, write_weights
from .model import StereoModel

DEFAULT_MODEL = "census"

_BUILT_IN: dict[str, Callable[[], StereoModel]] = {"census": census_model}


def available_models() -> list[str]:
    """Names that `load_model` knows."""
    return sorted(_BUILT_IN)


def load_model(name: str) -> StereoModel:
    """The built-in model of that name, or the model stored in that file."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    if not Path(name).exists() and Path(name).suffix == "":
        raise ModelError(
            f"There is no model '{name}'",
            f"Built-in models: {', '.join(available_models())}; or give the path of an .h5 file",
        )
    return StereoModel.from_file(read_weights(name), name)


def save_model(path: str | Path, model: StereoModel) -> None:
    """Write a model file; an existing file is replaced only when the new one is complete."""
    stored = model.to_file()
    write_weights(path, stored.config, stored.tensors)
