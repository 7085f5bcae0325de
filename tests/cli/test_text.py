"""Python arguments in messages of the library become the options of the running command."""

from __future__ import annotations

import click
import pytest
from support.commands import run

from hybridstereo.cli import cli
from hybridstereo.cli.text import with_flags
from hybridstereo.errors import InputError

COMMAND = click.Command(
    "work",
    params=[
        click.Option(["-o", "--output"]),
        click.Option(["--min-disparity"]),
        click.Option(["--disparities"]),
        click.Option(["--device"]),
        click.Option(["--model", "models"], multiple=True),
        click.Option(["--pred", "--maps", "maps"]),
        click.Option(["--json", "as_json"], is_flag=True),
        click.Option(["--augment/--no-augment"]),
        click.Argument(["right"]),
    ],
)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Use at most `disparities=96` or so", "Use at most --disparities 96 or so"),
        ("Give `min_disparity` a value", "Give --min-disparity a value"),
        ("Choose another `output`", "Choose another --output"),
        ("`device='cpu'` needs no GPU", "--device cpu needs no GPU"),
        ('`device="cuda:1"` is not there', "--device cuda:1 is not there"),
        ("`min_disparity=-3.5`", "--min-disparity -3.5"),
        # By the name of the parameter where no flag is spelled like that.
        ("Give one of `models`", "Give one of --model"),
        ("Name the folder with `maps`", "Name the folder with --maps"),
        ("Name the folder with `pred`", "Name the folder with --pred"),
        ("`json` is one object", "--json is one object"),
        ("Use `as_json=True`", "Use --json"),
        ("Use `augment=False`", "Use --no-augment"),
        ("Use `augment=True`", "Use --augment"),
        # What the command does not have stays a word.
        (
            "Use a smaller `crop` or fewer `disparities`",
            "Use a smaller crop or fewer --disparities",
        ),
        ("Use `crop=64`", "Use crop=64"),
        ("`right` is missing", "right is missing"),
        # Everything else is left alone.
        ("disparities = 3, no `backticks here`, a ` alone", None),
    ],
)
def test_arguments_become_options(said, shown):
    assert with_flags(said, COMMAND) == (said if shown is None else shown)


def raise_hint(hint):
    def fail(*args, **kwargs):
        raise InputError("It does not work", hint)

    return fail


@pytest.mark.parametrize(
    ("command", "hint"), [("synth", "Use fewer --objects, not iterations"),
                          ("bench", "Use fewer objects, not --iterations")]
)  # fmt: skip
def test_failures_speak_of_the_running_command(capsys, monkeypatch, command, hint):
    monkeypatch.setattr(
        cli.commands[command], "callback", raise_hint("Use fewer `objects`, not `iterations`")
    )
    arguments = ["folder"] if command == "synth" else []
    code, out, err = run(capsys, command, *arguments)
    assert (code, out) == (1, "")
    assert err == f"hstereo: It does not work. {hint}.\n"


def test_running_out_of_memory_is_told_the_same_way(capsys, monkeypatch):
    def fail(**kwargs):
        raise MemoryError

    monkeypatch.setattr(cli.commands["bench"], "callback", fail)
    code, _, err = run(capsys, "bench")
    assert (code, err) == (
        1, "hstereo: Not enough memory. Use fewer --disparities or smaller images.\n"
    )  # fmt: skip
