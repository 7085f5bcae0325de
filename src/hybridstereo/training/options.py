"""What determines a training run, and the defaults of its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..datasets.augment import AugmentOptions
from ..engines.ranks import Ranks
from ..errors import InputError, shortened
from ..models.zoo import STAGES
from .checks import check_options
from .optim import OptimiserOptions
from .searches import Deadline
from .stages import Budget
from .steps import HingeOptions, MinorantOptions

# Defaults found on Middlebury 2005/2006 validation scenes; the loss is a mean over pixels.
_LEARNING_RATES = {
    "sgd": {"unary": 0.1, "joint": 0.02, "full": 0.02},
    "muon": {"unary": 0.05, "joint": 0.005, "full": 0.005},
}
# With --loss minorant: the gradients of few crops disagree, and at the rates above, which the hinge
# takes, the validation error of `general` rose from 3.90 to 4.55 % in 100 steps.
_MINORANT_RATES = {"sgd": 0.02, "muon": 0.001}
# With SGD: a deep network starts with steeper gradients, and with 7 layers the cross-entropy after
# 250 steps is 2.0 at this rate and 3.2 at that of 3 layers.
_DEEP, _DEEP_UNARY_RATE = 5, 0.015
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
    those of ``init``, or none.  ``softmax`` is that of the model's costs, left or mutual; None:
    that of ``init``, or left.  ``batch`` are the pairs of a step, of all ranks together; None: one
    for each.
    """

    dataset: str
    roots: Mapping[str, str | Sequence[str]] | str | Sequence[str] | None = None
    stage: str = "all"
    layers: int | None = None
    filters: int = 100
    with_xy: bool = False
    pyramid: int | None = None
    softmax: str | None = None
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
    loss: str = "hinge"
    sharpness: float = 100.0
    tolerance: float = 1.0
    exponent: float = 1.0
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

    @property
    def augmentation(self) -> AugmentOptions:
        """How pairs are varied."""
        changes = {**_PHOTOMETRIC, **_GEOMETRIC} if self.augment else {}
        if self.with_xy:
            # Coordinates tell where the ground is; upside down they would tell nothing.
            changes = changes | {"vertical_flip": 0.0}
        return AugmentOptions(crop=self.crop, **changes)

    @property
    def crf_loss(self) -> HingeOptions | MinorantOptions:
        """What stages ``joint`` and ``full`` minimise."""
        if self.loss == "minorant":
            return MinorantOptions(self.sharpness, self.tolerance, self.exponent, self.iterations)
        return HingeOptions(self.gamma, self.tau, self.iterations, self.infer_unknown)

    def optimiser(self, stage: str, layers: int) -> OptimiserOptions:
        """Optimiser settings of a stage for a Unary-CNN with so many layers."""
        lr = self.lr
        if lr is None:
            lr = _LEARNING_RATES[self.optimizer][stage]
            if self.loss == "minorant" and stage != "unary":
                lr = _MINORANT_RATES[self.optimizer]
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
