"""`hstereo infer` on the command line."""

from __future__ import annotations

import json
from typing import Any

import click

from .options import device_option, iterations_option, refine_option, threads_option
from .progress import Progress


@click.command(short_help="Compute the disparity map of a rectified pair.")
@click.argument("left")
@click.argument("right", required=False)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Disparity map to write; the suffix picks the format: .pfm, .png (KITTI, 16 bit, x256), "
    ".npy or .tif (float). '-' writes PFM to standard output.  "
    "[default: <left>_disparity.pfm in this folder]",
)
@click.option(
    "--color",
    metavar="FILE.png",
    help="Also write a colour picture.  [default: <left>_disparity.png, if -o is not given]",
)
@click.option(
    "--model",
    metavar="NAME|FILE",
    help="Built-in model (see 'hstereo info') or .h5 file.  [default: general]",
)
@click.option(
    "--disparities",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of disparity labels, exactly.  [default: the model's, at most the image's width]",
)
@click.option(
    "--min-disparity",
    type=float,
    metavar="M",
    help="Smallest disparity in pixels, may be negative.  [default: the model's]",
)
@click.option(
    "--step",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Pixels between labels, may be a fraction.  [default: the model's, usually 1]",
)
@click.option(
    "--paper-labels",
    is_flag=True,
    help="Round the number of labels up to a power of two, at most 256, as the paper's program "
    "does: for comparing with published figures.",
)
@iterations_option
@click.option(
    "--method",
    type=click.Choice(["crf", "argmax"]),
    help="CRF, or the best score of the network alone.  [default: the model's, usually crf]",
)
@refine_option
@click.option(
    "--volume",
    metavar="FILE",
    help="Matching costs of another program to use instead of the network's: .npy or .h5 (H, W, K) "
    "or (K, H, W), or MC-CNN's .bin; NaN = unknown. RIGHT is then not needed; edge weights and "
    "penalties are the model's.",
)
@click.option(
    "--volume-scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    metavar="S",
    help="Factor of those costs: the penalties suit costs that differ by up to about 1.",
)
@click.option(
    "--save-volume",
    metavar="FILE",
    help="Write the costs before the CRF, low is good: .npy, .h5 (H, W, K) or .bin (K, H, W).",
)
@click.option(
    "--save-volume-crf", metavar="FILE", help="Write the costs after the CRF, its minorant."
)
@device_option
@threads_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: files, labels, energy, lower bounds, seconds, memory.",
)
def infer(
    left: str,
    right: str | None,
    output: str | None,
    color: str | None,
    model: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compute the disparity map of the LEFT image of a rectified pair.

    Left pixel x matches right pixel x - d. LEFT or RIGHT may be '-' to read that image from
    standard input. Images may be 8 or 16 bit, grey or colour, PNG, JPEG, TIFF or PPM.

    The names of the written files go to standard output, everything else to standard error.
    """
    from ..infer import InferOptions, default_outputs
    from ..infer import infer as run

    if right is None and options["volume"] is None:
        raise click.UsageError("Missing argument 'RIGHT': only --volume works without it.")
    if output is None:
        output, default_color = default_outputs(left)
        color = color or default_color
    if as_json and output == "-":
        raise click.UsageError("--json and '-o -' both want standard output; write a file instead.")
    if model is not None:
        options["model"] = model
    with Progress() as progress:
        report = run(left, right, output, color, InferOptions(**options), progress.stage)
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    else:
        for path in report.outputs.values():
            click.echo(path)
