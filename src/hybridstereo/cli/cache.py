"""`hstereo cache` on the command line."""

from __future__ import annotations

import click

from .text import format_cache


@click.command(short_help="Show or clear the compiled kernels that are kept.")
@click.option("--clear", is_flag=True, help="Remove the kernels of all versions.")
def cache(clear: bool) -> None:
    """Show where compiled kernels are kept, how many, and whether they are used.

    They are in the user's cache folder, or where the environment variable HSTEREO_CACHE_DIR says.
    A kernel that is not there is compiled when it is needed; nothing else is lost by clearing.
    Kernels that were not used for 30 days are removed when others are added.
    """
    from ..kernelcache import clear_cache, describe_cache
    from ..system import format_bytes

    if clear:
        click.echo(f"hstereo: freed {format_bytes(clear_cache())}.", err=True)
    click.echo(format_cache(describe_cache()))
