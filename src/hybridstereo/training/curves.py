"""curves.png: training and validation error over all stages, as in the paper's supplement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..io.images import write_image

_WIDTH, _HEIGHT = 1200, 620
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 80, 60, 70
_TRAINING, _VALIDATION, _LOSS = (120, 150, 220), (200, 60, 50), (150, 150, 150)
_INK, _GRID = (40, 40, 40), (225, 225, 225)
_SMOOTHING = 25
_LOSSES = ("cross_entropy", "hinge")


def plot_curves(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw bad1 of training crops and of the validation pairs, and the loss, over all steps."""
    canvas = np.full((_HEIGHT, _WIDTH, 3), 255, np.uint8)
    stages = list(dict.fromkeys(entry["stage"] for entry in entries))
    offsets, total = {}, 0
    for stage in stages:
        offsets[stage] = total
        total += max(e["step"] + (e["kind"] == "step") for e in entries if e["stage"] == stage)
    total = max(total, 1)

    def column(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / total

    def at(entry: dict[str, Any]) -> float:
        return column(offsets[entry["stage"]] + entry["step"])

    validation = [(at(e), e["bad1"]) for e in entries if e["kind"] == "validation"]
    # The error jumps where a stage brings the CRF, so nothing is averaged across a border.
    training = [
        _smooth([(at(e), e["bad1"]) for e in entries if _is_scored(e) and e["stage"] == stage])
        for stage in stages
    ]
    top = max([10.0] + [value for _, value in sum(training, validation)])
    top = 5.0 * np.ceil(top / 5.0)

    def row(value: float, highest: float = top) -> float:
        share = min(value, highest) / highest
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share

    for tick in np.linspace(0, top, 6):
        y = int(row(tick))
        cv2.line(canvas, (_LEFT, y), (_WIDTH - _RIGHT, y), _GRID, 1, cv2.LINE_AA)
        _text(canvas, f"{tick:.0f} %", (_LEFT - 60, y + 5))
    for stage in stages:
        border = int(column(offsets[stage]))
        bottom = _HEIGHT - _BOTTOM
        cv2.line(canvas, (border, _TOP), (border, bottom), (170, 170, 170), 1, cv2.LINE_AA)
        _text(canvas, stage, (border + 6, _TOP + 18))
        losses = [
            (at(e), next(e[name] for name in _LOSSES if name in e))
            for e in entries
            if e["kind"] == "step" and e["stage"] == stage
        ]
        if losses:
            # Losses of different stages are not comparable: each is scaled to its own maximum.
            highest = max(max(value for _, value in _smooth(losses)), 1e-12)
            _line(canvas, [(x, row(0.5 * top * v / highest)) for x, v in _smooth(losses)], _LOSS)
    for curve in training:
        _line(canvas, [(x, row(value)) for x, value in curve], _TRAINING)
    _line(canvas, [(x, row(value)) for x, value in validation], _VALIDATION, 2)
    for x, value in validation:
        centre = (round(x), round(row(value)))
        cv2.circle(canvas, centre, 4, _VALIDATION, -1, cv2.LINE_AA)
    if validation:
        x, value = validation[-1]
        _text(canvas, f"{value:.2f} %", (round(x) + 8, round(row(value)) - 6), _VALIDATION)
    cv2.rectangle(canvas, (_LEFT, _TOP), (_WIDTH - _RIGHT, _HEIGHT - _BOTTOM), _INK, 1, cv2.LINE_AA)
    _text(canvas, "pixels off by more than 1 px", (_LEFT, _TOP - 30))
    _legend(canvas)
    _text(canvas, f"{total} steps", (_WIDTH - _RIGHT - 90, _HEIGHT - _BOTTOM + 24))
    write_image(path, canvas)


def _is_scored(entry: dict[str, Any]) -> bool:
    """Whether the training error was measured at this step."""
    return entry["kind"] == "step" and "bad1" in entry


def _legend(canvas: np.ndarray) -> None:
    x = _LEFT
    for name, colour in (
        ("validation", _VALIDATION),
        ("training crops", _TRAINING),
        ("loss (scaled per stage)", _LOSS),
    ):
        y = _HEIGHT - 28
        cv2.line(canvas, (x, y), (x + 30, y), colour, 3, cv2.LINE_AA)
        _text(canvas, name, (x + 38, y + 5))
        x += 250


def _smooth(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Moving average over at most _SMOOTHING points, single crops being noisy."""
    if not points:
        return []
    values = np.array([value for _, value in points])
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return [
        (x, float(sums[i + 1] - sums[max(0, i + 1 - _SMOOTHING)]) / min(i + 1, _SMOOTHING))
        for i, (x, _) in enumerate(points)
    ]


def _line(
    canvas: np.ndarray,
    points: list[tuple[float, float]],
    colour: tuple[int, int, int],
    thickness: int = 1,
) -> None:
    if len(points) > 1:
        # Four fractional bits give smooth lines where steps are denser than pixels.
        corners = [(np.array(points) * 16).round().astype(np.int32)]
        cv2.polylines(canvas, corners, False, colour, thickness, cv2.LINE_AA, 4)


def _text(
    canvas: np.ndarray,
    text: str,
    at: tuple[int, int],
    colour: tuple[int, int, int] = _INK,
) -> None:
    cv2.putText(canvas, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 1, cv2.LINE_AA)
