"""`hstereo train`: all stages on a data set, in a run folder that can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..datasets import Sample, open_dataset, rectified, split, split_named, take_out
from ..datasets.augment import AugmentOptions
from ..datasets.fileheaders import check_files
from ..datasets.loader import PairCache
from ..device import checked_threads, device_of_process, open_backend
from ..engines.ranks import Alone, Ranks, own_part
from ..errors import InputError, ModelError, OutputError, shortened
from ..features import sees_coordinates
from ..kernels import limited_threads
from ..model import PROVENANCE, PYRAMID, StereoModel, with_config
from ..models.zoo import STAGES, load_model
from .checks import check_options
from .curves import plot_curves
from .grow import add_coordinates, deepen
from .interrupts import deferred_signals
from .optim import OptimiserOptions
from .parallel import BatchShare, SilentFolder
from .runfolder import START_ANEW, Checkpoint, Position, RunFolder
from .searches import Deadline, begin, run_search
from .stages import (
    Budget,
    MakeJudge,
    Reporter,
    TrainingContext,
    new_model,
    run_gradient,
    start_from_random,
)
from .steps import HingeOptions
from .testing import TEST_FILE, describe_test, measured_on, write_test

# Defaults found on Middlebury 2005/2006 validation scenes; the loss is a mean over pixels.
_LEARNING_RATES = {
    "sgd": {"unary": 0.1, "joint": 0.02, "full": 0.02},
    "muon": {"unary": 0.05, "joint": 0.005, "full": 0.005},
}
# With SGD: a deep network starts with steeper gradients, and with 7 layers the cross-entropy after
# 250 steps is 2.0 at this rate and 3.2 at that of 3 layers.
_DEEP, _DEEP_UNARY_RATE = 5, 0.015
_LAYERS = 3
# How much new levels of a pyramid count at first, beside the level before each.
_LEVEL_WEIGHTS = (0.25, 0.5)
_STEPS = {"unary": 4000, "joint": 800, "full": 800}
# How the minutes are shared between the stages of `all`, and how much of its share stage full may
# spend on the search that it starts with.
_TIME_SHARES = {"unary": 0.5, "crf": 0.1, "joint": 0.2, "full": 0.2}
_SEARCH_SHARE = 0.5

# More noise would hide the weak texture of dark and plain surfaces: with 0.02 the validation error
# of Jadeplant after the CRF was 3 points higher.
# Views that differ in exposure and lighting are to be matched too, but most do not: 250 steps
# without such changes took a network of 7 layers that had always seen them from 14.1 to 13.3 %.
_PHOTOMETRIC = {
    "disturbed": 0.5,
    "gain": 0.2,
    "colour": 0.1,
    "gamma": 0.2,
    "lighting": 0.3,
    "noise": 0.008,
    "grey": 0.2,
    "contrast": 0.3,
    "shadowed": 0.3,
    "shadow": 0.6,
    "clipped": 0.2,
    "clipping": 0.05,
}
# Five of seven Middlebury v3 pairs state a largest misalignment (`dymax`) of 0.35 to 1.3 px.
_GEOMETRIC = {
    "vertical_flip": 0.5,
    "horizontal_flip": 0.5,
    "min_scale": 0.9,
    "max_scale": 1.1,
    "misaligned": 0.25,
    "misalignment": 0.7,
}


@dataclass(frozen=True)
class TrainOptions:
    """Everything that determines a run; stored as config.json.

    ``stage`` is one of the stages or ``all``.  None means a default that suits the stage; for
    ``layers`` those of ``init``, or 3.  ``pyramid`` is the number of coarser levels, 0 to 2; None:
    those of ``init``, or none.  ``batch`` are the pairs of a step, of all ranks together; None: one
    for each.
    """

    dataset: str
    roots: Mapping[str, str | Sequence[str]] | str | Sequence[str] | None = None
    stage: str = "all"
    layers: int | None = None
    filters: int = 100
    with_xy: bool = False
    pyramid: int | None = None
    init: str | None = None
    epochs: float | None = None
    steps: int | None = None
    minutes: float | None = None
    crop: tuple[int, int] | None = None
    rectify: bool = False
    augment: bool = True
    batch: int | None = None
    optimizer: str = "sgd"
    lr: float | None = None
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    clip_norm: float = 5.0
    schedule: str = "cosine"
    soft_target: bool = True
    gamma: float = 0.2
    tau: float = 3.0
    infer_unknown: bool = False
    iterations: int = 5
    disparities: int | None = None
    keep_edges: bool = False
    seed: int = 0
    val_fraction: float = 0.2
    val_scenes: tuple[str, ...] = ()
    test_scenes: tuple[str, ...] = ()
    criterion: str = "benchmark"
    validate_every: int = 200
    checkpoint_every: int = 50
    cache_gigabytes: float = 2.0

    def __post_init__(self) -> None:
        check_options(vars(self))

    @property
    def stages(self) -> tuple[str, ...]:
        """What runs, in order."""
        return STAGES if self.stage == "all" else (self.stage,)

    def optimiser(self, stage: str, layers: int) -> OptimiserOptions:
        """Optimiser settings of a stage for a Unary-CNN with so many layers."""
        lr = self.lr
        if lr is None:
            lr = _LEARNING_RATES[self.optimizer][stage]
            if self.optimizer == "sgd" and stage == "unary" and layers >= _DEEP:
                lr = _DEEP_UNARY_RATE
        return OptimiserOptions(
            self.optimizer,
            lr,
            self.momentum,
            self.nesterov,
            self.weight_decay,
            self.clip_norm,
            self.schedule,
        )

    def budget(self, stage: str, samples: int) -> Budget:
        """When a stage that follows gradients ends."""
        limits = []
        if self.steps is not None:
            limits.append(self.steps)
        if self.epochs is not None:
            limits.append(max(round(self.epochs * samples / (self.batch or 1)), 1))
        if not limits and self.minutes is None:
            limits.append(_STEPS[stage])
        return Budget(min(limits) if limits else None, self._seconds(stage))

    def search_deadline(self, stage: str, ranks: Ranks) -> Deadline:
        """When the grid search of a stage ends, which begins now."""
        seconds = self._seconds(stage)
        share = _SEARCH_SHARE if stage == "full" else 1.0
        return Deadline(None if seconds is None else share * seconds, ranks)

    def _seconds(self, stage: str) -> float | None:
        if self.minutes is None:
            return None
        share = _TIME_SHARES[stage] / sum(_TIME_SHARES[x] for x in self.stages)
        return 60.0 * self.minutes * share


def options_from_config(config: dict[str, Any]) -> TrainOptions:
    """Options as stored by an earlier run.

    Raises
    ------
    InputError
        If they are not options of this version, or not such as a run can have.
    """
    try:
        options = TrainOptions(**config)
    except TypeError as error:
        raise InputError(
            f"The run was made by another version of hybridstereo ({shortened(str(error), 200)})",
            "Start a new run",
        ) from error
    crop = None if options.crop is None else (int(options.crop[0]), int(options.crop[1]))
    validation, test = tuple(options.val_scenes), tuple(options.test_scenes)
    return replace(options, crop=crop, val_scenes=validation, test_scenes=test)


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
    start = None if continuing else _initial_model(options)
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
            augment=_augmentation(options),
            hinge=HingeOptions(
                options.gamma, options.tau, options.iterations, options.infer_unknown
            ),
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


def _initial_model(options: TrainOptions) -> StereoModel:
    if options.init is not None:
        # The old model's description and provenance do not apply to the new one.
        unnamed = dict.fromkeys(("description", *PROVENANCE), "")
        model = with_config(load_model(options.init), **unnamed)
        if options.layers is not None:
            model = deepen(model, options.layers)
        if options.with_xy:
            model = add_coordinates(model)
        if options.keep_edges and not model.pairwise:
            raise InputError(
                f"{options.init} has no Pairwise-CNN whose edges could be kept",
                "Leave out `keep_edges`, or start from a result of stage full",
            )
        return _with_labels(_with_levels(model, options.pyramid), options.disparities)
    if options.keep_edges:
        raise InputError(
            "A new model has no edges to keep", "Give `init`, or leave out `keep_edges`"
        )
    if options.stages[0] != "unary":
        raise InputError(
            f"Stage {options.stage} continues an earlier one",
            "Give the model to start from as `init`, or train with `stage=all`",
        )
    layers = _LAYERS if options.layers is None else options.layers
    model = new_model(layers, options.filters, options.with_xy, options.seed, options.iterations)
    return _with_labels(_with_levels(model, options.pyramid), options.disparities)


def _with_levels(model: StereoModel, levels: int | None) -> StereoModel:
    """The model with so many coarser levels; those that it has keep their weights."""
    if levels is None:
        return model
    weights = (*model.config.pyramid, *_LEVEL_WEIGHTS[len(model.config.pyramid) :])
    kept = (*weights[:levels], *(0.0 for _ in weights[levels:]))
    return with_config(model, **dict(zip(PYRAMID, kept, strict=True)))


def _with_labels(model: StereoModel, disparities: int | None) -> StereoModel:
    """The model, with the labels that it is trained with as its default, if they were given."""
    if disparities is None:
        return model
    trained = with_config(model, disparities=disparities)
    label_range = trained.config.label_range
    described = f"trained with the disparities {label_range.minimum:g} to {label_range.maximum:g}"
    return with_config(trained, description=described)


def _augmentation(options: TrainOptions) -> AugmentOptions:
    changes = {**_PHOTOMETRIC, **_GEOMETRIC} if options.augment else {}
    if options.with_xy:
        # Coordinates tell where the ground is; upside down they would tell nothing.
        changes = changes | {"vertical_flip": 0.0}
    return AugmentOptions(crop=options.crop, **changes)
