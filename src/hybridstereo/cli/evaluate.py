"""`hstereo eval` on the command line."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..limits import COUNT, FACTOR, LABELS
from .completion import DATASETS
from .engines import engine_options, opened_engine, wants_engine
from .exits import EXIT_INCOMPLETE
from .options import (
    CommaSeparated,
    OutputOption,
    announce_device,
    device_option,
    iterations_option,
    max_pixels_option,
    number_type,
    precision_option,
    refine_option,
    threads_option,
)
from .progress import Progress
from .text import say, with_flags

if TYPE_CHECKING:
    from ..engines.tasks import Engine
    from ..evaluation.compare import Comparison, EvalOptions
    from ..evaluation.components import ComponentTable
    from ..evaluation.results import Evaluation, Sink
    from ..evaluation.runner import OnRun


@click.command("eval", short_help="Compare models, baselines and other maps with the truth.")
@click.argument("targets", nargs=-1, metavar="[DATASET | PRED GT]")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="[NAME=]DIR",
    help="Where the data set is, for csv the file; NAME=DIR for the data sets of a mixture. May be "
    "repeated, also for one data set.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[LABEL=]NAME|FILE|DIR",
    help="Built-in model, .h5 file or run folder; may be repeated.  [default: the default model, "
    "unless only --maps or --volumes are given]",
)
@click.option(
    "--baseline",
    "baselines",
    type=CommaSeparated(click.Choice(["sgbm", "sgbm-hh", "sgbm-3way", "bm", "argmax"])),
    default=(),
    show_default=False,
    metavar="NAME[,NAME...]",
    help="Also run OpenCV's sgbm (5 paths, colour), sgbm-hh (8 paths, the best settings known to "
    "us), sgbm-3way (3 paths, the fastest) or bm; argmax: the networks of the models without "
    "their CRF.",
)
@click.option(
    "--pred",
    "--maps",
    "maps",
    multiple=True,
    metavar="[LABEL=]DIR",
    help="Maps by another program, named like the scenes (000010_10.png, Teddy.pfm or "
    "Teddy/disp0*.pfm); may be repeated.",
)
@click.option(
    "--volumes",
    multiple=True,
    metavar="[LABEL=]DIR",
    help="Cost volumes of another matcher (.npy, .h5, .bin), named like the scenes: our CRF runs "
    "on them with the edge weights and penalties of the first --model; may be repeated.",
)
@click.option(
    "--volume-scale",
    type=number_type(FACTOR),
    default=1.0,
    metavar="S",
    help="Factor of the costs in --volumes.",
)
@click.option("--gt", metavar="DIR", help="Truth maps to compare --pred with, without a data set.")
@click.option(
    "--mask",
    metavar="FILE|DIR",
    help="Evaluate where it is white (255): a file for PRED GT, a folder of NAME.png with --gt.",
)
@click.option(
    "--rules",
    type=click.Choice(["kitti", "middlebury", "plain"]),
    help="Rules for maps without a data set: kitti fills holes, middlebury clips to ndisp.  "
    "[default: kitti for PNG truth, middlebury where calib.txt is, else plain]",
)
@click.option(
    "--scenes",
    type=CommaSeparated(click.STRING),
    default=(),
    show_default=False,
    metavar="NAME[,NAME...]",
    help="Only these scenes; '*' stands for anything.",
)
@click.option(
    "--limit", type=number_type(COUNT), metavar="N", help="Only the first N scenes of those."
)
@click.option(
    "--disparities",
    type=number_type(LABELS),
    metavar="N",
    help="Number of labels.  [default: ndisp of calib.txt; 256 for KITTI; enough for the truth]",
)
@click.option(
    "--range",
    "label_range",
    type=click.Choice(["dataset", "auto"]),
    default="dataset",
    help="Labels of our models, unless --disparities says: what the data set's convention is, or "
    "what is found in each pair, as 'hstereo infer' does.",
)
@click.option(
    "--paper-labels",
    is_flag=True,
    help="Round the number of labels up to a power of two, at most 256, as the paper's program.",
)
@iterations_option
@precision_option
@refine_option
@click.option(
    "--rectify",
    is_flag=True,
    help="Correct rows of the right views that lie too high or too low, for every method.",
)
@click.option(
    "--confidence",
    is_flag=True,
    help="How well the models' confidence tells bad pixels: area under the sparsification curve, "
    "density at 1 % error. Their CRF runs for the right view as well.",
)
@click.option(
    "--lr-check",
    is_flag=True,
    help="Score the models' maps without the pixels that the right view does not confirm, beside "
    "their figures with them.",
)
@click.option(
    "--fill",
    is_flag=True,
    help="Score the models' maps with those pixels filled from the background, beside their "
    "figures without filling.",
)
@click.option(
    "--components",
    is_flag=True,
    help="The paper's table: CNN, +CRF, +Joint, +PW, refined and not; with a pyramid, +pyramid as "
    "well. --model names run folders of 'hstereo train', or files as unary=FILE, crf=FILE, "
    "joint=FILE, full=FILE.",
)
@click.option(
    "--submission",
    cls=OutputOption,
    type=(click.Choice(["kitti", "middlebury"]), str),
    metavar="kitti|middlebury DIR",
    help="Run one method on the benchmark's pairs below --root, test pairs included, and write the "
    "files to upload into DIR.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line per scene and method.")
@click.option(
    "--report",
    cls=OutputOption,
    metavar="DIR",
    help="Also write an HTML page with pictures into DIR.",
)
@engine_options
@max_pixels_option
@device_option
@threads_option
@click.pass_context
def evaluate(
    context: click.Context,
    targets: tuple[str, ...],
    roots: tuple[str, ...],
    gt: str | None,
    mask: str | None,
    rules: str | None,
    components: bool,
    submission: tuple[str, str] | None,
    as_json: bool,
    as_csv: bool,
    report: str | None,
    scheduler: str | None,
    workers: int | None,
    **options: Any,
) -> None:
    """Compare disparity maps with the truth, by the rules of the benchmarks.

    With a DATASET (kitti, middlebury, synthetic or csv; --root DIR) models and baselines are run on
    it. With --pred DIR --gt DIR the maps of any other program are compared with the truth, with
    PRED GT one file with another.

    The table goes to standard output, progress to standard error. An image that fails is reported
    and left out of the means; the exit code is then 3.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv both want standard output; choose one.")
    eval_options = _options(options)
    if wants_engine(scheduler, workers) and (submission or components or len(targets) != 1):
        raise click.UsageError(
            "--scheduler and --workers need a DATASET, and do not go with --components or "
            "--submission."
        )
    if submission is not None:
        _submit(context, targets, roots, submission, eval_options)
        return
    _check_targets(targets, gt, mask, rules, components, eval_options)
    sinks = _sinks(report)
    mask_path = None if mask is None else Path(mask)
    table = None
    with (
        Progress() as progress,
        opened_engine(scheduler, workers, eval_options.threads, progress.message) as engine,
    ):
        if len(targets) == 2:
            from ..evaluation.compare import evaluate_file

            compared = evaluate_file(Path(targets[0]), Path(targets[1]), mask_path, rules, sinks)
        elif gt is not None:
            from ..evaluation.compare import evaluate_folders

            compared = evaluate_folders(
                Path(gt), eval_options, mask_path, rules, sinks, _shown_on(progress)
            )
        else:
            compared, table = _dataset(
                targets[0], roots, eval_options, components, sinks, _shown_on(progress), engine
            )
    _print(compared, table, as_json, as_csv)
    if report is not None:
        click.echo(f"hstereo: the report is {Path(report) / 'report.html'}", err=True)
    failed = len(compared.evaluation.failures)
    if failed:
        click.echo(f"hstereo: {failed} of {len(compared.evaluation.results)} failed.", err=True)
        context.exit(EXIT_INCOMPLETE)


def _check_targets(
    targets: tuple[str, ...],
    gt: str | None,
    mask: str | None,
    rules: str | None,
    components: bool,
    options: EvalOptions,
) -> None:
    if len(targets) > 2 or (targets and gt is not None) or not (targets or gt is not None):
        raise click.UsageError("Give one DATASET, or PRED and GT, or --pred DIR and --gt DIR.")
    if len(targets) == 2 and os.path.isdir(targets[1]):  # folders where names of files belong
        first, second = targets
        if first in DATASETS:
            raise click.UsageError(f"Give the folder of a data set as --root {second}.")
        if os.path.isdir(first):
            raise click.UsageError(f"Give folders of maps as --pred {first} --gt {second}.")
    if len(targets) == 1 and (mask is not None or rules is not None):
        raise click.UsageError("A data set has its own masks and rules: leave out --mask, --rules.")
    if components and len(targets) != 1:
        raise click.UsageError("--components needs a DATASET.")
    if options.rectify and len(targets) != 1:
        raise click.UsageError("--rectify needs a DATASET, whose right views it corrects.")
    if options.match.compares_views and (components or len(targets) != 1):
        raise click.UsageError(
            "--confidence, --lr-check and --fill need a DATASET, and do not go with --components."
        )


def _print(compared: Comparison, table: ComponentTable | None, as_json: bool, as_csv: bool) -> None:
    from ..evaluation.components import components_as_dict, format_components
    from ..evaluation.tables import as_dict, format_csv, format_text

    evaluation = _in_flags(compared.evaluation)
    for warning in compared.warnings:
        say(f"hstereo: {warning}.")
    if as_json:
        shown = as_dict(evaluation)
        if table is not None:
            shown["components"] = components_as_dict(evaluation, table)
        click.echo(json.dumps(shown, allow_nan=False))
    elif as_csv:
        click.echo(format_csv(evaluation), nl=False)
    else:
        click.echo(format_text(evaluation, compared.rules))
        if table is not None:
            click.echo("\n" + format_components(evaluation, table, evaluation.primary))


def _in_flags(evaluation: Evaluation) -> Evaluation:
    """The same evaluation, with its errors worded for the command line."""
    command = click.get_current_context().command
    results = [
        result if result.error is None else replace(result, error=with_flags(result.error, command))
        for result in evaluation.results
    ]
    return replace(evaluation, results=results)


def _shown_on(progress: Progress) -> OnRun:
    """Show each run of a method on a scene when it begins."""

    def show(done: int, total: int, scene: str, method: str) -> None:
        progress.advance(done / total, f"{done}/{total} {scene}, {method}")

    return show


def _submit(
    context: click.Context,
    targets: tuple[str, ...],
    roots: tuple[str, ...],
    submission: tuple[str, str],
    options: EvalOptions,
) -> None:
    benchmark, folder = submission
    announce_device(options.device)
    if options.rectify:
        raise click.UsageError("--submission takes the benchmark's own views: leave out --rectify.")
    if targets not in ((), (benchmark,)):
        raise click.UsageError(f"--submission {benchmark} needs no other DATASET.")
    if len(roots) != 1:
        raise click.UsageError("--submission needs one --root DIR.")
    from ..evaluation.compare import submit

    with Progress() as progress:
        root = roots[0].removeprefix(f"{benchmark}=")
        written = submit(benchmark, Path(root), Path(folder), options, _shown_on(progress))
    for warning in written.warnings:
        say(f"hstereo: {warning}.")
    for path in written.files:
        click.echo(path)
    for scene, problem in written.failures:
        say(f"hstereo: {scene} failed: {problem}")
    if written.failures:
        context.exit(EXIT_INCOMPLETE)


def _options(options: dict[str, Any]) -> EvalOptions:
    from ..evaluation.compare import EvalOptions
    from ..options import MatchOptions

    names = (
        *("disparities", "paper_labels", "iterations", "refine", "precision"),
        *("confidence", "lr_check", "fill"),
    )
    match = MatchOptions(**{name: options.pop(name) for name in names})
    if options.pop("label_range") == "auto" and match.disparities is None:
        match = replace(match, disparities="auto")
    return EvalOptions(match=match, **options)


def _sinks(report: str | None) -> list[Sink]:
    if report is None:
        return []
    from ..evaluation.report.html import HtmlReport

    return [HtmlReport(Path(report))]


def _dataset(
    name: str,
    roots: tuple[str, ...],
    options: EvalOptions,
    components: bool,
    sinks: list[Sink],
    on_run: OnRun,
    engine: Engine | None,
) -> tuple[Comparison, ComponentTable | None]:
    from ..datasets import parse_roots
    from ..evaluation.compare import evaluate_components, evaluate_dataset

    announce_device(options.device)

    if components:
        return evaluate_components(name, parse_roots(roots), options, sinks, on_run)
    return evaluate_dataset(name, parse_roots(roots), options, sinks, on_run, engine), None
