"""How it goes with many pairs: a line for each, a bar, and what is said when all are done."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .check import finding_reports
from .exits import EXIT_INCOMPLETE
from .infer_depth import rig_report
from .infer_report import MANY_AT_ENDS, Tell
from .progress import Progress, format_duration
from .text import with_flags

if TYPE_CHECKING:
    from ..batch.work import PairOutcome

_NAMED = 3  # pairs that the closing lines name
_GOING_ON = "--skip-existing leaves out pairs whose files are all there."
_FARTHER = "A --depth in .npy or .tif holds any depth."


def tell_pairs(
    run: Callable[[Tell], Generator[PairOutcome, None, None]],
    total: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print each outcome when it is there, how far the work is, and how it went in all.

    ``run`` begins the work, and may say something about it between the outcomes.  If ``quiet``,
    only failures are told beside what goes to standard output.
    """
    begun = time.monotonic()
    counts: Counter[str] = Counter()
    notes = _Notes()
    try:
        with Progress(io.StringIO() if quiet else None) as progress, ExitStack() as stack:
            _show(progress, counts, total, 0.0, "")
            outcomes = stack.enter_context(closing(run(progress.message)))
            for outcome in outcomes:
                counts[outcome.status] += 1
                if as_json:
                    progress.result(json.dumps(_report(outcome)))
                fail = partial(click.echo, err=True) if quiet else progress.message
                _tell_outcome(outcome, as_json, progress, fail)
                notes.add(outcome)
                seconds = time.monotonic() - begun
                _show(progress, counts, total, seconds, outcome.pair.name)
    except KeyboardInterrupt:
        click.echo(
            f"hstereo: stopped after {_counted(counts['done'])}; with --skip-existing the same "
            "command goes on from there.",
            err=True,
        )
        raise
    if not quiet:
        notes.tell()
        _tell_sum(counts, time.monotonic() - begun)
    if counts["failed"]:
        click.get_current_context().exit(EXIT_INCOMPLETE)


def _show(
    progress: Progress, counts: Counter[str], total: int | None, seconds: float, name: str
) -> None:
    """How far the work is; pairs that were skipped took no time and count as if they were not."""
    worked = counts["done"] + counts["failed"]
    rate = f"  {worked / seconds:.2g} pairs/s" if worked and seconds > 0 else ""
    if total is None:
        progress.stage(f"{_counted(worked)}{rate}")
        return
    left = total - counts["skipped"]
    fraction = worked / left if left else 1.0
    progress.advance(fraction, f"{counts.total()}/{total} {name}{rate}".rstrip())


def _tell_outcome(outcome: PairOutcome, as_json: bool, progress: Progress, fail: Tell) -> None:
    """What is written, on standard output, and what is wrong, on standard error."""
    command, name = click.get_current_context().command, outcome.pair.name
    if outcome.error is not None:
        problem = with_flags(str(outcome.error), command)
        fail(f"hstereo: {name} failed: {problem}")
        return
    for finding in outcome.findings or ():
        progress.message(f"hstereo: {name}: {with_flags(finding.describe(), command)}")
    if not as_json and outcome.status == "done":
        for files in outcome.files.values():
            for path in files:
                progress.result(path)


def _report(outcome: PairOutcome) -> dict[str, Any]:
    """The line that ``--json`` prints about a pair."""
    pair, error = outcome.pair, outcome.error
    about = {"name": pair.name, "left": pair.left, "right": pair.right, "status": outcome.status}
    if error is not None:
        command = click.get_current_context().command
        hint = None if error.hint is None else with_flags(error.hint, command)
        return {**about, "error": with_flags(error.message, command), "hint": hint}
    written = {
        "outputs": {kind: files[0] for kind, files in outcome.files.items()},
        "files": [path for files in outcome.files.values() for path in files],
    }
    if outcome.status == "skipped":
        return {**about, **written}
    findings = outcome.findings
    check = None if findings is None else finding_reports(findings)
    return {
        **about,
        **outcome.kept,
        **written,
        "check": check,
        "rig": rig_report(outcome.rig),
    }


class _Notes:
    """What is said once, after all pairs, and not again and again."""

    def __init__(self) -> None:
        self._at_ends: list[str] = []
        self._not_found: list[str] = []
        self._beyond: list[str] = []
        self._no_unit: list[str] = []
        self._replaced: list[str] = []

    def add(self, outcome: PairOutcome) -> None:
        """Remember a pair about which there is something to say."""
        if outcome.status != "done":
            return
        labels = outcome.kept["labels"]
        if labels["at_ends"] > MANY_AT_ENDS:
            self._at_ends.append(outcome.pair.name)
        if labels["from"] == "model":
            self._not_found.append(outcome.pair.name)
        if outcome.beyond:
            self._beyond.append(outcome.pair.name)
        if outcome.rig is not None and not outcome.rig.unit_known:
            self._no_unit.append(outcome.pair.name)
        if outcome.replaced:
            self._replaced.append(outcome.pair.name)

    def tell(self) -> None:
        """Say it."""
        longer = "Give more --disparities, or another --min-disparity."
        ranges = "If that is wrong, give --disparities and --min-disparity."
        for names, problem, advice in (
            (self._not_found, "showing too little to find the range, the model's searched", ranges),
            (self._at_ends, "with many pixels at an end of the range, maybe too short", longer),
            (self._beyond, "with points beyond 65.535 m, as far as 16 bits reach", _FARTHER),
            (self._replaced, "with files that were there already, now replaced", _GOING_ON),
            (self._no_unit, "whose baseline was taken for millimetres", "Else give --unit."),
        ):
            if names:
                some = ", ".join(names[:_NAMED]) + (" ..." if len(names) > _NAMED else "")
                click.echo(
                    f"hstereo: {_counted(len(names))} {problem} ({some}). {advice}", err=True
                )


def _tell_sum(counts: Counter[str], seconds: float) -> None:
    parts = [f"{counts[x]} {x}" for x in ("done", "skipped", "failed") if counts[x]]
    rate = f", {counts['done'] / seconds:.2g} pairs/s" if counts["done"] and seconds > 0 else ""
    click.echo(
        f"hstereo: {_counted(counts.total())}: {', '.join(parts) or 'nothing to do'} in "
        f"{format_duration(seconds)}{rate}",
        err=True,
    )


def _counted(number: int) -> str:
    return f"{number} pair" if number == 1 else f"{number} pairs"
