"""`hstereo train`: all stages on a data set, in a run folder that can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ..datasets import Sample, open_dataset, rectified, split, split_named, take_out
from ..datasets.fileheaders import check_files
from ..datasets.loader import PairCache
from ..device import checked_threads, device_of_process, open_backend
from ..engines.ranks import Alone, Ranks, own_part
from ..errors import InputError, ModelError, OutputError
from ..features import sees_coordinates
from ..kernels import limited_threads
from ..model import StereoModel
from .curves import plot_curves
from .interrupts import deferred_signals
from .options import TrainOptions, options_from_config
from .parallel import BatchShare, SilentFolder
from .runfolder import START_ANEW, Checkpoint, Position, RunFolder
from .searches import begin, run_search
from .stages import MakeJudge, Reporter, TrainingContext, run_gradient, start_from_random
from .start import initial_model
from .testing import TEST_FILE, describe_test, measured_on, write_test


def train(
    options: TrainOptions | None,
    output: str | Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    reporter: Reporter | None = None,
    ranks: Ranks | None = None,
    judge: Callable[[TrainOptions], MakeJudge] | None = None,
) -> StereoModel:
    """Train a model and keep everything in a run folder.

    Parameters
    ----------
    options
        What to train; None continues the run in ``output`` with its own options.
    output
        The run folder.
    device, threads
        Where to compute; a resumed run gives the same bits on the same device, with any threads.
    reporter
        Hears about steps and validations.
    ranks
        The processes that train together, of which each makes this call (`engines.ranks.join`);
        the first one writes and reports.
    judge
        Who evaluates the points of grid searches; None: these processes.

    Returns
    -------
    model
        The best model of the last stage, which ``best.h5`` holds.
    """
    ranks = Alone() if ranks is None else ranks
    folder = RunFolder(output) if ranks.rank == 0 else SilentFolder(RunFolder(output))
    resuming = options is None
    if options is None:
        options = options_from_config(ranks.first(folder.config))
    else:
        folder.check_unused()
        options = replace(options, batch=options.batch or ranks.size)
    BatchShare.of(ranks, options.batch or 1)  # refuses more ranks than pairs
    reporter = reporter if reporter is not None and ranks.rank == 0 else Reporter()
    backend = open_backend(device_of_process(device, ranks.local_rank, ranks.size))
    threads = ranks.cores if threads is None else threads
    dataset = open_dataset(options.dataset, options.roots)
    for warning in dataset.warnings:
        reporter.message(warning)
    if options.rectify:
        dataset = rectified(dataset)
    rest, test = take_out(dataset, options.test_scenes, options.val_scenes)
    if options.val_scenes:
        training, validation = split_named(rest, options.val_scenes)
    else:
        training, validation = split(rest, options.val_fraction, options.seed)
    counts = f"{len(training)} training pairs, {len(validation)} validation pairs"
    reporter.message(f"{counts}, {len(test)} test pairs" if test else counts)
    continuing = resuming and ranks.first(lambda: folder.has_checkpoint)
    start = None if continuing else initial_model(options)
    if start is not None:
        # What the model of `init` sees, a resumed run is to know without it.
        options = replace(options, with_xy=sees_coordinates(start.unary))
    if start is not None and options.disparities is not None:
        reporter.message(f"the model is {start.config.description}")
    cache = PairCache(dataset, int(options.cache_gigabytes * (1 << 30)))
    ranks.first(lambda: check_files((*training, *test)))
    _check_validation(validation, cache, ranks)

    with (
        folder.locked(),
        deferred_signals() as signalled,
        limited_threads(checked_threads(threads)),
    ):
        context = TrainingContext(
            backend=backend,
            dataset=dataset,
            training=training,
            validation=validation,
            cache=cache,
            folder=folder,
            reporter=reporter,
            augment=options.augmentation,
            crf_loss=options.crf_loss,
            seed=options.seed,
            batch=options.batch or 1,
            disparities=options.disparities,
            keep_edges=options.keep_edges,
            criterion=options.criterion,
            soft_target=options.soft_target,
            validate_every=options.validate_every,
            checkpoint_every=options.checkpoint_every,
            stop_requested=lambda: bool(ranks.most(float(signalled.is_set()))),
            ranks=ranks,
            judge=None if judge is None else judge(options),
        )
        if start is None:
            checkpoint = _continued(context, options)
        else:
            folder.begin(asdict(options))
            if options.init is None:
                start = start_from_random(start, context)
            checkpoint = _started(options.stages[0], start, context, options)
        try:
            model = _run_stages(context, options, checkpoint)
        finally:
            _draw_curves(context)
        _judge_once(context, model, test)
        return model


def _check_validation(samples: Sequence[Sample], cache: PairCache, ranks: Ranks) -> None:
    """Decode all validation pairs now, so that a bad file costs no training.

    Models can be compared from here on: some pixel counts in the figures of all `CRITERIA`.
    """
    known = not samples
    for sample in own_part(ranks, samples):  # generated scenes cannot be bad
        known |= not sample.files or bool(cache.load(sample).valid.any())
    if not ranks.most(float(known)):
        raise InputError(
            "No validation pair has a pixel whose truth is known and that both views see",
            "Choose others with `val_scenes` or `seed`, or none with `val_fraction=0`",
        )


def _started(
    stage: str, model: StereoModel, context: TrainingContext, options: TrainOptions
) -> Checkpoint:
    """The saved beginning of a stage, from the model that it is given."""
    deadline = options.search_deadline(stage, context.ranks)
    start = begin(stage, model, context, deadline)
    # What the search at the start of `full` takes is taken from that stage.
    checkpoint = Checkpoint(start, Position(stage, seconds=deadline.elapsed))
    context.folder.save(checkpoint)
    return checkpoint


def _continued(context: TrainingContext, options: TrainOptions) -> Checkpoint:
    """The checkpoint of an earlier run, with the log cut back to it."""
    folder = context.folder
    checkpoint = context.ranks.first(folder.load)
    position = checkpoint.position
    fits = position.stage in ("", *options.stages)
    if not fits or (position.stage == "full" and checkpoint.model.config.edge_model != "cnn"):
        raise ModelError(
            f"{folder.last} is in stage {position.stage!r}, which does not fit the run",
            START_ANEW,
        )
    for message in folder.log.cut_back(position.stage, position.step):
        context.reporter.message(message)
    if position.stage and not context.ranks.first(folder.best.exists):
        position.best = Position("").best  # the next validation gives a new one
    return checkpoint


def _run_stages(
    context: TrainingContext, options: TrainOptions, checkpoint: Checkpoint
) -> StereoModel:
    stages = options.stages
    folder = context.folder
    while stage := checkpoint.position.stage:
        context.reporter.message(f"stage {stage}")
        if stage == "crf":
            model = run_search(context, checkpoint, options.search_deadline(stage, context.ranks))
        else:
            budget = options.budget(stage, len(context.training))
            settings = options.optimiser(stage, len(checkpoint.model.unary))
            model = run_gradient(context, stage, checkpoint, settings, budget)
        folder.save_stage(stage, model)
        _draw_curves(context)
        following = stages.index(stage) + 1
        if following < len(stages):
            checkpoint = _started(stages[following], model, context, options)
        else:
            checkpoint = Checkpoint(model, Position("", best=checkpoint.position.best))
            folder.save(checkpoint)
    return context.ranks.first(folder.load_best)


def _judge_once(context: TrainingContext, model: StereoModel, test: Sequence[Sample]) -> None:
    """Measure the best model on the test scenes, unless that was done before."""
    if context.ranks.rank > 0 or not test or (context.folder.path / TEST_FILE).exists():
        return
    context.reporter.message("measuring the best model on the test scenes")
    evaluations = measured_on(model, context.backend, test)
    write_test(context.folder, evaluations)
    for line in describe_test(evaluations):
        context.reporter.message(line)


def _draw_curves(context: TrainingContext) -> None:
    """Draw the log; a picture that cannot be written is no reason to end a run, or to hide one."""
    if context.ranks.rank > 0:
        return
    try:
        plot_curves(context.folder.log.entries(), context.folder.path / "curves.png")
    except (InputError, OutputError) as error:
        context.reporter.message(str(error))
