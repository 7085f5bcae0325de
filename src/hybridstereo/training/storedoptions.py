"""Whether options that come from a file are such as a program could have stored."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

# The numbers that must be at least one, or more than nothing; all others may be zero.
_AT_LEAST_ONE = {
    "layers", "filters", "steps", "batch", "iterations", "disparities", "validate_every",
    "checkpoint_every", "crop",
}  # fmt: skip
_POSITIVE = {"epochs", "minutes", "lr"}
_BELOW_ONE = {"momentum", "val_fraction"}
_LARGEST = 2**53


def wrong_option(options: Any, choices: Mapping[str, Sequence[str]]) -> str | None:
    """The name of the first attribute that has a wrong type or an impossible value, if any.

    Parameters
    ----------
    options
        An instance of a dataclass, whose annotations say which types are right; lists stand for
        tuples, as in JSON.
    choices
        The values that texts may have.
    """
    hints = typing.get_type_hints(type(options))
    for name, value in vars(options).items():
        if not _fits(value, hints[name]):
            return name
        if name in choices and value not in choices[name]:
            return name
        numbers = value if name == "crop" and value is not None else [value]
        if not all(_is_possible(name, x) for x in numbers if isinstance(x, int | float)):
            return name
    return None


def _fits(value: object, hint: Any) -> bool:
    """Whether a value from a JSON file has a type, a tuple being a list there."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(_fits(x, arguments[0]) for x in value)
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if origin is not None and issubclass(origin, Mapping):
        keys, values = arguments
        return isinstance(value, Mapping) and all(
            _fits(key, keys) and _fits(one, values) for key, one in value.items()
        )
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, list | tuple) and all(_fits(x, arguments[0]) for x in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is hint or (hint is type(None) and value is None)


def _is_possible(name: str, value: float) -> bool:
    """Whether a number lies where the option of that name can lie."""
    if not math.isfinite(value) or abs(value) > _LARGEST:
        return False
    if name in _AT_LEAST_ONE:
        return value >= 1
    if name in _POSITIVE:
        return value > 0
    return 0 <= value < 1 if name in _BELOW_ONE else value >= 0
