"""`hstereo train` on the command line."""

from __future__ import annotations

import io
import os
import re
from typing import Any

import click

from ..limits import SIDE, TRAINING
from .engines import engine_options, opened_engine, wants_engine
from .exits import EXIT_SIGNALLED
from .options import (
    CommaSeparated,
    OutputOption,
    announce_device,
    device_option,
    max_pixels_option,
    number_type,
    threads_option,
)
from .progress import Progress
from .training_ranks import ending_together


class _Size(click.ParamType):
    """HEIGHTxWIDTH."""

    name = "HxW"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        size = re.fullmatch(r"(\d{1,5})[xX](\d{1,5})", str(value), re.ASCII)
        if size is None or int(size[1]) not in SIDE or int(size[2]) not in SIDE:
            self.fail(f"'{value}' is not a size such as 192x320 (height x width).", param, ctx)
        return int(size[1]), int(size[2])


@click.command(short_help="Train a model on KITTI, Middlebury, generated scenes or your own pairs.")
@click.argument("dataset", required=False)
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="[NAME=]DIR",
    help="Where the data set is, for csv the file; NAME=DIR for the data sets of a mixture. May be "
    "repeated, also for one data set.",
)
@click.option(
    "-o",
    "--output",
    cls=OutputOption,
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
@click.option(
    "--layers",
    type=number_type(TRAINING["layers"]),
    help="Layers of the Unary-CNN; more than those of --init deepen it.  [default: those of "
    "--init, else 3]",
)
@click.option(
    "--filters", type=number_type(TRAINING["filters"]), default=100, help="Filters per layer."
)
@click.option(
    "--with-xy",
    is_flag=True,
    help="Give the Unary-CNN the pixel coordinates as well; a model of --init learns to use them.",
)
@click.option(
    "--pyramid",
    type=number_type(TRAINING["pyramid"]),
    metavar="0|1|2",
    help="Also match the images at half size (1), and at quarter size (2), and add the costs.  "
    "[default: as --init, else 0]",
)
@click.option(
    "--softmax",
    type=click.Choice(["left", "mutual"]),
    help="Compare the matches of each pixel of the left view, as in the paper, or of both views "
    "(mutual).  [default: as --init, else left]",
)
@click.option(
    "--init",
    metavar="NAME|FILE|DIR",
    help="Model, or run folder, to start from.  [default: random weights]",
)
@click.option(
    "--epochs", type=number_type(TRAINING["epochs"]), help="Passes over the data per stage."
)
@click.option(
    "--steps",
    type=number_type(TRAINING["steps"]),
    help="Updates per stage.  [default: 4000 for unary, 800 for joint and full]",
)
@click.option(
    "--minutes",
    type=number_type(TRAINING["minutes"]),
    help="Time for all stages together, grid searches included. Of --epochs, --steps and "
    "--minutes the first to be reached ends a stage.",
)
@click.option("--crop", type=_Size(), help="Train on random crops.  [default: complete images]")
@click.option(
    "--rectify",
    is_flag=True,
    help="Correct rows of the right views that lie too high or too low, once per pair.",
)
@click.option(
    "--augment/--no-augment",
    default=True,
    help="Flip, scale and slightly misalign pairs; in half of them, vary gain, gamma, colour, "
    "lighting and noise per view, contrast, shadows and clipping of both.",
)
@click.option(
    "--batch",
    type=number_type(TRAINING["batch"]),
    help="Pairs per update, of all ranks together.  [default: 1; with mpirun, one for each rank]",
)
@click.option(
    "--optimizer",
    type=click.Choice(["sgd", "muon"]),
    default="sgd",
    help="SGD with momentum, or Muon: the same, with the steps of kernels orthogonalised.",
)
@click.option(
    "--lr",
    type=number_type(TRAINING["lr"]),
    help="Learning rate for a loss averaged over pixels.  [default: 0.1 for unary, 0.015 with 5 "
    "or more layers; 0.02 for joint and full; with muon 0.05 for unary, 0.005 for joint and full, "
    "0.001 with --loss minorant]",
)
@click.option("--momentum", type=number_type(TRAINING["momentum"]), default=0.9, help="Momentum.")
@click.option("--nesterov/--no-nesterov", default=True, help="Nesterov's variant of momentum.")
@click.option(
    "--weight-decay", type=number_type(TRAINING["weight_decay"]), default=0.0, help="Weight decay."
)
@click.option(
    "--clip-norm",
    type=number_type(TRAINING["clip_norm"]),
    default=5.0,
    help="Gradient norm limit; 0: none.",
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
@click.option(
    "--loss",
    type=click.Choice(["hinge", "minorant"]),
    default="hinge",
    help="Of joint and full: the structured hinge of the paper, or a soft share of wrong pixels of "
    "the CRF's minorant, whose gradient goes through Dual_MM.",
)
@click.option(
    "--sharpness",
    type=number_type(TRAINING["sharpness"]),
    default=100.0,
    help="Of --loss minorant: what the minorant is multiplied by before the softmax.",
)
@click.option(
    "--tolerance",
    type=number_type(TRAINING["tolerance"]),
    default=1.0,
    help="Of --loss minorant: labels by which a right pixel may be off.",
)
@click.option(
    "--exponent",
    type=number_type(TRAINING["exponent"]),
    default=1.0,
    help="Of --loss minorant: 1 counts wrong pixels, smaller numbers count those that are far from "
    "right more.",
)
@click.option(
    "--gamma", type=number_type(TRAINING["gamma"]), default=0.2, help="Weight of the task loss."
)
@click.option(
    "--tau", type=number_type(TRAINING["tau"]), default=3.0, help="Truncation of the task loss."
)
@click.option(
    "--infer-unknown/--ignore-unknown",
    default=False,
    help="Where the truth is unknown, train joint and full towards the CRF's solution with the "
    "known pixels fixed, or not at all.",
)
@click.option(
    "--iterations", type=number_type(TRAINING["iterations"]), default=5, help="Dual_MM iterations."
)
@click.option(
    "--disparities",
    type=number_type(TRAINING["disparities"]),
    help="Labels to train with, and the default of the trained model; validation keeps the data "
    "set's range.  [default: what each pair's data set says]",
)
@click.option(
    "--keep-edges",
    is_flag=True,
    help="Stage crf: keep the Pairwise-CNN of --init, and search only the penalties, the weights "
    "of the pyramid and how much edges along rows and columns count.",
)
@click.option(
    "--seed", type=number_type(TRAINING["seed"]), default=0, help="Seed of everything random."
)
@click.option(
    "--val-scenes",
    type=CommaSeparated(click.STRING),
    default=(),
    show_default=False,
    metavar="NAME,...",
    help="Keep these scenes for validation, instead of --val-fraction; patterns such as "
    "'kitti2012/0001[4-7]*' stand for several.",
)
@click.option(
    "--test-scenes",
    type=CommaSeparated(click.STRING),
    default=(),
    show_default=False,
    metavar="NAME,...",
    help="Neither train on these scenes nor pick by them: the best model is measured on them once, "
    "at the end (test.json).",
)
@click.option(
    "--criterion",
    type=click.Choice(["benchmark", "bad1", "bad2", "bad3", "bad4", "d1"]),
    default="benchmark",
    help="Validation figure that decides which model is the best; benchmark is what each data set "
    "ranks by (KITTI D1, others bad1), and the mean of these for a mixture.",
)
@click.option(
    "--val-fraction",
    type=number_type(TRAINING["val_fraction"]),
    default=0.2,
    help="Share of the scenes kept for validation.",
)
@click.option(
    "--validate-every",
    type=number_type(TRAINING["validate_every"]),
    default=200,
    help="Steps between validations.",
)
@click.option(
    "--checkpoint-every",
    type=number_type(TRAINING["checkpoint_every"]),
    default=50,
    help="Steps between checkpoints.",
)
@click.option(
    "--cache-gigabytes",
    type=number_type(TRAINING["cache_gigabytes"]),
    default=2.0,
    help="Memory for decoded images.",
)
@engine_options
@max_pixels_option
@device_option
@threads_option
@click.pass_context
def train(
    context: click.Context,
    dataset: str | None,
    roots: tuple[str, ...],
    output: str,
    resume: bool,
    device: str,
    threads: int | None,
    scheduler: str | None,
    workers: int | None,
    **options: Any,
) -> None:
    """Train a model on DATASET and keep everything in a run folder.

    DATASET is kitti, middlebury, synthetic (generated, needs no files) or csv (your own pairs, one
    line 'left,right,disparity[,mask]' each), or a mixture such as 'synthetic:1,middlebury:2'.

    Started by mpirun, the processes train one model together; --workers and --scheduler share out
    the grid searches of stages crf and full alone (docs/scaling.md).

    Ctrl-C saves and exits with 130, SIGTERM and SIGHUP likewise with 143 and 129; --resume
    continues, bit for bit.
    """
    from ..datasets import parse_roots
    from ..engines.ranks import join
    from ..models.zoo import BEST_MODEL
    from ..training.interrupts import TerminatedError
    from ..training.options import TrainOptions
    from ..training.remote import remote_judge
    from ..training.run import train as run
    from .training_progress import TrainingProgress

    if resume == (dataset is not None):
        raise click.UsageError(
            "--resume takes all options from the run in --output; leave DATASET out."
            if resume
            else "Name a DATASET, or continue a run with --resume."
        )
    train_options = None
    if dataset is not None:
        train_options = TrainOptions(dataset=dataset, roots=parse_roots(roots), **options)
    ranks = join()
    if ranks.size > 1 and wants_engine(scheduler, workers):
        raise click.UsageError("The ranks of mpirun search by themselves: leave out the workers.")
    first = ranks.rank == 0  # the one that speaks
    with ending_together(ranks, context.command):
        if first:
            announce_device(device)
        with (
            Progress(None if first else io.StringIO()) as progress,
            opened_engine(scheduler, workers, threads, progress.message) as engine,
        ):
            reporter = TrainingProgress(progress, context.command)
            try:
                run(
                    train_options,
                    output,
                    device=device,
                    threads=threads,
                    reporter=reporter,
                    ranks=ranks,
                    judge=None if engine is None else remote_judge(engine, device),
                )
            except TerminatedError as error:
                progress.message(f"hstereo: ended by {error.signal.name}")
                context.exit(EXIT_SIGNALLED + error.signal)
        if first:
            click.echo(os.path.join(output, BEST_MODEL))
