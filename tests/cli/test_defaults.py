"""The options of every command have the defaults and the choices of the library behind it.

The CLI cannot take them from there: `hstereo --help` would have to import the whole library.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import click
import pytest

from hybridstereo.cli import cli
from hybridstereo.cli.options import CommaSeparated

# What each command passes its options to; the first that has a parameter of the name counts.
RECEIVERS = {
    "infer": [
        "hybridstereo.options:MatchOptions",
        "hybridstereo.stereo:Stereo",
        "hybridstereo.io.images:read_image",
        "hybridstereo.batch.work:PairWork",
        "hybridstereo.batch.remote:PairJob",
    ],
    "stream": [
        "hybridstereo.sequence:StereoSequence",
        "hybridstereo.streams.run:run_stream",
        "hybridstereo.options:MatchOptions",
        "hybridstereo.stereo:Stereo",
        "hybridstereo.io.images:read_image",
    ],
    "rectify": ["hybridstereo.rectified_files:rectify_files"],
    "check": ["hybridstereo.stereo:Stereo", "hybridstereo.io.images:read_image"],
    "convert": ["hybridstereo.models.convert:convert"],
    "synth": ["hybridstereo.synthetic:SceneOptions", "hybridstereo.synthetic.write:synthesize"],
    "train": ["hybridstereo.training.options:TrainOptions", "hybridstereo.training.run:train"],
    "eval": [
        "hybridstereo.evaluation.compare:EvalOptions",
        "hybridstereo.options:MatchOptions",
    ],
    "bench": [
        "hybridstereo.bench.run:BenchOptions",
        "hybridstereo.bench.accuracy:AccuracyOptions",
    ],
    "warmup": ["hybridstereo.warmup:warm_up"],
    "info": [],
    "cache": [],
    "config": [],
    "completion": [],
}

# Options whose default is not that of a parameter of the same name, and why.
UNTIED = {
    ("infer", "maps"): "named after the left image",
    ("infer", "scale_bar"): "how to draw afterwards",
    ("infer", "quiet"): "what to print",
    ("infer", "verbose"): "what to print",
    ("infer", "confidence"): "a file here, a flag of MatchOptions",
    ("infer", "valid"): "a file here, the flag `validity` of MatchOptions",
    ("infer", "color"): "named after the left image, unless --output is given",
    ("infer", "disparities"): "auto, which is what the library does where no data set speaks",
    ("infer", "color_range"): "the two ends of io.color.colorize",
    ("infer", "calib"): "of read_rig, which needs it",
    ("infer", "calib_right"): "of read_rig, whose default is None, too",
    ("infer", "cameras"): "of read_rig, whose default is None, too",
    ("infer", "unit"): "of read_rig, whose default is None, too",
    ("infer", "focal"): "picks a StereoRig, which needs it",
    ("infer", "baseline"): "picks a StereoRig, which needs it",
    ("infer", "doffs"): "None tells no --doffs from 0, the default of StereoRig",
    ("infer", "depth"): "what to write afterwards",
    ("infer", "ply"): "what to write afterwards",
    ("infer", "max_depth"): "of StereoResult.points, whose default is None, too",
    ("infer", "pairs"): "picks where pairs are looked for",
    ("infer", "out_dir"): "picks run_pairs; the library has no default folder",
    ("infer", "formats"): "None tells no --format from pfm, which takes its place",
    ("infer", "shard"): "picks sharded",
    ("infer", "scale"): "a fraction here, its denominator in Stereo.match",
    ("infer", "volume"): "picks Stereo.optimise",
    ("infer", "volume_scale"): "applied to the volume that was read",
    ("infer", "save_volume"): "what to write afterwards",
    ("infer", "save_volume_crf"): "what to write afterwards",
    ("infer", "as_json"): "how to print",
    ("stream", "outputs"): "sinks",
    ("stream", "show"): "a sink",
    ("stream", "side_by_side"): "picks a layout of open_pair",
    ("stream", "top_bottom"): "picks a layout of open_pair",
    ("stream", "at_once"): "None: what suits the stream; the library matches one at a time",
    ("stream", "frames"): "the limit of run_stream",
    ("stream", "fps"): "the rate of the source and of a video",
    ("stream", "color_range"): "the span of streams.sinks.Colors",
    ("stream", "model"): "the small one: a stream is to be fast",
    ("stream", "disparities"): "auto, which is what the library does where no data set speaks",
    ("stream", "scale"): "a fraction here, its denominator in Stereo.match",
    ("stream", "max_memory"): "of Stereo.match alone",
    ("stream", "as_json"): "how to print",
    ("config", "everything"): "what to print",
    ("config", "as_json"): "how to print",
    ("rectify", "output"): "required",
    ("rectify", "as_json"): "how to print",
    ("check", "as_json"): "how to print",
    ("check", "strict"): "the exit code",
    ("convert", "config"): "the library has no default: callers say None",
    ("convert", "output"): "required",
    ("synth", "photometric"): "a flag that stands for Photometric() or None",
    ("train", "roots"): "parse_roots makes None of no values",
    ("train", "output"): "the library has no default folder",
    ("train", "resume"): "the library is told to resume by options=None",
    ("eval", "roots"): "parse_roots makes None of no values",
    ("eval", "gt"): "picks evaluate_folders",
    ("eval", "mask"): "for evaluate_folders and evaluate_file",
    ("eval", "rules"): "for evaluate_folders and evaluate_file",
    ("eval", "label_range"): "auto stands for disparities='auto'",
    ("eval", "components"): "picks evaluate_components",
    ("eval", "submission"): "picks submit",
    ("eval", "as_json"): "how to print",
    ("eval", "as_csv"): "how to print",
    ("eval", "report"): "a sink",
    ("bench", "size"): "None tells no --size from the default one; its name is in the help",
    ("bench", "root"): "picks speed_accuracy",
    ("bench", "plot"): "what to draw afterwards",
    ("bench", "as_json"): "how to print",
    ("info", "as_json"): "how to print",
    ("cache", "clear"): "picks clear_cache",
    ("infer", "scheduler"): "of DaskWorkers, which says None, too",
    ("infer", "workers"): "of DaskWorkers, which says None, too",
    ("train", "scheduler"): "of DaskWorkers, which says None, too",
    ("train", "workers"): "of DaskWorkers, which says None, too",
    ("eval", "scheduler"): "of DaskWorkers, which says None, too",
    ("eval", "workers"): "of DaskWorkers, which says None, too",
    ("warmup", "timings"): "what to print",
    ("warmup", "quiet"): "what to print",
}

# Where the values come from that an option accepts.
CHOICES = {
    ("infer", "method"): "hybridstereo.model:METHODS",
    ("infer", "precision"): "hybridstereo.options:PRECISIONS",
    ("eval", "precision"): "hybridstereo.options:PRECISIONS",
    ("infer", "unit"): "hybridstereo.rig:UNITS",
    ("stream", "method"): "hybridstereo.model:METHODS",
    ("stream", "range_mode"): "hybridstereo.sequence:RANGE_MODES",
    ("rectify", "unit"): "hybridstereo.rig:UNITS",
    ("train", "softmax"): "hybridstereo.model:SOFTMAXES",
    ("train", "optimizer"): "hybridstereo.training.optim:OPTIMISERS",
    ("train", "criterion"): "hybridstereo.training.validation:CRITERIA",
    ("train", "schedule"): "hybridstereo.training.optim:SCHEDULES",
    ("train", "loss"): "hybridstereo.training.steps:LOSSES",
    ("eval", "baselines"): "hybridstereo.evaluation.compare:BASELINES",
    ("eval", "rules"): "hybridstereo.evaluation.protocol:RULES",
    ("eval", "submission"): "hybridstereo.evaluation.submission:BENCHMARKS",
    ("bench", "size"): "hybridstereo.bench.run:SIZES",
    ("bench", "compare"): "hybridstereo.bench.peers:PEERS",
}
UNTIED_CHOICES = {
    ("infer", "view"): "those of options.VIEWS and 'both', which MatchOptions checks",
    ("infer", "formats"): "io.disparity.MAP_SUFFIXES without the dot and the second name of .tif",
    ("train", "stage"): "the stages and 'all'; checked below",
    ("eval", "label_range"): "the data set's convention, or disparities='auto'",
    ("infer", "scale"): "fractions of the scales in inputs.SCALES",
    ("stream", "scale"): "fractions of the scales in inputs.SCALES",
}


def found(path: str) -> Any:
    module, name = path.split(":")
    return getattr(import_module(module), name)


def options_of(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option)]


def given_nothing(command: click.Command) -> dict[str, Any]:
    """What a command's function receives if the user gives no option at all."""
    return command.make_context(command.name, [], resilient_parsing=True).params


def defaults_of(receivers: list[Any]) -> dict[str, Any]:
    """Defaults by parameter; a dataclass has those of its fields."""
    parameters = [
        parameter
        for receiver in reversed(receivers)
        for parameter in inspect.signature(receiver).parameters.values()
    ]
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def problems(command: click.Command, receivers: list[Any], untied: set[str]) -> list[str]:
    """What is wrong with a command's defaults, a line for each option."""
    here, there = given_nothing(command), defaults_of(receivers)
    lines = []
    for option in options_of(command):
        name = str(option.name)
        if not option.expose_value:  # the command does not get it, so it passes nothing on
            continue
        if name in untied:
            if name in there and here[name] == there[name]:
                lines.append(f"{name} is tied: it needs no exception")
        elif name not in there:
            lines.append(f"{name} has no parameter with a default behind it")
        elif here[name] != there[name] or type(here[name]) is not type(there[name]):
            lines.append(f"{name} is {here[name]!r} here and {there[name]!r} in the library")
    return lines


def exceptions(name: str) -> set[str]:
    return {option for command, option in UNTIED if command == name}


def test_every_command_is_known():
    assert RECEIVERS.keys() == cli.commands.keys()
    for name, option in (*UNTIED, *CHOICES, *UNTIED_CHOICES):
        assert option in {param.name for param in options_of(cli.commands[name])}, (name, option)


@pytest.mark.parametrize("name", RECEIVERS)
def test_defaults_are_those_of_the_library(name):
    receivers = [found(path) for path in RECEIVERS[name]]
    assert problems(cli.commands[name], receivers, exceptions(name)) == []


def help_of(command: str, option: str) -> str:
    return next(x.help for x in options_of(cli.commands[command]) if x.name == option)


def test_names_of_defaults_in_the_help_are_right():
    size = defaults_of([found("hybridstereo.bench.run:BenchOptions")])["size"]
    assert f"[default: {size}]" in help_of("bench", "size")


def test_settings_of_the_sizes_in_the_help_are_right():
    for name, setting in found("hybridstereo.bench.run:SIZES").items():
        shown = f"{name} {setting.width}x{setting.height}, {setting.disparities} disparities"
        assert shown in help_of("bench", "size")


def test_defaults_of_the_training_stages_in_the_help_are_right():
    options = found("hybridstereo.training.options:TrainOptions")("synthetic")
    steps = {stage: options.budget(stage, 1).steps for stage in ("unary", "joint", "full")}
    assert steps["joint"] == steps["full"]
    shown = f"{steps['unary']} for unary, {steps['joint']} for joint and full"
    assert f"[default: {shown}]" in help_of("train", "steps")
    shallow, deep, joint, full = (
        options.optimiser(stage, layers).lr
        for stage, layers in (("unary", 3), ("unary", 5), ("joint", 3), ("full", 3))
    )
    assert joint == full
    shown = f"{shallow} for unary, {deep} with 5 or more layers; {joint} for joint and full"
    muon = replace(options, optimizer="muon")
    unary, deep_unary, joint, full = (
        muon.optimiser(stage, layers).lr
        for stage, layers in (("unary", 3), ("unary", 7), ("joint", 3), ("full", 3))
    )
    assert (deep_unary, full) == (unary, joint)
    shown += f"; with muon {unary} for unary, {joint} for joint and full"
    minorant = [replace(x, loss="minorant").optimiser("full", 7).lr for x in (options, muon)]
    assert minorant[0] == options.optimiser("full", 7).lr
    shown += f", {minorant[1]} with --loss minorant"
    assert f"[default: {shown}]" in help_of("train", "lr")


def choices_of(kind: click.ParamType) -> tuple[str, ...] | None:
    """The words that an option accepts, also in a list of several or beside another value."""
    if isinstance(kind, click.Choice):
        return tuple(kind.choices)
    if isinstance(kind, CommaSeparated):
        return choices_of(kind.item)
    if isinstance(kind, click.Tuple):
        return next(filter(None, map(choices_of, kind.types)), None)
    return None


def all_choices() -> dict[tuple[str, str], tuple[str, ...]]:
    return {
        (name, str(option.name)): choices
        for name, command in cli.commands.items()
        for option in options_of(command)
        if (choices := choices_of(option.type)) is not None
    }


def test_choices_are_those_of_the_library():
    stated = all_choices()
    assert stated.keys() == CHOICES.keys() | UNTIED_CHOICES.keys()
    for key, path in CHOICES.items():
        assert sorted(stated[key]) == sorted(found(path)), key
    assert stated["train", "stage"] == (*found("hybridstereo.models.zoo:STAGES"), "all")


# --- these tests can fail --------------------------------------------------------------------


@dataclass
class Receiver:
    width: int = 3
    scale: float = 1.0


@pytest.mark.parametrize(
    ("options", "untied", "expected"),
    [
        (["--width:3", "--scale:1.0"], set(), []),
        (["--width:4"], set(), ["width is 4 here and 3 in the library"]),
        (["--scale:1"], set(), ["scale is 1 here and 1.0 in the library"]),
        (["--height:4"], set(), ["height has no parameter with a default behind it"]),
        (["--height:4"], {"height"}, []),
        (["--width:3"], {"width"}, ["width is tied: it needs no exception"]),
    ],
)
def test_differences_are_found(options, untied, expected):
    params = []
    for option in options:
        flag, value = option.split(":")
        number = float(value) if "." in value else int(value)
        params.append(click.Option([flag], default=number, type=type(number)))
    assert problems(click.Command("work", params=params), [Receiver], untied) == expected
