"""Whether the options of a training can be used, whoever wrote them: a caller or a config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError, shortened
from ..limits import SIDE, TRAINING
from ..model import SOFTMAXES
from ..models.zoo import STAGES
from .optim import OPTIMISERS, SCHEDULES
from .steps import LOSSES
from .validation import CRITERIA

_CHOICES = {
    "stage": (*STAGES, "all"),
    "softmax": SOFTMAXES,
    "optimizer": tuple(OPTIMISERS),
    "schedule": SCHEDULES,
    "loss": LOSSES,
    "criterion": tuple(CRITERIA),
}
_FLAGS = (
    "with_xy",
    "rectify",
    "augment",
    "nesterov",
    "soft_target",
    "infer_unknown",
    "keep_edges",
)
# Of 2x2 numbers each, with a momentum each: what fits into the file of a checkpoint, 1 GiB.
_MOST_KERNELS = 1 << 25
_OPTIONAL = frozenset(
    {
        "layers",
        "pyramid",
        "softmax",
        "init",
        "epochs",
        "steps",
        "minutes",
        "batch",
        "lr",
        "disparities",
    }
)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of `TrainOptions`, by name, that no training can have.

    Raises
    ------
    InputError
        About the first that is of a wrong type, unknown or out of range.
    """
    for name, limits in TRAINING.items():
        if options[name] is not None or name not in _OPTIONAL:
            limits.check(options[name], f"`{name}` is")
    layers, filters = options["layers"] or 1, options["filters"]
    if layers * filters**2 > _MOST_KERNELS:
        raise InputError(
            f"{layers} layers of {filters} filters make a network that no checkpoint can hold",
            "Use fewer `layers` or `filters`",
        )
    for name, choices in _CHOICES.items():
        if options[name] not in choices and not (options[name] is None and name in _OPTIONAL):
            raise InputError(
                f"`{name}` is {shortened(options[name])}", f"Use one of {', '.join(choices)}"
            )
    for name in _FLAGS:
        if not isinstance(options[name], bool):
            raise InputError(f"`{name}` is {shortened(options[name])}", "Use True or False")
    for name in ("dataset", "init"):
        if not isinstance(options[name], str) and not (name == "init" and options[name] is None):
            raise InputError(f"`{name}` is {shortened(options[name])}, not a name")
    if not _are_roots(options["roots"]):
        raise InputError(f"The `root` of the data is {shortened(options['roots'])}")
    for name in ("val_scenes", "test_scenes"):
        if not _are_names(options[name]):
            raise InputError(f"`{name}` is {shortened(options[name])}", "Give the names of scenes")
    crop = options["crop"]
    if crop is not None and not (
        isinstance(crop, tuple | list) and len(crop) == 2 and all(side in SIDE for side in crop)
    ):
        raise InputError(f"`crop` is {shortened(crop)}", "Give height and width in pixels")


def _are_names(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)


def _are_roots(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _are_roots(root) for name, root in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_is_path(root) for root in value)
    return value is None or _is_path(value)


def _is_path(value: object) -> bool:
    return isinstance(value, str) or hasattr(value, "__fspath__")
