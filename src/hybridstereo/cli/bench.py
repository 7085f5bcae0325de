"""`hstereo bench` on the command line."""

from __future__ import annotations

import json
from typing import Any

import click
from click.core import ParameterSource

from ..limits import COUNT, ITERATIONS, LABELS, LAYERS, REPEATS, SIDE
from .options import (
    CommaSeparated,
    OutputOption,
    WholeRange,
    announce_device,
    device_option,
    max_pixels_option,
    number_type,
    threads_option,
)
from .progress import Progress

# What sets the amount of work, which a data set does by itself.
_SIZE_OPTIONS = ("size", "width", "height", "disparities", "layers", "pyramid", "iterations")


@click.command(short_help="Time every stage: the paper's table for this machine.")
@click.option(
    "--size",
    type=click.Choice(["kitti", "middlebury-h", "realtime"]),
    help="Image size and the paper's settings for it: kitti 1242x375, 128 disparities, 7 layers, "
    "5 iterations; middlebury-h 1500x1000, 256 disparities; realtime 640x480, 128 disparities, "
    "3 layers, 4 iterations. Other options take precedence.  [default: kitti]",
)
@click.option("--width", type=number_type(SIDE), metavar="N", help="Columns, instead of --size.")
@click.option("--height", type=number_type(SIDE), metavar="N", help="Rows, instead of --size.")
@click.option(
    "--disparities",
    type=CommaSeparated(number_type(LABELS)),
    metavar="N[,N...]",
    help="Numbers of labels, one table each.  [default: the size's]",
)
@click.option(
    "--layers",
    type=number_type(LAYERS),
    metavar="3|7|N",
    help="Layers of the Unary-CNN.  [default: the size's]",
)
@click.option(
    "--pyramid",
    type=WholeRange(0, 2),
    metavar="0|1|2",
    help="Coarser levels of the model, which the paper does not have.  [default: 0]",
)
@click.option(
    "--iterations",
    type=number_type(ITERATIONS),
    metavar="N",
    help="Iterations of the CRF solver.  [default: the size's]",
)
@click.option(
    "--repeat",
    type=number_type(REPEATS),
    default=5,
    metavar="N",
    help="Runs to take the median of, after a warm-up that compiles.",
)
@max_pixels_option
@device_option
@threads_option
@click.option(
    "--compare",
    type=CommaSeparated(click.Choice(["sgbm", "sgbm-3way", "elas", "torch"])),
    default=(),
    show_default=False,
    metavar="NAME[,NAME...]",
    help="Also time others, in turns with ours: sgbm (OpenCV's, 8 paths), sgbm-3way (3 paths), "
    "elas (libelas, if pyelas is installed), torch (the same Unary-CNN in PyTorch, if "
    "that is).",
)
@click.option(
    "--pairs",
    type=number_type(COUNT),
    metavar="N",
    help="Also run N pairs through 'infer --pairs' and, as frames, through 'stream': pairs and "
    "frames per second, files included, and the latency of frames.",
)
@click.option(
    "--root",
    metavar="NAME=DIR",
    help="Measure time and accuracy on a data set instead, by the rules of 'hstereo eval NAME': "
    "kitti=DIR, middlebury=DIR, csv=FILE, or synthetic. --plot then draws one against the other.",
)
@click.option(
    "--model",
    metavar="NAME|FILE|DIR",
    multiple=True,
    help="With --root: model to measure; may be repeated.  [default: general, general-fast]",
)
@click.option(
    "--limit", type=number_type(COUNT), metavar="N", help="With --root: only the first N scenes."
)
@click.option(
    "--scaling",
    is_flag=True,
    help="Also double the pixels, then the labels, step by step up to the given size and fit the "
    "exponents with which the times grow.",
)
@click.option("--plot", cls=OutputOption, metavar="FILE.png", help="Also draw a chart.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def bench(
    size: str | None,
    width: int | None,
    height: int | None,
    root: str | None,
    model: tuple[str, ...],
    limit: int | None,
    plot: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Time every stage of the model on this machine, as in the paper's timing table.

    A generated stereo pair and random weights are used: neither changes the time. GFLOP/s and
    GB/s stand beside the peaks of this machine, measured in the same run. Close other programs
    for figures that mean something.
    """
    if (width is None) != (height is None):
        raise click.UsageError("--width and --height belong together.")
    if size is not None and width is not None:
        raise click.UsageError("Give either --size or --width and --height.")
    if root is not None:
        given = {**options, "size": size, "width": width, "height": height}
        _refuse_sizes(given)
        others = {name: options[name] for name in ("compare", "device", "threads")}
        _bench_dataset(root, plot, as_json, model=model, limit=limit, **others)
        return
    context = click.get_current_context()
    for name in ("model", "limit"):  # a default from the user's settings is for other commands
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} belongs to --root.")
    from ..bench.run import BenchOptions
    from ..bench.run import bench as run
    from ..bench.text import draw_report, format_report
    from ..io.images import check_image_output, write_image

    if plot is not None:
        check_image_output(plot)
    announce_device(options["device"])
    with Progress() as progress:
        report = run(BenchOptions(size or "kitti", width, height, **options), progress.stage)
    if plot is not None:
        write_image(plot, draw_report(report))
    if as_json:
        click.echo(json.dumps({**report.as_dict(), "plot": plot}))
    else:
        click.echo(format_report(report))


def _refuse_sizes(given: dict[str, Any]) -> None:
    """A data set has its own images and models, which the options about sizes cannot change."""
    wrong = [name for name in (*_SIZE_OPTIONS, "pairs") if given[name] is not None]
    if wrong or given["scaling"]:
        flag = f"--{wrong[0]}" if wrong else "--scaling"
        raise click.UsageError(f"With --root the data set sets the sizes: leave out {flag}.")


def _bench_dataset(root: str, plot: str | None, as_json: bool, **options: Any) -> None:
    """Time beside accuracy."""
    from ..bench.accuracy import AccuracyOptions, speed_accuracy
    from ..bench.accuracy_text import draw_accuracy, format_accuracy
    from ..datasets import NAMES
    from ..io.images import check_image_output, write_image

    name, _, folder = root.partition("=")
    if name not in NAMES:
        raise click.UsageError(
            f"--root {root} does not say which data set it is: write kitti={root}, for example."
        )
    if plot is not None:
        check_image_output(plot)
    announce_device(options["device"])
    with Progress() as progress:

        def show(done: int, total: int, scene: str, method: str) -> None:
            progress.advance(done / total, f"{done}/{total} {scene}, {method}")

        roots = (folder,) if folder else None
        report = speed_accuracy(name, roots, AccuracyOptions(**options), show)
    if plot is not None:
        write_image(plot, draw_accuracy(report))
    click.echo(
        json.dumps({**report.as_dict(), "plot": plot}) if as_json else format_accuracy(report)
    )
