"""Defaults of options from a TOML file and from the environment.

What the command line says comes first, then ``HSTEREO_<COMMAND>_<OPTION>``, then
``HSTEREO_<OPTION>``, then the command's table in the file, then the top of the file, then the
default of the option itself.  click takes them from its ``default_map``.
"""

from __future__ import annotations

import difflib
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..errors import InputError, shortened

PREFIX = "HSTEREO_"
FILE_VARIABLE = "HSTEREO_CONFIG"
"""Names the file, instead of the user's own; empty for no file at all."""
_OTHER_VARIABLES = {FILE_VARIABLE, "HSTEREO_CACHE_DIR"}
_MOST_BYTES = 1 << 20
_APPLICATION, _FILE = "hybridstereo", "config.toml"


@dataclass(frozen=True)
class SetDefault:
    """A default that somebody set.

    Attributes
    ----------
    value
        As click takes it: a string, a truth value, or a list of strings.
    origin
        The variable, or the file and the key.
    """

    value: Any
    origin: str


@dataclass(frozen=True)
class Settings:
    """All defaults that are set.

    Attributes
    ----------
    file
        The file that was read, or would be if it were there; None if none is to be read.
    is_there
        Whether it is.
    of
        By command and parameter.
    unknown
        Variables that look like ours and are not.
    """

    file: Path | None
    is_there: bool
    of: dict[str, dict[str, SetDefault]]
    unknown: list[str]

    def default_map(self) -> dict[str, dict[str, Any]]:
        """The values alone, as click wants them."""
        return {
            command: {name: setting.value for name, setting in found.items()}
            for command, found in self.of.items()
        }


def default_file() -> Path:
    """Where the user's own file is, as the platform has it: ~/.config/hybridstereo/config.toml."""
    return Path(click.get_app_dir(_APPLICATION)) / _FILE


def load_settings(
    commands: Mapping[str, click.Command],
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read the file and the environment.

    Parameters
    ----------
    commands
        Whose options may be set.
    file
        A file to read, which must exist; None: the one that ``HSTEREO_CONFIG`` names, else the
        user's own, if it is there.
    environment
        Variables; None: those of the process.

    Raises
    ------
    InputError
        If a file that was named is not there, or a file cannot be used.
    """
    environment = os.environ if environment is None else environment
    named = file if file is not None else environment.get(FILE_VARIABLE)
    path = default_file() if named is None else Path(named) if named else None
    contents: dict[str, Any] = {}
    is_there = path is not None and (named is not None or path.is_file())
    if path is not None and is_there:
        contents = _read_toml(path)
    found = {name: _of_file(contents, name, command, path) for name, command in commands.items()}
    _check_keys(contents, commands, path)
    unknown = []
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in _OTHER_VARIABLES:
            targets = _targets(variable, commands)
            if not targets:
                unknown.append(variable)
    # General variables first: those of a command win.
    for specific in (False, True):
        for variable in sorted(environment):
            for name, option, is_specific in _targets(variable, commands):
                if is_specific == specific:
                    value = _from_text(environment[variable], option)
                    found[name][str(option.name)] = SetDefault(value, variable)
    return Settings(path, is_there, found, unknown)


def check_settings(settings: Settings, name: str, command: click.Command) -> None:
    """Refuse a value that the option of a command does not take, and say where it comes from."""
    context = click.Context(command, info_name=name, resilient_parsing=True)
    for option in _options(command):
        setting = settings.of.get(name, {}).get(str(option.name))
        if setting is None:
            continue
        try:
            option.type_cast_value(context, setting.value)
        except click.BadParameter as error:
            shown = shortened(str(setting.value))
            raise InputError(
                f"{setting.origin} is '{shown}', but {max(option.opts, key=len)} of 'hstereo"
                f" {name}' does not take that: {error.message.removesuffix('.')}"
            ) from error


def key_of(option: click.Option) -> str:
    """The key of an option in the file: its long name without the dashes."""
    return max(option.opts, key=len).lstrip("-").replace("-", "_")


def variable_of(option: click.Option, command: str | None = None) -> str:
    """The variable of an option, for one command or for all."""
    return "_".join(
        [PREFIX.rstrip("_"), *([command.upper()] if command else []), key_of(option).upper()]
    )


def closest(word: str, known: Iterable[str]) -> str:
    """A hint with the most similar known word, or with all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, 1, 0.6)
    return f"Did you mean '{near[0]}'?" if near else f"Known are {', '.join(names)}"


def _options(command: click.Command) -> list[click.Option]:
    return [x for x in command.params if isinstance(x, click.Option) and not x.is_eager]


def _read_toml(path: Path) -> dict[str, Any]:
    from ..io.files import read_file

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    with suppress(OSError):
        if path.stat().st_size == 0:  # as good as none
            return {}
    try:
        return tomllib.loads(read_file(path, _MOST_BYTES).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from error


def _of_file(
    contents: dict[str, Any], name: str, command: click.Command, path: Path | None
) -> dict[str, SetDefault]:
    """What the file sets for a command: the keys at its top, then those of the command's table."""
    table = contents.get(name, {})
    found = {}
    for option in _options(command):
        key = key_of(option)
        for where, place in ((contents, f"{path}: {key}"), (table, f"{path}: {name}.{key}")):
            spelled = next((x for x in (key, key.replace("_", "-")) if x in where), None)
            if spelled is not None and not isinstance(where[spelled], dict):
                found[str(option.name)] = SetDefault(_plain(where[spelled], place), place)
    return found


def _plain(value: Any, place: str) -> Any:
    """A TOML value as somebody would have typed it."""
    if isinstance(value, list):
        return [_plain(x, place) for x in value]
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    raise InputError(f"{place} is a {type(value).__name__}", "Give a string, a number or a list")


def _check_keys(
    contents: dict[str, Any], commands: Mapping[str, click.Command], path: Path | None
) -> None:
    """Refuse keys that set nothing: a slip of the finger would otherwise go unnoticed."""
    everywhere = {key_of(x) for command in commands.values() for x in _options(command)}
    for key, value in contents.items():
        if isinstance(value, dict):
            if key not in commands:
                raise InputError(f"{path}: there is no command '{key}'", closest(key, commands))
            known = {key_of(x) for x in _options(commands[key])}
            for inner in value:
                if inner.replace("-", "_") not in known:
                    raise InputError(
                        f"{path}: 'hstereo {key}' has no option '{inner}'", closest(inner, known)
                    )
        elif key.replace("-", "_") not in everywhere:
            raise InputError(
                f"{path}: no command has an option '{key}'", closest(key, everywhere | {*commands})
            )


def _targets(
    variable: str, commands: Mapping[str, click.Command]
) -> list[tuple[str, click.Option, bool]]:
    """The options that a variable sets: command, option, whether it names the command."""
    if not variable.startswith(PREFIX) or variable in _OTHER_VARIABLES:
        return []
    return [
        (name, option, specific)
        for name, command in commands.items()
        for option in _options(command)
        for specific in (False, True)
        if variable == variable_of(option, name if specific else None)
    ]


def _from_text(text: str, option: click.Option) -> Any:
    """The value of a variable: several are divided by spaces, as in a shell."""
    return shlex.split(text) if option.multiple else text
