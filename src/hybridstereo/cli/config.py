"""`hstereo config` on the command line."""

from __future__ import annotations

import json
from typing import Any

import click

from .settings import Settings, closest, default_file, variable_of


@click.command(short_help="Show which defaults are set, and where.")
@click.argument("command", required=False)
@click.option("--all", "everything", is_flag=True, help="Also show what is not set.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def config(ctx: click.Context, command: str | None, everything: bool, as_json: bool) -> None:
    """Show the defaults of options that are in force, of one COMMAND or of all.

    Options can be set in a TOML file, for all commands at its top and for one in a table of its
    name, and by environment variables, HSTEREO_<OPTION> and HSTEREO_<COMMAND>_<OPTION>. The command
    line beats the environment, which beats the file. 'hstereo --config FILE' or HSTEREO_CONFIG
    names another file.
    """
    settings: Settings = ctx.find_root().obj
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    if command is not None and command not in group.commands:
        raise click.UsageError(
            f"There is no command '{command}'. {closest(command, group.commands)}"
        )
    names = list(group.commands) if command is None else [command]
    rows = [
        row
        for name in names
        for row in _rows(name, group.commands[name], settings)
        if everything or row["origin"] != "default"
    ]
    if as_json:
        file = {"path": str(settings.file or ""), "is_there": settings.is_there}
        click.echo(json.dumps({"file": file, "options": rows, "unknown": settings.unknown}))
        return
    state = "" if settings.is_there else ", which is not there"
    click.echo(f"file: {settings.file}{state}" if settings.file else "file: none")
    for variable in settings.unknown:
        click.echo(f"hstereo: {variable} is no option of any command.", err=True)
    width = max((len(f"{x['command']} {x['option']}") for x in rows), default=0)
    for row in rows:
        click.echo(f"{row['command'] + ' ' + row['option']:<{width}}  {_text(row)}")
    if not rows:
        example = settings.file or default_file()
        click.echo(f"nothing is set; for example, put 'threads = 2' into {example}")


def _rows(name: str, command: click.Command, settings: Settings) -> list[dict[str, Any]]:
    """Every option of a command with its value in force and where that comes from."""
    found = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_eager:
            continue
        setting = settings.of.get(name, {}).get(str(option.name))
        default = option.to_info_dict().get("default")
        plain = default if isinstance(default, str | int | float | bool) else None
        found.append(
            {
                "command": name,
                "option": max(option.opts, key=len),
                "value": plain if setting is None else setting.value,
                "origin": "default" if setting is None else setting.origin,
                "variable": variable_of(option, name),
            }
        )
    return found


def _text(row: dict[str, Any]) -> str:
    value = " ".join(row["value"]) if isinstance(row["value"], list) else row["value"]
    return f"{'' if value is None else value}  [{row['origin']}]"
