"""The stages of training (paper, sec. 5; docs/training.md) as loops over pairs.

``unary`` trains the network alone, ``crf`` searches the contrast parameters, ``joint`` trains
network and penalties through the CRF, ``full`` trains everything, with a Pairwise-CNN that starts
as an imitation of the contrast weights. The searches are in `searches`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from ..datasets import Dataset, Sample, StereoPair
from ..datasets.augment import AugmentOptions
from ..datasets.loader import PairCache, PairLoader
from ..engines.ranks import Alone, Ranks
from ..errors import InputError, ModelError, StereoError
from ..features import IMAGE_CHANNELS, ConvLayer
from ..kernels import Backend
from ..labels import LabelRange, labels_for
from ..memory import require_training_memory
from ..model import (
    PYRAMID,
    ModelConfig,
    StereoModel,
    on_device,
    on_host,
    with_config,
)
from .gridsearch import Judge
from .optim import (
    OPTIMISERS,
    OptimiserOptions,
    clip_gradients,
    gradient_norm,
    learning_rate,
)
from .parallel import BatchShare, check_same_model, mean_step
from .runfolder import START_ANEW, Checkpoint, Position, RunFolder
from .steps import (
    PENALTIES,
    Gradients,
    HingeOptions,
    MinorantOptions,
    Step,
    minorant_step,
    parameters_of,
    structured_step,
    unary_step,
)
from .validation import validate
from .whitening import gradient_metric, whiten_first_layer, whitened_gradient, window_moments

_TRAINED = {
    "unary": ("unary/",),
    "joint": ("unary/", *PENALTIES, *PYRAMID),
    "full": ("unary/", "pairwise/", *PENALTIES, *PYRAMID),
}
# Factors of the learning rate, by optimiser.  Stage crf has just searched the penalties: they
# should follow the network, not run ahead of it (with 20 times these factors P1 doubled in 30
# steps and the validation error rose).  The layers of the Pairwise-CNN start with weights of very
# different size (see `imitation`): norms 8, 144 and 0.1 with gradients of 0.1, 0.02 and 0.7.  With
# these factors each changes by a fifth of the share by which the layers of the Unary-CNN change;
# with five times as much the validation error did not fall, with a common factor the last layer
# runs away.
# Muon's steps of these layers have the norms 8, 8 and 1.4 at rate 1, and those of the Unary-CNN's
# later layers about the norm of their weights, 10: the factors give the same fifth.  Those of the
# penalties give the steps that they take with SGD, at the default rates of both.
_RATES = {
    "sgd": {
        "p1": 0.5, "p2": 5.0, "pairwise/0/": 0.04, "pairwise/1/": 0.8, "pairwise/2/": 0.0001,
    },
    "muon": {
        "p1": 2.0, "p2": 20.0, "pairwise/0/": 0.2, "pairwise/1/": 3.6, "pairwise/2/": 0.014,
    },
}  # fmt: skip

# Of P1, P2 and the weights of levels, if the minorant is trained: their gradients are some twenty
# times those of the hinge.
_MINORANT_SCALARS = 0.05

_SMALLEST_LEVEL_WEIGHT = 0.01
_WHITENING_PAIRS = 12
_FIRST_KERNELS = "unary/0/weight"
_SCORE_EVERY = 5  # steps of `joint` and `full` between two looks at the training error


MakeJudge = Callable[[StereoModel, Sequence[Sample]], Judge]
"""Of a network and the samples to judge it on."""


class TrainingDivergedError(StereoError):
    """The loss or a gradient is no longer a number."""


class Reporter:
    """What a run tells its user; the default says nothing."""

    def step(self, stage: str, step: int, steps: int | None, progress: float, entry: dict) -> None:
        """A step is done; ``progress`` in [0, 1]."""

    def validation(self, stage: str, step: int, figures: dict[str, float], best: bool) -> None:
        """The validation pairs were evaluated."""

    def message(self, text: str) -> None:
        """Anything else worth saying."""


@dataclass(frozen=True)
class Budget:
    """When a stage ends: after so many steps or seconds, whichever comes first."""

    steps: int | None
    seconds: float | None

    def progress(self, position: Position) -> float:
        """How much of the budget is used, in [0, 1]."""
        used = 0.0
        if self.steps is not None:
            used = position.step / max(self.steps, 1)
        if self.seconds is not None:
            used = max(used, position.seconds / self.seconds)
        return min(used, 1.0)


@dataclass(frozen=True)
class TrainingContext:
    """What all stages share."""

    backend: Backend
    dataset: Dataset
    training: Sequence[Sample]
    validation: Sequence[Sample]
    cache: PairCache
    folder: RunFolder
    reporter: Reporter
    augment: AugmentOptions
    crf_loss: HingeOptions | MinorantOptions
    seed: int
    batch: int
    disparities: int | None
    keep_edges: bool  # whether stage crf keeps the Pairwise-CNN that it is given
    criterion: str  # the figure by which models are compared, see `validation.CRITERIA`
    soft_target: bool
    validate_every: int
    checkpoint_every: int
    stop_requested: Callable[[], bool]
    ranks: Ranks = field(default_factory=Alone)  # the processes that train together
    judge: MakeJudge | None = None  # who evaluates the points of a search; None: these processes

    def label_range(self, model: StereoModel, pair: StereoPair) -> LabelRange:
        """The labels that a pair is trained with: as asked for, else as it would be evaluated."""
        return labels_for(
            model.config.label_range, disparities=self.disparities, search_range=pair.search_range
        )


def new_model(layers: int, filters: int, with_xy: bool, seed: int, iterations: int) -> StereoModel:
    """A Unary-CNN with weights drawn from N(0, 1/fan-in) and zero biases."""
    rng = np.random.default_rng([seed, 0])
    inputs = IMAGE_CHANNELS + (2 if with_xy else 0)
    shapes = [(filters, inputs, 3, 3)] + (layers - 1) * [(filters, filters, 2, 2)]
    config = ModelConfig(method="argmax", iterations=iterations)
    return StereoModel(tuple(_random_layer(rng, shape) for shape in shapes), config=config)


def _random_layer(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> ConvLayer:
    deviation = 1.0 / math.sqrt(shape[1] * shape[2] * shape[3])
    weight = (deviation * rng.standard_normal(shape)).astype(np.float32)
    return ConvLayer(weight, np.zeros(shape[0], np.float32))


def start_from_random(model: StereoModel, context: TrainingContext) -> StereoModel:
    """A new model whose first layer suits the windows of the training images."""
    return whiten_first_layer(model, _moments(model, context))


def _moments(model: StereoModel, context: TrainingContext) -> np.ndarray:
    images = [pair.left for pair in some_pairs(context, _WHITENING_PAIRS)]
    if not any(np.ptp(image, axis=(0, 1)).any() for image in images):
        raise InputError(
            "The training images are blank: all pixels of an image have the same colour",
            "Check the files that the data set names",
        )
    return window_moments(model, images)


def some_pairs(context: TrainingContext, count: int) -> list[StereoPair]:
    """About so many training pairs, spread over each source in proportion to its weight."""
    weights = context.dataset.weights
    chosen: list[Sample] = []
    for source, weight in weights.items():
        samples = [sample for sample in context.training if sample.source == source]
        share = max(round(count * weight / sum(weights.values())), 1)
        chosen += samples[:: max(len(samples) // share, 1)][:share]
    return [context.cache.load(sample) for sample in chosen]


def run_gradient(
    context: TrainingContext,
    stage: str,
    checkpoint: Checkpoint,
    settings: OptimiserOptions,
    budget: Budget,
) -> StereoModel:
    """A stage that follows gradients; returns the best model by validation (the last without).

    Parameters
    ----------
    context
        Data, device, folder.
    stage
        ``unary``, ``joint`` or ``full``.
    checkpoint
        Where to start; its position and momentum are advanced as the stage goes on.
    settings, budget
        How to step and when to stop.
    """
    position = checkpoint.position
    backend, ranks = context.backend, context.ranks
    share = BatchShare.of(ranks, context.batch)
    model = on_device(checkpoint.model, backend)
    everything = parameters_of(model)
    parameters = {name: everything[name] for name in everything if name.startswith(_TRAINED[stage])}
    rates = {
        name: rate
        for name in parameters
        for key, rate in _RATES[settings.kind].items()
        if name.startswith(key)
    }
    if stage != "unary" and isinstance(context.crf_loss, MinorantOptions):
        scalars = [name for name in (*PENALTIES, *PYRAMID) if name in parameters]
        rates |= {name: _MINORANT_SCALARS * rates.get(name, 1.0) for name in scalars}
    optimiser = OPTIMISERS[settings.kind](parameters, settings, rates, backend)
    _check_momentum(checkpoint, parameters)
    optimiser.restore_momentum(checkpoint.momentum)
    steps_of = _step_function(context, stage)
    # The rates of the other stages were found without it, and Muon has a metric of its own.
    whitens = stage == "unary" and settings.kind == "sgd"
    metric = gradient_metric(_moments(checkpoint.model, context)) if whitens else None
    validates = bool(context.validation)

    def validate_now() -> None:
        begun = time.perf_counter()
        method = "argmax" if stage == "unary" else "crf"
        figures = validate(model, context.backend, context.cache, context.validation, method, ranks)
        better = figures[context.criterion] < position.best
        if better:
            position.best = figures[context.criterion]
            context.folder.save_best(on_host(model, backend))
        seconds = ranks.most(time.perf_counter() - begun)
        position.seconds += seconds
        log_validation(context, stage, position.step, figures, seconds)
        context.reporter.validation(stage, position.step, figures, better)

    if position.step == 0 and validates and stage != "unary":
        validate_now()
    pairs = PairLoader(
        context.dataset,
        context.training,
        context.seed * 16 + list(_TRAINED).index(stage),
        context.augment,
        position.step * share.count,
        cache=context.cache,
        place=share.place,
    )
    with pairs as loader:
        while budget.progress(position) < 1.0:
            begun = time.perf_counter()
            lr = learning_rate(settings, budget.progress(position))
            score = position.step % _SCORE_EVERY == 0
            batch = [pair for _, pair in islice(loader, share.count)]
            mean = mean_step(backend, ranks, steps_of(model, batch, score), context.batch)
            entry = _check_and_describe(backend, stage, position.step, mean, lr)
            if metric is not None:
                whitened = whitened_gradient(
                    backend.to_host(mean.gradients[_FIRST_KERNELS]), metric
                )
                mean.gradients[_FIRST_KERNELS] = backend.to_device(whitened)
            clip_gradients(mean.gradients, settings.clip_norm, backend)
            optimiser.step(mean.gradients, lr)
            model = _with_scalars(model, parameters)
            position.step += 1
            # One clock for all, or some ranks would end the stage before the others.
            position.seconds += ranks.most(time.perf_counter() - begun)
            entry |= {"p1": model.config.p1, "p2": model.config.p2}
            entry |= dict(zip(PYRAMID, model.config.pyramid, strict=False))
            entry |= {"seconds": round(time.perf_counter() - begun, 4)}
            context.folder.log.append(entry)
            progress = budget.progress(position)
            context.reporter.step(stage, position.step, budget.steps, progress, entry)

            over = progress >= 1.0
            if validates and (over or position.step % context.validate_every == 0):
                validate_now()
            stop = context.stop_requested()
            if stop or over or position.step % context.checkpoint_every == 0:
                check_same_model(ranks, backend, parameters)
                checkpoint.model = on_host(model, backend)
                checkpoint.momentum = {
                    name: backend.to_host(x) for name, x in optimiser.momentum.items()
                }
                context.folder.save(checkpoint)
            if stop:
                raise KeyboardInterrupt
    if not validates:
        context.folder.save_best(on_host(model, backend))
    return ranks.first(context.folder.load_best)


def _check_momentum(checkpoint: Checkpoint, parameters: Mapping[str, np.ndarray]) -> None:
    """Refuse momentum of other parameters than those of the stage; there is none before a step."""
    momentum = checkpoint.momentum
    expected = parameters if checkpoint.position.step > 0 else {}
    odd = sorted(expected.keys() ^ momentum.keys())
    for name in sorted(expected.keys() & momentum.keys()):
        parameter, velocity = expected[name], momentum[name]
        if (parameter.shape, parameter.dtype) != (velocity.shape, velocity.dtype):
            odd.append(name)
    if odd:
        raise ModelError(
            f"The checkpoint's momentum of '{odd[0]}' does not fit its stage",
            START_ANEW,
        )


def _step_function(
    context: TrainingContext, stage: str
) -> Callable[[StereoModel, Sequence[StereoPair], bool], list[Step]]:
    """What computes the steps of a batch, each pair by itself."""
    backend = context.backend
    checked: set[tuple[int, int, int]] = set()
    loss, through_minorant = context.crf_loss, 0
    if stage != "unary" and isinstance(loss, MinorantOptions):
        through_minorant = loss.iterations

    def check_memory(model: StereoModel, pair: StereoPair, label_range: LabelRange) -> None:
        # Only before the first step of this size: afterwards its memory is in use.
        height, width, _ = pair.left.shape
        if (size := (height, width, label_range.count)) not in checked:
            pairs = backend.calls_at_once(context.batch)
            require_training_memory(model, *size, backend, pairs, through_minorant)
            checked.add(size)

    def steps(model: StereoModel, pairs: Sequence[StereoPair], score: bool) -> list[Step]:
        labelled = [(pair, context.label_range(model, pair)) for pair in pairs]
        for pair, label_range in labelled:
            check_memory(model, pair, label_range)

        def step(item: tuple[StereoPair, LabelRange]) -> Step:
            pair, label_range = item
            if stage == "unary":
                return unary_step(model, backend, pair, label_range, context.soft_target)
            full = stage == "full"
            if isinstance(loss, MinorantOptions):
                return minorant_step(model, backend, pair, label_range, loss, full)
            return structured_step(model, backend, pair, label_range, loss, score, full)

        return backend.side_by_side(step, labelled)

    return steps


def _check_and_describe(
    backend: Backend, stage: str, step: int, mean: Step, lr: float
) -> dict[str, Any]:
    """The log entry of a step; raises if training has diverged."""
    norms = {
        f"gradient_norm_{network}": gradient_norm(_of_network(mean.gradients, network), backend)
        for network in ("unary", "pairwise")
        if _of_network(mean.gradients, network)
    }
    if not math.isfinite(mean.loss) or not all(map(math.isfinite, norms.values())):
        raise TrainingDivergedError(
            f"Stage {stage} diverged at step {step}: the loss or a gradient is not a number",
            "The last good checkpoint is kept; start again with a smaller `lr`",
        )
    name = mean.loss_name
    entry = {"kind": "step", "stage": stage, "step": step, "loss": name, name: mean.loss}
    return entry | mean.figures | {"lr": lr} | norms


def _of_network(gradients: Gradients, network: str) -> Gradients:
    return {name: g for name, g in gradients.items() if name.startswith(f"{network}/")}


def _with_scalars(model: StereoModel, parameters: dict[str, np.ndarray]) -> StereoModel:
    """Put penalties and weights of levels into the model: 0 <= P1 <= P2, the weights above 0."""
    if "p1" not in parameters:
        return model
    p1, p2 = parameters["p1"], parameters["p2"]
    np.maximum(p1, 0.0, out=p1)
    np.maximum(p2, p1, out=p2)
    trained = [name for name in PYRAMID if name in parameters]
    for name in trained:  # a level that does not count could never come back
        np.maximum(parameters[name], _SMALLEST_LEVEL_WEIGHT, out=parameters[name])
    scalars = {name: float(parameters[name][0]) for name in (*PENALTIES, *trained)}
    return with_config(model, **scalars)


def log_validation(
    context: TrainingContext, stage: str, step: int, figures: dict[str, float], seconds: float
) -> None:
    """Put the figures of the validation pairs into the log."""
    context.folder.log.append(
        {
            "kind": "validation",
            "stage": stage,
            "step": step,
            **figures,
            "seconds": round(seconds, 3),
        }
    )
