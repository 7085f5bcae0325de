"""The command line: parse, call, print.  Heavy imports wait until a command really runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from . import __version__
from .errors import StereoError

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    epilog="Example: hstereo infer left.png right.png",
)
@click.version_option(__version__, "-V", "--version", prog_name="hstereo")
def cli() -> None:
    """Dense stereo with hybrid CNN-CRF models: two rectified images in, a disparity map out."""


def _stage_printer() -> tuple[Callable[[str], None], Callable[[], None]]:
    """Show the current stage on one line of a terminal; say nothing when stderr is a file."""
    if not sys.stderr.isatty():
        return (lambda _name: None), (lambda: None)

    def show(name: str) -> None:
        click.echo(f"\r\x1b[K{name.replace('_', ' ')} ...", nl=False, err=True)

    def clear() -> None:
        click.echo("\r\x1b[K", nl=False, err=True)

    return show, clear


@cli.command(short_help="Compute the disparity map of a rectified pair.")
@click.argument("left")
@click.argument("right")
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
    help="Built-in model (see 'hstereo info') or .h5 file.  [default: census]",
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
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    metavar="N",
    help="Iterations of the CRF solver.  [default: the model's, usually 5]",
)
@click.option(
    "--method",
    type=click.Choice(["crf", "argmax"]),
    help="CRF, or the best score of the network alone.  [default: the model's, usually crf]",
)
@click.option(
    "--refine/--no-refine",
    default=None,
    help="Refine labels to sub-pixel disparities.  [default: refine with crf]",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to compute.",
)
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads.  [default: all cores]"
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: files, labels, energy, lower bounds, seconds, memory.",
)
def infer(
    left: str,
    right: str,
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
    from .infer import InferOptions, default_outputs
    from .infer import infer as run

    if output is None:
        output, default_color = default_outputs(left)
        color = color or default_color
    if as_json and output == "-":
        raise click.UsageError("--json and '-o -' both want standard output; write a file instead.")
    if model is not None:
        options["model"] = model
    show, clear = _stage_printer()
    try:
        report = run(left, right, output, color, InferOptions(**options), show)
    finally:
        clear()
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    else:
        for path in report.outputs.values():
            click.echo(path)


@cli.command(short_help="Convert the authors' published parameters to a model file.")
@click.argument("parameters", metavar="PARAMS.npz")
@click.option(
    "--config",
    metavar="FILE.cfg",
    help="The cfg beside the parameters: penalties, label range, iterations.  "
    "[default: the published program's defaults]",
)
@click.option("-o", "--output", metavar="MODEL.h5", required=True, help="Model file to write.")
def convert(parameters: str, config: str | None, output: str) -> None:
    """Convert published parameters (PARAMS.npz, a list of arrays) to an HDF5 model file.

    All published variants are understood: 3 and 7 layers, with and without x,y channels, with
    contrast weights or the Pairwise-CNN. Their licence (AGPL-3.0) stays with the converted file.
    """
    from .convert import convert as run

    model = run(parameters, config, output)
    edges = "Pairwise-CNN" if model.config.edge_model == "cnn" else "contrast weights"
    click.echo(
        f"{len(model.unary)} layers, {edges}, {model.parameter_count:,} parameters", err=True
    )
    click.echo(output)


@cli.command(short_help="Generate synthetic stereo scenes with exact ground truth.")
@click.argument("folder", metavar="DIR")
@click.option("--count", type=click.IntRange(min=1), default=1, help="Number of scenes.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    help="Seed of the first scene; scene i uses seed + i. The same seed gives the same scene.",
)
@click.option("--width", type=int, default=512, help="Columns of the images.")
@click.option("--height", type=int, default=384, help="Rows of the images.")
@click.option("--min-disparity", type=float, default=2.0, help="Smallest disparity, in pixels.")
@click.option("--max-disparity", type=float, default=63.0, help="Largest disparity, in pixels.")
@click.option("--objects", type=int, default=16, help="Objects to place in front of the walls.")
@click.option(
    "--photometric",
    is_flag=True,
    help="Let gain, gamma, noise and blur differ between the views.",
)
def synth(folder: str, count: int, seed: int, photometric: bool, **options: Any) -> None:
    """Generate random scenes of textured planes, boxes, spheres and thin structures below DIR.

    Each scene is a folder in the Middlebury layout: im0.png, im1.png, disp0GT.pfm, disp1GT.pfm
    (exact sub-pixel truth of both views), mask0nocc.png and calib.txt.
    """
    from .synth import synthesize
    from .synthetic import Photometric, SceneOptions

    scene_options = SceneOptions(**options, photometric=Photometric() if photometric else None)
    show, clear = _stage_printer()
    try:
        written = synthesize(
            folder, count, seed, scene_options, lambda done, all_: show(f"scene {done} of {all_}")
        )
    finally:
        clear()
    for scene in dict.fromkeys(path.parent for path in written):
        click.echo(scene)


@cli.command(short_help="Show versions, devices, memory and models.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(as_json: bool) -> None:
    """Show versions, CPU and CUDA devices, threads, memory and the built-in models."""
    from .info import collect_info, format_info

    collected = collect_info()
    click.echo(json.dumps(collected) if as_json else format_info(collected))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 1 failure, 2 usage, 130 interrupted."""
    try:
        sys.exit(cli.main(arguments, prog_name="hstereo", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as help_shown:
        help_shown.show()
        sys.exit(EXIT_USAGE)
    except click.UsageError as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("hstereo: interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except StereoError as error:
        _fail(str(error))
    except MemoryError:
        _fail("Not enough memory. Use fewer --disparities or smaller images.")
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILURE)


def _fail(message: str) -> None:
    click.echo(f"hstereo: {message}", err=True)
    sys.exit(EXIT_FAILURE)
