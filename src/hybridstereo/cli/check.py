"""`hstereo check` on the command line, and how findings about a pair are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .exits import EXIT_FAILURE
from .options import device_option, max_pixels_option, threads_option
from .text import with_flags

if TYPE_CHECKING:
    from ..pair_check import Finding


@click.command(short_help="Say what is wrong with a pair before it is matched.")
@click.argument("left")
@click.argument("right")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--strict", is_flag=True, help="Exit with code 1 if anything is found.")
@max_pixels_option
@device_option
@threads_option
def check(
    left: str,
    right: str,
    as_json: bool,
    strict: bool,
    device: str,
    threads: int | None,
) -> None:
    """Say what is wrong with a pair before it is matched.

    Found are views that are blank, identical, swapped or do not belong together, and a right view
    that is too high or too low, turned, of another size or of another exposure; each with the
    figure that was measured and what helps. 'hstereo infer' checks every pair like this.
    """
    from ..io.images import read_pair
    from ..models.zoo import SCOUT_MODEL
    from ..stereo import Stereo
    from .infer import infer

    pair = read_pair(left, right)
    findings = Stereo(SCOUT_MODEL, device, threads).check(*pair)
    if as_json:
        height, width, _ = pair[0].shape
        found = finding_reports(findings, infer)
        click.echo(json.dumps({"width": width, "height": height, "check": found}))
    else:
        for finding in findings:
            click.echo(f"{finding.code}: {with_flags(finding.describe(), infer)}")
        if not findings:
            click.echo("nothing found")
    if findings and strict:
        click.get_current_context().exit(EXIT_FAILURE)


def tell_findings(findings: list[Finding], strict: bool, message: Callable[[str], None]) -> None:
    """Give each finding to ``message``, with the options of the running command.

    Raises
    ------
    InputError
        With all findings, if there are any and ``strict`` is set.
    """
    if findings and strict:
        raise InputError(" ".join(finding.describe() for finding in findings).removesuffix("."))
    command = click.get_current_context().command
    for finding in findings:
        message(f"hstereo: {with_flags(finding.describe(), command)}")


def finding_reports(
    findings: Iterable[Finding], command: click.Command | None = None
) -> list[dict[str, Any]]:
    """Findings for JSON, with the options of ``command``, by default the running one."""
    command = command or click.get_current_context().command
    return [{**x.as_dict(), "hint": with_flags(x.hint, command)} for x in findings]
