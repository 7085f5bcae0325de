"""What the library says, in the words of the command line."""

from __future__ import annotations

import re
from typing import Any

import click

_ARGUMENT = re.compile(r"`(?P<name>[A-Za-z_]\w*)(?:=(?P<value>[^`]*))?`")
_QUOTES = "'\""


def with_flags(text: str, command: click.Command) -> str:
    """Replace Python arguments in backticks by the options of ``command``.

    The library names arguments as Python callers know them.  `` `disparities=96` `` becomes
    ``--disparities 96`` and `` `min_disparity` `` becomes ``--min-disparity``; `` `refine=False` ``
    becomes ``--no-refine``.  An argument that is no option of the command stays as a plain word.

    Parameters
    ----------
    text
        A message of the library.
    command
        The command that the user gave.
    """

    def spelled(argument: re.Match[str]) -> str:
        name, value = argument["name"], argument["value"]
        option = _find_option(name, command)
        return argument[0].strip("`") if option is None else _as_flag(option, name, value)

    return _ARGUMENT.sub(spelled, text)


def say(text: str) -> None:
    """Print a message of the library about the running command on standard error."""
    click.echo(with_flags(text, click.get_current_context().command), err=True)


def _find_option(name: str, command: click.Command) -> click.Option | None:
    """The option with the flag ``--name``, or else the one that sets the parameter ``name``."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    by_flag = [option for option in options if _flag_of(name) in option.opts]
    by_parameter = [option for option in options if option.name == name]
    return next(iter(by_flag + by_parameter), None)


def _flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _as_flag(option: click.Option, name: str, value: str | None) -> str:
    flag = _flag_of(name) if _flag_of(name) in option.opts else max(option.opts, key=len)
    if value is None or (option.is_flag and value == "True"):
        return flag
    if value == "False" and option.secondary_opts:
        return option.secondary_opts[0]
    return f"{flag} {value.strip(_QUOTES)}"


def format_info(info: dict[str, Any], command: click.Command) -> str:
    """What `hstereo info` prints, from `collect_info` and `describe_models`.

    Parameters
    ----------
    info
        What was collected.
    command
        The command whose options any advice should name.
    """
    from ..system import format_bytes

    memory = info["memory"]
    sizes = [
        f"{format_bytes(memory[key])} {word}"
        for key, word in (("total_bytes", "in all"), ("available_bytes", "available"))
        if memory[key] is not None
    ]
    cuda = info["cuda"]
    rows = [
        ("hybridstereo", info["hybridstereo"]),
        ("python", f"{info['python']} on {info['platform']}"),
        ("packages", ", ".join(f"{k} {v}" for k, v in info["packages"].items())),
        ("cpu", f"{info['cpu']['name']}, {info['cpu']['cores']} cores"),
        ("threads", f"{info['cpu']['threads']} (change with --threads or NUMBA_NUM_THREADS)"),
        ("memory", ", ".join(sizes) or "unknown"),
    ]
    if cuda["devices"]:
        rows.append(("cuda devices", "; ".join(cuda["devices"])))
    rows.append(("cuda", "usable" if cuda["usable"] else f"not usable: {cuda['reason']}"))
    if not cuda["usable"]:
        rows.append(("", f"{with_flags(cuda['fix'], command)}."))
    rows.append(("cache", format_cache(info["cache"])))
    about = [line for name, model in info["models"].items() for line in _about(name, model)]
    rows += [("" if index else "models", line) for index, line in enumerate(about)]
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)


def format_cache(cache: dict[str, Any]) -> str:
    """The line about the compiled kernels that are kept, from `describe_cache`."""
    from ..system import format_bytes

    contents = f"{cache['kernels']} compiled kernels, {format_bytes(cache['bytes'])}"
    state = "used" if cache["used"] else f"not used: {cache['problem']}"
    return f"{cache['folder'] or 'no folder'}: {contents}, {state}"


def _about(name: str, model: dict) -> list[str]:
    """The lines about a model: what it is, and where it comes from if that is known."""
    default = " (default)" if model["default"] else ""
    lines = [
        f"{name}{default}: {model['description']};"
        f" {model['layers']} layers, {model['parameters']:,} parameters"
    ]
    if model["trained_on"]:
        lines.append(f"  trained on {model['trained_on']} ({model['trained_date']})")
    if model["validation"]:
        lines.append(f"  on scenes it never saw: {model['validation']}")
    if model["licence"]:
        lines.append(f"  {model['licence']}")
    return lines
