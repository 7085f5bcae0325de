"""The grid searches of training: stage ``crf`` and the start of stage ``full``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..datasets import Sample
from ..engines.ranks import Alone, Ranks
from ..model import StereoModel, with_config
from .gridsearch import GridPoint, Judge, LocalJudge, OnPoint, plan_length, search, search_imitation
from .imitation import imitate_contrast
from .runfolder import Checkpoint
from .stages import TrainingContext, log_validation, some_pairs

_IMITATION_PAIRS = 12


class Deadline:
    """Ends a search when its time is over; without a limit, never.

    Parameters
    ----------
    seconds
        How long from now; None: no limit.
    ranks
        Who search together, and end together.
    """

    def __init__(self, seconds: float | None, ranks: Ranks | None = None) -> None:
        self._ranks = ranks or Alone()
        self._begun = time.perf_counter()
        self._seconds = seconds
        self.met = False
        """Whether the search was ended."""

    @property
    def elapsed(self) -> float:
        """Seconds so far, by the slowest clock of all ranks."""
        return self._ranks.most(time.perf_counter() - self._begun)

    def over(self) -> bool:
        """Whether to end the search now."""
        self.met = self.met or (self._seconds is not None and self.elapsed >= self._seconds)
        return self.met


def begin(
    stage: str, model: StereoModel, context: TrainingContext, deadline: Deadline
) -> StereoModel:
    """The model that a stage starts from, given the result of the stage before it."""
    if stage == "unary":
        return with_config(model, method="argmax")
    model = with_config(model, method="crf")
    if stage == "full" and model.config.edge_model != "cnn":
        return _with_imitated_edges(model, context, deadline)
    return model


def _with_imitated_edges(
    model: StereoModel, context: TrainingContext, deadline: Deadline
) -> StereoModel:
    """The model with a Pairwise-CNN; of several imitations the best on the validation pairs."""
    pairs = some_pairs(context, _IMITATION_PAIRS)

    def imitate(contrast: StereoModel) -> StereoModel:
        imitation, explained = imitate_contrast(contrast, context.backend, pairs, context.seed)
        context.reporter.message(
            f"the Pairwise-CNN explains {100 * explained:.0f} % of the contrast weights' variance"
        )
        return imitation

    if not context.validation:
        return imitate(model)
    table: list[dict[str, Any]] = []
    best = search_imitation(
        model,
        _judge(model, context, context.validation),
        context.criterion,
        _table_writer("full", table, context),
        imitate,
        deadline.over,
    )
    _report_end("full", table, context, deadline)
    context.folder.write_json("full_grid.json", table)
    return best


def _judge(model: StereoModel, context: TrainingContext, samples: Sequence[Sample]) -> Judge:
    if context.judge is not None:
        return context.judge(model, samples)
    return LocalJudge(model, context.backend, context.cache, samples, context.ranks)


def _table_writer(
    stage: str, table: list[dict[str, Any]], context: TrainingContext, most: int | None = None
) -> OnPoint:
    """What keeps and reports the points of a grid search, ``most`` of them at most."""

    def on_point(point: GridPoint, figures: dict[str, float]) -> None:
        table.append({**point, **figures})
        context.reporter.message(
            f"{stage} {len(table)}{f'/{most}' if most else ''}: "
            + " ".join(f"{name} {value:.3g}" for name, value in point.items())
            + f" -> {context.criterion} {figures[context.criterion]:.2f} %"
        )
        if context.stop_requested():
            raise KeyboardInterrupt  # a resumed run begins this search again

    return on_point


def _report_end(
    stage: str, table: Sequence[object], context: TrainingContext, deadline: Deadline
) -> None:
    if deadline.met:
        points = f"{len(table)} point{'' if len(table) == 1 else 's'}"
        context.reporter.message(
            f"{stage}: the time of `minutes` is over after {points}; the best so far is taken"
        )


def run_search(context: TrainingContext, checkpoint: Checkpoint, deadline: Deadline) -> StereoModel:
    """Stage ``crf``: grid search on the validation pairs; the table goes to crf_grid.json."""
    table: list[dict[str, Any]] = []
    model = search(
        checkpoint.model,
        _judge(checkpoint.model, context, context.validation or context.training),
        context.criterion,
        _table_writer("crf", table, context, plan_length(checkpoint.model, context.keep_edges)),
        deadline.over,
        context.keep_edges,
    )
    _report_end("crf", table, context, deadline)
    context.folder.write_json("crf_grid.json", table)
    best = min(table, key=lambda row: row[context.criterion])
    checkpoint.position.best = best[context.criterion]
    log_validation(context, "crf", len(table), best, deadline.elapsed)
    context.folder.save_best(model)
    return model
