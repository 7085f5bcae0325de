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


_device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="Where to compute.",
)
_threads_option = click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads.  [default: all cores]"
)


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
@_device_option
@_threads_option
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


class _Size(click.ParamType):
    """HEIGHTxWIDTH."""

    name = "HxW"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        height, cross, width = str(value).lower().partition("x")
        if not cross or not height.isdigit() or not width.isdigit() or "0" in (height, width):
            self.fail(f"'{value}' is not a size such as 192x320 (height x width).", param, ctx)
        return int(height), int(width)


@cli.command(short_help="Train a model on KITTI, Middlebury, generated scenes or your own pairs.")
@click.argument("dataset", required=False)
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="[NAME=]DIR",
    help="Where the data set is; once per data set of a mixture, as NAME=DIR. For csv the file.",
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    default="hstereo-run",
    help="Run folder: config, log, checkpoints, curves.",
)
@click.option("--resume", is_flag=True, help="Continue the run in --output with its own options.")
@click.option(
    "--stage",
    type=click.Choice(["unary", "crf", "joint", "full", "all"]),
    default="all",
    help="One stage, or all in order, each starting from the best model of the one before.",
)
@click.option("--layers", type=click.IntRange(min=1), default=3, help="Layers of the Unary-CNN.")
@click.option("--filters", type=click.IntRange(min=1), default=100, help="Filters per layer.")
@click.option("--with-xy", is_flag=True, help="Give the Unary-CNN the pixel coordinates as well.")
@click.option("--init", metavar="NAME|FILE", help="Model to start from.  [default: random weights]")
@click.option(
    "--epochs", type=click.FloatRange(min=0, min_open=True), help="Passes over the data per stage."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Updates per stage.  [default: 4000 for unary, 800 for joint and full]",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="Time for all stages together. Of --epochs, --steps and --minutes the first to be "
    "reached ends a stage.",
)
@click.option("--crop", type=_Size(), help="Train on random crops.  [default: complete images]")
@click.option(
    "--augment/--no-augment",
    default=True,
    help="Flip and scale pairs; vary gain, gamma, colour and noise per view.",
)
@click.option("--batch", type=click.IntRange(min=1), default=1, help="Pairs per update.")
@click.option(
    "--lr",
    type=click.FloatRange(min=0, min_open=True),
    help="Learning rate for a loss averaged over pixels.  [default: 0.05, 0.1 for joint and full]",
)
@click.option(
    "--momentum", type=click.FloatRange(0, 1, max_open=True), default=0.9, help="Momentum."
)
@click.option("--nesterov/--no-nesterov", default=True, help="Nesterov's variant of momentum.")
@click.option("--weight-decay", type=click.FloatRange(min=0), default=0.0, help="Weight decay.")
@click.option(
    "--clip-norm", type=click.FloatRange(min=0), default=5.0, help="Gradient norm limit; 0: none."
)
@click.option(
    "--schedule",
    type=click.Choice(["constant", "cosine", "step"]),
    default="cosine",
    help="How the learning rate falls over a stage.",
)
@click.option(
    "--soft-target/--nearest-target",
    default=True,
    help="Share sub-pixel truth between two labels, or take the nearest (stage unary).",
)
@click.option("--gamma", type=click.FloatRange(min=0), default=0.2, help="Weight of the task loss.")
@click.option(
    "--tau", type=click.FloatRange(min=0), default=3.0, help="Truncation of the task loss."
)
@click.option("--iterations", type=click.IntRange(min=1), default=5, help="Dual_MM iterations.")
@click.option(
    "--disparities",
    type=click.IntRange(min=1),
    help="Labels from disparity 0 on.  [default: what each pair's data set says]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of everything random.")
@click.option(
    "--val-fraction",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    help="Share of the scenes kept for validation.",
)
@click.option(
    "--validate-every", type=click.IntRange(min=1), default=200, help="Steps between validations."
)
@click.option(
    "--checkpoint-every", type=click.IntRange(min=1), default=50, help="Steps between checkpoints."
)
@click.option(
    "--cache-gigabytes",
    type=click.FloatRange(min=0),
    default=2.0,
    help="Memory for decoded images.",
)
@_device_option
@_threads_option
def train(
    dataset: str | None,
    roots: tuple[str, ...],
    output: str,
    resume: bool,
    device: str,
    threads: int | None,
    **options: Any,
) -> None:
    """Train a model on DATASET and keep everything in a run folder.

    DATASET is kitti, middlebury, synthetic (generated, needs no files) or csv (your own pairs, one
    line 'left,right,disparity[,mask]' each), or a mixture such as 'synthetic:1,middlebury:2'.

    Ctrl-C saves and exits with 130; --resume continues, bit for bit.
    """
    from .datasets import parse_roots
    from .progress import reporter_for
    from .train import TrainOptions
    from .train import train as run

    if resume == (dataset is not None):
        raise click.UsageError(
            "--resume takes all options from the run in --output; leave DATASET out."
            if resume
            else "Name a DATASET, or continue a run with --resume."
        )
    train_options = None
    if dataset is not None:
        train_options = TrainOptions(dataset=dataset, roots=parse_roots(roots), **options)
    with reporter_for(sys.stderr) as reporter:
        run(train_options, output, device=device, threads=threads, reporter=reporter)
    click.echo(os.path.join(output, "best.h5"))


class _CommaSeparated(click.ParamType):
    """Several values of one type, such as ``128,256``."""

    def __init__(self, item: click.ParamType) -> None:
        self._item = item
        self.name = f"{item.name} list"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        if isinstance(value, tuple):  # a default
            return value
        return tuple(self._item.convert(part.strip(), param, ctx) for part in value.split(","))


@cli.command(short_help="Time every stage: the paper's table for this machine.")
@click.option(
    "--size",
    type=click.Choice(["kitti", "middlebury-h", "realtime"]),
    help="Image size and the paper's settings for it: kitti 1242x375, 128 disparities, 7 layers, "
    "5 iterations; middlebury-h 1500x1000, 256 disparities; realtime 640x480, 128 disparities, "
    "3 layers, 4 iterations. Other options take precedence.  [default: kitti]",
)
@click.option(
    "--width", type=click.IntRange(min=1), metavar="N", help="Columns, instead of --size."
)
@click.option("--height", type=click.IntRange(min=1), metavar="N", help="Rows, instead of --size.")
@click.option(
    "--disparities",
    type=_CommaSeparated(click.IntRange(min=1)),
    metavar="N[,N...]",
    help="Numbers of labels, one table each.  [default: the size's]",
)
@click.option(
    "--layers",
    type=click.IntRange(min=1),
    metavar="3|7|N",
    help="Layers of the Unary-CNN.  [default: the size's]",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    metavar="N",
    help="Iterations of the CRF solver.  [default: the size's]",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    help="Runs to take the median of, after a warm-up that compiles.",
)
@_device_option
@_threads_option
@click.option(
    "--compare",
    type=_CommaSeparated(click.Choice(["sgbm", "torch"])),
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
    from .bench import BenchOptions
    from .bench import bench as run
    from .bench_text import draw_report, format_report
    from .io.images import check_image_output, write_image

    if plot is not None:
        check_image_output(plot)
    show, clear = _stage_printer()
    try:
        report = run(BenchOptions(size or "kitti", width, height, **options), show)
    finally:
        clear()
    if plot is not None:
        write_image(plot, draw_report(report))
    if as_json:
        click.echo(json.dumps({**report.as_dict(), "plot": plot}))
    else:
        click.echo(format_report(report))


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
