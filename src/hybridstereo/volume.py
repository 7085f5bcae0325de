"""The CRF on a given cost volume, whichever matcher it comes from (paper, sec. 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .crf import solve
from .kernels import Backend
from .labels import LabelRange
from .model import Prediction, StageClock, StereoModel, edge_weights


@dataclass(frozen=True, eq=False)
class VolumePrediction:
    """A prediction, and the costs that it was read out of.

    ``minorant`` (H, W, K) is the volume after the CRF, on the device of the backend; None for the
    ``argmax`` method.
    """

    prediction: Prediction
    minorant: Any


def predict_from_volume(
    model: StereoModel,
    backend: Backend,
    left: np.ndarray,
    costs: Any,
    labels: LabelRange,
    *,
    method: str | None = None,
    iterations: int | None = None,
    refine: bool | None = None,
    clock: StageClock | None = None,
) -> VolumePrediction:
    """Disparity map of an image, given its matching costs.

    Parameters
    ----------
    model
        Gives edge weights (by contrast or its Pairwise-CNN), penalties and defaults; its Unary-CNN
        is not used.
    backend
        Where to compute.
    left
        RGB image (H, W, 3), float32 in [0, 1].
    costs
        (H, W, K) float32, all finite, low is good: a NumPy array, or an array of the backend.
    labels
        What the K labels stand for.
    method, iterations, refine
        As for `model.predict`.
    clock
        Takes the time of the stages.
    """
    config = model.config
    method = method or config.method
    refine = method == "crf" if refine is None else refine
    clock = clock or StageClock(wait=backend.synchronize)
    if isinstance(costs, np.ndarray):
        costs = backend.to_device(costs)
    energy = bounds = minorant = None
    if method == "crf":
        edges = edge_weights(model, backend, left, clock)
        with clock.stage("crf"):
            solution = solve(
                backend, costs, edges, config.penalties, iterations or config.iterations
            )
        energy, bounds, chosen = solution.energy, solution.bounds, solution.labels
        minorant = solution.minorant
    else:
        with clock.stage("argmax"):
            chosen = backend.argmin(costs)
    disparity = labels.to_disparity(backend.to_host(chosen))
    if refine:
        with clock.stage("refinement"):
            source = costs if minorant is None else minorant
            disparity += backend.to_host(backend.refine(source, chosen, labels.step))
    prediction = Prediction(disparity, labels, energy, bounds, clock.seconds)
    return VolumePrediction(prediction, minorant)
