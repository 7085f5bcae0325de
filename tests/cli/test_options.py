"""Every number that a command takes is finite and has two ends."""

from __future__ import annotations

import click
import pytest
from support.commands import run

from hybridstereo.cli import cli
from hybridstereo.cli.options import CommaSeparated, FiniteRange, WholeRange, number_type
from hybridstereo.limits import MAX_PIXELS, Limits, pixel_limit

NUMBERS = [
    pytest.param(option.type, id=f"{name} {option.opts[0]}")
    for name, command in cli.commands.items()
    for option in command.params
    if isinstance(getattr(option.type, "item", option.type), type(click.INT) | type(click.FLOAT))
]


def test_there_are_numbers():
    assert len(NUMBERS) > 40


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_have_ends(kind):
    number = kind.item if isinstance(kind, CommaSeparated) else kind
    assert isinstance(number, WholeRange | FiniteRange)
    assert number.min is not None
    assert number.max is not None
    assert not number.clamp


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize(
    "value", ["nan", "NaN", "inf", "-inf", "infinity", "1e999", "-1e999", "1e400000", "one", ""]
)
def test_what_is_not_finite_is_refused(kind, value):
    with pytest.raises(click.BadParameter):
        kind.convert(value, None, None)


@pytest.mark.parametrize(
    ("kind", "word"),
    [(Limits(1, 9, whole=True), "a valid whole number"), (Limits(1, 9), "a valid number")],
)
def test_what_is_no_number_is_called_so(kind, word):
    with pytest.raises(click.BadParameter, match=f"'two' is not {word}"):
        number_type(kind).convert("two", None, None)


def test_help_names_numbers_as_all_commands_do(capsys):
    for name in cli.commands:
        assert "RANGE" not in run(capsys, name, "--help")[1]


def test_open_ends():
    kind = number_type(Limits(0, 1, above=True, below=True))
    assert kind.convert("0.5", None, None) == 0.5
    for end in ("0", "1", "-0.0"):
        with pytest.raises(click.BadParameter):
            kind.convert(end, None, None)


READ_NO_IMAGES = {"cache", "completion", "config", "convert", "info", "synth", "warmup"}


@pytest.mark.parametrize("name", sorted(cli.commands.keys() - READ_NO_IMAGES))
def test_who_reads_images_has_a_limit(name):
    assert "max_pixels" in {option.name for option in cli.commands[name].params}


def test_the_limit_ends_with_the_command(capsys):
    run(capsys, "check", "missing.png", "missing.png", "--max-pixels", 7)
    assert pixel_limit() == MAX_PIXELS


# What a command writes to the one place that an option names.
OUTPUTS = [
    ("infer", "--color"), ("infer", "--confidence"), ("infer", "--valid"), ("infer", "--depth"),
    ("infer", "--ply"), ("infer", "--save-volume"), ("infer", "--save-volume-crf"),
    ("infer", "--out-dir"), ("rectify", "--output"), ("train", "--output"), ("eval", "--report"),
    ("bench", "--plot"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_an_output_is_named_once(capsys, command, option):
    code, _, err = run(capsys, command, option, "first", option, "second")
    assert code == 2
    assert f"{option} is given 2 times, but takes one" in err


def test_an_output_of_two_words_is_named_once(capsys):
    once = ["--submission", "kitti", "folder"]
    code, _, err = run(capsys, "eval", *once, *once)
    assert code == 2
    assert "--submission is given 2 times, but takes one" in err


def test_outputs_take_defaults(capsys, monkeypatch):
    monkeypatch.setenv("HSTEREO_INFER_DEPTH", "depth.npy")
    _, _, err = run(capsys, "infer", "left.png", "right.png")
    assert "Depth needs --calib" in err
