"""Models by name or by file."""

from __future__ import annotations

from pathlib import Path

from ..errors import ModelError
from ..io.weights import read_weights, write_weights
from ..model import StereoModel
from .census import census_model

DEFAULT_MODEL = "general"

_HAND_SET = {"census": census_model}
# Trained with `tools/train_models.sh`; what each is good for is in docs/models.md.
SHIPPED = Path(__file__).parent
"""The folder of the trained models that come with the package."""


def available_models() -> list[str]:
    """Names that `load_model` knows, the default first."""
    names = {*_HAND_SET, *(path.stem for path in SHIPPED.glob("*.h5"))}
    return sorted(names, key=lambda name: (name != DEFAULT_MODEL, name))


def load_model(name: str) -> StereoModel:
    """The built-in model of that name, or the model stored in that file."""
    if name in _HAND_SET:
        return _HAND_SET[name]()
    path = Path(name)
    if name in available_models():
        path = SHIPPED / f"{name}.h5"
    elif not path.exists() and path.suffix == "":
        raise ModelError(
            f"There is no model '{name}'",
            f"Built-in models: {', '.join(available_models())}; or give the path of an .h5 file",
        )
    return StereoModel.from_file(read_weights(path), name)


def save_model(path: str | Path, model: StereoModel) -> None:
    """Write a model file; an existing file is replaced only when the new one is complete."""
    stored = model.to_file()
    write_weights(path, stored.config, stored.tensors)
