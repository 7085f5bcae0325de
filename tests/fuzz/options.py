"""The command line under attack: odd numbers, files and combinations for every option there is.

The options are those that the commands declare; a new one is attacked without a word here.  Only
the long work is left out: training, timing and generating end before it begins, and the CRF
iterates twice at most.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import click

from hybridstereo import crf
from hybridstereo.cli import EXIT_FAILURE, EXIT_INCOMPLETE, EXIT_USAGE, cli, main
from hybridstereo.cli.options import CommaSeparated
from hybridstereo.errors import InputError

from . import corpus
from .decisions import Decisions

_NUMBERS = (
    "1", "2", "0", "-1", "3.5", "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "1000000000",
    "9223372036854775808", "99999999999999999999999999", "0x10", "1_0", " 4 ", "", "١", "65536",
    "1000", "0.001", "4096", "1e3", "true", "-0.0",
)  # fmt: skip
_FILES = (
    "left.png", "right.png", "truth.pfm", "map.png", "costs.npy", "costs.h5", "pairs.csv",
    "cameras.yml", "model.h5", "params.npz", "model.cfg", "census", "general", "missing.png", ".",
    "", "-",
    "a\udcff.png", "x" * 300, "/dev/zero", "broken.png", "LABEL=model.h5", "csv=pairs.csv",
)  # fmt: skip
_ARGUMENTS = {
    "infer": (
        *3 * (("left.png", "right.png"),),
        ("left.png", "--volume", "costs.npy"),
        ("left.png", "--volume", "costs.h5"),
        ("--pairs", "pairs.csv", "--out-dir", "out-many"),
        ("left.png", "right.png", "--out-dir", "out-many"),
        ("left.png", "right.png", "--focal", "9", "--baseline", "1"),
        ("left.png",),
        ("left.png", "left.png", "left.png"),
        (),
    ),
    "rectify": (
        ("left.png", "right.png", "-o", "out-pair"),
        ("left.png", "right.png", "-o", "out-pair", "--calib", "cameras.yml"),
        ("left.png", "right.png", "--calib", "cameras.yml"),
        (),
    ),
    "eval": (("csv",), ("truth.pfm", "map.png"), (), ("kitti",), ("truth.pfm", "left.png")),
    "train": (("csv",), (), ("synthetic",), ("csv:nan",), ("csv:1,synthetic:inf",)),
    "convert": (("params.npz",), ("model.h5",), ()),
    "synth": (("scenes",), ("left.png",), ()),
}
_OUTPUTS = (
    "output", "out_dir", "report", "color", "plot", "save_volume", "save_volume_crf", "depth",
    "ply",
)  # fmt: skip
_CODES = (0, EXIT_FAILURE, EXIT_USAGE, EXIT_INCOMPLETE)


class _StoppedError(InputError):
    """The work would begin here."""


def _stop(*_arguments: Any, **_options: Any) -> None:
    raise _StoppedError("The work is left out")


def _short(backend: Any, costs: Any, edges: Any, penalties: Any, iterations: int) -> Any:
    return crf.solve(backend, costs, edges, penalties, min(iterations, 2))


@cache
def _folder() -> Path:
    """The working directory of the commands, with a file of every kind."""
    from .targets import scratch

    folder = scratch() / "cli"
    folder.mkdir()
    files = {
        "left.png": corpus.images()[0],
        "right.png": corpus.images()[0],
        "broken.png": corpus.images()[0][:40],
        "truth.pfm": corpus.maps(".pfm")[0],
        "map.png": corpus.maps(".png")[0],
        "costs.npy": corpus.volumes(".npy")[0],
        "costs.h5": corpus.volumes(".h5")[0],
        "pairs.csv": corpus.lists()[0],
        "model.h5": corpus.models()[0],
        "params.npz": corpus.published_parameters()[0],
        "cameras.yml": corpus.opencv_cameras()[0],
        "model.cfg": corpus.published_configs()[0],
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def _value(kind: click.ParamType, decisions: Decisions) -> str:
    if isinstance(kind, CommaSeparated):
        parts = [_value(kind.item, decisions) for _ in range(1 + decisions.below(3))]
        return ",".join(parts)
    if isinstance(kind, click.Choice):
        return "nonsense" if decisions.rarely() else str(decisions.chosen(tuple(kind.choices)))
    if isinstance(kind, click.IntRange | click.FloatRange):
        likely = ("1", "2", "3", "0.5", str(kind.min), str(kind.max))
        return decisions.chosen(decisions.chosen((likely, _NUMBERS)))
    if kind.name == "device":
        return decisions.chosen(("cpu", "auto", "gpu", "cuda:x"))
    if kind.name == "HxW":
        return "x".join(decisions.chosen(_NUMBERS) for _ in range(1 + decisions.below(3)))
    return decisions.chosen(_FILES)


def _given(option: click.Option, decisions: Decisions) -> list[str]:
    """An option as a user could give it."""
    names = (*option.opts, *option.secondary_opts)
    name = decisions.chosen(names)
    if option.is_flag:
        return [name]
    kinds = option.type.types if isinstance(option.type, click.Tuple) else [option.type]
    values = [_value(kind, decisions) for kind in kinds]
    # Written files have names of their own, or soon no input would be left.
    if option.name in _OUTPUTS and not decisions.rarely():
        values = [
            decisions.chosen(
                ("out.pfm", "out.png", "out.npy", "out.h5", "out.ply", "{name}.png", "out")
            )
        ]
    return [name, *values]


def arguments(decisions: Decisions) -> list[str]:
    """A command line."""
    name = decisions.chosen(sorted(cli.commands))
    command = cli.commands[name]
    given = [name, *decisions.chosen(_ARGUMENTS.get(name, ((),)))]
    if decisions.rarely():
        given = [name, *(decisions.chosen(_FILES) for _ in range(decisions.below(4)))]
    if name in ("eval", "train") and "csv" in given:
        given += ["--root", "pairs.csv"]
    options = [x for x in command.params if isinstance(x, click.Option)]
    # Few at a time: of many, one would be refused before the others are looked at.
    for _ in range(1 + decisions.below(4)):
        given += _given(decisions.chosen(options), decisions)
    return given


@contextmanager
def _short_work() -> Iterator[None]:
    before = os.getcwd()
    os.chdir(_folder())
    try:
        with (
            mock.patch("hybridstereo.training.run.train", _stop),
            mock.patch("hybridstereo.bench.run.synthetic_pair", _stop),
            mock.patch("hybridstereo.synthetic.write.generate_scene", _stop),
            mock.patch("hybridstereo.pipeline.solve", _short),
        ):
            yield
    finally:
        os.chdir(before)


def run_command(data: bytes) -> None:
    """Run the command that the bytes decide on; its end must be one that is documented."""
    given = arguments(Decisions(data))
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    err = io.StringIO()
    with (
        _short_work(),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""))),
    ):
        try:
            main(given)
        except SystemExit as done:
            code = done.code or 0
    said = err.getvalue()
    assert code in _CODES, (code, given, said)
    assert "Traceback" not in said, (given, said)
    if code == EXIT_FAILURE:
        last = said.strip().splitlines()[-1]
        assert last.startswith("hstereo: "), (given, said)
        assert last.endswith("."), (given, said)
    if code == EXIT_USAGE:
        assert "Error: " in said or "Usage: " in said, (given, said)
