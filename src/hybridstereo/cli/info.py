"""`hstereo info` on the command line."""

from __future__ import annotations

import json

import click

from .text import format_info


@click.command(short_help="Show versions, devices, memory and models.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(as_json: bool) -> None:
    """Show versions, CPU and CUDA devices, threads, memory and the built-in models."""
    from ..models.zoo import describe_models
    from ..system import collect_info
    from .infer import infer

    collected = {**collect_info(), "models": describe_models()}
    click.echo(json.dumps(collected) if as_json else format_info(collected, infer))
