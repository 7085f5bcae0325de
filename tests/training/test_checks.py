"""Options from a config.json that somebody, or something, has changed."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import asdict

import pytest

from hybridstereo.errors import InputError
from hybridstereo.training.options import TrainOptions, options_from_config

OPTIONS = TrainOptions(
    "csv",
    {"csv": ["a", "b"]},
    crop=(24, 32),
    steps=3,
    lr=1,  # type: ignore[arg-type]  # JSON does not tell 1.0 from 1
    val_scenes=("x",),
)


def stored(**changes) -> dict:
    return json.loads(json.dumps({**asdict(OPTIONS), **changes}))


def test_options_come_back():
    assert options_from_config(stored()) == OPTIONS
    for roots in (None, "a", ["a", "b"], {"csv": "a"}):
        assert options_from_config(stored(roots=roots)).roots == roots


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dataset", 5), ("dataset", None), ("roots", 3), ("roots", {"csv": 3}), ("stage", "unry"),
        ("layers", 0), ("layers", True), ("filters", 2.5), ("filters", None), ("with_xy", 1),
        ("steps", "10"), ("steps", -1), ("minutes", float("nan")), ("minutes", 0),
        ("crop", [24]), ("crop", [24, 0]), ("crop", 24), ("batch", 0), ("optimizer", "adam"),
        ("lr", float("inf")), ("momentum", 1.0), ("schedule", ["cosine"]), ("gamma", -1),
        ("seed", -1), ("seed", 10**40), ("val_fraction", 1.0), ("val_scenes", [1]),
        ("val_scenes", "x"), ("criterion", ""), ("checkpoint_every", 0),
        ("cache_gigabytes", float("inf")),
    ],
)  # fmt: skip
def test_wrong_options_are_named(name, value):
    with pytest.raises(InputError, match=name.replace("roots", "root")):
        options_from_config(stored(**{name: value}))


def test_any_value_anywhere_is_accepted_or_refused_in_a_sentence():
    rng = random.Random(16)
    values = [None, True, 0, -1, 10**40, 1.5, float("nan"), float("inf"), "", "all", [], [1, 2], {}]
    for _ in range(1000):
        changes = {rng.choice(list(asdict(OPTIONS))): rng.choice(values) for _ in range(2)}
        with suppress(InputError):
            options_from_config(stored(**changes))
