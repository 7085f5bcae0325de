"""`hstereo bench` on the command line."""

from __future__ import annotations

import json
from typing import Any

import click

from ..limits import ITERATIONS, LABELS, LAYERS, REPEATS, SIDE
from .options import CommaSeparated, announce_device, device_option, number_type, threads_option
from .progress import Progress


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
    type=click.IntRange(0, 2),
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
@device_option
@threads_option
@click.option(
    "--compare",
    type=CommaSeparated(click.Choice(["sgbm", "torch"])),
    default=(),
    show_default=False,
    metavar="sgbm,torch",
    help="Also time OpenCV's SGBM (8 paths) or the same Unary-CNN in PyTorch, in turns with ours.",
)
@click.option(
    "--scaling",
    is_flag=True,
    help="Also double the pixels, then the labels, step by step up to the given size and fit the "
    "exponents with which the times grow.",
)
@click.option("--plot", metavar="FILE.png", help="Also draw a bar chart.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def bench(
    size: str | None,
    width: int | None,
    height: int | None,
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
