"""The numbers that are accepted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridstereo.bench.run import BenchOptions
from hybridstereo.errors import InputError, ModelError, shortened
from hybridstereo.evaluation.compare import EvalOptions
from hybridstereo.labels import LabelRange, labels_for
from hybridstereo.limits import ITERATIONS, STEP, TRAINING, Limits
from hybridstereo.model import ModelConfig
from hybridstereo.options import MatchOptions
from hybridstereo.training.optim import OptimiserOptions
from hybridstereo.training.options import TrainOptions, options_from_config
from hybridstereo.training.steps import HingeOptions

NO_NUMBERS = [math.nan, math.inf, -math.inf, True, None, "1", [1], 1j, 10**400]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_outside(value):
    assert value not in Limits(-1e300, 1e300)
    assert value not in Limits(-(10**9), 10**9, whole=True)


@pytest.mark.parametrize("number", [np.float32(2), np.int64(2), np.uint8(2), 2, 2.0])
def test_numbers_of_python_and_numpy(number):
    assert number in Limits(1, 3)
    assert (number in Limits(1, 3, whole=True)) == isinstance(number, int | np.integer)


def test_ends():
    assert [x in Limits(0, 1) for x in (-1e-9, 0, 1, 1 + 1e-9)] == [False, True, True, False]
    assert [x in Limits(0, 1, above=True, below=True) for x in (0, 0.5, 1)] == [False, True, False]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(1, 5, whole=True), "a whole number from 1 to 5"),
        (Limits(0, 1, above=True), "a number above 0 and up to 1"),
        (Limits(0, 1, below=True), "a number from 0 and below 1"),
        (Limits(0, 0.5, above=True, below=True), "a number above 0 and below 0.5"),
    ],
)
def test_limits_in_words(limits, words):
    assert str(limits) == words
    with pytest.raises(ModelError, match=f"It is 7. Give {words}"):
        limits.check(7, "It is", ModelError)


def test_values_in_messages_stay_on_one_short_line():
    assert shortened("a\nb\x1b[2J") == "a\\nb\\x1b[2J"
    assert shortened("x" * 10**6) == "x" * 60 + "..."
    assert shortened(list(range(10**4)), 10) == "[0, 1, 2, ..."


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_labels_are_finite(value):
    for options in ({"min_disparity": value}, {"step": value}):
        with pytest.raises(InputError):
            labels_for(LabelRange(0.0, 8), **options)
    with pytest.raises(InputError):
        labels_for(LabelRange(0.0, 8), search_range=value)
    with pytest.raises(InputError):
        LabelRange(0.0, 8, value)


def test_labels_of_a_tiny_step_are_refused():
    with pytest.raises(InputError, match="number of labels is 127001"):
        labels_for(LabelRange(0.0, 128), step=STEP.least, width=10**6)


@pytest.mark.parametrize("value", [ITERATIONS.most + 1, math.nan, 2.0, 0])
def test_iterations(value):
    with pytest.raises(InputError, match="iterations"):
        MatchOptions(iterations=value).resolved(ModelConfig())
    with pytest.raises(InputError, match="iterations"):
        BenchOptions(iterations=value)


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 10**12, "1", [], True])
def test_numbers_of_a_training(name, value):
    with pytest.raises(InputError, match=f"`{name}` is"):
        TrainOptions(dataset="synthetic", **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stage", "none"), ("stage", []), ("optimizer", 3), ("schedule", "x" * 1000),
        ("criterion", None), ("with_xy", 1), ("dataset", 5), ("dataset", None), ("init", 5),
        ("roots", 5), ("roots", [5]), ("roots", {"csv": 5}), ("val_scenes", 5),
        ("val_scenes", [5]), ("val_scenes", "abc"), ("crop", 5), ("crop", [5]), ("crop", [5, 0]),
        ("crop", "5x5"), ("crop", [5.5, 5]),
    ],
)  # fmt: skip
def test_options_of_a_training_from_anywhere(name, value):
    with pytest.raises(InputError):
        options_from_config({"dataset": "synthetic", name: value})


def test_unknown_options_of_a_training_are_quoted_in_part():
    with pytest.raises(InputError, match="another version") as caught:
        options_from_config({"dataset": "synthetic", "x\n" * 5000: 1})
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0, -1])
def test_numbers_of_an_evaluation(value):
    with pytest.raises(InputError, match="volume_scale"):
        EvalOptions(volume_scale=value)
    with pytest.raises(InputError, match="limit"):
        EvalOptions(limit=value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, "1"])
def test_numbers_of_a_step(value):
    for name in ("gamma", "tau", "iterations"):
        with pytest.raises(InputError, match=f"`{name}` is"):
            HingeOptions(**{name: value})
    for name in ("lr", "momentum", "weight_decay", "clip_norm"):
        with pytest.raises(InputError, match=f"`{name}` is"):
            OptimiserOptions(**{name: value})


def test_networks_that_no_checkpoint_could_hold():
    TrainOptions(dataset="synthetic", layers=64, filters=512)
    with pytest.raises(InputError, match="64 layers of 4096 filters"):
        TrainOptions(dataset="synthetic", layers=64, filters=4096)
